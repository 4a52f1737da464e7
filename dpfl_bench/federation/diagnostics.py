"""Facts about one round's updates. They leak: for simulation only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from dpfl_bench.federation.doors.gradient import GradientDoor, RecordCounts
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.problems.problem import lengths

NAN = float("nan")


@dataclass(frozen=True)
class Diagnostics:
    """Of one round. At record level `clipped_fraction` and `blanked` count records' gradients."""

    update_norm: float  # mean over the cohort, before bounding
    clipped_fraction: float  # of the updates
    server_step: float  # server_lr times the algorithm's own factor
    clip: float  # C
    blanked: int | None = None  # updates that were not finite and count as zero; None: open doors
    all_blanked: bool = False  # every update was blanked
    passage: SendPassage | None = None  # that has ended: what is asked of an evaluated round alone
    at_records: bool = False
    target_step: float = NAN  # see server_step.step_estimates
    step_estimate: float = NAN

    def norm_of(self, client: int) -> float:
        """Of one client's update before bounding; NaN where it is not in the cohort."""
        if self.passage is None or not self.passage.norms:
            return NAN
        places = np.flatnonzero(self.passage.round.cohort == client)
        return torch.cat(self.passage.norms)[int(places[0])].item() if len(places) else NAN

    def signal_and_noise(self) -> tuple[float, float]:
        """Norms of the mean bounded update and of the noise in the released mean. NaN where there
        is no such thing: at an open door no noise; at record level neither, for the updates that
        are sent have the noise in them.
        """
        passage = self.passage
        if passage is None or self.at_records:
            return NAN, NAN
        signal, noise = passage.signal_and_noise()
        return lengths(signal).item(), lengths(noise).item() if passage.door.private else NAN


def diagnose(
    passage: SendPassage, gradient_door: GradientDoor | None, records: RecordCounts, server_step: float
) -> Diagnostics:
    """The facts of a round that has ended.

    passage: of the cohort's updates. gradient_door: None at client level. records: what came to the
    gradient door. server_step: goes into the result as it is.
    """
    at_records, bounded = gradient_door is not None, passage.door.bound is not None
    blanked, units = (records.blanked, records.all) if at_records else (passage.blanked, passage.clients)
    counted = blanked if at_records or bounded else None, 0 < units == blanked, passage, at_records
    if not passage.norms:
        return Diagnostics(NAN, NAN, server_step, passage.clip, *counted)
    norms = torch.cat(passage.norms)
    norm = norms.mean().item()
    if gradient_door is not None:
        share = float(records.clipped) / max(1, units)
        return Diagnostics(norm, share, server_step, gradient_door.clip or NAN, *counted)
    share = (norms > passage.clip).double().mean().item() if bounded else 0.0
    return Diagnostics(norm, share, server_step, passage.clip if bounded else NAN, *counted)

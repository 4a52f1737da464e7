"""Facts about one round's updates. They leak: for simulation only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.federation.doors.gradient import GradientDoor, RecordCounts
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.machine import device
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
    overflowed: bool = False  # a NaN or an infinity is in the next model
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


class RoundNumbers(NamedTuple):
    """What the program has to know of a round that has ended."""

    largest: float  # entry of the next model
    norm: float  # mean of the updates' norms
    clipped: float  # share of the updates; at record level how many gradients
    blanked: float  # updates, or gradients
    below: float  # `Sums.below`
    step: float  # the algorithm's own factor
    target: float  # see server_step.step_estimates
    estimate: float

    @classmethod
    def read(cls, where: torch.device, **values: Tensor | float) -> RoundNumbers:
        """All of them, in one transfer from the device."""
        return cls(**dict(zip(values, device.numbers(where, *values.values()), strict=True)))


def clipped_of(passage: SendPassage, records: RecordCounts | None) -> tuple[Tensor | float, Tensor | float]:
    """The mean of the updates' norms, and how much was clipped. records: at record level."""
    if not passage.norms:
        return NAN, NAN if records is None else records.clipped
    norms = torch.cat(passage.norms)
    if records is not None:
        return norms.mean(), records.clipped
    if passage.door.bound is None:
        return norms.mean(), 0.0
    return norms.mean(), (norms > passage.clip).to(device.wide(norms.device)).mean()


def diagnose(
    passage: SendPassage,
    gradient_door: GradientDoor | None,
    records: RecordCounts,
    numbers: RoundNumbers,
    server_lr: float,
) -> Diagnostics:
    """The facts of a round that has ended.

    passage: of the cohort's updates. gradient_door: None at client level. records: what came to the
    gradient door. numbers: the round's, as they were read.
    """
    at_records, bounded = gradient_door is not None, passage.door.bound is not None
    units = records.all if at_records else passage.clients
    share, clip = numbers.clipped, passage.clip
    if gradient_door is not None and passage.norms:
        share, clip = numbers.clipped / max(1, units), gradient_door.clip or NAN
    elif passage.norms and not bounded:
        clip = NAN
    return Diagnostics(
        update_norm=numbers.norm,
        clipped_fraction=share if passage.norms else NAN,
        server_step=server_lr * numbers.step,
        clip=clip,
        blanked=int(numbers.blanked) if at_records or bounded else None,
        all_blanked=0 < units == numbers.blanked,
        overflowed=not math.isfinite(numbers.largest),
        passage=passage,
        at_records=at_records,
        target_step=numbers.target,
        step_estimate=numbers.estimate,
    )

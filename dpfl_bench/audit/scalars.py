"""The noise of the further sums of a round (squared norms, bits): one number a round each, so many
seeds are asked. The server's end of the send door draws them; no client has to work for that.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.residuals import Spread
from dpfl_bench.privacy.ledger import Ledger

DRAWS = 12_000  # a noise 5 % too small is eight standard errors away


def spreads(audited: Audited) -> list[Spread]:
    """The standardised noise of each further sum that the record names."""
    claim = audited.claim
    if not claim.further:
        return []
    values: dict[str, list[float]] = {name: [] for name in claim.further}
    round = audited.schedule.round(0)
    player, clip = audited.player, audited.player.clip
    # under local trust the server adds up as many clients' noise as there are in the cohort
    count, x = len(round.cohort), torch.zeros(1, dtype=audited.x.dtype)
    for number in range(DRAWS):
        door = replace(player.send_door, seed=audited.seed + number)
        passage = replace(player, send_door=door).passage(round, clip, x)
        passage.clients = count
        sent = passage.sent(Ledger(audited.schedule.clients))
        if "norms" in values:
            values["norms"].append(float(sent.mean_square_norm) * round.divisor)
        if "bits" in values:
            assert door.quantile is not None
            share = door.quantile.target - math.log(passage.next_clip() / clip) / door.quantile.lr
            values["bits"].append((share - 0.5) * round.divisor)
    each = count**0.5 if claim.trust == "local" else 1.0
    std = {
        name: multiplier * claim.sensitivity_of(name, clip) * (each if name == "bits" else 1.0)
        for name, multiplier in claim.further.items()
    }
    return [Spread.of(name, np.array(drawn) / std[name]) for name, drawn in values.items()]

"""`paper`: `dpscaffold`'s own accountant, to regenerate its tables. It bounds nothing: see
`divergences/dpscaffold.py` for the two steps of it that do not hold.

Unit: one record, replace_one; lots without replacement within clients that are drawn anew in every
round; observer: a third party. The paper draws floor(l M) clients and counts with l and l M:
`privacy.client_share` says l where it is not the share of clients that is drawn. No other
accountant reads it.
"""

from __future__ import annotations

import math

from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.released.composition import Composition


def refusal(composition: Composition) -> str | None:
    """Its formula speaks of fixed lots within sampled clients."""
    c = composition
    if c.rounds and c.mechanism == "fixed" and c.share < 1:
        return None
    return (
        "dpscaffold's own accountant needs privacy.unit=record, lots of fixed size (batch_size),"
        " privacy.neighbours=replace_one, sampled clients and privacy.observer=third_party"
    )


def epsilon(composition: Composition, noise: float, delta: float) -> float:
    """What the paper prints at delta. noise: std / sensitivity of one gradient; it may be infinite,
    and eps does not fall to 0 there.
    """
    from dpfl_bench.privacy.divergences import dpscaffold

    c = composition
    share = c.client_share or c.share
    cohort = c.cohort_size * share / c.share  # l M, which need not be whole
    return dpscaffold.epsilon(noise * math.sqrt(cohort), c.rate, share, c.rounds, delta)


ACCOUNTANT = Accountant("paper", refusal, epsilon, auto="never", guarantee=False)

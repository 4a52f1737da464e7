"""Whether the record agrees with itself. A number that it says twice is one number, and eps is what
its accountant says of what it says was released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dpfl_bench.audit.claim import Claim
from dpfl_bench.audit.evidence import EVEN
from dpfl_bench.audit.finding import Part
from dpfl_bench.privacy import accounting

NAME = "record"
ROUNDED = 1e-9  # by how much two places may differ, of a number that is not eps


def part(claim: Claim) -> Part:
    found = list(contradictions(claim))
    says = "; ".join(found) or "its numbers agree with each other, and its accountant says its eps of them"
    return Part(NAME, "violated" if found else "holds", says, float(len(found)), 0.0 if found else 1.0)


def contradictions(claim: Claim) -> Iterator[str]:
    """A sentence for each."""
    for what, said, follows in _numbers(claim):
        if not math.isclose(said, follows, rel_tol=ROUNDED):
            yield f"{what} {said:.6g} is said, {follows:.6g} follows from the rest"
    stated = accounting.epsilon(claim.views, claim.multiplier, claim.delta, claim.accountant)
    if not math.isclose(stated, claim.eps, rel_tol=EVEN):
        yield f"eps {claim.eps:.6g} is said, {claim.accountant} says {stated:.6g} of the rest"


def _numbers(claim: Claim) -> Iterator[tuple[str, float, float]]:
    """(name, as it is said, as it follows)."""
    main = claim.main
    if claim.mechanism == "privunit":
        yield "pure_eps", main["pure_eps"], 1 / claim.multiplier
    else:
        yield "noise_multiplier", main["noise_multiplier"], claim.multiplier
    if "sensitivity" in main:
        yield "sensitivity", main["sensitivity"], claim.factor * float(main["clip"])
    if "noise_std" in main:
        yield "noise_std", main["noise_std"], claim.multiplier * main["sensitivity"]
    for companion in claim.seen.companions:
        yield companion.name, claim.further[companion.name], companion.noise_multiplier(claim.multiplier)
    yield from _sampling(claim)


def _sampling(claim: Claim) -> Iterator[tuple[str, float, float]]:
    """What was counted, against the draws that the first release tells of."""
    main, seen = claim.main, claim.seen
    worst = "times_of_worst_record" if claim.unit == "record" else "times_of_worst_client"
    every = claim.unit == "client" and (claim.secret or bool(seen.rounds))
    yield "the number of releases", seen.times, main["rounds"] if every else main[worst]
    cohort, clients = main["sampling"]["cohort"], main["sampling"]["clients"]
    if main["sampling"]["scheme"] == "full":
        yield "the cohort", cohort, clients
        if claim.unit == "client":
            yield worst, main[worst], main["rounds"]
    if claim.secret:
        rate = seen.rate if seen.mechanism == "poisson" else seen.sample / seen.population
        taken = cohort / clients if claim.unit == "client" else _of_lots(main["lots"])
        yield "the sampling rate", rate, taken


def _of_lots(lots: Mapping[str, Any]) -> float:
    """The sampling rate of the smallest client's records."""
    if "batch_size" in lots:
        return float(lots["batch_size"]) / float(lots["smallest_client"])
    return float(lots["sample_rate"])

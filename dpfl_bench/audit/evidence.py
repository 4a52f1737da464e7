"""Composition: the eps that the evidence supports. Measured shift and noise take the place of the
declared noise multiplier, in the composition that was accounted.

Gaussian releases without sampling are composed here, by their privacy profile. Where sampling
amplifies, and for pure mechanisms, the accountant composes them. Its number is then no bound from
below by itself: it is the eps that the accountant would have claimed, had it seen the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from dpfl_bench.audit import statistics
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.claim import Claim
from dpfl_bench.audit.finding import SURE, Part, exact, unable
from dpfl_bench.audit.replay import Moved, shift
from dpfl_bench.audit.residuals import Spread
from dpfl_bench.privacy import accounting

EVEN = 1e-3  # by how much accountants may differ from each other


def supported(claim: Claim, multiplier: float, times: int | None = None, rate: float | None = None) -> float:
    """eps at the claim's delta, of joint noise multiplier `multiplier`.

    times: how many releases of the worst unit there were. rate: how often a unit is drawn, at
    least. None: as accounted.
    """
    times = claim.seen.times if times is None else times
    seen = replace(claim.seen, companions=(), times=times, scale=claim.proved_scale)
    if rate is not None and claim.secret:
        seen = replace(seen, rate=rate, sample=round(rate * seen.population))
    if multiplier in (0.0, math.inf):
        return math.inf if multiplier == 0 else 0.0
    if seen.mechanism == "gaussian" and not seen.rounds:
        return statistics.gaussian_eps(math.sqrt(seen.times) / (multiplier * seen.scale), claim.delta)
    return accounting.epsilon(seen, multiplier, claim.delta)


def parts(
    audited: Audited,
    moved: Moved,
    spreads: Sequence[Spread],
    times: int,
    confidence: float,
    rate: Callable[[float], float] | None = None,
) -> list[Part]:
    """moved: the shift that was reached. spreads: the standardised noise of each release that hides
    it. times: how many releases of the worst unit there really were. confidence: of the bound.
    rate: how often a unit was drawn, at least, at a confidence; None: as accounted.
    """
    claim = audited.claim
    if not any(moved.joint.values()):
        return [unable("composition", "no unit moved a release")]
    counted = times if claim.seen.mechanism == "gaussian" and not claim.seen.rounds else None

    def proved(confidence: float) -> float:
        drawn = None if rate is None else rate(confidence)
        return supported(claim, _measured(claim, moved, spreads, confidence), counted, drawn)

    lower, surely = proved(confidence), proved(1 - SURE)
    stated = accounting.epsilon(claim.seen, claim.multiplier, claim.delta)
    p = min(exact(stated, claim.eps * (1 + EVEN)), exact(surely, claim.eps * (1 + EVEN)))
    says = ", ".join(
        f"{s.name} shifted by {moved.joint[s.name]:.5g}, noise at most {s.at_most(confidence):.5g}"
        f" ({s.count} numbers)"
        for s in spreads
    )
    says = f"of what was declared: {says}; eps is at least {lower:.5g} of {claim.eps:.5g} claimed"
    if claim.proved_scale != claim.seen.scale:
        says += "; eps counts single messages or shares, the evidence is of sums"
    if stated > claim.eps * (1 + EVEN):
        says += f"; the declared noise itself amounts to {stated:.5g}"
    return [Part("composition", "holds" if p else "violated", says, lower / claim.eps, p, lower)]


def _measured(claim: Claim, moved: Moved, spreads: Sequence[Spread], confidence: float) -> float:
    """The noise multiplier of all sums of a round together."""
    each = statistics.shared(confidence, len(spreads))
    noise = {s.name: claim.noise[s.name] * s.at_most(each) for s in spreads}
    return 1 / shift(moved.joint, noise)

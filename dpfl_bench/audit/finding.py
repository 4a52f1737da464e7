"""One part's answer, and the verdict over all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Verdict = Literal["holds", "violated", "inconclusive"]
LEAKS = "not accounted"
SURE = 1e-6  # a claim is said to be violated below this p


@dataclass(frozen=True)
class Part:
    """What one part found.

    p: the probability of what was seen, or worse, if the claim is right; 0 or 1 where nothing was
    drawn. lower: the eps that the part proves, None where it proves none.
    """

    part: str
    verdict: Verdict
    says: str
    statistic: float | None = None
    p: float | None = None
    lower: float | None = None

    def json(self) -> dict[str, Any]:
        return asdict(self)


def judged(p: float, doubt: float) -> Verdict:
    """violated below SURE, holds above `doubt`; between the two more must be seen."""
    if p < SURE:
        return "violated"
    return "holds" if p >= doubt else "inconclusive"


def with_test(name: str, p: float, confidence: float, says: str, statistic: float | None) -> Part:
    """A part with a test. Ten tests share the doubt that the confidence leaves."""
    verdict = judged(p, (1 - confidence) / 10)
    if verdict == "inconclusive":
        says += f"; chance does that once in {1 / p:.0f} audits: ask again with another --canaries"
    return Part(name, verdict, says, statistic, p)


def unable(name: str, reason: str) -> Part:
    """A part that can say nothing."""
    return Part(name, "inconclusive", reason)


def unaccounted(leaks: Sequence[str]) -> Part:
    """What goes into training outside every accountant: no part looks at it."""
    return Part(LEAKS, "inconclusive", "; ".join(leaks))


def overall(parts: Sequence[Part]) -> Verdict:
    """violated if any part is. holds if something was proved or tested, no test is in doubt, and
    nothing goes past the accountant. Another part that can say nothing (no p) does not decide.
    """
    if any(part.verdict == "violated" for part in parts):
        return "violated"
    doubtful = any(p.verdict == "inconclusive" and (p.p is not None or p.part == LEAKS) for p in parts)
    return "holds" if not doubtful and any(part.verdict == "holds" for part in parts) else "inconclusive"


def best(parts: Sequence[Part]) -> float:
    """The largest eps that any part proves."""
    return max((part.lower for part in parts if part.lower is not None), default=0.0)


def doubted(part: Part, eps: float, confidence: float) -> Part:
    """A bound above the claim, from evidence that is no violation: more must be seen."""
    if part.verdict != "holds" or part.lower is None or part.lower <= eps * (1 + 1e-9):
        return part
    says = (
        f"{part.says}; that is more than is claimed, which chance does in at most one of"
        f" {1 / (1 - confidence):.0f} audits of right runs: ask again with another --canaries"
    )
    return replace(part, verdict="inconclusive", says=says)


def report(eps: float, confidence: float, parts: Sequence[Part]) -> dict[str, Any]:
    """audit.json."""
    parts = [doubted(part, eps, confidence) for part in parts]
    return {
        "eps": eps,
        "lower": best(parts),
        "confidence": confidence,
        "verdict": overall(parts),
        "parts": [part.json() for part in parts],
    }


def exact(distance: float, allowed: float) -> float:
    """p of a distance that has no chance in it: 1 within what is allowed, else 0."""
    return 1.0 if math.isfinite(distance) and distance <= allowed else 0.0

"""The eps that runs were asked for or that a paper states (nominal), and the eps that holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpfl_bench.results.select.sources import Run, Source

Ends = tuple[float, float]  # the least and the largest of the runs
MOST_ROUNDS = "plan.max_rounds"
FEW = 5  # pairs of nominal and valid eps that a foot has room for
_PAPERS_OWN = "privacy.accountant=paper"  # nominal and valid eps say that


def budgets(sources: Iterable[Source], stated: float | None = None) -> dict[float, Ends]:
    """Nominal eps -> the eps that holds, infinite where none does. Runs without privacy are left
    out. stated: the nominal eps of all, in place of each one's own.
    """
    known: dict[float, list[float]] = {}
    for source in sources:
        nominal, valid = of_source(source)
        if nominal < math.inf:
            known.setdefault(nominal if stated is None else stated, []).append(valid)
    return {nominal: (min(values), max(values)) for nominal, values in sorted(known.items())}


def of_source(source: Source) -> tuple[float, float]:
    """The eps that a paper states or that was asked for, and the one that valid accountants give
    towards the observer that is bounded. Infinite without privacy.
    """
    for prefix in ("result", "plan"):
        valid, nominal = source.field(f"{prefix}.valid_eps"), source.field(f"{prefix}.nominal_eps")
        asked = nominal or source.field(f"{prefix}.eps_target")
        if nominal is None and _nobody_asked(source):
            asked = valid
        if asked is not None:
            return _number(asked), _number(valid)
    return math.inf, math.inf


def _nobody_asked(source: Source) -> bool:
    """Whether the noise was given, and no eps beside it: the default of eps says nothing."""
    given = source.field("privacy.calibration") == "fixed"
    return given and not any(word.startswith("eps=") for word in source.words)


def _number(value: Any) -> float:
    """Of JSON, where infinity may be a word or null."""
    return math.inf if value is None else float(value)


def told(ends: Ends) -> str:
    """One number where both ends are alike."""
    low, high = (f"{end:.4g}" if end < math.inf else "none" for end in ends)
    return low if low == high else f"{low} to {high}"


def json(known: Mapping[float, Ends]) -> dict[str, Any]:
    """Numbers where there is one, lists where there are several."""

    def one(values: Sequence[Any]) -> Any:
        return values[0] if len(values) == 1 else list(values) or None

    return {
        "nominal": one([*known]),
        "valid": one([one(list(dict.fromkeys(ends))) for ends in known.values()]),
    }


def of_other_rounds(sources: Iterable[Source], y: str) -> bool:
    """Whether y is how many rounds an eps allows, and the eps that is known is that of others."""
    return MOST_ROUNDS in y and any(
        source.field("plan.rounds") != source.field(MOST_ROUNDS) for source in sources
    )


def note(sources: Sequence[Source], stated: float | None = None, y: str = "") -> str:
    """For the foot of a figure or table. y: what is shown, where it is one quantity."""
    known, leaking = budgets(sources, stated), leaks(sources)
    verb = "is accounted for" if leaking else "holds"
    pairs = [f"nominal ε {nominal:g}: ε {told(ends)} {verb}" for nominal, ends in known.items()]
    if len(known) > FEW:
        lows, highs = zip(*known.values(), strict=True)
        nominal, valid = told((min(known), max(known))), told((min(lows), max(highs)))
        pairs = [f"nominal ε {nominal}: ε {valid} {verb}"]
    if known and of_other_rounds(sources, y):
        pairs = [f"nominal ε {told((min(known), max(known)))}: as many rounds as it allows"]
    if leaking:
        pairs.append("not fully accounted: training also uses the data outside every accountant")
    return "; ".join(pairs) or "no privacy"


def leaks(sources: Iterable[Source]) -> list[str]:
    """What no accountant counts, in any of the runs."""
    every: dict[str, None] = {}
    for source in sources:
        told = source.leaks if isinstance(source, Run) else source.field("plan.not_accounted")
        every |= dict.fromkeys(line for line in told or () if not line.startswith(_PAPERS_OWN))
    return list(every)

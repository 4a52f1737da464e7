"""The eps that a paper states, and the eps that holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpfl_bench.papers.artefact import Artefact
from dpfl_bench.results.select.sources import Run, Source

Ends = tuple[float, float]  # the least and the largest of the runs
FEW = 5  # pairs of nominal and valid eps that a foot has room for


def budgets(sources: Iterable[Source], artefact: Artefact) -> dict[float, Ends]:
    """Nominal eps -> the eps that holds, infinite where none does. Runs without privacy are left
    out.
    """
    known: dict[float, list[float]] = {}
    for source in sources:
        nominal, valid = of_source(source)
        if nominal < math.inf:
            known.setdefault(_stated(artefact, nominal), []).append(valid)
    return {nominal: (min(values), max(values)) for nominal, values in sorted(known.items())}


def _stated(artefact: Artefact, nominal: float) -> float:
    """The paper's number where the artefact says one for all; else the run's own."""
    eps = artefact.nominal.get("eps")
    return float(eps) if isinstance(eps, int | float) else nominal


def of_source(source: Source) -> tuple[float, float]:
    """The eps that a paper states or that was asked for, and the one that valid accountants give
    towards the observer that is bounded. Infinite without privacy.
    """
    for prefix in ("result", "plan"):
        valid = source.field(f"{prefix}.valid_eps")
        asked = source.field(f"{prefix}.nominal_eps") or source.field(f"{prefix}.eps_target")
        if source.field(f"{prefix}.nominal_eps") is None and _nobody_asked(source):
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
    """verdict.json's `eps`: numbers where there is one, lists where there are several."""

    def one(values: Sequence[Any]) -> Any:
        return values[0] if len(values) == 1 else list(values)

    valid = [one(list(dict.fromkeys(ends))) for ends in known.values()]
    return {"nominal": one(list(known)), "valid": one(valid)} if known else {"nominal": None, "valid": None}


def note(sources: Sequence[Source], artefact: Artefact) -> str:
    """For the foot of a figure or table."""
    known = budgets(sources, artefact)
    verb = "is accounted for" if leaks(sources) else "holds"
    pairs = [f"nominal ε {nominal:g}: ε {told(ends)} {verb}" for nominal, ends in known.items()]
    if len(known) > FEW:
        lows, highs = zip(*known.values(), strict=True)
        nominal, valid = told((min(known), max(known))), told((min(lows), max(highs)))
        pairs = [f"nominal ε {nominal}: ε {valid} {verb}"]
    if leaks(sources):
        pairs.append("not fully accounted: training also uses the data outside every accountant")
    return "; ".join(pairs) or "no privacy"


_PAPERS_OWN = "privacy.accountant=paper"  # nominal and valid eps say that


def leaks(sources: Iterable[Source]) -> list[str]:
    """What no accountant counts, in any of the runs."""
    every: dict[str, None] = {}
    for source in sources:
        told = source.leaks if isinstance(source, Run) else source.field("plan.not_accounted")
        every |= dict.fromkeys(line for line in told or () if not line.startswith(_PAPERS_OWN))
    return list(every)

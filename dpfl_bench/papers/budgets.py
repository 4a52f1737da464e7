"""The eps that a paper states, and the eps that holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dpfl_bench.papers.artefact import Artefact
from dpfl_bench.results.select.sources import Facts, Run, Source

Ends = tuple[float, float]  # the least and the largest of the runs


def budgets(sources: Iterable[Source], artefact: Artefact) -> dict[float, Ends]:
    """Nominal eps -> the eps that holds. Runs without privacy are left out."""
    known: dict[float, list[float]] = {}
    for source in sources:
        nominal, valid = of_source(source)
        if valid is not None and valid < math.inf:
            known.setdefault(_stated(artefact, nominal), []).append(valid)
    return {nominal: (min(values), max(values)) for nominal, values in sorted(known.items())}


def _stated(artefact: Artefact, nominal: float) -> float:
    """The paper's number where the artefact says one for all; else the run's own."""
    eps = artefact.nominal.get("eps")
    return float(eps) if isinstance(eps, int | float) else nominal


def of_source(source: Source) -> tuple[float, float | None]:
    """The eps that was stated or asked for, and the one that a valid accountant gives towards the
    observer that is bounded. None where there is none.
    """
    if isinstance(source, Run):
        guarantee = source.guarantee
        if guarantee is None or guarantee.views is None:
            return math.inf, None
        nominal = guarantee.nominal_eps or guarantee.eps_target or guarantee.eps
        return nominal, _valid(guarantee.views, guarantee.observer, guarantee.eps, guarantee.holds)
    if isinstance(source, Facts) and source.prefix == "plan":
        plan = source.numbers
        nominal = plan.get("nominal_eps") or plan.get("eps_target") or plan["eps"]
        holds = plan.get("accountant") != "paper"
        return _number(nominal), _valid(plan.get("views") or {}, plan.get("observer"), plan["eps"], holds)
    return math.inf, None


def _valid(views: Mapping[str, Any], observer: str | None, eps: Any, holds: bool) -> float | None:
    """The view is by the tightest valid accountant; the run's own eps may be by the paper's."""
    view = views.get(observer or "")
    value = _number(view if view is not None else eps if holds else None)
    return None if math.isnan(value) else value


def _number(value: Any) -> float:
    """Of JSON, where infinity is a word or null."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def told(ends: Ends) -> str:
    """One number where both ends are alike."""
    low, high = (f"{end:.4g}" for end in ends)
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
    pairs = [f"nominal ε {nominal:.4g}: ε {told(ends)} holds" for nominal, ends in known.items()]
    if leaks(sources):
        pairs.append("not fully accounted: training also uses the data outside every accountant")
    return "; ".join(pairs) or "no privacy"


def leaks(sources: Iterable[Source]) -> list[str]:
    """What no accountant counts, in any of the runs."""
    runs = [source for source in sources if isinstance(source, Run)]
    return list(dict.fromkeys(line for run in runs for line in run.leaks))

"""Claims about where the best value of a field lies, and what form a curve has."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpfl_bench.results.select.cells import Cell
from dpfl_bench.results.select.intervals import Key, exactly, of_difference, of_mean
from dpfl_bench.results.select.sources import numbers
from dpfl_bench.results.verdicts.group import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Curve,
    GroupTest,
    Missing,
    Outcome,
    ascending,
    gain_of_best,
    keys_of,
    picked,
    said,
    short,
)
from dpfl_bench.results.verdicts.taken import Taken


def interior(test: GroupTest) -> Outcome:
    by_value = test.along(test.terms["along"])
    best, ends = test.best(by_value), (min(by_value), max(by_value))
    if best in ends:
        inner = {value: cell for value, cell in by_value.items() if value not in ends}
        if not inner:
            raise Missing("a value between the ends")
        second = test.best(inner)
        gain = test.gain(by_value[best], inner[second])
        text = f"best at {short(best)}, an end; better than {short(second)} by {said(gain)}"
        return Outcome(FAILS if gain.low > 0 else UNDECIDED, text)
    inner = {value: cell for value, cell in by_value.items() if value not in ends}
    gains = [gain_of_best(inner, {end: by_value[end]}, test.sign) for end in ends]
    lines = [f"than {short(end)} by {said(each)}" for end, each in zip(ends, gains, strict=True)]
    verdict = HOLDS if all(each.low > 0 for each in gains) else UNDECIDED
    words = f"best at {short(best)}; {_best_of(by_value, 'between')} is better {', '.join(lines)}"
    return Outcome(verdict, words)


def best_at(test: GroupTest) -> Outcome:
    """Holds if the seeds tell every value that is too far away from the best of those that are
    near.
    """
    terms = test.terms
    by_value, asked = test.along(terms["along"]), terms["at"]
    wanted = _number(asked, test) if isinstance(asked, str) else float(asked)
    best, inside = test.best(by_value), _near(list(by_value), wanted, str(terms["within"]))
    text = f"best at {short(best)}, expected {short(wanted)}"
    near = {value: by_value[value] for value in inside}
    far = {value: cell for value, cell in by_value.items() if value not in inside}
    if not near or not far:
        return Outcome(UNDECIDED, f"{text}; the grid {_listed(by_value)} cannot tell")
    if best in near:
        return _surely_near(test, near, far, best, wanted, text)
    gains = [gain_of_best(far, {value: cell}, test.sign) for value, cell in near.items()]
    least = min(gains, key=lambda each: each.low)
    text = f"{text}; {_best_of(far, 'farther away')} is better than what is near by {said(least)}"
    return Outcome(FAILS if least.low > 0 else UNDECIDED, text)


def _surely_near(test: GroupTest, near: Curve, far: Curve, best: Any, wanted: float, text: str) -> Outcome:
    gains = {value: gain_of_best(near, {value: cell}, test.sign) for value, cell in far.items()}
    closest = min(gains, key=lambda value: gains[value].low)
    text = f"{text}; {_best_of(near, 'near')} is better than {short(closest)} by {said(gains[closest])}"
    every = [*near, *far]
    if best in (min(every), max(every)) and not min(every) <= wanted <= max(every):
        return Outcome(UNDECIDED, f"{text}; the best is at the end of the grid")
    return Outcome(HOLDS if gains[closest].low > 0 else UNDECIDED, text)


def _best_of(curve: Curve, where: str) -> str:
    """It is another value than the one that is best over all seeds where another one is chosen."""
    is_exact = all(cell.exact for cell in curve.values())
    return f"the best of those {where}{'' if is_exact else ', chosen for each seed by the others,'}"


def _near(values: Sequence[Any], wanted: float, within: str) -> list[Any]:
    """Those that are as good as the wanted one: a step of the grid around it, or so many
    percent.
    """
    if within != "one":
        share = float(within.removesuffix("%")) / 100
        return [value for value in values if abs(value - wanted) <= share * abs(wanted)]
    place = values.index(min(values, key=lambda value: _apart(value, wanted)))
    return list(values[max(0, place - 1) : place + 2])


def _apart(value: float, wanted: float) -> float:
    """On a logarithmic scale, where there is one."""
    return abs(math.log(value / wanted)) if value > 0 and wanted > 0 else abs(value - wanted)


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(short, values))


def _number(asked: str, test: GroupTest) -> float:
    """A quantity that is the same in all runs of the group, up to what their data make of it."""
    known = [value for value in numbers(test.sources, asked) if value > 0]
    if not known:
        raise Missing(f"a positive number for {asked}")
    number = test.rounded(sum(known) / len(known))
    test.taken.append(Taken({(None, None): number}, exact=True, side="at"))
    return number


def best_moves(test: GroupTest) -> Outcome:
    """A move counts where the seeds tell that each of the two best values is the better one in its
    own runs.
    """
    terms, name = test.terms, test.terms["along"]
    together: dict[Any, dict[Any, Cell]] = {}
    for cell in test.cells(terms["with"], name):
        across, along = cell.at[terms["with"]], cell.at[name]
        together.setdefault(across, {})[along] = test.note(cell, across=across, along=along)
    if len(together) < 2:
        raise Missing(f"two values of {terms['with']}")
    order = ascending(together, terms["with"])
    curves = [{v: together[at][v] for v in ascending(together[at], name)} for at in order]
    best = [test.best(curve) for curve in curves]
    sign = {"up": 1, "down": -1, "same": 0}[terms["direction"]]
    text = f"best at {_listed(best)} for {terms['with']} {_listed(order)}"
    steps = [k for k in range(1, len(order)) if best[k] != best[k - 1]]
    against = [k for k in steps if not sign or (best[k] > best[k - 1]) != (sign > 0)]
    if any(_moves(curves[k - 1], curves[k], test.sign) for k in against):
        return Outcome(FAILS, text)
    if against:
        return Outcome(UNDECIDED, f"{text}; the seeds cannot tell the moves against it from chance")
    if not sign and all(best[0] in (min(curve), max(curve)) for curve in curves):
        return Outcome(UNDECIDED, f"{text}: the end of the grid, so it may lie beyond and move there")
    if not sign:
        sure = all(_is_known(curve, best[0], test) for curve in curves)
        return Outcome(
            HOLDS if sure else UNDECIDED, text if sure else f"{text}; the seeds are not sure of it"
        )
    if best[0] == best[-1]:
        return Outcome(UNDECIDED, f"{text}: no move on this grid")
    return Outcome(HOLDS if _moves(curves[0], curves[-1], test.sign) else UNDECIDED, text)


def _moves(first: Curve, last: Curve, sign: int) -> bool:
    """Whether the best of each is better there than the best of the other."""
    if all(cell.exact for cell in (*first.values(), *last.values())):
        ends = [min(curve, key=lambda v: sign * curve[v].mean) for curve in (first, last)]
        return ends[0] != ends[1] and set(ends) <= first.keys() & last.keys()
    gains: tuple[dict[Any, float], dict[Any, float]] = ({}, {})
    for key, pick in picked((first, last), sign):
        before, after = pick(first), pick(last)
        if before not in last or after not in first:
            return False
        gains[0][key] = sign * (first[after].values[key] - first[before].values[key])
        gains[1][key] = sign * (last[before].values[key] - last[after].values[key])
    return all(of_mean(each).low > 0 for each in gains)


def _is_known(curve: Curve, best: Any, test: GroupTest) -> bool:
    """Whether the seeds tell the best from every value but its neighbours, and there are others."""
    values = list(curve)
    near = values[max(0, values.index(best) - 1) : values.index(best) + 2]
    far = [value for value in values if value not in near]
    return bool(far) and all(test.gain(curve[best], curve[value]).low > 0 for value in far)


def fits(test: GroupTest) -> Outcome:
    """R^2 of each seed's own curve; the differences over the seeds decide."""
    terms = test.terms
    curve = test.along(terms["x"])
    if len(curve) < 3:
        raise Missing(f"three values of {terms['x']}")
    shares = {name: _shares(curve, power) for name, power in terms["forms"].items()}
    text = ", ".join(f"R^2 {_mean(share):.3f} {name}" for name, share in shares.items())
    ours = shares.pop(terms["for"])
    if all(cell.exact for cell in curve.values()):
        gains = [exactly(_mean(ours) - _mean(share)) for share in shares.values()]
    else:
        gains = [of_difference(ours, share) for share in shares.values()]
    best, worse = all(each.low > 0 for each in gains), any(each.high < 0 for each in gains)
    verdict = HOLDS if best else FAILS if worse else UNDECIDED
    return Outcome(verdict, f"{text}, of {len(curve)} points; more by {', '.join(map(said, gains))}")


def _shares(curve: Curve, power: float) -> dict[Key, float]:
    """R^2 of y on x ** power, for each seed. Of a curve without a slope it is 0."""
    with np.errstate(all="ignore"):
        x = np.array(list(curve), dtype=float) ** float(power)
    shares: dict[Key, float] = {}
    for key in keys_of(curve):
        y = np.array([cell.values[key] for cell in curve.values()])
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            shares[key] = math.nan
        else:
            shares[key] = float(np.corrcoef(x, y)[0, 1] ** 2) if y.std() and x.std() else 0.0
    return shares


def _mean(values: Mapping[Any, float]) -> float:
    return sum(values.values()) / len(values) if values else math.nan

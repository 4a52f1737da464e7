"""Verdicts from claims.csv and the claims' definitions, by the rules of docs/artefacts.md ("How a
verdict follows from claims.csv") and nothing of ours.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

YES, NO, OPEN = "holds", "does not hold", "undecided"
EVERYWHERE = (-np.inf, np.inf)
Test = Mapping[str, Any]
Ends = tuple[float, float]


class Values(NamedTuple):
    """By (split, seed)."""

    of: dict[tuple[str, str], float]

    @property
    def exact(self) -> bool:
        return all(seed.startswith("exact") for _, seed in self.of)

    @property
    def mean(self) -> float:
        return sum(self.of.values()) / len(self.of)


Curve = dict[Any, Values]


class Rows:
    """One cell of one claim."""

    def __init__(self, rows: Iterable[Mapping[str, str]]) -> None:
        self.lacking, self.found = False, dict[tuple[str, Any, Any], Values]()
        for row in rows:
            self.lacking |= row["value"] == ""
            if row["value"]:
                at = row["side"], _word(row["with"]), _word(row["along"])
                self.found.setdefault(at, Values({})).of[row["split"], row["seed"]] = float(row["value"])

    def one(self, side: str = "") -> Values:
        return self.found[side, "", ""]

    def curve(self, side: str = "", across: Any = "") -> Curve:
        """By place along the axis."""
        return {a: v for (s, w, a), v in self.found.items() if (s, w) == (side, across) and a != ""}

    def across(self) -> list[Any]:
        return sorted({w for _, w, _ in self.found})


def _word(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text


def verdicts(text: str, tests: Mapping[str, Test]) -> dict[str, tuple[str, dict[str, str]]]:
    """Claim -> its verdict, and that of each cell. text: claims.csv. tests: by claim."""
    cells: dict[str, dict[str, list[Mapping[str, str]]]] = {}
    for row in csv.DictReader(text.splitlines()):
        cells.setdefault(row["claim"], {}).setdefault(row["cell"], []).append(row)
    told = {}
    for claim, of_claim in cells.items():
        found = {label: _of_cell(Rows(rows), tests[claim]) for label, rows in of_claim.items()}
        told[claim] = _whole([*found.values()], tests[claim].get("in", "every")), found
    return told


def _of_cell(rows: Rows, test: Test) -> str:
    return OPEN if rows.lacking else KINDS[test["kind"]](rows, test)


def _whole(found: Sequence[str], wanted: Any) -> str:
    count = len(found)
    needed = {"every": count, "most": count // 2 + 1}.get(wanted, wanted)
    if needed > count:
        return OPEN
    if found.count(YES) >= needed:
        return YES
    return NO if found.count(YES) + found.count(OPEN) < needed else OPEN


def _together(found: Iterable[str]) -> str:
    every = [*found]
    return NO if NO in every else OPEN if OPEN in every else YES


# --- intervals ---


def interval(numbers: Mapping[tuple[str, str], float]) -> Ends:
    splits: dict[str, list[float]] = {}
    for (split, _), value in numbers.items():
        splits.setdefault(split, []).append(value)
    each = [*splits.values()] if len(splits) > 1 else [[value] for value in numbers.values()]
    with np.errstate(invalid="ignore"):
        x = np.array([np.mean(values) for values in each])
    if len(x) < 3:
        return EVERYWHERE
    if np.isinf(x).all() and len({*x}) == 1:
        return float(x[0]), float(x[0])
    if not np.isfinite(x).all():
        return EVERYWHERE
    half = stats.t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    return float(x.mean() - half), float(x.mean() + half)


def own(values: Values) -> Ends:
    return (values.mean, values.mean) if values.exact else interval(values.of)


def sign(test: Test) -> int:
    return 1 if test["better"] == "least" else -1


def gain(ours: Values, theirs: Values, s: int) -> Ends:
    if ours.exact and theirs.exact:
        return (s * (theirs.mean - ours.mean),) * 2
    return interval({k: s * (theirs.of[k] - ours.of[k]) for k in ours.of if k in theirs.of})


def above(ends: Ends, margin: float = 0) -> str:
    return YES if ends[0] > margin else NO if ends[1] <= margin else OPEN


def best(curve: Curve, s: int) -> Any:
    return min(curve, key=lambda at: s * curve[at].mean)


def seeds(*curves: Curve) -> list[tuple[str, str]]:
    every = [values.of for curve in curves for values in curve.values()]
    return [key for key in every[0] if all(key in values for values in every)]


def by_the_others(curve: Curve, keys: Sequence[tuple[str, str]], key: tuple[str, str], s: int) -> Any:
    """The best value, chosen without this seed, or without this split."""
    place = 0 if len({split for split, _ in keys}) > 1 else slice(None)
    others = [k for k in keys if k[place] != key[place]]
    return min(curve, key=lambda at: sum(s * curve[at].of[k] for k in others)) if others else None


def gain_of_best(ours: Curve, theirs: Curve, s: int) -> Ends:
    if all(values.exact for curve in (ours, theirs) for values in curve.values()):
        return gain(ours[best(ours, s)], theirs[best(theirs, s)], s)
    keys, gains = seeds(ours, theirs), {}
    for key in keys:
        a, b = (by_the_others(curve, keys, key, s) for curve in (ours, theirs))
        if a is not None:
            gains[key] = s * (theirs[b].of[key] - ours[a].of[key])
    return interval(gains)


# --- kinds ---


def better(rows: Rows, test: Test) -> str:
    if "rounds" not in test:
        return above(gain(rows.one("of"), rows.one("than"), sign(test)), test["by_at_least"])
    ours, theirs = rows.curve("of"), rows.curve("than")
    assert ours.keys() == theirs.keys()
    assert all(at == "end" or at >= test["rounds"]["from"] for at in ours)
    return _together(above(gain(ours[at], theirs[at], sign(test)), test["by_at_least"]) for at in ours)


def alike(rows: Rows, test: Test) -> str:
    low, high = gain(rows.one("of"), rows.one("than"), 1)
    within = test["within"]
    return YES if -within <= low and high <= within else NO if low > within or high < -within else OPEN


def ordered(rows: Rows, test: Test) -> str:
    curve = {str(at): values for at, values in rows.curve().items()}
    sides = [curve[str(_word(str(value)))] for value in test["order"]]
    return _together(above(gain(*pair, sign(test))) for pair in pairwise(sides))


def trend(direction: int) -> Callable[[Rows, Test], str]:
    def verdict(rows: Rows, test: Test) -> str:
        curve = rows.curve()
        line = [curve[at] for at in sorted(curve)]
        back = [gain(later, earlier, direction)[1] < 0 for earlier, later in pairwise(line)]
        return NO if any(back) else above(gain(line[-1], line[0], direction))

    return verdict


def gain_grows(rows: Rows, test: Test) -> str:
    s, sides = sign(test), [{w: v for (n, w, _), v in rows.found.items() if n == side} for side in SIDES]
    gains = []
    for at in sorted(sides[0].keys() & sides[1].keys()):
        of, than = (side[at].of for side in sides)
        gains.append(Values({k: s * (than[k] - of[k]) for k in of if k in than}))
    back = [gain(later, earlier, -1)[1] < 0 for earlier, later in pairwise(gains)]
    return NO if any(back) else above(gain(gains[-1], gains[0], -1))


def reaches(rows: Rows, test: Test) -> str:
    low, high = own(next(iter(rows.found.values())))
    found = []
    if "most" in test:
        found.append(YES if high <= test["most"] else NO if low > test["most"] else OPEN)
    if "least" in test:
        found.append(YES if low >= test["least"] else NO if high < test["least"] else OPEN)
    return _together(found)


def equal(rows: Rows, test: Test) -> str:
    to = rows.one("to").mean if isinstance(test["to"], str) else test["to"]
    ours = rows.one().mean
    return YES if ours == to or abs(ours - to) <= 0.5 * 10.0 ** -test["digits"] * (1 + 1e-9) else NO


def interior(rows: Rows, test: Test) -> str:
    s, curve = sign(test), _sorted(rows.curve())
    ends = min(curve), max(curve)
    inner, place = {at: v for at, v in curve.items() if at not in ends}, best(curve, s)
    if place in ends:
        return if_so(gain(curve[place], inner[best(inner, s)], s)[0] > 0, NO)
    return if_so(all(gain_of_best(inner, {end: curve[end]}, s)[0] > 0 for end in ends), YES)


def best_at(rows: Rows, test: Test) -> str:
    s, curve = sign(test), _sorted(rows.curve())
    at = rows.one("at").mean if isinstance(test["at"], str) else float(test["at"])
    close = _close([*curve], at, test["within"])
    near, far = ({v: curve[v] for v in curve if (v in close) == wanted} for wanted in (True, False))
    place = best(curve, s)
    if not near or not far:
        return OPEN
    if place not in near:
        return if_so(all(gain_of_best(far, {v: near[v]}, s)[0] > 0 for v in near), NO)
    if place in (min(curve), max(curve)) and not min(curve) <= at <= max(curve):
        return OPEN
    return if_so(all(gain_of_best(near, {v: far[v]}, s)[0] > 0 for v in far), YES)


def _close(grid: Sequence[float], at: float, within: str) -> Sequence[float]:
    if within != "one":
        return [v for v in grid if abs(v - at) <= float(within[:-1]) / 100 * abs(at)]
    apart = [abs(np.log(v / at)) if v > 0 and at > 0 else abs(v - at) for v in grid]
    place = int(np.argmin(apart))
    return grid[max(0, place - 1) : place + 2]


def best_moves(rows: Rows, test: Test) -> str:
    s = sign(test)
    curves = [_sorted(rows.curve(across=w)) for w in rows.across()]
    places = [best(curve, s) for curve in curves]
    wrong = {"up": lambda a, b: b < a, "down": lambda a, b: b > a, "same": lambda a, b: a != b}
    steps = [k for k in range(1, len(places)) if wrong[test["direction"]](*places[k - 1 : k + 1])]
    if steps:
        return if_so(any(_moves(*curves[k - 1 : k + 1], s) for k in steps), NO)
    if test["direction"] != "same":
        return if_so(places[0] != places[-1] and _moves(curves[0], curves[-1], s), YES)
    if all(places[0] in (min(curve), max(curve)) for curve in curves):
        return OPEN
    return if_so(all(_is_sure(curve, places[0], s) for curve in curves), YES)


def _is_sure(curve: Curve, place: float, s: int) -> bool:
    grid = [*curve]
    far = [v for k, v in enumerate(grid) if abs(k - grid.index(place)) > 1]
    return bool(far) and all(gain(curve[place], curve[v], s)[0] > 0 for v in far)


def _moves(first: Curve, last: Curve, s: int) -> bool:
    if all(values.exact for curve in (first, last) for values in curve.values()):
        a, b = best(first, s), best(last, s)
        return a != b and {a, b} <= first.keys() & last.keys()
    keys, gains = seeds(first, last), ({}, {})
    for key in keys:
        a, b = (by_the_others(curve, keys, key, s) for curve in (first, last))
        if a is None:
            continue
        if a not in last or b not in first:
            return False
        gains[0][key] = s * (first[b].of[key] - first[a].of[key])
        gains[1][key] = s * (last[a].of[key] - last[b].of[key])
    return all(interval(each)[0] > 0 for each in gains)


def fits(rows: Rows, test: Test) -> str:
    curve = _sorted(rows.curve())
    shares = {}
    for name, power in test["forms"].items():
        with np.errstate(all="ignore"):
            x = np.array([*curve]) ** float(power)
        shares[name] = Values({key: _share(x, curve, key) for key in seeds(curve)})
    ours = shares.pop(test["for"])
    gains = [gain(ours, other, -1) for other in shares.values()]
    return NO if any(high < 0 for _, high in gains) else if_so(all(low > 0 for low, _ in gains), YES)


def _share(x: np.ndarray, curve: Curve, key: tuple[str, str]) -> float:
    y = np.array([values.of[key] for values in curve.values()])
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return np.nan
    return np.corrcoef(x, y)[0, 1] ** 2 if x.std() and y.std() else 0.0


def _sorted(curve: Curve) -> Curve:
    return {at: curve[at] for at in sorted(curve)}


def if_so(is_so: bool, verdict: str) -> str:
    return verdict if is_so else OPEN


SIDES = ("of", "than")
KINDS: dict[str, Callable[[Rows, Test], str]] = {
    **{"better": better, "alike": alike, "ordered": ordered, "falls": trend(1), "rises": trend(-1)},
    **{"gain_grows": gain_grows, "reaches": reaches, "equal": equal, "interior": interior},
    **{"best_at": best_at, "best_moves": best_moves, "fits": fits},
}

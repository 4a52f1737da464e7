"""Claims about where the best value of a field lies, and what form a curve has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.select.cells import Cell, cells
from dpfl_bench.results.select.expressions import parse
from dpfl_bench.results.select.sources import as_number
from dpfl_bench.results.verdicts.group import (
    FAILS,
    HOLDS,
    UNDECIDED,
    GroupTest,
    Missing,
    Outcome,
    said,
    short,
)

R2_APART = 0.05  # fits that are less apart in R^2 are not told apart


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
    gains = [test.gain(by_value[best], by_value[end]) for end in ends]
    lines = [f"than {short(end)} by {said(each)}" for end, each in zip(ends, gains, strict=True)]
    verdict = HOLDS if all(each.low > 0 for each in gains) else UNDECIDED
    return Outcome(verdict, f"best at {short(best)}: better {', '.join(lines)}")


def best_at(test: GroupTest) -> Outcome:
    terms = test.terms
    by_value, asked = test.along(terms["along"]), terms["at"]
    wanted = _number(asked, test) if isinstance(asked, str) else float(asked)
    best, values = test.best(by_value), list(by_value)
    nearest = min(values, key=lambda value: abs(math.log(value / wanted)))
    if terms.get("within", "one") == "one":
        close = abs(values.index(best) - values.index(nearest)) <= 1
    else:
        close = abs(best - wanted) <= float(terms["within"].removesuffix("%")) / 100 * wanted
    gain = test.gain(by_value[best], by_value[nearest])
    text = f"best at {short(best)}, expected {short(wanted)}; better than {short(nearest)} by {said(gain)}"
    if close and best in (values[0], values[-1]) and best != nearest:
        return Outcome(UNDECIDED, f"{text}; the best is at the end of the grid")
    return Outcome(HOLDS if close else FAILS if gain.low > 0 else UNDECIDED, text)


def _number(asked: str, test: GroupTest) -> float:
    """A quantity that is the same in all runs of the group, up to what their data make of it."""
    quantity = parse(asked)
    values = [
        float(quantity.of({name: as_number(source.field(name), name) for name in quantity.names}))
        for source in test.sources
    ]
    known = [value for value in values if value > 0]
    if not known:
        raise Missing(f"a positive number for {asked}")
    return sum(known) / len(known)


def best_moves(test: GroupTest) -> Outcome:
    """A move counts where the seeds tell the two best values apart in the later one's runs."""
    terms, name = test.terms, test.terms["along"]
    together: dict[Any, dict[Any, Cell]] = {}
    for cell in cells(test.sources, test.question(terms["with"], name)):
        together.setdefault(cell.at[terms["with"]], {})[cell.at[name]] = cell
    if len(together) < 2:
        raise Missing(f"two values of {terms['with']}")
    order = sorted(together)
    best = [test.best({v: together[at][v] for v in sorted(together[at])}) for at in order]
    sign = {"up": 1, "down": -1, "same": 0}.get(terms["direction"])
    if sign is None:
        raise ConfigError(f"direction: {terms['direction']}: expected up, down or same")

    def sure(first: int, last: int) -> bool:
        there = together[order[last]]
        return best[first] in there and test.gain(there[best[last]], there[best[first]]).low > 0

    steps = range(1, len(order))
    moves = [k for k in steps if best[k] != best[k - 1] and (best[k] > best[k - 1]) != (sign > 0)]
    moved = moves if sign else [k for k in steps if best[k] != best[k - 1]]
    text = f"best at {', '.join(map(short, best))} for {terms['with']} {', '.join(map(short, order))}"
    if any(sure(k - 1, k) for k in moved):
        return Outcome(FAILS, text)
    if moved:
        return Outcome(UNDECIDED, f"{text}; the seeds cannot tell the moves against it from chance")
    if not sign:
        return Outcome(HOLDS, text)
    if best[0] == best[-1]:
        return Outcome(UNDECIDED, f"{text}: no move on this grid")
    return Outcome(HOLDS if sure(0, len(order) - 1) else UNDECIDED, text)


def fits(test: GroupTest) -> Outcome:
    terms = test.terms
    points = [(cell.at[terms["x"]], cell.mean) for cell in cells(test.sources, test.question(terms["x"]))]
    if len(points) < 3:
        raise Missing(f"three values of {terms['x']}")
    x, y = np.array(points, dtype=float).T
    if y.std() == 0:
        return Outcome(UNDECIDED, f"the same value {y[0]:.4g} at all {len(x)} points")
    shares = {name: float(np.corrcoef(x**power, y)[0, 1] ** 2) for name, power in terms["forms"].items()}
    ours = shares[terms["for"]]
    others = max(share for name, share in shares.items() if name != terms["for"])
    verdict = UNDECIDED if abs(ours - others) < R2_APART else HOLDS if ours > others else FAILS
    text = ", ".join(f"R^2 {share:.3f} {name}" for name, share in shares.items())
    return Outcome(verdict, f"{text}, of {len(x)} points")

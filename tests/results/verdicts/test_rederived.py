"""Every verdict follows from claims.csv and the claim's definition: an implementation that knows
the documentation alone (`oracles/rederived.py`) comes to the same, on made-up runs of every kind.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.derived import again, csv_of, told
from helpers.sources import facts, lost, run
from helpers.statements import NO, OPEN, YES

from dpfl_bench.results.verdicts import claim
from dpfl_bench.results.verdicts.claim import Claim
from dpfl_bench.results.verdicts.kinds import KINDS

pytestmark = pytest.mark.one_in(3)
SIDES: dict[str, Any] = {"of": {"algo": "a"}, "than": {"algo": "b"}}
ALONG: dict[str, Any] = {"along": "local_steps"}
STEPS = (1, 2, 4, 8, 16)
TERMS: dict[str, list[dict[str, Any]]] = {
    "better": [SIDES, {**SIDES, "by_at_least": -0.5}, {**SIDES, "rounds": {"from": 5}}],
    "alike": [{**SIDES, "within": 2}],
    "ordered": [{**ALONG, "order": [1, 4, 16]}, {"along": "algo", "order": ["a", "b"]}],
    "falls": [ALONG],
    "rises": [ALONG],
    "interior": [ALONG],
    "best_at": [{**ALONG, "at": 4}, {**ALONG, "at": 15, "within": "20%"}, {**ALONG, "at": "result.star"}],
    "best_moves": [{**ALONG, "with": "eps", "direction": each} for each in ("up", "down", "same")],
    "gain_grows": [{**SIDES, "with": "eps"}],
    "reaches": [{"most": 1}, {"least": 0}, {"most": 2, "least": -2, "of": {"algo": "a"}}],
    "fits": [{"x": "local_steps", "forms": {"linear": 1, "root": 0.5}, "for": "linear"}],
    "equal": [{"to": 1, "digits": 0}, {"to": "y + 0.1", "digits": 0}, {"to": 0, "digits": 1}],
}
EACH = {"lr": (0.1, 0.2)}
TIMES = 40


def fields(kind: str, terms: dict[str, Any]) -> dict[str, Sequence[Any]]:
    """What the runs of one cell differ in."""
    if terms.get("along") == "algo" or kind in ("better", "alike"):
        return {"algo.name": ("a", "b")}
    if kind in ("reaches", "equal"):
        return {"algo.name": ("a",)}
    if kind == "gain_grows":
        return {"algo.name": ("a", "b"), "eps": (1, 2, 3)}
    return {"local_steps": STEPS, "eps": (1, 2, 3)} if kind == "best_moves" else {"local_steps": STEPS}


def points(wanted: dict[str, Sequence[Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [{}]
    for name, values in wanted.items():
        found = [{**at, name: value} for at in found for value in values]
    return found


def sources(kind: str, terms: dict[str, Any], rng: np.random.Generator) -> Iterator[Any]:
    """Of one draw: how large the effects are, whether anything is drawn at all, and in how many
    seeds and splits.
    """
    shape, slope = rng.choice(["line", "valley", "flat"]), rng.normal(0, 2)
    noise = float(rng.choice([0.01, 0.3, 2]))
    splits, seeds = rng.choice([(1, 4), (1, 2), (3, 2), (4, 1)])
    is_exact = bool(rng.random() < 0.2) and "rounds" not in terms and "result.star" not in terms.values()
    ties, diverges = rng.random() < 0.1, rng.random() < 0.1
    place = rng.choice(STEPS)
    for number, at in enumerate(points({**fields(kind, terms), **EACH})):
        x = at.get("local_steps", 1.0 + (at.get("algo.name") == "b") + at.get("eps", 0))
        valley = 3 * np.log(x / (place * at.get("eps", 1) ** np.sign(slope))) ** 2
        mean = {"line": slope * x, "valley": valley, "flat": 0.0}[shape] * (not ties)
        if is_exact:
            yield facts({"y": float(np.round(mean, 1))}, **at)
            continue
        for split in range(splits):
            setting = {**at, "partition.seed": split}
            more = {"star": 3.0 + split}
            values = np.full(seeds, 1.0) if ties else rng.normal(mean, noise, seeds)
            if diverges and number == 1:
                yield lost(setting, seeds=seeds, **more)
            elif "rounds" in terms:
                yield _of_rounds(setting, values, rng, **more)
            else:
                yield run(setting, *values, **more)


def _of_rounds(setting: dict[str, Any], values: np.ndarray, rng: np.random.Generator, **more: Any) -> Any:
    rows = [(seed, n, y + rng.normal(0, 0.1)) for n in (1, 5, 9) for seed, y in enumerate(values)]
    return run(setting, rows=dict(zip(("seed", "round", "y"), zip(*rows, strict=True), strict=True)), **more)


def drawn(kind: str) -> Iterator[tuple[Claim, Any]]:
    for number in range(TIMES):
        for place, terms in enumerate(TERMS[kind]):
            rng = np.random.default_rng((11, number, place))
            every = list(sources(kind, terms, rng))
            y, better = "plan.y" if every[0].exact else "y", str(rng.choice(["least", "most"]))
            if "to" in terms and isinstance(terms["to"], str):
                terms = {**terms, "to": f"{y} + {rng.choice([0.1, 0.9])}"}
            wanted = rng.choice(np.array([None, "most", 1], dtype=object))
            stated = Claim(y=y, kind=kind, terms=terms, each=[*EACH], at_least=wanted, better=better)
            yield stated, claim.test(stated, every, claim.DIGITS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_rows_and_the_definition_give_the_verdict(kind: str) -> None:
    seen: set[str] = set()
    for stated, found in drawn(kind):
        assert again(stated, csv_of(found)) == told(found), (stated.definition, found.evidence)
        seen |= {cell.verdict for cell in found.cells.values()}
    assert seen >= ({YES, NO} if kind == "equal" else {YES, NO, OPEN})


@pytest.mark.parametrize("kind", KINDS)
def test_another_number_gives_another_verdict(kind: str) -> None:
    """The control: in a cell that holds, one value is another one."""
    stated, found = next((c, o) for c, o in drawn(kind) if YES in told(o)[1].values())
    label = next(label for label, verdict in told(found)[1].items() if verdict == YES)
    head, *rows = csv.reader(io.StringIO(csv_of(found)))
    place, changed = head.index("value"), set()
    for row in rows:
        for value in ("1e9", "-1e9") if row[head.index("cell")] == label else ():
            text = io.StringIO()
            other = [[*row[:place], value, *row[place + 1 :]] if each is row else each for each in rows]
            csv.writer(text).writerows([head, *other])
            changed.add(again(stated, text.getvalue())[1][label])
    assert changed & {NO, OPEN}


def test_what_was_tuned_stands_beside_it_and_spread_values_count_like_seeds() -> None:
    runs = [
        run({"algo.name": algo, "lr": lr, "eps": eps}, *(y + 0.1 * k for k in range(3)))
        for eps in (1, 2)
        for algo, lr, y in (("a", 0.1, 5.0), ("a", 0.2, 1.0), ("b", 0.1, 2.0), ("b", 0.2, 3.0))
    ]
    stated = Claim(y="y", kind="better", terms=SIDES, best_over=["lr"], spread=["eps"])
    found = claim.test(stated, runs, claim.DIGITS)
    rows = [*csv.DictReader(io.StringIO(csv_of(found)))]
    assert [row["tuned"] for row in rows] == ["lr=0.2"] * 6 + ["lr=0.1"] * 6
    assert [row["seed"] for row in rows[:6]] == ["0/1", "1/1", "2/1", "0/2", "1/2", "2/2"]
    assert again(stated, csv_of(found)) == told(found)
    assert found.verdict == YES
    defined = {"best_over": ["lr"], "by": "y", "by_better": "least", "spread": ["eps"], "by_at_least": 0}
    assert stated.definition == {"kind": "better", "y": "y", "better": "least", **SIDES, **defined}


def test_the_best_of_a_grid_has_no_seed_of_its_own() -> None:
    runs = [
        run({"privacy.clip": clip, "local_steps": k, "eps": eps}, abs(k - clip - eps / 8))
        for clip in (2, 4, 8)
        for k in range(12)
        for eps in (1, 2, 3)
    ]
    terms = {"x": "privacy.clip", "forms": {"linear": 1, "root": 0.5}, "for": "linear"}
    stated = Claim(y="best local_steps", by="y", kind="fits", terms=terms, spread=["eps"])
    found = claim.test(stated, runs, claim.DIGITS)
    rows = [*csv.DictReader(io.StringIO(csv_of(found)))]
    assert [(row["along"], row["seed"], row["value"]) for row in rows[:2]] == [
        ("2", "1", "2.0"),
        ("2", "2", "2.0"),
    ]
    assert again(stated, csv_of(found)) == told(found)


def test_what_no_run_has_is_a_row_without_a_value() -> None:
    alone = [run({"algo.name": "a"}, 1, 2, 3)]
    found = claim.test(Claim(y="y", kind="better", terms=SIDES), alone, claim.DIGITS)
    assert csv_of(found).splitlines()[1] == "c,,,,,,,,"
    assert again(Claim(y="y", kind="better", terms=SIDES), csv_of(found)) == (OPEN, {"": OPEN})

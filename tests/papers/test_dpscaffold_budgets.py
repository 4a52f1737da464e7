"""What dpscaffold prints of its budgets, without training: its artefacts' plans give it."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

from dpfl_bench.config import compose
from dpfl_bench.papers import artefact
from dpfl_bench.papers.evidence import Evidence
from dpfl_bench.papers.overlays import Reading
from dpfl_bench.results.verdicts.printed import DIFFERS, EXACT, Match, matches
from dpfl_bench.sweep.gathered import CONFIG, Place

pytestmark = pytest.mark.one_in(3)


class Planned(Protocol):
    def __call__(self, name: str, sweep: str, reading: Reading) -> Evidence: ...


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, calibrations: Path) -> Planned:
    """That sweep of the artefact alone; at the smoke scale it is the paper's setting, too."""
    folder = tmp_path_factory.mktemp("planned")

    @cache
    def made(name: str, sweep: str, reading: Reading) -> Evidence:
        (whole,) = artefact.chosen(f"dpscaffold/{name}")
        only = dataclasses.replace(whole, sweeps={sweep: whole.sweeps[sweep]})
        place = Place(str(folder), None, compose.composer(None, CONFIG))
        evidence = Evidence(only, "smoke", reading, place)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DPFL_CACHE_DIR", str(calibrations))
            evidence.plan(0)
            evidence.read(0)
        return evidence

    return made


def compared(evidence: Evidence, *ids: str) -> list[Match]:
    printed = [one for one in evidence.artefact.printed if one.id in ids]
    assert printed
    return [
        match
        for one in printed
        for match in matches(one, evidence.sources(one.sweeps), one.elsewhere("smoke", evidence.reading, ""))
    ]


@pytest.mark.parametrize("name", ["table1", pytest.param("table4", marks=pytest.mark.slow)])
def test_t_columns(name: str, planned: Planned) -> None:
    """22 of 25 cells as printed; of three the paper's own accountant allows one round more."""
    rounds = compared(planned(name, "budget", "paper"), "rounds")
    others = {match.at: match for match in rounds if match.match != EXACT}
    assert len(rounds) == 25
    assert list(others) == ["160 / 5", "160 / 10", "160 / 20"]
    for match in others.values():
        assert match.match == DIFFERS
        assert match.ours == match.printed + 1
        assert "gives one more" in match.why


@pytest.mark.parametrize(
    ("name", "printed"), [("fig1", [13, 13, 4.2]), ("fig2", [11.4, 7.2]), ("fig7", [11.5])]
)
def test_captions(name: str, printed: list[float], planned: Planned) -> None:
    """All of them are the paper's accountant's, rounded up."""
    all_eps = compared(planned(name, "caption", "paper"), "eps", "eps-small-share")
    eps = [match for match in all_eps if match.match == EXACT]
    assert [match.printed for match in eps] == printed


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fig9", [556, 282, 162, 736, 377, 218, 159, 80, 46]),
        ("fig10", [340, 333, 282, 452, 443, 377, 99, 97, 80]),
    ],
)
def test_rounds_that_the_budget_allows(name: str, expected: list[int], planned: Planned) -> None:
    """The paper does not print T of these figures; docs/papers.md has the paper's accountant's."""
    sources = planned(name, "allowed", "paper").sources(["allowed"])
    assert [source.field("plan.max_rounds") for source in sources] == expected


@pytest.mark.parametrize(
    ("name", "sweep", "reading", "id", "ours"),
    [
        ("fig1", "caption", "exact", "eps", {"20 / 50": 0.8553, "20 / 100": None}),
        ("fig2", "caption", "exact", "eps", {"logreg / 50": None, "dnn_200 / 50": 0.7693}),
        ("table1", "needed", "exact", "noise-valid", {"5": 3.69, "10": 4.83, "20": 6.00}),
        (
            "table1",
            "budget",
            "paper",
            "eps",
            {"10 / 1": 0.431, "10 / 5": 0.978, "10 / 10": 1.340, "10 / 20": 1.720, "10 / 40": 1.313},
        ),
    ],
)
def test_prints_that_a_valid_accountant_contradicts(
    name: str, sweep: str, reading: Reading, id: str, ours: dict[str, float | None], planned: Planned
) -> None:
    found = compared(planned(name, sweep, reading), id)
    assert [match.at for match in found] == list(ours)
    for match in found:
        assert match.match == DIFFERS
        if (expected := ours[match.at]) is not None:
            assert match.ours == pytest.approx(expected, abs=6e-3 if id == "noise-valid" else 6e-4)


@pytest.mark.parametrize(
    ("name", "sweep", "field", "expected"),
    [
        ("table1", "budget", "max_rounds", [22311, 4393, 2155, 1039, 485]),
        ("table1", "needed", "noise_multiplier", [3.69, 4.83, 6.00]),
        ("fig1", "caption", "eps", [0.8553]),
        ("fig2", "caption", "eps", [None, 0.7693]),
    ],
)
def test_what_a_valid_accountant_says(
    name: str, sweep: str, field: str, expected: list[float | None], planned: Planned
) -> None:
    """Two independent implementations of the mixture gave these (docs/papers.md)."""
    sources = planned(name, sweep, "exact").sources([sweep])
    for source, value in zip(sources, expected, strict=False):
        if value is not None:
            digits = len(str(value).partition(".")[2])
            assert round(source.field(f"plan.{field}"), digits) == value

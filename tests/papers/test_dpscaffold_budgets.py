"""What dpscaffold prints of its budgets, without training: its artefacts' plans give it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from dpfl_bench.config import compose
from dpfl_bench.papers import artefact
from dpfl_bench.papers.evidence import Evidence
from dpfl_bench.papers.overlays import Reading
from dpfl_bench.results.verdicts.printed import DIFFERS, EXACT, Match, matches
from dpfl_bench.sweep.gathered import CONFIG, Place


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path))


def planned(name: str, sweep: str, reading: Reading, outputs: Path) -> Evidence:
    """That sweep of the artefact alone; at the smoke scale it is the paper's setting, too."""
    (whole,) = artefact.chosen(f"dpscaffold/{name}")
    only = dataclasses.replace(whole, sweeps={sweep: whole.sweeps[sweep]})
    place = Place(str(outputs), None, compose.composer(None, CONFIG))
    evidence = Evidence(only, "smoke", reading, place)
    evidence.plan(0)
    evidence.read(0)
    return evidence


def compared(evidence: Evidence, sweep: str) -> list[Match]:
    printed = [one for one in evidence.artefact.printed if one.sweeps == [sweep]]
    assert printed
    sources = evidence.sources([sweep])
    return [match for one in printed for match in matches(one, sources, one.elsewhere("smoke", "paper", ""))]


@pytest.mark.parametrize("name", ["table1", pytest.param("table4", marks=pytest.mark.slow)])
def test_t_columns(name: str, tmp_path: Path) -> None:
    """22 of 25 cells as printed; of three the paper's own accountant allows one round more."""
    rounds = compared(planned(name, "budget", "paper", tmp_path), "budget")
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
def test_captions(name: str, printed: list[float], tmp_path: Path) -> None:
    """All of them are the paper's accountant's, rounded up."""
    eps = [m for m in compared(planned(name, "caption", "paper", tmp_path), "caption") if m.match == EXACT]
    assert [match.printed for match in eps] == printed


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
    name: str, sweep: str, field: str, expected: list[float | None], tmp_path: Path
) -> None:
    """Two independent implementations of the mixture gave these (docs/papers.md)."""
    sources = planned(name, sweep, "exact", tmp_path).sources([sweep])
    for source, value in zip(sources, expected, strict=False):
        if value is not None:
            digits = len(str(value).partition(".")[2])
            assert round(source.field(f"plan.{field}"), digits) == value

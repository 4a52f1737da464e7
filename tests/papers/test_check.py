"""`reproduce --check`: by bits on the same kind of machine, by intervals on another one."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.artefacts import artefact, content, write
from helpers.command import Said, call
from helpers.reported import CLAIM, MADE, PRINTED
from helpers.reported import artefact as reported

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.papers import check
from dpfl_bench.results import made

HEAD = "figure,row,column,line,x,y,low,high,n,nominal eps,eps that holds\n"
SEEDS, PLAN = "curve,,,dp_fedavg,1.0,0.5,0.4,0.6,3,3,1.5\n", "table,a,b,,,7.0,7.0,7.0,1,3,1.5\n"
OTHER = {**MADE, "versions": {**MADE["versions"], "torch": "2.99.0"}}
NARROW = {**PRINTED, "exact": False}


def pair(data: str, again: str, by: Any = MADE, **more: Any) -> tuple[Path, Path]:
    """The committed folder and one's own, `more` of the latter's verdict.json."""
    folders = []
    for papers, text, record in ((Path("c"), data, {}), (Path("o"), again, {"made": [by], **more})):
        known = {"made": [MADE], "printed": [NARROW], "not_accounted": []}
        folder = reported(papers, "own/fig9", figures=0, **{**known, **record})
        (folder / "data.csv").write_text(HEAD + text)
        folders.append(folder)
    return folders[0], folders[1]


def told(capsys: pytest.CaptureFixture[str], *args: Any, **more: Any) -> tuple[int, str]:
    code = check.tell(artefact(), *pair(*args, **more))
    return code, capsys.readouterr().err


def test_the_same_bits(capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, SEEDS + PLAN, SEEDS + PLAN)
    assert code == 0
    assert "own/fig9 smoke-paper: the same as committed, bit for bit, for it is the same kind" in said
    assert "2 rows of data.csv, 1 printed numbers, 1 claims" in said


@pytest.mark.parametrize(
    ("again", "line"),
    [
        (SEEDS.replace("0.5,", "0.5000000000000001,"), "y: was 0.5, now 0.5000000000000001"),
        (SEEDS.replace(",3,3,", ",4,3,"), "n: was 3, now 4"),
        (SEEDS.replace("1.5", "1.6"), "eps that holds: was 1.5, now 1.6"),
        ("", "y: was 0.5, now None"),
        (SEEDS + SEEDS, "row 2 (curve, dp_fedavg, x 1.0), y: was None, now 0.5"),
    ],
)
def test_another_bit_of_data(again: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, SEEDS, again)
    assert code == 1
    assert line in said


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"printed": [{**NARROW, "ours": 44.25000000000001}]}, "printed[0].ours was 44.25, now 44.2500"),
        ({"claims": [{**CLAIM, "verdict": "undecided"}]}, "verdict was holds, now undecided"),
        ({"claims": [{**CLAIM, "evidence": "best 6"}]}, "evidence was best 5 of 1 to 20, now best 6"),
        ({"eps": {"nominal": [2, 13], "valid": [0.87, 8.5]}}, "eps.valid"),
        ({"claims": []}, "claims was"),
    ],
)
def test_another_bit_of_the_verdict(more: Any, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = told(capsys, SEEDS, SEEDS, **more)
    assert code == 1
    assert line in said


def test_words_times_and_places_are_no_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    more = {"claims": [{**CLAIM, "says": "other"}], "seconds": 9, "runs": ["r"], "commands": [], "title": "?"}
    assert told(capsys, SEEDS, SEEDS, **more)[0] == 0


@pytest.mark.parametrize(
    ("data", "again", "code"),
    [
        (SEEDS, SEEDS.replace("0.5,0.4,0.6", "0.6,0.5,0.7"), 0),
        (SEEDS, SEEDS.replace("0.5,0.4,0.6", "0.64,0.54,0.74"), 0),  # .1 * sqrt(2) apart at most
        (SEEDS, SEEDS.replace("0.5,0.4,0.6", "0.65,0.55,0.75"), 1),
        (SEEDS, SEEDS.replace("0.5,0.4,0.6", "0.6,0.59,0.61"), 1),  # in theirs, not in ours
        (PLAN, PLAN.replace("7.0", "7.0000001"), 0),
        (PLAN, PLAN.replace("7.0", "7.001"), 1),
        (SEEDS, "", 1),
        (SEEDS, PLAN, 1),
        (SEEDS.replace("0.5,0.4,0.6", "inf,,"), SEEDS.replace("0.5,0.4,0.6", "inf,,"), 0),
        (SEEDS, SEEDS.replace("0.5,0.4,0.6", "inf,,"), 1),  # it diverged
    ],
)
def test_another_machine_is_compared_by_intervals(
    data: str, again: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found, said = told(capsys, data, again, OTHER)
    assert "by intervals, for it is another kind of machine (torch: 2.13.0, here 2.99.0)" in said
    assert found == code
    assert ("numbers differ" in said) == bool(code)


def test_what_has_no_interval_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    few = SEEDS.replace("0.4,0.6,3", ",,2")
    code, said = told(capsys, few, few.replace("0.5", "0.9"), OTHER)
    assert (code, "1 have no interval to compare by" in said) == (0, True)
    assert told(capsys, few, few.replace("0.5", "0.9"))[0] == 1, "bits need none"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"printed": [{**NARROW, "ours": 45.5}]}, 0),
        ({"printed": [{**NARROW, "ours": 46.5}]}, 1),
        ({"printed": [{**NARROW, "interval": [44.5, 46.0]}]}, 1),
        ({"printed": []}, 1),
        ({"claims": [{**CLAIM, "verdict": "undecided"}]}, 0),
        ({"claims": [{**CLAIM, "verdict": "does not hold"}]}, 1),
        ({"claims": []}, 1),
        ({"eps": {"nominal": [2, 13], "valid": [0.86, [8.5, float("inf")]]}}, 0),
        ({"eps": {"nominal": [2, 13], "valid": [0.87, [8.5, float("inf")]]}}, 1),
        ({"eps": {"nominal": None, "valid": None}}, 1),
    ],
)
def test_verdicts_of_another_machine(more: Any, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, SEEDS, SEEDS, OTHER, **more)[0] == code


def test_a_band_of_one_deviation_is_made_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    """Of 3 values with deviation .1 the mean lies within .248; of twice as many, within .351."""
    again = SEEDS.replace("0.5,0.4,0.6", "0.8,0.7,0.9")
    assert told(capsys, SEEDS, again, OTHER)[0] == 1
    figures = {"curve": {**content()["figures"]["curve"], "spread": ["partition.seed"]}}
    folders = pair(SEEDS, again, OTHER)
    assert check.tell(artefact(figures=figures), *folders) == 0


def test_a_packed_table_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    committed, own = pair(SEEDS, SEEDS)
    table = committed / "data.csv"
    table.with_name("data.csv.gz").write_bytes(gzip.compress(table.read_bytes()))
    table.unlink()
    assert check.tell(artefact(), committed, own) == 0
    assert "1 rows" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"made": []}'])
def test_a_broken_report_is_told(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    committed, own = pair(SEEDS, SEEDS)
    (committed / "verdict.json").write_text(text)
    assert check.tell(artefact(), committed, own) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_a_folder_without_reports_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected committed reports"):
        check.folder("nothing")


# --- the kind of a machine ---


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"cpu": "another"}, True),
        ({"threads": 2}, True),
        ({"device": "cuda"}, True),
        ({"family": None}, False),  # nobody knows
        ({}, False),
    ],
)
def test_what_decides_bits(change: Any, differs: bool) -> None:
    other = {**MADE, "machine": {**MADE["machine"], **change}, "commit": "another", "python": "3.99"}
    assert bool(made.differing([MADE], [other])) is differs
    assert bool(made.differing([MADE, other], [MADE, other])) is differs, "runs of two machines are of none"
    assert made.differing([MADE], []) == ["not told by which machine"]


def test_nothing_private_is_published() -> None:
    """env.json's host, folders and command stay in the run."""
    private = {"host": "alice-laptop", "cwd": "/home/alice", "command": "x outputs=/home/alice"}
    told = {**MADE, **MADE["machine"], "platform": "Linux-6.1.2-alice-x86_64-with-glibc2.36", **private}
    assert made.of_environment(told) == {**MADE, "machine": {**MADE["machine"], "system": "Linux glibc2.36"}}


# --- the command ---


def planned() -> dict[str, Any]:
    """An artefact of plans alone, which takes no run."""
    known = content()
    return content(
        sweeps={"planned": known["sweeps"]["planned"]},
        figures={},
        table={"rows": "eps", "value": "plan.noise_multiplier"},
        printed=known["printed"][:1],
        claims=known["claims"][1:2],
    )


def reproduce(*words: str) -> Said:
    return call("reproduce", "own/fig9", "-cd", "mine", "--plot-only", *words)


def changed(file: Path, change: Callable[[Any], Any]) -> None:
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    write(planned())
    committed = Path("committed")
    monkeypatch.setattr(check, "COMMITTED", committed)
    refused = reproduce("--check")
    assert refused.code == 2
    assert "expected committed reports" in refused.err
    assert not Path("outputs").exists()
    assert reproduce().code == 0
    shutil.copytree("outputs/papers/own/fig9/smoke-paper", committed / "own/fig9/smoke-paper")
    same = reproduce("--check", "scale=smoke")  # the word after it is no folder
    assert same.code == 0, same.err
    assert "bit for bit" in same.err
    assert reproduce("reading=exact", "--check").code == 1, "nothing to compare with"
    changed(committed / "own/fig9/smoke-paper/verdict.json", lambda r: r["printed"][0].update(ours=8))
    other = reproduce("--check=committed")
    assert other.code == 1
    assert "printed[0].ours was 8, now 7.0" in other.err
    changed(
        committed / "own/fig9/smoke-paper/verdict.json",
        lambda r: (r["printed"][0].update(ours=7), r["made"][0]["machine"].update(cpu="another")),
    )
    elsewhere = reproduce("--check")
    assert elsewhere.code == 0
    assert "by intervals, for it is another kind of machine (cpu: another, here " in elsewhere.err

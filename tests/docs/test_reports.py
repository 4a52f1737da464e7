"""docs/reports, as committed: the artefacts' own claims, no folder of a machine, and the page and
the tables that today's code makes of them. And the script that copies them.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import commit_reports
import numpy as np
import pytest
from helpers.reported import artefact as reported
from oracles import rederived

from dpfl_bench.papers import report
from dpfl_bench.papers.artefact import artefacts, load
from dpfl_bench.papers.overview import COMMITTED
from dpfl_bench.papers.verdict import UNTESTED
from dpfl_bench.results.figures.panels import Look, Mark, draw, save
from dpfl_bench.results.verdicts.group import FAILS, HOLDS

MOST = 15_000_000  # bytes
FOLDERS = sorted(file.parent for file in COMMITTED.glob("*/*/*/verdict.json"))
NAMES = ["/".join(folder.parts[-3:]) for folder in FOLDERS]


def files(folder: Path) -> list[Path]:
    return [file for file in sorted(folder.rglob("*")) if file.is_file()]


def text_of(file: Path) -> str:
    content = file.read_bytes()
    return (gzip.decompress(content) if file.suffix == ".gz" else content).decode()


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_the_claims_are_those_of_the_file(folder: Path) -> None:
    record = json.loads((folder / "verdict.json").read_text())
    artefact = load(artefacts()[record["artefact"]])
    assert "/".join(folder.parts[-3:]) == f"{artefact.id}/{record['scale']}-{record['reading']}"
    told = [(claim["id"], claim["says"], claim["kind"]) for claim in record["claims"]]
    assert told == [(claim.id, claim.says, claim.kind) for claim in artefact.claims]
    assert all(claim["verdict"] and claim["evidence"] for claim in record["claims"])
    assert record["unfinished"] == 0
    untested = all(claim["verdict"] == UNTESTED for claim in record["claims"])
    assert record["made"] or untested  # by which commits: none, where nothing could be played


@pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
def test_no_folder_of_a_machine_is_told(folder: Path) -> None:
    for file in files(folder):
        assert not commit_reports.OF_A_MACHINE.search(text_of(file)), file.name


def test_they_are_small() -> None:
    assert sum(file.stat().st_size for file in files(COMMITTED)) < MOST


@pytest.mark.skipif(not FOLDERS, reason="no report is committed")
def test_the_page_is_what_is_made_of_them(tmp_path: Path) -> None:
    shutil.copytree(COMMITTED, tmp_path / "reports")
    again = report.write(tmp_path / "reports").read_text()
    assert again == (COMMITTED / report.NAME).read_text(), "run scripts/commit_reports.py"


def test_the_tables_are_what_the_reports_say() -> None:
    text = commit_reports.PAGE.read_text()
    made = commit_reports.with_tables(text, commit_reports.tables(COMMITTED))
    assert text == made, "run scripts/commit_reports.py"
    readme = commit_reports.README.read_text()
    made = commit_reports.with_tables(readme, commit_reports.overview(COMMITTED))
    assert readme == made, "run scripts/commit_reports.py"


def claims_of(folder: Path) -> str | None:
    """claims.csv; None of a report that was made before there was one."""
    return next((text_of(file) for file in folder.glob("claims.csv*")), None)


DERIVED = [folder for folder in FOLDERS if claims_of(folder) is not None]


@pytest.mark.parametrize("folder", DERIVED, ids=["/".join(folder.parts[-3:]) for folder in DERIVED])
def test_every_verdict_follows_from_the_numbers(folder: Path) -> None:
    claims = json.loads((folder / "verdict.json").read_text())["claims"]
    tests, text = {claim["id"]: claim["test"] for claim in claims}, claims_of(folder) or ""
    found = rederived.verdicts(text, tests)
    for claim in claims:
        if claim["cells"]:
            assert found.pop(claim["id"]) == (claim["verdict"], claim["cells"]), claim["id"]
        else:
            assert claim["verdict"] not in (HOLDS, FAILS)
    assert not found, "rows of no claim"


@pytest.mark.slow
@pytest.mark.skipif(not DERIVED, reason="no report has claims.csv")
def test_another_number_would_be_seen() -> None:
    """The control: whatever holds as `better` does not where a seed of `of` is worse by far."""
    held = 0
    for folder in DERIVED:
        claims = json.loads((folder / "verdict.json").read_text())["claims"]
        head, *rows = csv.reader((claims_of(folder) or "").splitlines())
        for claim in claims:
            if (claim["verdict"], claim["kind"]) != (HOLDS, "better") or claim["test"].get(
                "in", "every"
            ) != "every":
                continue
            row = next(row for row in rows if row[0] == claim["id"] and row[head.index("side")] == "of")
            row[head.index("value")] = "1e9" if claim["test"]["better"] == "least" else "-1e9"
            text = io.StringIO()
            csv.writer(text).writerows([head, *(each for each in rows if each[0] == claim["id"])])
            verdict, _ = rederived.verdicts(text.getvalue(), {claim["id"]: claim["test"]})[claim["id"]]
            assert verdict != HOLDS
            held += 1
    assert held


# --- the script ---

DATA = "figure,row,column,line,x,y,low,high,n,nominal eps,eps that holds\nf,,,l,1.0,0.5,0.4,0.6,3,3,1.5\n"
OWN = "/tmp/mine/outputs"
COMMANDS = {
    "commands": [
        f"dpfl-bench reproduce mine/fig1 scale=cpu reading=paper outputs={OWN}",
        f"dpfl-bench run -m rounds=3 outputs={OWN}/papers",
    ],
    "runs": [f"{OWN}/papers/runs/0123456789"],
}


def finished(name: str = "mine/fig1", at: str = "cpu-paper", **more: Any) -> Path:
    """Where `reproduce` left it."""
    folder = reported(Path("out/papers"), name, at, **{**COMMANDS, "unfinished": 0, **more})
    (folder / "data.csv").write_text(DATA)
    return folder


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of docs/."""
    monkeypatch.setattr(commit_reports, "COMMITTED", Path("reports"))
    for name in ("PAGE", "README"):
        page = Path(f"{name}.md")
        page.write_text(f"before\n{commit_reports.BEGIN}\nold\n{commit_reports.END}\nafter\n")
        monkeypatch.setattr(commit_reports, name, page)
    return Path("reports")


def test_what_is_finished_is_copied(here: Path) -> None:
    finished()
    finished("mine/fig2", "cpu-exact")
    finished("mine/fig3", "smoke-paper")
    finished("mine/fig4", unfinished=3)
    finished("mine/fig5")
    commit_reports.main(["out", "mine/fig1", "mine/fig2", "mine/fig3", "mine/fig4"])
    assert {str(f.parent.relative_to(here)) for f in here.glob("*/*/*/verdict.json")} == {
        "mine/fig1/cpu-paper",
        "mine/fig2/cpu-exact",
    }
    copied = here / "mine/fig1/cpu-paper"
    assert {file.name for file in copied.iterdir()} == {
        "verdict.json",
        "data.csv",
        "table.csv",
        "figure0.svg",
    }
    record = json.loads((copied / "verdict.json").read_text())
    assert record["commands"] == [
        "dpfl-bench reproduce mine/fig1 scale=cpu reading=paper",
        "dpfl-bench run -m rounds=3 outputs=outputs/papers",
    ]
    assert record["runs"] == ["0123456789"]
    assert "the optimum is interior" in (here / "report.html").read_text()


def test_the_tables_are_written_between_the_marks(here: Path) -> None:
    finished()
    why = {"verdict": "cannot be tested at this scale", "evidence": "5 | rounds"}
    claim = json.loads((finished() / "verdict.json").read_text())["claims"][0]
    finished(at="cpu-exact", claims=[{**claim, **why}])
    commit_reports.main(["out"])
    text = Path("PAGE.md").read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{commit_reports.END}\nafter\n")
    assert "### mine: claim by claim" in text
    row = "| `c`: the optimum is interior | fig1 | holds | cannot be tested at this scale: 5 \\| rounds |"
    assert row in text.splitlines()
    readme = Path("README.md").read_text()
    assert readme.startswith("before\n")
    assert "| `normalized/fig2` | 6 s | 8 min | 4 min | not run yet | not run yet |" in readme.splitlines()
    commit_reports.main([])
    assert Path("PAGE.md").read_text() == text


@pytest.mark.parametrize("top", ["tmp", "home", "root"])
@pytest.mark.parametrize("around", ["{}", "see {}", "`{}`"])
def test_a_folder_of_the_machine_is_refused(around: str, top: str, here: Path) -> None:
    finished(lacks={"main": around.format(f"/{top}/me/data")})
    with pytest.raises(SystemExit, match="expected no folder of this machine"):
        commit_reports.main(["out"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data.csv", "claims.csv"])
def test_a_long_table_is_packed_the_same_way_each_time(name: str, here: Path) -> None:
    (finished() / name).write_text(long := DATA + DATA.splitlines()[1] * 9000)
    packed = here / f"mine/fig1/cpu-paper/{name}.gz"
    commit_reports.main(["out"])
    before = packed.read_bytes()
    assert gzip.decompress(before).decode() == long
    commit_reports.main(["out"])
    assert packed.read_bytes() == before
    assert not packed.with_name(name).exists()


def test_a_slim_picture_has_the_same_places() -> None:
    """Each number to a hundredth, in the same order; and the words."""
    full = (finished() / "figure0.svg").read_text()
    slim = commit_reports.slim(full)
    assert len(slim) < 0.5 * len(full)
    assert commit_reports.slim(slim) == slim
    no_letters = (re.sub(r'<path id="(DejaVuSans|G)[^>]*>', "", svg) for svg in (full, slim))
    paths = [re.findall(r'\sd="([^"]*)', svg) for svg in no_letters]
    numbers = [[float(n) for n in re.findall(r"-?\d+\.?\d*", " ".join(each))] for each in paths]
    assert numbers[1] == pytest.approx(numbers[0], abs=0.01)
    letters = [re.findall(r"[A-Za-z]", " ".join(each)) for each in paths]
    assert letters[1] == letters[0]
    root = ElementTree.fromstring(slim)
    words = [element.text for element in root.iter() if element.tag.endswith("}text")]
    assert {"Errors", "DP-FedAvg", "FedAvg"} <= set(words)
    ids = {element.get("id") for element in root.iter()}
    links = {value[1:] for element in root.iter() for key, value in element.attrib.items() if key == "href"}
    assert links <= ids


def test_long_lines_lose_what_nobody_sees() -> None:
    """No point of the full line is farther than a tenth of a point from the thinned one."""
    rounds = range(400)
    height = [100 * math.exp(-k / 80) + 3 * math.sin(k) * (k % 7 == 0) for k in rounds]
    line = "M" + "L".join(f"{k} {y:.2f}" for k, y in zip(rounds, height, strict=True))
    found = re.fullmatch(r"M.*", line)
    assert found
    kept = [tuple(map(float, point.split())) for point in commit_reports.thinned(found)[1:].split("L")]
    assert len(kept) < 300
    drawn = np.interp(rounds, *zip(*kept, strict=True))
    assert np.abs(drawn - height).max() < 0.5, "where it is steep, upright differs more"
    steep = np.hypot(1, np.gradient(height))
    assert (np.abs(drawn - height) / steep).max() <= 0.11
    assert commit_reports.slim(f'<svg><path d="{line}z"/></svg>').count("L") == len(kept) - 1


def test_formulas_keep_their_letters_and_words_are_escaped() -> None:
    marks = [Mark("", "", "a", float(k), 10.0**k) for k in range(-6, 6)]
    look = Look(title="a < b & c, a title of many words", y_log=True, width="single")
    save(draw(marks, look), Path("figure"), ("svg",))
    slim = commit_reports.slim(Path("figure.svg").read_text())
    root = ElementTree.fromstring(slim)
    assert "a < b & c, a title of many words" in [element.text for element in root.iter()]
    assert "mathdefault{10^{" in slim
    ids = {element.get("id") for element in root.iter()}
    links = {value[1:] for element in root.iter() for key, value in element.attrib.items() if key == "href"}
    assert {link for link in links if link.startswith("G")} <= ids
    assert any(link.startswith("G") for link in links)

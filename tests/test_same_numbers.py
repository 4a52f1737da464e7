"""scripts/same_numbers: versions with the same numbers are equal, and a moved number is seen."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
import run_numbers

ROOT = Path(__file__).parent.parent
KEPT = shutil.ignore_patterns(".*", "outputs", "tests", "docs")
TABLE = "seed,round,eps\n0,0,0.0\n0,1,0.5\n"
MOVED = {"metrics": TABLE.replace("0.5", "0.6")}


# the comparison


def command(folder: Path, code: int = 0, **changes: Any) -> Path:
    """The folder of a command with one run."""
    run = folder / "runs" / folder.name  # run ids differ between the sides
    run.mkdir(parents=True)
    (folder / "said.1.json").write_text(json.dumps({"code": code, "out": "", "err": "why\nbecause\n"}))
    result = {"run_id": folder.name, "seconds": len(folder.name), "eps": 0.5, "says": "a", "sizes": [3, 4]}
    files = {"metrics": TABLE, "result": result, "privacy": {"eps": 0.5, "views": {"server": 0.5}}} | changes
    (run / "metrics.csv").write_text(files["metrics"])
    for name in ("result", "privacy"):
        (run / f"{name}.json").write_text(json.dumps(files[name]))
    return folder


def verdict_of(tmp_path: Path, rename: Callable[[str], str] = str, **changes: Any) -> run_numbers.Verdict:
    return run_numbers.verdict(command(tmp_path / "old"), command(tmp_path / "newer", **changes), rename)


def test_the_same_numbers_are_equal(tmp_path: Path) -> None:
    """Whatever the run's id, and however long it takes."""
    assert verdict_of(tmp_path) == run_numbers.Verdict("equal")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"metrics": TABLE.replace("0.5", "0.50000000001")},
            "metrics.csv: row 2: eps was '0.5', now '0.50000000001'",
        ),
        (
            {"metrics": TABLE.replace("eps", "epsilon").replace("0.5", "0.6").replace("0,1", "0,2")},
            "metrics.csv: row 2: round was '1', now '2'",
        ),
        ({"metrics": "a,b,c\n" + TABLE.partition("\n")[2]}, "metrics.csv: no column is on both sides"),
        ({"metrics": TABLE + "0,2,0.7\n"}, "metrics.csv: row 3: seed was '', now '0'"),
        ({"metrics": TABLE[:-1]}, "metrics.csv: row 3: an end of line"),
        ({"result": {"eps": 0.5000000001}}, "result.json: eps was 0.5, now 0.5000000001"),
        ({"result": {"eps": None}}, "result.json: eps was 0.5, now None"),
        ({"result": {"sizes": [3, 5]}}, "result.json: sizes.1 was 4, now 5"),
        ({"privacy": {"views": {"server": float("inf")}}}, "privacy.json: views.server was 0.5, now inf"),
        ({"code": 1}, "exit codes were [0], now [1]"),
    ],
)
def test_what_moves_is_named(tmp_path: Path, changes: dict[str, Any], line: str) -> None:
    verdict = verdict_of(tmp_path, **changes)
    assert verdict.word == "DIFFERS"
    assert verdict.lines[0].startswith(line)


def test_keys_of_one_side_and_other_texts_are_listed(tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path, result={"eps": 0.5, "says": "b", "more": 1})
    assert verdict.word == "equal"
    assert set(verdict.notes) == {
        "result.json: says has another text",
        "result.json: more is in NEW alone",
        "result.json: sizes.0 is in OLD alone",
        "result.json: sizes.1 is in OLD alone",
    }


def test_columns_of_one_side_are_listed(tmp_path: Path) -> None:
    """Wherever they stand in the table; the others are compared."""
    new = "seed,norm,round,eps,more\n0,,0,0.0,7\n0,1.5,1,0.5,\n"
    verdict = verdict_of(tmp_path, metrics=new)
    assert verdict.word == "equal"
    assert verdict.notes == [f"metrics.csv: column {name} is in NEW alone" for name in ("norm", "more")]
    moved = verdict_of(tmp_path / "again", metrics=new.replace("0.5", "0.6"))
    assert moved.lines == ["metrics.csv: row 2: eps was '0.5', now '0.6'"]
    lost = verdict_of(tmp_path / "third", metrics="seed,round\n0,0\n0,1\n")
    assert (lost.word, lost.notes) == ("equal", ["metrics.csv: column eps is in OLD alone"])


def test_names_may_change(tmp_path: Path) -> None:
    """A number under its new name is compared with that under the old one."""

    def rename(word: str) -> str:
        return "epsilon" if word == "eps" else word

    changes = {"metrics": TABLE.replace("eps", "epsilon"), "result": {"epsilon": 0.6}}
    verdict = verdict_of(tmp_path, rename, **changes)
    assert verdict.lines == ["result.json: epsilon was 0.5, now 0.6"]


@pytest.mark.parametrize(
    ("code", "lost", "line"),
    [
        (2, None, "NEW: exit code 2: because"),
        (None, None, "NEW: exit code None: because"),
        (1, "result.json", "NEW: 1 of 1 runs did not end: because"),
        (0, "privacy.json", "NEW: [Errno 2] "),
    ],
)
def test_a_run_that_fails_is_a_failure(tmp_path: Path, code: Any, lost: str | None, line: str) -> None:
    old, new = command(tmp_path / "old"), command(tmp_path / "newer", code)
    if lost:
        (new / "runs" / "newer" / lost).unlink()
    verdict = run_numbers.verdict(old, new, str)
    assert verdict.word == "FAILED"
    assert verdict.lines[0].startswith(line)


def test_a_run_that_was_not_interrupted_is_a_failure(tmp_path: Path) -> None:
    old, new = command(tmp_path / "old"), command(tmp_path / "newer")
    shutil.copyfile(new / "said.1.json", new / "said.2.json")
    assert run_numbers.verdict(old, new, str).lines == ["NEW: the run was not interrupted: exit code 0"]


class Played:
    """Stands for the process of a side that has played its commands before."""

    def wait(self) -> int:
        return 0


@pytest.mark.parametrize(
    ("changes", "check", "code"), [({}, False, 0), (MOVED, False, 1), (MOVED, True, 0), ({}, True, 1)]
)
def test_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], check: bool, code: int
) -> None:
    """Of one command that both sides have played; under --check it has to differ."""
    sides = [tmp_path / "old", tmp_path / "new"]
    command(sides[0] / "runs" / "0")
    command(sides[1] / "runs" / "0", **changes)
    module = script()
    monkeypatch.setattr(module, "start", lambda *_: Played())
    assert module.compare(sides, ["run"], {}, check) == code


# the script


def same_numbers(*arguments: Path | str) -> tuple[int, str]:
    """Exit code and output."""
    script = [sys.executable, ROOT / "scripts" / "same_numbers", *arguments]
    done = subprocess.run(script, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def script() -> Any:
    """The script as a module."""
    loader = SourceFileLoader("same_numbers", str(ROOT / "scripts" / "same_numbers"))
    module = module_from_spec(spec_from_loader(loader.name, loader) or pytest.fail("no module"))
    loader.exec_module(module)
    return module


def alter(checkout: Path, file: str, old: str, new: str) -> None:
    (path,) = checkout.rglob(file)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@dataclass(frozen=True)
class Compared:
    """What the script says of this checkout and of a changed one, in the folder `kept`."""

    code: int
    output: str
    kept: Path

    def lines(self, words: str) -> list[str]:
        """Of the commands that contain these words."""
        return [line for line in self.output.splitlines() if f" run {words}" in line.replace("  ", " ")]


RENAMED = ("privacy.colluding", "privacy.spies")
UNCHANGED = "run algo=dp_fedavg dataset=synthetic"
MISSING = ("fedexp", "dp_fedsgd")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """A constant has moved, an option has another name, a module and a YAML file are gone."""
    folder = tmp_path_factory.mktemp("compared")
    changed = Path(shutil.copytree(ROOT, folder / "changed", ignore=KEPT))
    alter(changed, "dp_normfedavg.yaml", "  bound: normalise", "  bound: normalise\n  clip: 0.300001")
    for name in ("fedexp.py", "dp_fedsgd.yaml"):
        (path,) = changed.rglob(name)
        path.unlink()
    for file in [*changed.rglob("*.py"), *changed.rglob("*.yaml")]:
        if "colluding" in (text := file.read_text()):
            file.write_text(text.replace("colluding", "spies"))
    texts = ("algo=dp_normfedavg", "privacy.colluding=3", *(f"algo={name} " for name in MISSING))
    only = [word for text in (*texts, UNCHANGED) for word in ("--only", text)]
    renamed = ("--renamed", *RENAMED, "--renamed", "nothing", "something")
    code, output = same_numbers(ROOT, changed, *only, *renamed, "--keep", folder / "kept")
    return Compared(code, output, folder / "kept")


@pytest.mark.slow
def test_a_checkout_differs_from_a_changed_one(compared: Compared) -> None:
    """The changed constant moves the run with privacy, and not the one without."""
    assert compared.code == 1
    assert "DIFFERS  run algo=dp_normfedavg privacy=local" in compared.output, compared.output
    assert "now 0.300001" in compared.output
    assert "equal    run algo=dp_normfedavg" in compared.output, "eps=inf has no clip"
    several = [line for line in compared.output.splitlines() if UNCHANGED in line]
    assert several
    assert [line for line in several if not line.startswith("equal")] == []


@pytest.mark.slow
def test_the_negative_control_holds() -> None:
    code, output = same_numbers("--check", ROOT, "--only", "run -m")
    assert (code, output.count("DIFFERS")) == (0, 2), output


@pytest.mark.slow
def test_no_code_is_taken_from_elsewhere(compared: Compared) -> None:
    """A module or a YAML file that NEW lacks is not taken from this checkout."""
    asked = [line for name in MISSING for line in compared.lines(f"algo={name} ")]
    failed = [line for line in compared.output.splitlines() if line.startswith("FAILED")]
    assert sorted(failed) == sorted(asked), compared.output
    assert {line.split()[2] for line in failed} == {f"algo={name}" for name in MISSING}
    assert compared.output.count("NEW: ") == len(failed)
    assert "OLD: " not in compared.output


@pytest.mark.slow
def test_an_option_may_get_another_name(compared: Compared) -> None:
    """Its JSON key too; unless that is said, the key is noted."""
    (line,) = (line for line in compared.output.splitlines() if RENAMED[0] in line)
    assert line.startswith("equal"), compared.output
    assert "note: result.json: colluding is in OLD alone (" in compared.output
    played = json.loads((compared.kept / "old" / "commands.json").read_text())
    (number,) = (number for number, command in enumerate(played) if RENAMED[0] in command)
    rename = partial(script().in_new_words, renamed=dict([RENAMED, ("colluding", "spies")]))
    sides = (compared.kept / side / "runs" / str(number) for side in ("old", "new"))
    told = run_numbers.verdict(*sides, rename)
    assert (told.word, [note for note in told.notes if "colluding is in" in note]) == ("equal", [])


def test_arguments_that_cannot_be(tmp_path: Path) -> None:
    assert same_numbers("HEAD")[0] == 2
    assert same_numbers("--check", "HEAD", "HEAD")[0] == 2
    assert same_numbers(ROOT, ROOT, "--only", "no such words")[0] == 2
    assert same_numbers(ROOT, ROOT, "--keep", tmp_path)[0] == 2
    assert same_numbers("no-such-revision", "HEAD")[0] == 2

"""Every command of README.md, CONTRIBUTING.md and docs/: what is quick runs, all others at least
compose.

`plan` runs, and prints the numbers that stand beside it. `run` is composed and validated by its own
`--dry-run`, so a key that was renamed fails here. `status`, `collect` and `replay` run on the
README's run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.command import call, read
from helpers.pages import ROOT, WITH_COMMANDS, Line, lines

from dpfl_bench.sweep.recipe import Recipe

pytestmark = pytest.mark.one_in(6)


STARTS = re.compile(r"(dpfl-bench|scripts/\w+|\.venv/bin/\S+|pip|export|source)( |$)")
FLAGS = {"-m", "--dry-run", "--force", "--accept"}  # of `run`, which a dry run of one job does without


@dataclass(frozen=True)
class Command:
    line: Line
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text, comments=True)

    @property
    def verb(self) -> str:
        return self.words[1] if len(self.words) > 1 else ""

    @property
    def arguments(self) -> list[str]:
        return self.words[2:]

    @property
    def promised(self) -> list[str]:
        """Numbers of its comment that it prints; behind a semicolon stand those of other
        settings.
        """
        comment = self.text.partition(" # ")[2]
        return re.findall(r"\b\d+\.\d{3,}\b", re.split("; [a-z_]+=", comment)[0])

    def __str__(self) -> str:
        return str(self.line)


def commands() -> Iterator[Command]:
    for page in WITH_COMMANDS:
        if page.name == "extend.md":  # test_extend.py runs all of them
            continue
        text, first = "", None
        for line in lines(page):
            if line.kind != "code" or line.language not in ("", "sh"):
                continue
            if not text and not STARTS.match(line.text.strip()):
                continue
            first = first if text and first else line
            text = f"{text} {line.text.strip()}".strip()
            if not text.endswith("\\"):
                yield Command(first, text)
                text = ""
            else:
                text = text.removesuffix("\\")


ALL = list({command.text: command for command in commands()}.values())  # each text once
OURS = [command for command in ALL if command.words[0] == "dpfl-bench"]


def of(*verbs: str) -> list[Command]:
    return [command for command in OURS if command.verb in verbs]


def test_commands_are_noticed() -> None:
    """No verb is left out below, and each page with a block of commands has some."""
    assert {command.verb for command in OURS} <= {
        "run",
        "plan",
        "audit",
        "list",
        "status",
        "collect",
        "data",
        "replay",
        "reproduce",
        "version",
    }
    assert len(of("run")) > 30
    assert len(of("plan")) > 30


def test_numbers_beside_a_command_are_noticed() -> None:
    text = "dpfl-bench plan eps=2     # multiplier 6.30499 at 2; rounds=50: 15.8509"
    assert Command(ALL[0].line, text).promised == ["6.30499"]
    assert sum(len(command.promised) for command in of("plan")) > 30


@pytest.mark.parametrize("command", of("plan"), ids=str)
def test_plan_prints_what_stands_beside_it(command: Command) -> None:
    said = call("plan", *command.arguments)
    assert said.code == 0, said.err
    assert [
        number for number in command.promised if not re.search(rf"\b{re.escape(number)}\b", said.out)
    ] == []


def _blocks(page: Path, section: str = "") -> dict[str, str]:
    """Language -> the fenced code of it on the page, or below one of its headings."""
    heading, code = "", []
    for line in lines(page):
        heading = line.text.lstrip("# ") if line.kind == "heading" else heading
        if line.kind == "code" and section in ("", heading):
            code.append(line)
    return {
        language: "\n".join(line.text for line in code if line.language == language)
        for language in ("python", "yaml")
    }


def _dry(command: Command) -> list[str]:
    """The command without training. Of a range of seeds the first two: the others differ in nothing
    else.
    """
    if "--cfg" in command.arguments:
        return ["run", *command.arguments]
    words = [_two(word) for word in command.arguments if word not in FLAGS]
    return ["run", "-m", "--dry-run", *words]


def _two(word: str) -> str:
    key, seeds, numbers = word.partition("=range(")
    first, _, step = (int(number) for number in numbers.rstrip(")").split(",")) if seeds else (0, 0, 0)
    return f"{key}=range({first},{first + 2 * step},{step})" if seeds else word


@pytest.mark.parametrize("command", of("run"), ids=str)
def test_run_composes(command: Command) -> None:
    if "=best:" in command.text:  # tests/sweep/test_stages.py has runs to take the best of
        assert "expected folders with runs" in call(*_dry(command)).err
        return
    said = call(*_dry(command))
    assert said.code == 0, said.err


def test_a_renamed_key_is_noticed() -> None:
    line = of("run")[0].line
    for text in (
        "dpfl-bench run algo=dp_scaffnew epz=2",
        "dpfl-bench run -m eps=1,2 privacy.clips=1",
        "dpfl-bench run algo=no_such",
    ):
        assert call(*_dry(Command(line, text))).code == 2


def test_the_launcher_of_contributing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = _blocks(ROOT / "CONTRIBUTING.md", "Add a launcher")["python"]
    (tmp_path / "nice_launcher.py").write_text(shown)
    (tmp_path / "hydra" / "launcher").mkdir(parents=True)
    (tmp_path / "hydra" / "launcher" / "nice.yaml").write_text("_target_: nice_launcher.Nice\nlevel: 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    quick = ("rounds=1", "local_steps=1", "plot=false", "engine.workers=1")
    said = call("run", "-m", "-cd", str(tmp_path), "hydra/launcher=nice", "eps=1,2", *quick)
    assert said.code == 0, said.err
    assert said.err.endswith("2 of 2 jobs done\n")


@pytest.mark.parametrize("command", of("list", "version"), ids=str)
def test_lists(command: Command) -> None:
    assert call(*command.words[1:]).out


@pytest.mark.parametrize("command", of("data"), ids=str)
def test_data(command: Command) -> None:
    """What needs no files runs; of the rest the data set exists."""
    verb, *rest = command.arguments
    if verb in ("list", "show"):
        said = call("data", verb, *rest)
        assert said.code == 0, said.err
    else:
        assert verb in ("fetch", "verify")
        assert (ROOT / "conf" / "dataset" / f"{rest[0]}.yaml").is_file()


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the artefact of docs/artefacts.md."""
    folder = tmp_path_factory.mktemp("artefact")
    (folder / "paper" / "mine").mkdir(parents=True)
    shown = _blocks(ROOT / "docs" / "artefacts.md", "An artefact of one's own")["yaml"]
    (folder / "paper" / "mine" / "fig1.yaml").write_text(shown)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("command", of("reproduce"), ids=str)
def test_reproduce_knows_what_it_would_run(
    command: Command, artefact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the first jobs of each sweep; tests/papers/test_scales.py asks all."""
    every = Recipe.jobs
    monkeypatch.setattr(Recipe, "jobs", lambda *recipe_and_stage: every(*recipe_and_stage)[:2])
    words = [str(artefact) if word == "DIR" else word for word in command.arguments]
    said = call("reproduce", *(word for word in words if word not in FLAGS), "--dry-run")
    assert said.code == 0, said.err
    assert "jobs" in said.out


@pytest.mark.slow
def test_the_artefact_of_the_page_is_reproduced(artefact: Path) -> None:
    """A stranger's YAML becomes a figure, a table and a verdict."""
    said = call("reproduce", "mine/fig1", "-cd", str(artefact), "scale=smoke")
    assert said.code == 0, said.err
    folder = Path(said.out.strip())
    names = {file.name for file in folder.iterdir() if file.is_file()}
    assert names >= {"figure.pdf", "figure.svg", "figure.png", "table.csv", "data.csv", "verdict.json"}
    claim = json.loads((folder / "verdict.json").read_text())["claims"][0]
    assert claim["says"] == "DP-ScaffNew outperforms DP-FedAvg"
    assert claim["verdict"] in ("holds", "does not hold", "undecided")


@pytest.mark.parametrize("command", of("status", "collect", "replay", "audit"), ids=str)
def test_what_reads_runs_knows_its_arguments(command: Command) -> None:
    """In an empty folder: it misses the run, and nothing else."""
    if command.verb == "audit" and "=" in command.words[2]:
        pytest.skip("it asks about settings, and needs no run")
    said = call(*command.words[1:])
    assert said.code == 2
    assert "usage:" not in said.err
    assert "outputs" in said.err


def _run_of_the_readme() -> str:
    return str(call("run", "-m", "--dry-run", "algo=dp_scaffnew", "eps=2").out.split()[0])


def test_run_folders_that_a_page_names_are_the_readme_s() -> None:
    named = {
        name
        for page in WITH_COMMANDS
        for name in re.findall(r"outputs/runs/([0-9a-f]{10})\b", page.read_text())
    }
    assert named == {_run_of_the_readme()}


@pytest.mark.slow
def test_the_readme_s_run_and_what_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run prints what the README shows; status, collect and replay work on it as they stand.
    So do those of a packaged sweep, whose folder holds the same run here.
    """
    readme = (ROOT / "README.md").read_text()
    said = call("run", "algo=dp_scaffnew", "eps=2")
    assert said.code == 0, said.err
    assert f"    {said.err.strip()}\n    {said.out.strip()}\n" in readme
    for sweep in (ROOT / "conf" / "experiment").glob("*.yaml"):
        shutil.copytree("outputs/runs", f"outputs/{sweep.stem}/runs")
    for command in of("status", "collect", "replay"):
        done = call(*command.words[1:])
        assert done.code == 0, f"{command}: {done.err}"
    _partition_hash(said.folder.absolute(), monkeypatch)


def _partition_hash(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/results.md shows how to rebuild the partition, and its hash."""
    monkeypatch.chdir(folder)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(_blocks(ROOT / "docs" / "results.md")["python"], {})
    assert printed.getvalue().strip() == read(folder, "result.json")["partition"]["hash"]


@pytest.mark.parametrize("command", [command for command in ALL if command not in OURS], ids=str)
def test_other_commands_name_what_is_there(command: Command) -> None:
    """Scripts and their flags, extras of the package."""
    program, *rest = command.words
    if program == ".venv/bin/python":
        program, *rest = rest
        source = (ROOT / program).read_text()
        assert [flag for flag in rest if flag.startswith("--") and f'"{flag}"' not in source] == []
    elif program.startswith("scripts/"):
        assert os.access(ROOT / program, os.X_OK)


def test_extras_that_a_page_names_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {
        name
        for page in WITH_COMMANDS
        for name in re.findall(r"(?:\.|dpfl-bench)\[([a-z,]+)\]", page.read_text())
    }
    assert {name for several in named for name in several.split(",")} <= set(extras)
    assert "slurm" in named

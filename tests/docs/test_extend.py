"""docs/extend.md: its files are written, its commands run, and it shows what `dpfl-bench new`
writes.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command import call
from helpers.pages import ROOT, lines

from dpfl_bench.machine import imports

PAGE = ROOT / "docs" / "extend.md"
FILE = re.compile(r"`((?:own/)?\w+(?:/\w+)*\.(?:py|yaml))`")
QUICK = ("default_total_steps=4", "default_local_steps=2", "plot=false", "engine.workers=1")
NEW = {"algorithm": "fedprox", "dataset": "clouds", "model": "small_network"}


def files() -> dict[str, str]:
    """Path -> content: a block of code is of the file that the text before it named last."""
    named, found, code = "", {}, []
    for line in lines(PAGE):
        if line.kind == "prose" and (names := FILE.findall(line.text)):
            named = names[-1]
        elif line.kind == "code" and line.language:
            code.append(line.text)
        elif line.kind == "fence" and code:
            found[named], code = "\n".join(code) + "\n", []
    return found


def commands() -> list[list[str]]:
    found = [shlex.split(line.text) for line in lines(PAGE) if line.kind == "code" and not line.language]
    return [words for words in found if words and words[:2] != ["dpfl-bench", "new"]]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the page's files, and the data that its script makes."""
    folder, path, before = tmp_path_factory.mktemp("page"), [*sys.path], Path.cwd()
    for name, content in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    os.chdir(folder)
    runpy.run_path("make_data.py")
    yield folder
    os.chdir(before)
    sys.path[:] = path
    imports.OWN.clear()
    for name in {Path(name).stem for name in files()} & {*sys.modules}:
        del sys.modules[name]


@pytest.fixture(autouse=True)
def there(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(page)


def test_the_page_has_an_example_of_each_kind() -> None:
    assert set(files()) == {
        *("own/fedprox.py", "own/algo/fedprox.yaml", "own/clouds.py", "own/dataset/clouds.yaml"),
        *("own/small_network.py", "own/model/small_network.yaml", "make_data.py"),
        *("own/ladder.py", "own/partition/ladder.yaml", "own/accountants/zcdp.py"),
    }
    assert len(commands()) > 12


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_a_command_of_the_page_runs(words: list[str]) -> None:
    quick = QUICK if words[1] == "run" else ()
    said = call(*words[1:], *quick)
    assert said.code == 0, said.err


def test_a_run_of_own_code_is_replayed_from_its_folder_alone(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = call("run", "-cd", "own", "algo=fedprox", *QUICK).folder.absolute()
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place not in imports.OWN])
    monkeypatch.setattr(imports, "OWN", [])
    monkeypatch.delitem(sys.modules, "fedprox")
    monkeypatch.chdir(tmp_path)
    said = call("replay", str(run), "--check", "--to", str(tmp_path / "again"))
    assert said.code == 0, said.err
    assert str(page / "own") in imports.OWN


def test_a_sweep_tells_where_a_parameter_is_set() -> None:
    said = call("run", "-m", "--dry-run", *commands()[-2][3:])
    assert "algo.mu is set for fedprox; dp_fedavg has no such parameter" in said.err
    assert "24 jobs, " in said.out


@pytest.mark.parametrize("kind", NEW)
def test_new_writes_what_the_page_shows(kind: str) -> None:
    said = call("new", kind, NEW[kind], "--to", f"new/{kind}")
    written = [Path(line) for line in said.out.splitlines()]
    assert len(written) == 3
    shown = {name: files()[str(Path("own", *name.parts[2:]))] for name in written[:2]}
    assert {name: name.read_text() for name in shown} == shown
    again = call("new", kind, NEW[kind], "--to", f"new/{kind}")
    assert (again.code, again.err.count("it is there already")) == (2, 1)


@pytest.mark.parametrize("kind", NEW)
def test_what_new_writes_passes_its_test(kind: str, tmp_path: Path) -> None:
    """With the page's own files, which are the same."""
    call("new", kind, NEW[kind], "--to", str(tmp_path / "new"))
    name = f"test_{NEW[kind]}.py"
    Path("own", name).write_text((tmp_path / "new" / name).read_text())
    tests = runpy.run_path(f"own/{name}")
    ran = [test(tmp_path / key) for key, test in tests.items() if key.startswith("test_")]
    assert len(ran) == 2


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("algorithm fedavg", "fedavg: algo=fedavg is there already; expected another name"),
        ("dataset json", "json: Python has a module of that name"),
        ("dataset numpy", "numpy: Python has a module of that name"),
        ("model Big", "Big: expected a name of small letters"),
        ("modle x", "argument kind: invalid choice"),
    ],
)
def test_a_name_that_will_not_do_is_refused(words: str, line: str) -> None:
    said = call("new", *words.split(), "--to", "refused")
    assert said.code == 2
    assert line in said.err
    assert not Path("refused").exists()


def test_an_accountant_below_the_tightest_is_refused(page: Path) -> None:
    text = files()["own/accountants/zcdp.py"].replace('"zcdp"', '"low"')
    (page / "own/accountants/low.py").write_text(text.replace("return rho +", "return 0.1 * rho + 0.1 *"))
    said = call("plan", "-cd", "own", "privacy.accountant=low", "eps=2")
    assert said.code == 2
    assert said.err.startswith("dpfl-bench: privacy.accountant=low: it says eps=")
    (page / "own/accountants/low.py").write_text("ACCOUNTANT = 3\n")
    assert (
        "expected ACCOUNTANT = Accountant('low', "
        in call("plan", "-cd", "own", "privacy.accountant=low", "eps=2").err
    )

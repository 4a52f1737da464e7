"""How the files lie: names that say what is inside, sizes that fit a screen or two, and test
modules that stand alone.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import dpfl_bench

PACKAGE = Path(dpfl_bench.__file__).parent
TESTS = Path(__file__).parent
IN_THE_ROOT = {"__init__.py", "__main__.py", "cli.py", "notebook.py", "rng.py"}
MOST_LINES = 300
SAYS_NOTHING = re.compile(r"(^|_)(utils?|common|helpers?|misc|tools?|managers?|handlers?)(_|$)")


def package_files() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path.name != "_build.py")


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


# the package


def test_the_root_has_few_files() -> None:
    assert {path.name for path in PACKAGE.glob("*.py")} - {"_build.py"} <= IN_THE_ROOT


def test_files_are_short() -> None:
    lines = {name_of(path): len(path.read_text().splitlines()) for path in package_files()}
    assert len(lines) > 100
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}


def test_names_say_what_is_inside() -> None:
    names = {name_of(path): path.relative_to(PACKAGE).with_suffix("").parts for path in package_files()}
    assert [name for name, parts in names.items() if any(map(SAYS_NOTHING.search, parts))] == []


@pytest.mark.parametrize("name", ["utils", "data_utils", "common", "test_helpers", "tools_for_data"])
def test_names_that_say_nothing_are_seen(name: str) -> None:
    assert SAYS_NOTHING.search(name)


@pytest.mark.parametrize("name", ["commons", "helped", "toolbox", "utilisation"])
def test_other_names_are_not(name: str) -> None:
    assert not SAYS_NOTHING.search(name)


# the tests


def imported(source: str) -> set[str]:
    """Every name that an import statement of a file mentions, and each part of a dotted one."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {part for alias in node.names for part in alias.name.split(".")}
        elif isinstance(node, ast.ImportFrom):
            names |= {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return names


def in_text(source: str) -> set[str]:
    """The modules that code within a file's strings imports, for a process of its own."""
    return set(re.findall(r"(?:from|import) (test_\w+|conftest)\b", source))


def borrowed(source: str, modules: set[str]) -> set[str]:
    """The test modules that a file takes something from; conftest.py is one of them."""
    return (imported(source) | in_text(source)) & {*modules, "conftest"}


def test_no_test_module_is_imported() -> None:
    """What tests share lies in tests/helpers/, fixtures in conftest.py."""
    modules = {path.stem for path in TESTS.rglob("test_*.py")}
    files = {path.relative_to(TESTS).as_posix(): path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    assert len(modules) > 50
    taken = {name: borrowed(source, modules) for name, source in files.items()}
    assert {name: names for name, names in taken.items() if names} == {}


@pytest.mark.parametrize("module", ["test_a", "conftest"])
@pytest.mark.parametrize(
    "statement",
    [
        "from {} import b",
        "import {}",
        "from x.{} import b",
        "from x import {}",
        "def f():\n    import {} as y",
    ],
)
def test_imports_of_test_modules_are_seen(statement: str, module: str) -> None:
    assert borrowed(statement.format(module), {"test_a"}) == {module}


@pytest.mark.parametrize("script", ["import {}; {}.main()", "from {} import main; main()"])
def test_those_of_a_script_in_a_string_are_seen(script: str) -> None:
    assert borrowed(f"SCRIPT = {script.format('test_a', 'test_a')!r}", {"test_a"}) == {"test_a"}


def test_helpers_may_be_imported() -> None:
    assert not borrowed("from helpers.crews import in_chunks\nimport pytest", {"test_a"})

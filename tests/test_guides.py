"""Each package says in its `__init__.py` what its files do: with a table, of every file there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import dpfl_bench

ROOT = Path(dpfl_bench.__file__).parent
PACKAGES = sorted(file.parent for file in ROOT.rglob("__init__.py") if "conf" not in file.parts)


def listed(guide: str) -> set[str]:
    """The files and folders in the first column of a guide's table; `.py` may be left out."""
    rows = re.findall(r"^\| ([^|]+) \|", guide, re.M)
    names = [name.strip("` ") for row in rows for name in row.split(", ")]
    return {name if name.endswith((".py", "/")) else f"{name}.py" for name in names}


def present(package: Path) -> set[str]:
    folders = {f"{folder.name}/" for folder in package.iterdir() if (folder / "__init__.py").exists()}
    return folders | {file.name for file in package.glob("*.py")} - {"__init__.py"}


def guide_of(package: Path) -> str:
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""


@pytest.mark.parametrize("package", PACKAGES[1:], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_package_says_what_its_files_do(package: Path) -> None:
    guide = guide_of(package)
    assert guide, f"{package.name}/__init__.py: expected what the package is, and a table of its files"
    if "| file |" in guide:
        assert listed(guide) - {"file.py", "---.py"} == present(package)


def test_the_reader_of_tables(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for name in ("__init__.py", "a.py", "b.py", "inner/__init__.py"):
        (tmp_path / name).touch()
    assert listed("| file | is |\n|---|---|\n| a, `b.py` | x |\n| inner/ | y |") - {"file.py"} == present(
        tmp_path
    )
    assert listed("| a.py | x |") != present(tmp_path)

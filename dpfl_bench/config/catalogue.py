"""What there is to choose from, read from the YAML files: the first comment is the one line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

GROUPS = ("algo", "dataset", "model", "partition", "privacy")  # of which every run has one option each
EXPERIMENT = "experiment"  # +experiment=NAME sets values of all groups, and what a sweep takes
TITLES = {
    "algo": "algorithms (algo=...)",
    "dataset": "data sets (dataset=...)",
    "model": "models (model=...)",
    "partition": "partitions (partition=...)",
    "privacy": "privacy models (privacy=...)",
    EXPERIMENT: "experiments (run -m +experiment=...)",
}


def entries(config_dir: str | None = None) -> list[dict[str, str | None]]:
    """name, group, line, module of every choice; a user's folder adds to (and hides) the shipped
    ones.
    """
    options = {(group, file.stem): file for group in TITLES for file in named(group, config_dir)}
    return [_entry(group, file) for (group, _), file in options.items()]


def launchers(config_dir: str | None = None) -> dict[str, str | None]:
    """The class that each YAML file in hydra/launcher/ names; None where it takes another
    file's.
    """
    return {file.stem: _target(_lines(file)) for file in named("hydra/launcher", config_dir)}


def text(entries: list[dict[str, Any]]) -> str:
    """The list for a person."""
    width = max(len(entry["name"]) for entry in entries)
    parts = []
    for group, title in TITLES.items():
        rows = [f"  {e['name']:{width}}  {e['line']}" for e in entries if e["group"] == group]
        parts.append(f"{title}\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def named(group: str, config_dir: str | None) -> Iterator[Path]:
    """The YAML files of a folder. Ours first, so that a user's file of one name comes later."""
    for folder in (Path(str(files("dpfl_bench.conf"))), *([Path(config_dir)] if config_dir else [])):
        yield from sorted(file for file in folder.glob(f"{group}/[!_]*.yaml") if file.is_file())


def first_comment(lines: Iterable[str]) -> str:
    """What `list` says of a file."""
    comments = (line.lstrip("# ") for line in lines if line.startswith("#") and "@package" not in line)
    return next(comments, "")


def _entry(group: str, file: Path) -> dict[str, str | None]:
    lines = _lines(file)
    return {"name": file.stem, "group": group, "line": first_comment(lines), "module": _target(lines)}


def _target(lines: list[str]) -> str | None:
    targets = [line.removeprefix("_target_:").strip() for line in lines if line.startswith("_target_:")]
    return targets[0] if targets else None


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text(errors="replace").splitlines()]

"""What there is to choose from, read from the YAML files: the first comment is the one line."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from dpfl_bench.config.compose import GROUPS

TITLES = {
    "algo": "algorithms",
    "dataset": "data sets",
    "model": "models",
    "partition": "partitions",
    "privacy": "privacy models",
}


def entries(config_dir: str | None = None) -> list[dict[str, str | None]]:
    """name, group, line, module of every choice; a user's folder adds to (and hides) the shipped
    ones.
    """
    folders = [Path(str(files("dpfl_bench.conf"))), *([Path(config_dir)] if config_dir else [])]
    found = {
        (g, f.stem): f for folder in folders for g in GROUPS for f in sorted((folder / g).glob("[!_]*.yaml"))
    }
    return [_entry(group, file) for (group, _), file in found.items()]


def _entry(group: str, file: Path) -> dict[str, str | None]:
    lines = [line.strip() for line in file.read_text().splitlines()]
    comments = [line.lstrip("# ") for line in lines if line.startswith("#") and "@package" not in line]
    targets = [line.removeprefix("_target_:").strip() for line in lines if line.startswith("_target_:")]
    return {
        "name": file.stem,
        "group": group,
        "line": comments[0] if comments else "",
        "module": targets[0] if targets else None,
    }


def text(found: list[dict[str, Any]]) -> str:
    """The list for a person."""
    width = max(len(entry["name"]) for entry in found)
    parts = []
    for group in GROUPS:
        rows = [f"  {e['name']:{width}}  {e['line']}" for e in found if e["group"] == group]
        parts.append(f"{TITLES[group]} ({group}=...)\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)

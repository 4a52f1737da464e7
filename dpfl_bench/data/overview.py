"""What `data list` shows: every data set of the YAML files, whose it is, how to get it, and what of
it is on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpfl_bench.checks import yaml_file
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.data.folder import data_root, fetch_command
from dpfl_bench.data.source import FETCH, how_of, in_words, presence_of, source_of
from dpfl_bench.machine import imports

UNKNOWN = "not known"


def absent(dataset: Mapping[str, Any]) -> str:
    """One line where none of the files that a run would read is here and the run would not download
    them; empty else. A user's own module is not asked.
    """
    source = source_of(dataset)
    presence = presence_of(dataset, source)
    if source is None or presence is None or presence.state != "missing" or source.downloads(dataset):
        return ""
    name, how = str(dataset["name"]), how_of(dataset, source)
    fetch = fetch_command(name, data_root(dataset.get("root")))
    if source.remedy is not None:
        remedy = source.remedy(dataset)
    elif how == FETCH:
        remedy = f"`{fetch}`"
    else:
        remedy = f"`{fetch}` says how ({how}), or set dataset.root or DPFL_DATA_DIR"
    return (
        f"dataset={name}: {presence.folder} lacks {_few([*presence.lacks])}, jobs on this machine would"
        f" fail: {remedy}"
    )


def entries(config_dir: str | None = None, own_code: bool = False) -> list[dict[str, Any]]:
    """Every data set; those in a user's folder are added, and hide shipped ones of their name.

    own_code: import a user's own modules too, whose SOURCE says which of their files are here.
    """
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(
            f"-cd {config_dir}: expected a folder with configs, there is none of that name; correct the path"
        )
    if config_dir is not None:
        imports.add_folder(config_dir)
    folders = [Path(str(files("dpfl_bench.conf"))), *([Path(config_dir)] if config_dir else [])]
    chosen = {
        file.stem: file for folder in folders for file in sorted((folder / "dataset").glob("[!_]*.yaml"))
    }
    return [_entry(name, _plain(file), own_code) for name, file in chosen.items()]


def _entry(name: str, dataset: Mapping[str, Any], own_code: bool) -> dict[str, Any]:
    source = source_of(dataset, own_code)
    presence = presence_of(dataset, source)
    return {
        "name": name,
        "module": dataset.get("_target_"),
        "state": presence.state if presence else "unknown",
        "root": str(data_root(dataset.get("root"))),
        "folder": str(presence.folder) if presence and presence.folder else None,
        "missing": list(presence.lacks) if presence else [],
        "bytes": presence.bytes if presence else 0,
        "records": dataset.get("records"),
        "get": how_of(dataset, source),
        "licence": dataset.get("licence", UNKNOWN),
        "source": dataset.get("address", UNKNOWN),
    }


def _plain(file: Path) -> dict[str, Any]:
    """The file's single values; what refers to other files of a whole config is left out."""
    from omegaconf.errors import OmegaConfBaseException

    loaded = yaml_file.loaded(file)
    values: dict[str, Any] = {}
    for key in loaded:
        try:
            value = loaded[key]
        except OmegaConfBaseException:
            continue
        if value is None or isinstance(value, str | int | float):
            values[str(key)] = value
    return values


def text(listed: list[dict[str, Any]]) -> str:
    """The list for a person."""
    root = data_root(None)
    chosen = (
        "DPFL_DATA_DIR"
        if os.environ.get("DPFL_DATA_DIR")
        else "the cache; set DPFL_DATA_DIR or dataset.root for another"
    )
    head = ("name", "there", "on disk", "training", "how to get it", "below the folder", "licence; source")
    rows = [head, *(_row(entry, root) for entry in listed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]])
        for row in rows
    ]
    partly = [
        f"  {entry['name']}: lacks {_few(entry['missing'])}" for entry in listed if entry["state"] == "partly"
    ]
    notes = [
        "ready: the files are there, unopened (dpfl-bench data verify NAME); training: the records that the"
        " whole set trains on"
    ]
    if partly:
        notes += ["partly there:", *partly]
    return "\n".join([f"data folder: {root} ({chosen})", "", *lines, "", *notes]) + "\n"


def _row(entry: Mapping[str, Any], root: Path) -> tuple[str, ...]:
    folder = Path(entry["folder"]) if entry["folder"] else None
    below = "" if folder is None else str(folder.relative_to(root) if folder.is_relative_to(root) else folder)
    on_disk = in_words(entry["bytes"]) if entry["bytes"] else ""
    records = "" if entry["records"] is None else str(entry["records"])
    return (
        entry["name"],
        entry["state"],
        on_disk,
        records,
        entry["get"],
        below,
        f"{entry['licence']}; {entry['source']}",
    )


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")

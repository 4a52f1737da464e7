"""What `data list` shows: every data set of the YAML files, whose it is, how to get it, and what of
it is on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.data.presence import loader, presence, size
from dpfl_bench.data.root import data_root, fetch_command

_LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html"
_UCI = "https://archive.ics.uci.edu"
_CIFAR = "https://www.cs.toronto.edu/~kriz/cifar.html"
_EMNIST = "https://www.nist.gov/itl/products-and-services/emnist-dataset"
_LEAF = "https://github.com/TalwalkarLab/leaf"


class Source(NamedTuple):
    licence: str  # as its publishers say, or where they say it; not legal advice
    url: str


_NIST = "of NIST SD 19, see https://www.nist.gov/open/license"
SOURCES = {
    "a9a": Source("CC BY 4.0 (UCI Adult)", _LIBSVM),
    "breast_cancer": Source("see the source (UCI)", f"{_UCI}/dataset/17"),
    "cifar10": Source("none stated; cite Krizhevsky 2009", _CIFAR),
    "cifar100": Source("none stated; cite Krizhevsky 2009", _CIFAR),
    "digits": Source("CC BY 4.0 (UCI)", f"{_UCI}/dataset/80"),
    "emnist_balanced": Source(f"{_NIST}; cite Cohen et al. 2017", _EMNIST),
    "emnist_bymerge": Source(f"{_NIST}; cite Cohen et al. 2017", _EMNIST),
    "fashion_mnist": Source("MIT", "https://github.com/zalandoresearch/fashion-mnist"),
    "femnist": Source(f"{_NIST}; cite Caldas et al. 2018", _LEAF),
    "ixi": Source("CC BY-SA 3.0", "https://data.mendeley.com/datasets/7kd5wj7v7p"),
    "libsvm": Source("that of your file", "dataset.path=FILE"),
    "messidor": Source(
        "research and education only, not to be passed on; by agreement",
        "https://www.adcis.net/en/third-party/messidor/",
    ),
    "mnist": Source("CC BY-SA 3.0, as Keras says", "http://yann.lecun.com/exdb/mnist/"),
    "mushrooms": Source(f"see {_UCI}/dataset/73 (UCI Mushroom)", _LIBSVM),
    "phishing": Source(f"see {_UCI}/dataset/327 (UCI Phishing Websites)", _LIBSVM),
    "quadratics": Source("none needed", "generated"),
    "reddit": Source("none stated; posts of Reddit's users, cite Caldas et al. 2018", _LEAF),
    "shakespeare": Source("Project Gutenberg's, see https://www.gutenberg.org/policy/license.html", _LEAF),
    "synthetic_linear": Source("none needed", "generated"),
    "synthetic_logistic": Source("none needed", "generated"),
}
_UNKNOWN = Source("not known", "not known")
_HOW = {
    **dict.fromkeys(("digits", "breast_cancer"), "bundled with scikit-learn"),
    **dict.fromkeys(("femnist", "shakespeare"), "by LEAF's scripts"),
    "reddit": "by hand, from LEAF",
    **dict.fromkeys(("ixi", "messidor"), "by hand, after an agreement"),
    "synthetic": "generated",
    "vision": "data fetch",
}


def how(dataset: Mapping[str, Any]) -> str:
    """How to get a data set with these keys: `data fetch`, or in words."""
    if loader(dataset) == "libsvm":
        return "data fetch" if dataset.get("url") else "your own file"
    return _HOW.get(loader(dataset), "its own loader's way")


def absent(dataset: Mapping[str, Any]) -> str:
    """One line where none of the files that a run would read is here and the run would not download
    them; empty else.
    """
    looked = presence(dataset)
    if looked is None or looked.state != "missing" or _downloads(dataset):
        return ""
    name, way = str(dataset["name"]), how(dataset)
    if loader(dataset) == "libsvm":
        remedy = "put it there, or set dataset.path, dataset.root or DPFL_DATA_DIR"
    else:
        fetch = fetch_command(name, data_root(dataset.get("root")))
        remedy = (
            f"`{fetch}`"
            if way == "data fetch"
            else f"`{fetch}` says how ({way}), or set dataset.root or DPFL_DATA_DIR"
        )
    return (
        f"dataset={name}: {looked.folder} lacks {_few([*looked.missing])}, jobs on this machine would fail:"
        f" {remedy}"
    )


def _downloads(dataset: Mapping[str, Any]) -> bool:
    """Whether loading fetches what is missing."""
    if loader(dataset) == "libsvm":
        return bool(dataset.get("url")) and not dataset.get("path")
    return bool(dataset.get("download"))


def entries(config_dir: str | None = None) -> list[dict[str, Any]]:
    """Every data set; those in a user's folder are added, and hide shipped ones of their name."""
    if config_dir is not None and not Path(config_dir).is_dir():
        raise ConfigError(
            f"-cd {config_dir}: expected a folder with configs, there is none of that name; correct the path"
        )
    folders = [Path(str(files("dpfl_bench.conf"))), *([Path(config_dir)] if config_dir else [])]
    found = {
        file.stem: file for folder in folders for file in sorted((folder / "dataset").glob("[!_]*.yaml"))
    }
    shipped = folders[0] / "dataset"
    return [
        _entry(name, file, SOURCES.get(name, _UNKNOWN) if file.parent == shipped else _UNKNOWN)
        for name, file in found.items()
    ]


def _entry(name: str, file: Path, source: Source) -> dict[str, Any]:
    dataset = _plain(file)
    looked = presence(dataset)
    return {
        "name": name,
        "module": dataset.get("_target_"),
        "state": looked.state if looked else "unknown",
        "root": str(data_root(dataset.get("root"))),
        "folder": str(looked.folder) if looked and looked.folder else None,
        "missing": list(looked.missing) if looked else [],
        "bytes": looked.bytes if looked else 0,
        "records": dataset.get("records"),
        "get": how(dataset),
        "licence": source.licence,
        "source": source.url,
    }


def _plain(file: Path) -> dict[str, Any]:
    """The file's single values; what refers to other files of a whole config is left out."""
    from omegaconf import DictConfig, OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError  # omegaconf brings it

    try:
        loaded = OmegaConf.load(file)
    except (YAMLError, OSError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise ConfigError(f"{file}: expected YAML ({' '.join(str(error).split())}); correct it") from None
    values: dict[str, Any] = {}
    if not isinstance(loaded, DictConfig):
        raise ConfigError(f"{file}: expected keys and values; correct it")
    for key in loaded:
        try:
            value = loaded[key]
        except OmegaConfBaseException:
            continue
        if value is None or isinstance(value, str | int | float):
            values[str(key)] = value
    return values


def text(found: list[dict[str, Any]]) -> str:
    """The list for a person."""
    root = data_root(None)
    chosen = (
        "DPFL_DATA_DIR"
        if os.environ.get("DPFL_DATA_DIR")
        else "the cache; set DPFL_DATA_DIR or dataset.root for another"
    )
    head = ("name", "there", "on disk", "training", "how to get it", "below the folder", "licence; source")
    rows = [head, *(_row(entry, root) for entry in found)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head) - 1)]
    lines = [
        "  ".join([*(cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=True)), row[-1]])
        for row in rows
    ]
    partly = [
        f"  {entry['name']}: lacks {_few(entry['missing'])}" for entry in found if entry["state"] == "partly"
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
    on_disk = size(entry["bytes"]) if entry["bytes"] else ""
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

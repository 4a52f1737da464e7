"""`data fetch` and `data verify`: a data set loaded once, and what can be said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench.data import image_sets, libsvm, vision
from dpfl_bench.data.download import file_checksum
from dpfl_bench.data.prepare import prepare
from dpfl_bench.data.presence import Presence, libsvm_files, loader, presence
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.root import data_root
from dpfl_bench.data.sources import SOURCES, how
from dpfl_bench.data.torchvision_import import import_torchvision

Load = Callable[[Mapping[str, Any]], Records]
Report = dict[str, Any]
OK, UNVERIFIED, MISMATCH, MISSING = "checksum ok", "not verified", "checksum mismatch", "missing"
MANY = 8  # files with one verdict: told in one line


def fetched(name: str, dataset: Mapping[str, Any], load: Load) -> Report:
    """Load with downloading allowed; a DataError says what to do where that is not enough."""
    before = presence(dataset)
    allowed = {**dataset, "download": True} if "download" in dataset else dataset
    report = _report(name, allowed, load(allowed))
    needs_none = before is not None and before.folder is None
    done = how(dataset) if needs_none else "already there" if before == presence(dataset) else "fetched"
    rest = (
        f"{how(dataset)}, {SOURCES[name].url}"
        if report["subset"] and how(dataset) != "data fetch" and name in SOURCES
        else ""
    )
    return {**report, "done": done, "rest": rest, "code": 0}


def verified(name: str, dataset: Mapping[str, Any], load: Load) -> Report:
    """Load what is there. `code` 0: whole and verified; 1: a subset, or not verified; 2: with the
    `error`.
    """
    offline = {**dataset, "download": False} if "download" in dataset else dataset
    try:
        _all_there(name, dataset)
        report = _report(name, offline, load(offline))
    except DataError as error:
        return {
            "name": name,
            "whole": False,
            "verified": False,
            "parts": _parts_of_bad(dataset),
            "error": str(error),
            "code": 2,
        }
    return {**report, "code": 0 if report["whole"] and report["verified"] else 1}


def _all_there(name: str, dataset: Mapping[str, Any]) -> None:
    """LIBSVM's loader downloads what is missing, which verifying must not."""
    looked = presence(dataset)
    if loader(dataset) == "libsvm" and looked and looked.missing and dataset.get("url"):
        steps = libsvm.remedy(name, data_root(dataset.get("root")), bool(dataset.get("test_url")))
        raise DataError(f"{name}: no file {', '.join(looked.missing)}: {steps}")


def _report(name: str, dataset: Mapping[str, Any], raw: Records) -> Report:
    """What was found in records that were loaded; prepare() refuses what cannot be trained on."""
    records = prepare(raw, test_fraction=0.0, standardise="none", unit_norm=False, seed=0)
    looked = presence(dataset)
    parts = [] if looked is None or looked.folder is None else _parts(dataset, looked)
    needs_none = looked is not None and looked.folder is None
    classify = records.task == "classify" and records.classes > 0
    return {
        "name": name,
        "source": records.source,
        "folder": str(looked.folder) if looked and looked.folder else None,
        "training": len(records.train_y),
        "test": len(records.test_y),
        "expected": records.expected,
        "counted": records.counted,
        "subset": records.subset,
        "whole": records.expected is not None and not records.subset,
        "verified": needs_none or (bool(parts) and all(part["verdict"] == OK for part in parts)),
        "parts": parts,
        "shape": list(records.train_x.shape[1:]),
        "dtype": str(records.train_x.dtype),
        "task": records.task,
        "classes": records.classes,
        "classes_found": len(np.unique(records.train_y)) if classify else None,
        "owners": None if records.owners is None else int(records.owners.max()) + 1,
    }


def _parts(dataset: Mapping[str, Any], looked: Presence) -> list[dict[str, str]]:
    """A verdict for each file after a load that raised nothing: where the loader verifies
    checksums, they were right.
    """
    match loader(dataset):
        case "vision":
            read, verdict = _kind(dataset).files, OK if dataset["verify"] else UNVERIFIED
            found = {
                file: verdict if (Path(str(looked.folder)) / file).is_file() else MISSING for file in read
            }
        case "libsvm":
            found = {
                str(file): OK if dataset["verify"] and sha256 else UNVERIFIED
                for file, sha256 in libsvm_files(dataset).items()
            }
        case _:
            found = {str(file): UNVERIFIED for file in looked.there}
    return [{"file": file, "verdict": verdict} for file, verdict in found.items()]


def _parts_of_bad(dataset: Mapping[str, Any]) -> list[dict[str, str]]:
    """A verdict for each file after a load that failed, as far as there are checksums to compare
    with.
    """
    looked = presence(dataset)
    if looked is None or looked.folder is None:
        return []
    if loader(dataset) == "vision":
        found = _vision_verdicts(dataset, looked.folder)
    elif loader(dataset) == "libsvm":
        found = _libsvm_verdicts(dataset)
    else:
        found = {str(file): UNVERIFIED for file in looked.there} | dict.fromkeys(looked.missing, MISSING)
    return [{"file": file, "verdict": verdict} for file, verdict in found.items()]


def _vision_verdicts(dataset: Mapping[str, Any], folder: Path) -> dict[str, str]:
    kind = _kind(dataset)
    archive_missing = (
        bool(kind.split) and not (folder / image_sets.ZIP).is_file()
    )  # it holds EMNIST's checksums
    try:
        wrong = vision.differing(kind, getattr(import_torchvision().datasets, kind.source), folder)
    except vision.UNREADABLE:
        return {file: UNVERIFIED if (folder / file).is_file() else MISSING for file in kind.files}
    unread = archive_missing or image_sets.ZIP in wrong
    there = {file: MISMATCH if file in wrong else UNVERIFIED if unread else OK for file in kind.files}
    return {file: verdict if (folder / file).is_file() else MISSING for file, verdict in there.items()}


def _kind(dataset: Mapping[str, Any]) -> image_sets.ImageSet:
    named = str(dataset["name"]).replace("_", "").lower()
    return next(kind for title, kind in image_sets.SETS.items() if title.replace("_", "").lower() == named)


def _libsvm_verdicts(dataset: Mapping[str, Any]) -> dict[str, str]:
    verdicts = {}
    for file, sha256 in libsvm_files(dataset).items():
        there = file.is_file()
        verdicts[str(file)] = (
            MISSING
            if not there
            else UNVERIFIED
            if sha256 is None
            else OK
            if file_checksum(file) == sha256
            else MISMATCH
        )
    return verdicts


def text(report: Report) -> str:
    """The report for a person."""
    name, parts = report["name"], _lines(report["parts"])
    if "error" in report:
        return "\n".join([f"{name}: cannot be used as it is", *parts]) + "\n"
    done = f"{report['done']}, " if "done" in report else ""
    count = report["training"] + report["test"]
    whole = "whole" if report["whole"] else report["subset"] or "how many the whole set has is not known"
    of = (
        f"{', cut from {} {}'.format(*report['counted']) if report['counted'] else ''} of"
        f" {report['expected'] or '?'}"
    )
    checks = "no files to verify" if not parts else "checksums ok" if report["verified"] else "not verified"
    return (
        "\n".join(
            [
                f"{name}: {done}{whole}, {checks}",
                f"  {report['source']}",
                (
                    f"  {count} records ({report['training']} training, {report['test']}"
                    f" test){of}{_owners(report)}"
                ),
                f"  shape {'x'.join(map(str, report['shape']))} {report['dtype']}, {_classes(report)}",
                *parts,
                *([f"  the rest: {report['rest']}"] if report.get("rest") else []),
            ]
        )
        + "\n"
    )


def _lines(parts: list[dict[str, str]]) -> list[str]:
    """A line for each file; one for all of those that a folder is full of."""
    verdicts = [part["verdict"] for part in parts]
    many = {verdict for verdict in verdicts if verdicts.count(verdict) > MANY}
    single = [f"  {part['file']}: {part['verdict']}" for part in parts if part["verdict"] not in many]
    return [*single, *(f"  {verdicts.count(verdict)} files: {verdict}" for verdict in sorted(many))]


def _owners(report: Report) -> str:
    return "" if report["owners"] is None else f", of {report['owners']} natural clients"


def _classes(report: Report) -> str:
    if report["classes_found"] is not None:
        return f"{report['classes']} classes, {report['classes_found']} of them in the training records"
    return {"segment": "masks", "next_token": f"next of {report['classes']} tokens"}.get(
        report["task"], "numbers as targets"
    )

"""`data fetch` and `data verify`: a data set loaded once, and what can be said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dpfl_bench.data import source as sources
from dpfl_bench.data.prepare import prepare
from dpfl_bench.data.records import DataError, Records
from dpfl_bench.data.source import FETCH, OK, Source

Load = Callable[[Mapping[str, Any]], Records]
Report = dict[str, Any]
MANY = 8  # files with one verdict: one line for all


def fetched(name: str, dataset: Mapping[str, Any], load: Load) -> Report:
    """Load with downloading allowed; a DataError says what to do where that is not enough."""
    source = sources.source_of(dataset, own=True)
    before = sources.presence_of(dataset, source)
    allowed = {**dataset, "download": True} if "download" in dataset else dataset
    report = _report(name, allowed, load(allowed), source)
    after, how = sources.presence_of(dataset, source), sources.how_of(dataset, source)
    needs_none = before is not None and before.folder is None
    done = how if needs_none else "already there" if before == after else "fetched"
    address = dataset.get("address")
    rest = f"{how}, {address}" if report["subset"] and how != FETCH and address else ""
    return {**report, "done": done, "rest": rest, "code": 0}


def verified(name: str, dataset: Mapping[str, Any], load: Load) -> Report:
    """Load what is there. `code` 0: whole and verified; 1: a subset, or not verified; 2: with the
    `error`.
    """
    source = sources.source_of(dataset, own=True)
    try:
        offline = dataset if source is None else source.offline(dataset)
        report = _report(name, offline, load(offline), source)
    except DataError as error:
        return {
            "name": name,
            "whole": False,
            "verified": False,
            "parts": _parts(dataset, source, loaded=False),
            "error": str(error),
            "code": 2,
        }
    return {**report, "code": 0 if report["whole"] and report["verified"] else 1}


def _report(name: str, dataset: Mapping[str, Any], raw: Records, source: Source | None) -> Report:
    """What the loaded records are. prepare() refuses what cannot be trained on."""
    records = prepare(raw, test_fraction=0.0, standardise="none", unit_norm=False, seed=0)
    presence = sources.presence_of(dataset, source)
    folder = presence.folder if presence else None
    parts = _parts(dataset, source, loaded=True)
    needs_none = presence is not None and folder is None
    classify = records.task == "classify" and records.classes > 0
    return {
        "name": name,
        "source": records.source,
        "folder": str(folder) if folder else None,
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


def _parts(dataset: Mapping[str, Any], source: Source | None, loaded: bool) -> list[dict[str, str]]:
    """A verdict for each file, after a load that raised nothing or after one that failed."""
    verdicts = sources.verdicts_of(dataset, source, loaded)
    return [{"file": file, "verdict": verdict} for file, verdict in verdicts.items()]


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

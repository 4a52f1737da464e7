"""What became of an artefact's claims and printed numbers: verdict.json, and what is beside it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dpfl_bench.papers import budgets, figures, printed, tables
from dpfl_bench.papers.artefact import Artefact, Claim
from dpfl_bench.papers.gather import Evidence
from dpfl_bench.papers.overview import FILE
from dpfl_bench.papers.printed import Match
from dpfl_bench.results.escape import plain
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.select.sources import Run, Source
from dpfl_bench.results.verdicts.claim import test
from dpfl_bench.results.verdicts.group import UNDECIDED, Outcome

UNTESTED = "cannot be tested at this scale"


def folder(outputs: str, artefact: Artefact) -> Path:
    return Path(outputs) / artefact.paper / artefact.name


def write(evidence: Evidence, command: str, width: str) -> dict[str, Any]:
    """Figures, table, data and verdict into SCALE-READING/ of the artefact's folder, and a copy of
    the latest into the folder itself. Returns verdict.json's content.
    """
    artefact, where = evidence.artefact, evidence.where
    latest = folder(where.outputs, artefact)
    target = latest / f"{where.scale}-{where.reading}"
    marks = {
        name: figures.drawn(figure, evidence.sources(figure.sweeps), artefact.names)
        for name, figure in artefact.figures.items()
    }
    record = _record(evidence, command)
    rows, data = _rows(evidence, marks, record), tables.data(marks, artefact).csv()
    shutil.rmtree(target, ignore_errors=True)  # all of what may be refused is computed
    target.mkdir(parents=True)
    files = RunFolder(target)
    files.write("data.csv", data)
    _write_table(evidence, rows, record, files)
    for name, drawn in marks.items():
        if drawn:
            title = f"{artefact.paper}, {artefact.place}. {artefact.title}"
            chosen = artefact.figures[name]
            note = _note(record, evidence, [source for each in drawn for source in each.cell.sources])
            figures.picture(chosen, drawn, artefact.names, target / name, title, note, width)
    files.write(FILE, record)
    for file in [*latest.iterdir()]:
        if file.is_file():
            file.unlink()
    for file in target.iterdir():
        shutil.copy2(file, latest / file.name)
    return record


def _record(evidence: Evidence, command: str) -> dict[str, Any]:
    artefact, where = evidence.artefact, evidence.where
    reduced = artefact.reduced.get(where.scale, "")
    sources = evidence.sources([])
    matches = [match for each in artefact.printed for match in _matches(each, evidence, reduced)]
    runs = {source.path: source for source in sources if isinstance(source, Run)}  # shared ones once
    return {
        "artefact": artefact.id,
        "scale": where.scale,
        "reading": where.reading,
        "place": artefact.place,
        "title": artefact.title,
        "claims": [_claim(claim, evidence, reduced) for claim in artefact.claims],
        "printed": [match.json() for match in matches],
        "eps": budgets.json(budgets.budgets(sources, artefact)),
        "nominal_how": artefact.nominal.get("how", ""),
        "not_accounted": budgets.leaks(sources),
        "reduced": reduced,
        "lacks": {each.sweep.name: each.lacks for each in evidence.sweeps.values() if each.lacks},
        "open": artefact.open,
        "commands": [command, *(line for each in evidence.sweeps.values() for line in each.commands)],
        "runs": [str(path) for path in runs],
        "seconds": round(sum(run.result["seconds"] for run in runs.values()), 1),
        "origin": _origin(sources),
    }


def _matches(each: Any, evidence: Evidence, reduced: str) -> list[Match]:
    where = evidence.where
    return printed.matches(each, evidence.sources(each.sweeps), where.scale, where.reading, reduced)


def _claim(claim: Claim, evidence: Evidence, reduced: str) -> dict[str, Any]:
    outcome = _outcome(claim, evidence, reduced)
    told = {"id": claim.id, "says": claim.says, "place": claim.place, "kind": claim.kind}
    return {**told, "verdict": outcome.verdict, "evidence": outcome.evidence, "reads": claim.reads}


def _outcome(claim: Claim, evidence: Evidence, reduced: str) -> Outcome:
    scale, chosen = evidence.where.scale, evidence.of(claim.sweeps)
    if scale in claim.untestable or scale not in claim.scales:
        return Outcome(UNTESTED, claim.untestable.get(scale) or reduced or f"not meant for {scale}")
    if evidence.where.reading not in claim.readings:
        return Outcome(UNTESTED, f"a claim of reading={', '.join(claim.readings)}")
    sources = [source for each in chosen for source in each.sources]
    lacks = "; ".join(dict.fromkeys(each.lacks for each in chosen if each.lacks))
    if unfinished := sum(each.unfinished for each in chosen):
        return Outcome(UNDECIDED, f"{unfinished} runs are not finished")
    if any(each.waits for each in chosen):
        return Outcome(UNDECIDED, lacks)
    if not sources and lacks:
        return Outcome(UNTESTED, lacks)
    outcome = test(claim.claimed, sources)
    return Outcome(outcome.verdict, f"{outcome.evidence}; left out: {lacks}") if lacks else outcome


def _origin(sources: Sequence[Source]) -> dict[str, list[str]]:
    """Hashes of data and code, as the runs' result.json has them."""
    parts: dict[str, dict[str, None]] = {}
    for source in sources:
        if isinstance(source, Run):
            for part, value in (source.result.get("origin") or {}).items():
                parts.setdefault(part, {})[str(value)] = None
    return {part: list(values) for part, values in parts.items()}


def _rows(evidence: Evidence, marks: Any, record: dict[str, Any]) -> tables.Rows:
    """The table; beside ours what is printed."""
    artefact, table = evidence.artefact, evidence.artefact.table
    if table is None:
        return tables.of_figures(marks, artefact)
    matches = [m for each in artefact.printed for m in _matches(each, evidence, record["reduced"])]
    return tables.pivot(table, evidence.sources(table.sweeps), artefact, matches)


def _write_table(evidence: Evidence, rows: tables.Rows, record: dict[str, Any], files: RunFolder) -> None:
    artefact = evidence.artefact
    note = _note(record, evidence, evidence.sources([]))
    files.write("table.csv", rows.csv())
    files.write("table.md", f"{rows.markdown()}\n{plain(note)}\n")
    files.write("table.tex", rows.latex(f"{artefact.title}. {note}"))


def _note(record: dict[str, Any], evidence: Evidence, sources: Sequence[Source]) -> str:
    """What stands under figure and table."""
    reading = {"paper": "the paper's own accounting", "exact": "valid accounting"}[record["reading"]]
    lines = [f"{budgets.note(sources, evidence.artefact)} ({reading})"]
    if record["reduced"]:
        lines.append(f"reduced: {record['reduced']}")
    if record["lacks"]:
        lines.append(f"not here: {'; '.join(dict.fromkeys(record['lacks'].values()))}")
    return ". ".join(lines)

"""What became of an artefact's claims and printed numbers: verdict.json, and what is beside it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from dpfl_bench.papers.artefact import Claim, Printed
from dpfl_bench.papers.evidence import Evidence
from dpfl_bench.papers.overlays import ACCOUNTING
from dpfl_bench.papers.overview import FILE
from dpfl_bench.results import made
from dpfl_bench.results.collect import audited
from dpfl_bench.results.escape import plain
from dpfl_bench.results.exhibits import figure, table
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.select import budgets
from dpfl_bench.results.select.cells import Cell, cells, is_where
from dpfl_bench.results.select.sources import Run, Source
from dpfl_bench.results.verdicts import taken, untrained
from dpfl_bench.results.verdicts.claim import DIGITS, test
from dpfl_bench.results.verdicts.group import UNDECIDED, Outcome
from dpfl_bench.results.verdicts.printed import Match, matches

UNTESTED = "cannot be tested at this scale"
Judged = Sequence[tuple[Claim, Outcome]]
Blocks = Sequence[tuple[Printed, Sequence[Match]]]


def write(evidence: Evidence, command: str, width: str) -> dict[str, Any]:
    """Figures, table, data and verdict into SCALE-READING/ of the artefact's folder, and a copy of
    the latest into the folder itself. Returns verdict.json's content.
    """
    artefact, names, nominal = evidence.artefact, evidence.artefact.names, evidence.artefact.nominal.eps
    marks = {
        name: figure.drawn(each, evidence.sources(each.sweeps), names)
        for name, each in artefact.figures.items()
    }
    blocks = []
    for block in artefact.printed:
        elsewhere = block.elsewhere(evidence.scale, evidence.reading, evidence.reduced)
        blocks.append((block, matches(block, evidence.sources(block.sweeps), elsewhere)))
    shown = [each.cell for drawn in marks.values() for each in drawn]
    data = table.of_marks(marks, nominal)
    if artefact.table is None:
        rows = table.of_figures(artefact.figures, marks, nominal)
    else:
        chosen = evidence.sources(artefact.table.sweeps)
        rows = table.pivot(artefact.table, chosen, names, blocks, nominal)
        data.rows.extend(table.numbers(artefact.table, chosen, names, nominal))
        shown += cells(chosen, artefact.table.question(*artefact.table.groups))
    judged = [(claim, _outcome(claim, evidence)) for claim in artefact.claims]
    record = _record(evidence, command, judged, blocks, shown)
    note = _note(record, evidence.sources(), nominal)
    texts = {
        "data.csv": data.csv(),
        "claims.csv": table.Rows(taken.HEAD, [*_taken(judged)]).csv(),
        "table.csv": rows.csv(),
        "table.md": f"{rows.markdown()}\n{plain(note)}\n",
        "table.tex": rows.latex(f"{artefact.title}. {note}"),
    }
    target = evidence.folder / f"{evidence.scale}-{evidence.reading}"
    shutil.rmtree(target, ignore_errors=True)  # all of what may be refused is computed
    for name, text in texts.items():
        RunFolder(target).write(name, text)
    for name, drawn in marks.items():
        if drawn:
            title = f"{artefact.paper}, {artefact.place}. {artefact.title}"
            shown_here = [source for each in drawn for source in each.cell.sources]
            note = _note(record, shown_here, nominal, artefact.figures[name].y)
            figure.picture(artefact.figures[name], drawn, names, target / name, title, note, width)
    RunFolder(target).write(FILE, record)
    for file in [*evidence.folder.iterdir()]:
        if file.is_file():
            file.unlink()
    for file in target.iterdir():
        shutil.copy2(file, evidence.folder / file.name)
    return record


def _record(
    evidence: Evidence, command: str, judged: Judged, blocks: Blocks, shown: Sequence[Cell]
) -> dict[str, Any]:
    artefact, sweeps, sources = evidence.artefact, evidence.sweeps.values(), evidence.sources()
    runs = {source.path: source for source in sources if isinstance(source, Run)}  # shared ones once
    return {
        "artefact": artefact.id,
        "scale": evidence.scale,
        "reading": evidence.reading,
        "place": artefact.place,
        "title": artefact.title,
        "claims": [_told(claim, outcome) for claim, outcome in judged],
        "printed": [asdict(match) for _, found in blocks for match in found],
        "untrained": untrained.compared(source for cell in shown for source in cell.sources),
        "eps": budgets.json(budgets.budgets(sources, artefact.nominal.eps)),
        "nominal_how": artefact.nominal.how,
        "not_accounted": budgets.leaks(sources),
        "reduced": evidence.reduced,
        "lacks": {each.name: each.lacks for each in sweeps if each.lacks},
        "open": artefact.open,
        "commands": [command, *(line for each in sweeps for line in each.commands)],
        "unfinished": sum(each.unfinished for each in sweeps),
        "runs": [str(path) for path in runs],
        **({"audited": told} if (told := audited.of_runs(runs)) else {}),
        "seconds": round(sum(run.result["seconds"] for run in runs.values()), 1),
        "origin": _origin([*runs.values()]),
        "made": made.of_sources(sources),
    }


def _told(claim: Claim, outcome: Outcome) -> dict[str, Any]:
    return {
        **{"id": claim.id, "says": claim.says, "place": claim.place, "kind": claim.kind},
        **{"verdict": outcome.verdict, "evidence": outcome.evidence, "reads": claim.reads},
        "test": claim.definition,
        "cells": {label: cell.verdict for label, cell in outcome.cells.items()},
    }


def _taken(judged: Judged) -> Iterator[list[str]]:
    """The rows of claims.csv."""
    for claim, outcome in judged:
        for label, cell in outcome.cells.items():
            yield from taken.rows(claim.id, label, cell.taken)


def _outcome(claim: Claim, evidence: Evidence) -> Outcome:
    scale, chosen = evidence.scale, evidence.of(claim.sweeps)
    if scale in claim.untestable or scale not in claim.scales:
        return Outcome(UNTESTED, claim.untestable.get(scale) or evidence.reduced or f"not meant for {scale}")
    if evidence.reading not in claim.readings:
        return Outcome(UNTESTED, f"a claim of reading={', '.join(claim.readings)}")
    sources = evidence.sources(claim.sweeps)
    lacks = "; ".join(dict.fromkeys(each.lacks for each in chosen if each.lacks))
    if unfinished := sum(each.unfinished for each in chosen):
        return Outcome(UNDECIDED, f"{unfinished} runs are not finished")
    if any(each.waits for each in chosen):
        return Outcome(UNDECIDED, lacks)
    if not sources and lacks:
        return Outcome(UNTESTED, lacks)
    outcome, told = test(claim, sources, DIGITS), [f"left out: {lacks}"] if lacks else []
    if untrained.nothing_learnt(source for source in sources if is_where(source, claim.where)):
        told.insert(0, untrained.NOTHING)
    return replace(outcome, evidence="; ".join([outcome.evidence, *told]))


def _origin(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Hashes of data and code, as the runs' result.json has them."""
    parts: dict[str, dict[str, None]] = {}
    for run in runs:
        for part, value in (run.result.get("origin") or {}).items():
            parts.setdefault(part, {})[str(value)] = None
    return {part: list(values) for part, values in parts.items()}


def _note(record: Mapping[str, Any], sources: Sequence[Source], nominal: float | None, y: str = "") -> str:
    """What stands under figure and table. y: of a figure."""
    lines = [f"{budgets.note(sources, nominal, y)} ({ACCOUNTING[record['reading']]})"]
    lines += [f"reduced: {record['reduced']}"] if record["reduced"] else []
    lacks = "; ".join(dict.fromkeys(record["lacks"].values()))
    return ". ".join([*lines, *([f"not here: {lacks}"] if lacks else [])])

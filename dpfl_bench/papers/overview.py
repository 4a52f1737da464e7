"""`dpfl-bench list papers`: every artefact, and the verdicts of what was reproduced: here, or else
as committed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dpfl_bench
from dpfl_bench.papers.artefact import artefacts, load
from dpfl_bench.results.folder import BROKEN

FILE = "verdict.json"
COMMITTED = Path(dpfl_bench.__file__).parents[1] / "docs" / "reports"  # of a checkout


def entries(outputs: str, config_dir: str | None = None) -> list[dict[str, Any]]:
    """id, line, place, cost by scale; by scale and reading the counts of verdicts of what was
    reproduced here, of the committed rest, and the verdict of each claim of both.
    """
    rows = []
    for name, file in artefacts(config_dir).items():
        artefact = load(file)
        own, known = states(Path(outputs) / "papers", name), states(COMMITTED, name)
        rest = {at: record for at, record in known.items() if at not in own}
        row = {"name": name, "line": artefact.line, "place": artefact.place, "cost": artefact.cost}
        told = {"reproduced": own, "committed": rest}
        counted = {key: {at: counts(record) for at, record in each.items()} for key, each in told.items()}
        claims = {at: _claims(record) for at, record in {**own, **rest}.items()}
        rows.append({**row, **counted, "claims": claims})
    return rows


def _claims(record: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    return {c["id"]: {key: c[key] for key in ("verdict", "evidence")} for c in record["claims"]}


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The list for a person."""
    width = max((len(row["name"]) for row in rows), default=0)
    lines = []
    for row in rows:
        cost = ", ".join(f"{scale} {cost}" for scale, cost in row["cost"].items())
        lines.append(f"{row['name']:{width}}  {row['line']} ({cost})")
        lines += [f"{'':{width}}    {at}: {said}" for at, said in row["reproduced"].items()]
        lines += [f"{'':{width}}    {at}, committed: {said}" for at, said in row["committed"].items()]
    lines.append(f"{len(rows)} artefacts; dpfl-bench reproduce PAPER/ARTEFACT scale=smoke|cpu|full")
    return "\n".join(lines) + "\n"


def states(papers: Path, artefact: str) -> dict[str, dict[str, Any]]:
    """SCALE-READING -> verdict.json, of what was reproduced. What cannot be read is left out.

    papers: outputs/papers, or docs/reports.
    """
    records = {}
    for file in sorted((papers / artefact).glob(f"*/{FILE}")):
        try:
            record = json.loads(file.read_text())
            counts(record)
            _claims(record)
        except (OSError, *BROKEN):
            continue
        records[file.parent.name] = record
    return records


def words_of(record: Mapping[str, Any]) -> dict[str, Counter[str]]:
    """How many claims have each verdict, and how many printed numbers each match."""
    return {
        "claims": Counter(str(claim["verdict"]) for claim in record["claims"]),
        "printed": Counter(str(each["match"]) for each in record["printed"]),
    }


def counts(record: Mapping[str, Any]) -> str:
    """The same in one line."""
    told = {
        part: ", ".join(f"{n} {word}" for word, n in words.items())
        for part, words in words_of(record).items()
    }
    return "; ".join(f"{part}: {said}" for part, said in told.items() if said) or "drawn; nothing to check"

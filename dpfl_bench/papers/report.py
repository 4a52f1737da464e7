"""report.html: everything that was reproduced in one file that opens without a network. Made of the
artefacts' folders alone: verdict.json, table.csv and the figures as SVG.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from dpfl_bench import __version__
from dpfl_bench.papers.artefact import artefacts
from dpfl_bench.papers.inline_svg import Pictures
from dpfl_bench.papers.overview import states
from dpfl_bench.papers.page import WORDS, anchor, chip, counts, ends, facts, lines, number, table, text
from dpfl_bench.papers.shape import SCALES
from dpfl_bench.results.folder import BROKEN, RunFolder

NAME = "report.html"
RUNS_LOOKED_AT = 200  # for versions and commits
LONG = 4  # groups of a claim that are not shown at once
PRINTED = ("what", "where", "printed", "ours", "interval of ours", "difference", "match", "why")
CLAIMS = ("the paper's words", "place", "verdict", "evidence", "our reading")

State = tuple[str, Mapping[str, Any]]  # SCALE-READING, verdict.json


def write(folder: Path, config_dir: str | None = None) -> Path:
    """folder: outputs/papers. Returns the report's path."""
    known = {name: reproduced(folder, name) for name in _names(folder, config_dir)}
    papers: dict[str, dict[str, list[State]]] = {}
    for name, records in known.items():
        papers.setdefault(name.partition("/")[0], {})[name] = records
    content, pictures = [_matrix(papers)], Pictures()
    for paper, of_paper in papers.items():
        done = {name: records for name, records in of_paper.items() if records}
        if done:
            content.append(
                f'<section aria-labelledby="{anchor(paper)}"><h2 id="{anchor(paper)}">{escape(paper)}</h2>'
            )
            content += [_article(name, records, folder, pictures) for name, records in done.items()]
            content.append("</section>")
    template = Path(str(files("dpfl_bench.papers") / NAME)).read_text(encoding="utf-8")
    parts = {
        "INTRODUCTION": _introduction(known),
        "CONTENT": "\n".join([pictures.letters(), *content]),
        "FOOT": _foot(),
    }
    head, *rest = template.split("@@")  # text, name, text, name, ...: what is put in is not read again
    page = head + "".join(parts.get(part, part) for part in rest)
    RunFolder(folder).write(NAME, page)
    return folder / NAME


def _names(folder: Path, config_dir: str | None) -> list[str]:
    """Every artefact that there is a file of, and those that lie here."""
    here = {"/".join(f.parent.parts[-3:-1]) for f in folder.glob("*/*/*/verdict.json")}
    return sorted({*artefacts(config_dir), *here}, key=_in_order)


def _in_order(name: str) -> list[tuple[str, int]]:
    """fig2 before fig10."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"(\D*)(\d*)", name)]


def reproduced(folder: Path, name: str) -> list[State]:
    """By SCALE-READING, the largest scale first."""

    def rank(state: State) -> tuple[int, str]:
        scale = str(state[1].get("scale"))
        return -SCALES.index(scale) if scale in SCALES else 1, "" if state[0].endswith("paper") else state[0]

    return sorted(states(str(folder.parent), name).items(), key=rank)


def _introduction(known: Mapping[str, Sequence[State]]) -> str:
    done = [records[0][1] for records in known.values() if records]
    claims = Counter(str(claim["verdict"]) for record in done for claim in record["claims"])
    matches = Counter(str(each["match"]) for record in done for each in record["printed"])
    return (
        f"<p>{len(done)} of {len(known)} tables and figures, each at the largest scale at which it was run."
        " A verdict is about our runs at that scale; what was smaller than in the paper stands beside it. A"
        " nominal ε is what a paper states; only the ε beside it holds.</p>"
        f'<p class="counts"><span class="soft">Claims:</span> {counts(claims, full=True)}</p>'
        f'<p class="counts"><span class="soft">Printed numbers:</span> {counts(matches, full=True)}</p>'
    )


def _matrix(papers: Mapping[str, Mapping[str, Sequence[State]]]) -> str:
    """Paper by artefact, with the verdicts of the largest scale."""
    parts = ['<section aria-labelledby="overview"><h2 id="overview">All papers</h2>']
    for paper, of_paper in papers.items():
        parts.append(f'<h4>{escape(paper)}</h4><ul class="matrix">')
        for name, records in of_paper.items():
            short = escape(name.partition("/")[2])
            if not records:
                parts.append(f'<li><b>{short}</b><span class="soft">not run</span></li>')
                continue
            at, record = records[0]
            words = Counter(claim["verdict"] for claim in record["claims"])
            words.update(each["match"] for each in record["printed"])
            parts.append(
                f'<li><a href="#{anchor(name)}">{short}</a><span class="soft">{escape(at)}</span>'
                f'<span class="counts">{counts(words)}</span></li>'
            )
        parts.append("</ul>")
    return "".join([*parts, "</section>"])


def _article(name: str, records: Sequence[State], folder: Path, pictures: Pictures) -> str:
    first, *others = records
    parts = [f'<article id="{anchor(name)}" aria-labelledby="{anchor(name)}-title">']
    title = f"{escape(name.partition('/')[2])}: {escape(str(first[1]['title']))}"
    parts.append(f'<h3 id="{anchor(name)}-title">{title}</h3>')
    parts.append(f'<p class="soft">{escape(name)}, {escape(str(first[1]["place"]))}</p>')
    parts.append(_state(name, first, folder, pictures))
    for at, record in others:
        words = escape(f"{at.replace('-', ', reading ')}")
        parts.append(f'<details class="state"><summary>Also at scale {words}</summary>')
        parts.append(f"{_state(name, (at, record), folder, pictures)}</details>")
    return "\n".join([*parts, "</article>"])


def _state(name: str, state: State, folder: Path, pictures: Pictures) -> str:
    at, record = state
    own, here = folder / name / at, f"{anchor(name)}-{anchor(at)}"
    parts = [_facts(record)]
    for place, file in enumerate(sorted(own.glob("*.svg")), start=1):
        parts.append(_figure(file, record, f"{here}-f{place}", pictures))
    if rows := [_claim(claim) for claim in record["claims"]]:
        parts.append(table(f"{here}-claims", "Claims", CLAIMS, rows))
    if rows := [_printed(each) for each in record["printed"]]:
        parts.append(table(f"{here}-printed", "Printed numbers next to ours", PRINTED, rows))
    head, cells = _csv(own / "table.csv")
    if cells:
        parts.append(
            table(f"{here}-table", "Our table", head, [[text(c) for c in row] for row in cells], False)
        )
    parts.append(_origin(record, folder))
    return "\n".join(parts)


def _facts(record: Mapping[str, Any]) -> str:
    known = {
        "scale, reading": escape(f"{record['scale']}, {record['reading']}"),
        "nominal ε → ε that holds": _eps(record["eps"]),
        "nominal ε is": escape(record["nominal_how"]),
        "not accounted": lines(record["not_accounted"]),
        "reduced": escape(record["reduced"]) or "nothing: the paper's setting",
        "not here": lines(dict.fromkeys(record["lacks"].values())),
        "command": f"<code>{escape(record['commands'][0])}</code>" if record["commands"] else "",
        "training": f"{record['seconds']:g} s over {len(record['runs'])} runs" if record["runs"] else "none",
    }
    return facts({key: value for key, value in known.items() if value})


def _eps(eps: Mapping[str, Any]) -> str:
    nominal, valid = eps.get("nominal"), eps.get("valid")
    if nominal is None:
        return ""
    pairs = zip(nominal, valid or [], strict=False) if isinstance(nominal, list) else [(nominal, valid)]
    return "<br>".join(f"{number(stated)} → <b>{ends(holds)}</b>" for stated, holds in pairs)


def _figure(file: Path, record: Mapping[str, Any], prefix: str, pictures: Pictures) -> str:
    made = f"scale {record['scale']}, reading {record['reading']}"
    words = f"{record['title']} ({record['place']}, {file.stem}; {made})"
    picture = pictures.inlined(file, prefix, words)
    if picture is None:
        return ""
    said = f'<figcaption class="small">{escape(record["place"])}: {escape(file.stem)}; {made}</figcaption>'
    region = f'class="paper" role="region" tabindex="0" aria-label="{escape(file.stem)}"'
    return f"<figure><div {region}>{picture}</div>{said}</figure>"


def _claim(claim: Mapping[str, Any]) -> list[str]:
    words = f"<blockquote>{escape(str(claim['says']))}</blockquote>"
    return [
        words,
        text(claim["place"]),
        chip(claim["verdict"]),
        _evidence(claim["evidence"]),
        text(claim["reads"]),
    ]


def _evidence(evidence: str) -> str:
    """What is said of many groups opens on demand."""
    first, *others = str(evidence).split("; ")
    if len(others) < LONG:
        return text(evidence)
    groups = "".join(f"<li>{escape(each)}</li>" for each in others)
    summary = f"<summary>in {len(others)} groups</summary>"
    return f'{text(first)}<details>{summary}<ul class="plain">{groups}</ul></details>'


def _printed(each: Mapping[str, Any]) -> list[str]:
    known = each["ours"] is not None
    std = "" if each["std"] is None else f" ± {number(each['std'])}"
    apart = number(each["ours"] - each["printed"]) if known else ""
    interval = "" if each["interval"] is None else ends(list(each["interval"]))
    place = text(" · ".join(filter(None, (each["place"], each["at"]))))
    numbers = [number(each["printed"]) + std, number(each["ours"]), interval, apart]
    return [text(each["what"]), place, *numbers, chip(each["match"]), text(each["why"])]


def _csv(file: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            head, *rows = list(csv.reader(lines))
            return head, rows
    except (OSError, ValueError):
        return [], []


def _origin(record: Mapping[str, Any], folder: Path) -> str:
    """What it takes to have the same again."""
    commits, versions = _environment(record["runs"], folder)
    origin = {f"hash of {part}": _hashes(values) for part, values in record["origin"].items()}
    told = {"commit": lines(commits), "versions": lines(versions), **origin}
    known = facts({key: value for key, value in told.items() if value})
    commands = "".join(f"<pre>{escape(line)}</pre>" for line in record["commands"])
    choices = "".join(f"<li>{escape(line)}</li>" for line in record["open"])
    said = f'<h4>What the paper leaves open</h4><ul class="plain">{choices}</ul>' if choices else ""
    return f"<details><summary>Choices, commands, versions, hashes</summary>{said}{known}{commands}</details>"


def _hashes(values: Sequence[str], most: int = 12) -> str:
    return " ".join(f"<code>{escape(value)}</code>" for value in values[:most]) + (
        f" and {len(values) - most} more" if len(values) > most else ""
    )


def _environment(runs: Sequence[str], folder: Path) -> tuple[list[str], list[str]]:
    """Commits and versions, as the runs' env.json tell. Their folder may have been moved."""
    commits: dict[str, None] = {}
    versions: dict[str, None] = {}
    for run in runs[:RUNS_LOOKED_AT]:
        try:
            moved = folder / "runs" / Path(run).name
            told = json.loads(((moved if moved.is_dir() else Path(run)) / "env.json").read_text())
            changed = " with changes" if told.get("dirty") else ""
            commits[f"{told.get('commit') or 'unknown'}{changed}"] = None
            packages = [f"{name} {version}" for name, version in told["versions"].items()]
            versions[
                ", ".join([f"dpfl-bench {told['dpfl_bench']}", f"Python {told['python']}", *packages])
            ] = None
        except (OSError, *BROKEN):
            continue
    return list(commits), list(versions)


def _foot() -> str:
    return (
        f"Made by dpfl-bench {escape(__version__)} of outputs/papers. Signs: "
        + " ".join(chip(word) for word in WORDS)
        + "<p>An interval is the 95 % prediction interval of the paper's mean by our seeds. Difference:"
        " ours less printed.</p>"
    )

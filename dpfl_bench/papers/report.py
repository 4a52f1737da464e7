"""report.html: everything that was reproduced in one file that opens without a network. Made of the
artefacts' folders alone: verdict.json, table.csv and the figures as SVG.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from dpfl_bench import __version__
from dpfl_bench.budget import meaning
from dpfl_bench.papers.artefact import artefacts
from dpfl_bench.papers.overlays import ACCOUNTING, SCALES
from dpfl_bench.papers.overview import FILE, states, words_of
from dpfl_bench.results import made
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.pages import page
from dpfl_bench.results.pages.inline_svg import Pictures
from dpfl_bench.results.pages.page import anchor, chip, counts, ends, facts, lines, number, table, text
from dpfl_bench.results.verdicts import untrained

NAME = "report.html"
PRINTED = ("what", "where", "printed", "ours", "interval of ours", "difference", "match", "why")
CLAIMS = ("the paper's words", "place", "verdict", "evidence", "our reading")

EXAMPLE = (2.0, 1e-5)  # eps and delta whose meaning is told

Record = Mapping[str, Any]  # verdict.json
State = tuple[str, Record]  # SCALE-READING


def write(folder: Path, config_dir: str | None = None) -> Path:
    """folder: outputs/papers, or docs/reports. Returns the report's path."""
    known = {name: reproduced(folder, name) for name in _names(folder, config_dir)}
    papers: dict[str, dict[str, list[State]]] = {}
    for name, records in known.items():
        papers.setdefault(name.partition("/")[0], {})[name] = records
    content, pictures = [_matrix(papers)], Pictures()
    for paper, of_paper in papers.items():
        done = {name: records for name, records in of_paper.items() if records}
        if done:
            at = anchor(paper)
            content.append(f'<section aria-labelledby="{at}"><h2 id="{at}">{escape(paper)}</h2>')
            content += [_article(name, records, folder, pictures) for name, records in done.items()]
            content.append("</section>")
    content.insert(0, pictures.letters())
    RunFolder(folder).write(
        NAME, page.page("Papers, reproduced", _introduction(known), "\n".join(content), _foot())
    )
    return folder / NAME


def _names(folder: Path, config_dir: str | None) -> list[str]:
    """Every artefact that there is a file of, and those that lie here."""
    here = {"/".join(file.parent.parts[-3:-1]) for file in folder.glob(f"*/*/*/{FILE}")}
    return sorted({*artefacts(config_dir), *here}, key=in_order)


def in_order(name: str) -> list[tuple[str, int]]:
    """fig2 before fig10."""
    return [(word, int(digits or 0)) for word, digits in re.findall(r"(\D*)(\d*)", name)]


def reproduced(folder: Path, name: str) -> list[State]:
    """By SCALE-READING, the largest scale first."""

    def rank(state: State) -> tuple[int, str]:
        scale = state[1].get("scale")
        return -SCALES.index(scale) if scale in SCALES else 1, "" if state[0].endswith("paper") else state[0]

    return sorted(states(folder, name).items(), key=rank)


def _introduction(known: Mapping[str, Sequence[State]]) -> str:
    done = [record for records in known.values() for _, record in _largest(records)]
    lines = [
        f"<p>{sum(map(bool, known.values()))} of {len(known)} tables and figures, each at the largest scale"
        " at which it was run. A verdict is about our runs at that scale; what was smaller than in the paper"
        " stands beside it. A nominal ε is what a paper states; only the ε beside it holds.</p>",
        f"<p>ε = {EXAMPLE[0]:g} at δ = {EXAMPLE[1]:g} means, with Gaussian noise and no sampling:"
        f" {escape(meaning.of_gaussian(*EXAMPLE).sentence)}.</p>",
    ]
    for reading, accounting in ACCOUNTING.items():
        words = [words_of(record) for record in done if record["reading"] == reading]
        for part, label in (("claims", "Claims"), ("printed", "Printed numbers")) if words else ():
            shown = counts(sum((each[part] for each in words), Counter[str]()), full=True)
            lines.append(f'<p class="counts"><span class="soft">{label}, {accounting}:</span> {shown}</p>')
    return "".join(lines)


def _largest(records: Sequence[State]) -> list[State]:
    """Both readings, of the largest scale."""
    return [state for state in records if state[1]["scale"] == records[0][1]["scale"]]


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
            parts.append(f'<li><a href="#{anchor(name)}">{short}</a>')
            for at, record in _largest(records):
                words = sum(words_of(record).values(), Counter[str]())
                parts.append(
                    f'<span class="soft">{escape(at)}</span><span class="counts">{counts(words)}</span>'
                )
            parts.append("</li>")
        parts.append("</ul>")
    return "".join([*parts, "</section>"])


def _article(name: str, records: Sequence[State], folder: Path, pictures: Pictures) -> str:
    first, *others = records
    record, at = first[1], anchor(name)
    parts = [
        f'<article id="{at}" aria-labelledby="{at}-title">',
        f'<h3 id="{at}-title">{escape(name.partition("/")[2])}: {text(record["title"])}</h3>',
        f'<p class="soft">{escape(name)}, {text(record["place"])}</p>',
        _state(name, first, folder, pictures),
    ]
    for state in others:
        words = escape(state[0].replace("-", ", reading "))
        parts.append(f'<details class="state"><summary>Also at scale {words}</summary>')
        parts.append(f"{_state(name, state, folder, pictures)}</details>")
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
    if ours := page.table_of(own / "table.csv", f"{here}-table", "Our table"):
        parts.append(ours)
    return "\n".join([*parts, _origin(record)])


def _facts(record: Record) -> str:
    return facts(
        {
            "scale, reading": text(f"{record['scale']}, {record['reading']}"),
            "nominal ε → ε that holds": _eps(record["eps"]),
            "nominal ε is": text(record["nominal_how"]),
            "not accounted": lines(record["not_accounted"]),
            "audited": text(record.get("audited", "")),
            "learnt": lines(untrained.told(record.get("untrained", []))),
            "reduced": text(record["reduced"]) or "nothing: the paper's setting",
            "not here": lines(dict.fromkeys(record["lacks"].values())),
            "command": "".join(f"<code>{escape(line)}</code>" for line in record["commands"][:1]),
            "training": f"{record['seconds']:g} s over {len(record['runs'])} runs"
            if record["runs"]
            else "none",
        }
    )


def _eps(eps: Mapping[str, Any]) -> str:
    nominal, valid = eps.get("nominal"), eps.get("valid")
    if nominal is None:
        return ""
    pairs = zip(nominal, valid or [], strict=False) if isinstance(nominal, list) else [(nominal, valid)]
    return "<br>".join(f"{number(stated)} → <b>{ends(holds)}</b>" for stated, holds in pairs)


def _figure(file: Path, record: Record, prefix: str, pictures: Pictures) -> str:
    made, stem = f"scale {record['scale']}, reading {record['reading']}", escape(file.stem)
    words = f"{record['title']} ({record['place']}, {file.stem}; {made})"
    picture = pictures.inlined(file, prefix, words)
    if picture is None:
        return ""
    said = f'<figcaption class="small">{escape(record["place"])}: {stem}; {made}</figcaption>'
    region = f'class="paper" role="region" tabindex="0" aria-label="{stem}"'
    return f"<figure><div {region}>{picture}</div>{said}</figure>"


def _claim(claim: Mapping[str, Any]) -> list[str]:
    words = f"<blockquote>{text(claim['says'])}</blockquote>"
    told = [page.folded(claim["evidence"]), "<br>".join(filter(None, (text(claim["reads"]), _test(claim))))]
    return [words, text(claim["place"]), chip(claim["verdict"]), *told]


def _test(claim: Mapping[str, Any]) -> str:
    """What was tested, by its keys."""

    def words(value: Any) -> str:
        if isinstance(value, Mapping):
            return ", ".join(f"{key} {words(each)}" for key, each in value.items())
        return ", ".join(map(words, value)) if isinstance(value, list) else str(value)

    keys = {key: words(value) for key, value in claim.get("test", {}).items()}
    told = page.items(f"{key}: {value}" for key, value in keys.items())
    return f"<details><summary>tested: {escape(keys['kind'])}</summary>{told}</details>" if keys else ""


def _printed(each: Mapping[str, Any]) -> list[str]:
    std = "" if each["std"] is None else f" ± {number(each['std'])}"
    apart = "" if each["ours"] is None else number(each["ours"] - each["printed"])
    place = text(" · ".join(filter(None, (each["place"], each["at"]))))
    numbers = [number(each["printed"]) + std, number(each["ours"]), ends(each["interval"]), apart]
    return [text(each["what"]), place, *numbers, chip(each["match"]), text(each["why"])]


def _origin(record: Record) -> str:
    """What it takes to have the same again."""
    made_by = {key: lines(said) for key, said in made.told(record.get("made", [])).items()}
    hashes = {f"hash of {part}": page.codes(values) for part, values in record["origin"].items()}
    known = facts({**made_by, **hashes})
    commands = "".join(f"<pre>{escape(line)}</pre>" for line in record["commands"])
    said = f"<h4>What the paper leaves open</h4>{page.items(record['open'])}" if record["open"] else ""
    return f"<details><summary>Choices, commands, versions, hashes</summary>{said}{known}{commands}</details>"


def _foot() -> str:
    return (
        f"Made by dpfl-bench {escape(__version__)} of the folders beside this file. Signs: "
        + " ".join(chip(word) for word in page.WORDS)
        + "<p>An interval is the 95 % prediction interval of the paper's mean by our seeds. Difference:"
        " ours less printed.</p>"
    )

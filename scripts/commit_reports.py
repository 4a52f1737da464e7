"""docs/reports of what is finished at scale cpu, and the tables of verdicts in README.md and
docs/papers.md.

    .venv/bin/python scripts/commit_reports.py OUTPUTS [PAPER/ARTEFACT ...]

Copies OUTPUTS/papers/PAPER/ARTEFACT/cpu-READING (without names, all that are finished) without this
machine's folders, and makes docs/reports/report.html and the tables anew. Without OUTPUTS it makes
these alone.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from dpfl_bench.papers import report
from dpfl_bench.papers.artefact import artefacts, load
from dpfl_bench.papers.overlays import READINGS, SCALES
from dpfl_bench.papers.overview import COMMITTED, FILE, states
from dpfl_bench.papers.verdict import UNTESTED
from dpfl_bench.results.escape import markdown
from dpfl_bench.results.verdicts import untrained
from dpfl_bench.results.verdicts.group import FAILS, HOLDS, UNDECIDED

SCALE = "cpu"
COPIED = ("data.csv", "claims.csv", "table.csv", "table.md", "*.svg")
PACKED = ("data.csv", "claims.csv")  # where they have more than so many characters
LARGE = 20_000
SEEN = 0.1  # of a point
PAGE = COMMITTED.parent / "papers.md"
README = COMMITTED.parents[1] / "README.md"
BEGIN, END = "<!-- verdicts: written by scripts/commit_reports.py -->", "<!-- end of the verdicts -->"
COSTS = "| artefact | smoke | cpu | full | claims, the paper's accounting | claims, valid accounting |\n"
COSTS += "|---|---|---|---|---|---|\n"
VERDICTS = {HOLDS: "hold", FAILS: "do not", UNDECIDED: "undecided", UNTESTED: "not testable"}
HEAD = "| claim, in the paper's words | artefact | reading=paper | reading=exact |\n|---|---|---|---|\n"
LEARNT = "| private points better than the initial model | reading=paper | reading=exact |\n|---|---|---|\n"
FONT = "DejaVu Sans, Verdana, sans-serif"
LETTERS = (
    r'<!-- ([^$\n]*?) -->\n<g( style="[^"]*")? transform="([^"]*?) scale\((\S+) \S+\)">\n'
    r'(?:<defs>(?:(?!</defs>).)*</defs>\n)?((?:<use href="#G[^/]*/>\n)+)</g>'
)
OF_A_MACHINE = re.compile(r"(?<![\w.)\]}>])/(tmp|home|root|work|mnt|opt|var|data|Users)/")


def main(words: list[str]) -> int:
    if words:
        outputs, *names = words
        for folder in sorted(Path(outputs, "papers").glob(f"*/*/{SCALE}-*")):
            if not names or "/".join(folder.parts[-3:-1]) in names:
                copy(folder, COMMITTED / folder.relative_to(Path(outputs, "papers")))
    report.write(COMMITTED)
    for file, content in ((PAGE, tables(COMMITTED)), (README, overview(COMMITTED))):
        file.write_text(with_tables(file.read_text(), content))
    size = sum(file.stat().st_size for file in COMMITTED.rglob("*") if file.is_file())
    print(f"{COMMITTED}: {size / 1e6:.1f} MB")
    return 0


def copy(folder: Path, target: Path) -> None:
    """What a reader needs, with the commands as anybody types them."""
    record = json.loads((folder / FILE).read_text())
    name = f"{record['artefact']} {folder.name}"
    if record.get("unfinished", 1):
        print(f"{name}: not finished, left out")
        return
    texts = {file.name: file.read_text() for pattern in COPIED for file in folder.glob(pattern)}
    texts[FILE] = json.dumps(published(record), indent=1) + "\n"
    for file, text in texts.items():
        if found := OF_A_MACHINE.search(text):
            raise SystemExit(f"{name}: {file}: {found[0]}: expected no folder of this machine")
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for file, text in texts.items():
        if file in PACKED and len(text) > LARGE:
            (target / f"{file}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            (target / file).write_text(slim(text) if file.endswith(".svg") else text)
    dirty = [made["commit"] for made in record["made"] if made["dirty"]]
    print(f"{name}: copied{'; made by a commit with changes' if dirty else ''}")


def published(record: dict[str, Any]) -> dict[str, Any]:
    """Runs by their ids, and commands with the default outputs."""
    own = next((word for word in record["commands"][0].split() if word.startswith("outputs=")), "")
    commands = record["commands"]
    if own:
        commands = [line.replace(f"{own}/papers", "outputs=outputs/papers") for line in commands]
        commands = [line.replace(f" {own}", "") for line in commands]
    return {**record, "commands": commands, "runs": [Path(run).name for run in record["runs"]]}


def slim(svg: str) -> str:
    """The same picture in fewer bytes: places to a hundredth of a point, paths on one line, a style
    once for all marks of a line, words as text, and no point that nobody can see.
    """

    def coarse(found: re.Match[str]) -> str:
        return re.sub(r"(\.\d\d)\d+", r"\1", found[0])

    def path(found: re.Match[str]) -> str:
        return re.sub(r"\s*([A-Za-z])\s*", r"\1", coarse(found).strip())

    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)  # the title says it
    svg = re.sub(r'(?<=\sd=")[^"]*', path, svg)
    svg = re.sub(r'(?<=\sd=")M[-\d. ]+(?:L[-\d. ]+){99,}', thinned, svg)
    svg = re.sub(r'(?<=\s[xy]=")[^"]*|(?<=points=")[^"]*|(?<=translate\()[^)]*', coarse, svg)
    svg = re.sub(r'transform="translate\(([-\d.]+) 0\)"/>', r'x="\1"/>', svg)  # of letters
    svg = svg.replace("DejaVuSans", "G").replace("xlink:href", "href")
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    same = r'<g([^>]*)>\n((?:<use [^>]*( style="[^"]*")/>\n)(?:<use [^>]*\3/>\n)*)</g>'
    svg = re.sub(same, lambda f: f"<g{f[1]}{f[3]}>\n{f[2].replace(f[3], '')}</g>", svg)
    return with_text(svg)


def thinned(path: re.Match[str]) -> str:
    """A line of many points without those that lie on the line between others, up to `SEEN`."""
    points = [complex(*map(float, point.split())) for point in path[0][1:].split("L")]
    kept, rest = {0, len(points) - 1}, [(0, len(points) - 1)]
    while rest:
        first, last = rest.pop()
        start, along = points[first], points[last] - points[first]
        apart = {  # from the line; where that has no length, from its start
            k: abs(
                ((points[k] - start) * along.conjugate()).imag / abs(along) if along else points[k] - start
            )
            for k in range(first + 1, last)
        }
        farthest = max(apart, key=apart.__getitem__, default=first)
        if apart.get(farthest, 0) > SEEN:
            kept.add(farthest)
            rest += [(first, farthest), (farthest, last)]
    return "M" + "L".join(f"{points[k].real:g} {points[k].imag:g}" for k in sorted(kept))


def with_text(svg: str) -> str:
    """Words as text in place of drawn letters, as long as they were; formulas keep theirs."""

    def text(found: re.Match[str]) -> str:
        words, style, place, size, letters = found.groups()
        *_, last = [0.0, *map(float, re.findall(r' x="([-\d.]+)"', letters))]
        long = len(words) > 8  # short ones are about as long in every font
        length = f' textLength="{(last + 60) * float(size):.1f}"' if long else ""  # the last one: .6 em
        font = f'font-size="{100 * float(size):g}"'
        return f'<text{style or ""} {font}{length} transform="{place}">{escape(words)}</text>'

    shapes = dict(re.findall(r'<path id="(G[\w-]*)"(.*?/>)', svg))
    svg = re.sub(LETTERS, text, svg, flags=re.DOTALL)
    used, there = (set(re.findall(rf'{key}="#?(G[\w-]*)"', svg)) for key in ("href", "id"))
    lost = "".join(f'<path id="{name}"{shapes[name]}' for name in sorted(used - there))
    svg = svg.replace("<defs>", f"<defs>{lost}", 1)
    return re.sub(r"<svg (?!.*font-family)", f'<svg font-family="{FONT}" ', svg, count=1)


def with_tables(page: str, content: str) -> str:
    """The page with the content between its two marks."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{content}{END}{rest.partition(END)[2]}"


def overview(reports: Path) -> str:
    """Every artefact: its costs, and how many of its claims hold."""
    rows = []
    for name in sorted(artefacts(), key=report.in_order):
        cost, known = load(artefacts()[name]).cost, states(reports, name)
        costs = [cost[scale].partition(",")[0] for scale in SCALES]
        verdicts = [_counted(known.get(f"{SCALE}-{reading}")) for reading in READINGS]
        rows.append(f"| {' | '.join([f'`{name}`', *costs, *verdicts])} |\n")
    return f"\n{COSTS}{''.join(rows)}\n"


def _counted(record: dict[str, Any] | None) -> str:
    if record is None:
        return "not run yet"
    tested = Counter(claim["verdict"] for claim in record["claims"] if not _of_another_reading(claim))
    return (
        ", ".join(f"{tested[verdict]} {word}" for verdict, word in VERDICTS.items() if tested[verdict]) or "–"
    )


def _of_another_reading(claim: dict[str, Any]) -> bool:
    return str(claim["evidence"]).startswith("a claim of reading=")


def tables(reports: Path) -> str:
    """A table for each paper: each claim's verdict in both readings."""
    parts = []
    papers: dict[str, dict[str, Any]] = {}
    for file in sorted(reports.glob(f"*/*/{SCALE}-*/{FILE}")):
        papers.setdefault(file.parts[-4], {})["/".join(file.parts[-4:-2])] = None
    for paper, names in papers.items():
        rows = [row for name in sorted(names, key=report.in_order) for row in _rows(reports, name)]
        parts.append(f"\n### {paper}: claim by claim\n\n{HEAD}{''.join(rows)}")
    return "".join([*parts, _learnt(reports, papers), "\n"]) if parts else ""


def _learnt(reports: Path, papers: dict[str, dict[str, Any]]) -> str:
    """Of each artefact, how many of the points that it shows are better than the initial model."""
    rows = []
    for name in sorted((name for names in papers.values() for name in names), key=report.in_order):
        known = states(reports, name)
        entries = [known.get(f"{SCALE}-{reading}", {}).get("untrained", []) for reading in READINGS]
        if any(entries):
            rows.append(
                f"| `{name}` | {' | '.join('; '.join(map(_better, each)) or '–' for each in entries)} |\n"
            )
    return f"\n### Better than the initial model\n\n{LEARNT}{''.join(rows)}" if rows else ""


def _better(entry: dict[str, Any]) -> str:
    return (
        f"{entry['better']} of {entry['points']} ({entry['dataset']}, {entry['quantity'].replace('_', ' ')})"
    )


def _rows(reports: Path, name: str) -> list[str]:
    known = states(reports, name)
    by_claim: dict[str, dict[str, Any]] = {}
    for reading in READINGS:
        for claim in known.get(f"{SCALE}-{reading}", {"claims": []})["claims"]:
            by_claim.setdefault(claim["id"], {})[reading] = claim
    rows = []
    for readings in by_claim.values():
        claim = next(iter(readings.values()))
        said = [_said(readings.get(reading)) for reading in READINGS]
        words = f"`{claim['id']}`: {markdown(claim['says'])}"
        rows.append(f"| {words} | {name.partition('/')[2]} | {' | '.join(said)} |\n")
    return rows


def _said(claim: dict[str, Any] | None) -> str:
    if claim is None or _of_another_reading(claim):
        return "–"
    why = f": {claim['evidence']}" if claim["verdict"].startswith("cannot") else ""
    why = " (nothing is learnt)" if untrained.NOTHING in claim["evidence"] else why
    return markdown(f"{claim['verdict']}{why}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

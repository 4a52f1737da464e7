"""The figures of `collect`: U-curves, and what else was asked for."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpfl_bench.results import escape
from dpfl_bench.results.collect import best, tables
from dpfl_bench.results.collect.best import Table, sign
from dpfl_bench.results.collect.folders import Run
from dpfl_bench.results.collect.mixed import Clash, differing
from dpfl_bench.results.collect.points import Row
from dpfl_bench.results.collect.view import Picture, View, pictures
from dpfl_bench.results.figures.files import stem as safe
from dpfl_bench.results.figures.panels import Look, Mark, draw, save
from dpfl_bench.results.figures.style import FREE, LINES, label_of, name_of, word_of
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.select.cells import Cell

FAR_APART = 4.0  # times the least, beyond which values need a logarithmic axis
ALONE = 4.6  # inches that a figure of one panel is wide
STD, INTERVAL = "± one std over seeds", "95 % interval of the mean"
MIXED = "Runs of different code or data."
_WORDS = {
    "client": "client level",
    "record": "record level",
    "secagg": "secure aggregation",
    "local": "noise at each client",
    "central": "trusted server",
    "replace_one": "replace one",
    "add_remove_one": "add or remove one",
    "server": "towards the server",
    "third_party": "towards a third party",
}


class Drawn(NamedTuple):
    """A picture's file without its ending, and what its caption says."""

    name: str
    title: str
    note: str


def curves(
    points: Sequence[Row], table: Table, target: Path, apart: Sequence[Clash], width: str = ""
) -> list[Drawn]:
    """u_curves_*: for each problem and guarantee the best point at each (algorithm, budget, local
    steps), over whatever else was swept. width: of a venue; then title and note are the caption's
    alone.
    """
    drawn = []
    titled: dict[str, list[tuple[str, str, list[Row]]]] = {}
    for dataset, setting in sorted({(point["dataset"], point["setting"]) for point in points}):
        here = [point for point in points if (point["dataset"], point["setting"]) == (dataset, setting)]
        for guarantee in sorted({point["guarantee"] for point in here} - {""}) or [""]:
            members = [point for point in here if point["guarantee"] in ("", guarantee)]
            if len({point["local_steps"] for point in members}) > 1:
                title = f"{_capital(measure(table))} against local steps per round on {word_of(dataset)}"
                words = [said(setting, guarantee, table.swept), *_mixed(members, apart)]
                name = safe(dataset.partition(" (")[0])
                titled.setdefault(name, []).append((title, " ".join(words), members))
    for name, all_of_it in titled.items():
        for number, (title, note, members) in enumerate(all_of_it, start=1):
            numbered = f"u_curves_{name}" + (f"_{number}" if len(all_of_it) > 1 else "")
            chosen = best.best_by_steps(members, table.by)
            u_curves(chosen, target / numbered, title, note, table, width)
            drawn.append(Drawn(numbered, title, note))
    return drawn


def u_curves(
    points: Sequence[Row], target: Path, title: str, note: str, table: Table, width: str = ""
) -> None:
    """A panel for each algorithm (and what is kept apart), a line for each budget."""
    by = table.by
    marks = []
    kept = {
        algo: sorted({p.get("apart", "") for p in points if p["algo"] == algo}) for algo in _algos(points)
    }
    for algo, values in kept.items():
        for apart in [value for value in values if value] or [""]:
            panel = ", ".join(filter(None, [word_of(algo), _words(apart)]))
            of_panel = (p for p in points if p["algo"] == algo and p.get("apart", "") in ("", apart))
            marks += [_mark(panel, point, by) for point in of_panel]
    look = Look(
        title=title,
        x_label=name_of("local_steps"),
        y_label=name_of(by),
        x_log=True,
        y_log=spread([mark.y for mark in marks]),
        kind="lines",
        line_of="budget",
        width=width or ("double" if len({mark.column for mark in marks}) > 1 else ALONE),
        exact=bool(width),
        best="greatest" if sign(by) < 0 else "least",
        band=STD,
        note=note,
        alt=f"{title}: a panel for each algorithm, a line for each budget, the best point of each marked.",
    )
    save(draw(marks, look), target)


def _algos(points: Sequence[Row]) -> list[str]:
    return sorted({str(point["algo"]) for point in points})


def _mark(panel: str, point: Row, by: str) -> Mark:
    mean, std = point[f"{by}_mean"], point[f"{by}_std"]
    known = point["n_seeds"] > 1 and std is not None and not math.isnan(std)
    ends = (mean - std, mean + std) if known else (None, None)
    return Mark("", panel, budget_of(point), float(point["local_steps"]), mean, *ends)


def views(
    rows: Sequence[Row], runs: Sequence[Run], view: View, settings: Sequence[str], target: Path
) -> list[Drawn]:
    """view.csv and view_*: what --x, --facet and --line ask for. rows: compared for the view."""
    filled = view.filled()
    drawn = list(pictures(rows, runs, filled, settings))
    records: list[Row] = []
    captions = []
    values = {cell.at[filled.line] for picture in drawn for cell in picture.cells}
    lines = [_line(filled.line, value) for value in sorted(values, key=_order)]
    for number, picture in enumerate(drawn, start=1):
        name = "view" + (f"_{number}" if len(drawn) > 1 else "")
        records += [{"picture": name, **_record(cell, filled)} for cell in picture.cells]
        captions.append(_view(picture, filled, target / name, lines))
    keys = list(dict.fromkeys(key for record in records for key in record))
    RunFolder(target).write("view.csv", tables.csv_text(records, keys))
    return captions


def _record(cell: Cell, view: View) -> Row:
    low, high = cell.interval.ends
    tuned = {f"best {key}": value for key, value in cell.tuned.items()}
    known = {"mean": cell.mean, "std": cell.std, "low": low, "high": high, "n": len(cell.values)}
    return {**cell.at, "by": view.by, **known, **tuned}


def _order(value: Any) -> tuple[bool, float, str]:
    """Numbers first, in their order."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return not known, float(value) if known else 0.0, str(value)


def _view(picture: Picture, view: View, target: Path, lines: Sequence[str]) -> Drawn:
    places = _places([cell.at[view.x] for cell in picture.cells])
    marks = [mark for cell in picture.cells for mark in _marks(cell, picture, view, places)]
    x = [mark.x for mark in marks if math.isfinite(mark.x)]
    subject = [word_of(picture.shared["dataset"])] if "dataset" in picture.shared else []
    subject += [word_of(picture.shared["algo"])] if "algo" in picture.shared else []
    title = f"{_capital(name_of(view.by))} against {name_of(view.x)}" + (
        f": {', '.join(subject)}" if subject else ""
    )
    look = Look(
        title=title,
        x_label=name_of(view.x),
        y_label=name_of(view.by),
        x_log=not places and view.x not in ("round", "steps") and len(set(x)) > 2 and spread(x),
        y_log=spread([mark.y for mark in marks]),
        kind="bars" if places else "lines",
        line_of=LINES.get(view.line, "other"),
        best=False if view.x in ("round", "steps") else "greatest" if sign(view.by) < 0 else "least",
        width=view.width or ("double" if len({(mark.row, mark.column) for mark in marks}) > 1 else ALONE),
        exact=bool(view.width),
        band=INTERVAL,
        level=FREE,
        lines=lines,
        x_ticks={place: word_of(str(value)) for value, place in places.items()} or None,
        note=_note(picture, view),
        alt=f"{title}; a line for each {name_of(view.line)}.",
    )
    save(draw(marks, look), target)
    return Drawn(target.name, title, look.note)


def _marks(cell: Cell, picture: Picture, view: View, places: Mapping[Any, int]) -> list[Mark]:
    """One, or one in each panel of a setting that a run without privacy does not have."""
    x = places.get(cell.at[view.x], cell.at[view.x])
    at = math.inf if x is None else float(x)
    panels: list[list[str]] = []
    for key in view.facets:
        known = list(dict.fromkeys(c.at[key] for c in picture.cells if c.at[key] is not None))
        panels.append([_facet(key, v) for v in (known if cell.at[key] is None and known else [cell.at[key]])])
    rows, columns = (panels[0], panels[1]) if len(panels) > 1 else ([""], panels[0] if panels else [""])
    line = _line(view.line, cell.at[view.line])
    return [Mark(row, column, line, at, cell.mean, *cell.interval.ends) for row in rows for column in columns]


def _note(picture: Picture, view: View) -> str:
    shared = picture.shared
    free = shared.get("budget")
    eps = [f"{label_of('eps', free)}."] if free is not None else []
    fields = [key for key in picture.tuned if any(cell.tuned.get(key) is not None for cell in picture.cells)]
    mean = [] if view.last == "1" or view.x in ("round", "steps") else [f"{_capital(_last(view.last))}."]
    return " ".join([said(shared.get("setting", ""), shared.get("guarantee"), fields), *eps, *mean])


def _facet(key: str, value: Any) -> str:
    return FREE if value is None else label_of(key, value)


def _line(key: str, value: Any) -> str:
    if key in ("eps", "budget"):
        return repr(value)
    if key == "algo":
        return str(value)
    return FREE if value is None else label_of(key, value)


def _places(values: Sequence[Any]) -> dict[Any, int]:
    """Where words stand on an axis; empty for numbers."""
    known = list(dict.fromkeys(value for value in values if value is not None))
    words = any(isinstance(value, bool | str) for value in known)
    return {value: place for place, value in enumerate(known)} if words else {}


def said(setting: str, guarantee: str | None, tuned: Sequence[str]) -> str:
    """In words what a figure's points share, for its foot."""
    problem = [label_of(*part.split(" ", 1)) for part in setting.split(", ") if " " in part]
    sentences = [", ".join(problem)]
    if guarantee is not None:
        words = [
            _WORDS.get(part, part.replace("delta ", "δ = ").replace("e-0", "e-"))
            for part in guarantee.split(", ")
            if part
        ]
        sentences.append(", ".join(words) or FREE)
    if tuned:
        sentences.append(f"at each point the best of {', '.join(name_of(key) for key in tuned)}")
    return " ".join(f"{_capital(sentence)}." for sentence in sentences if sentence)


def _words(apart: str) -> str:
    return ", ".join(label_of(*part.split(" ", 1)) for part in apart.split(", ") if " " in part)


def measure(table: Table) -> str:
    return name_of(table.by) + ("" if table.last == "1" else f" ({_last(table.last)})")


def _last(last: str) -> str:
    share = last.endswith("%")
    return f"mean of the last {last.removesuffix('%')}{' % of the' if share else ''} rounds"


def budget_of(point: Mapping[str, Any]) -> str:
    """As `figures.style` orders budgets."""
    if point.get("nominal_eps") is None:
        return repr(point["budget"])
    return f"ε = {point['budget']:.4g} nominal"


def spread(values: Sequence[float]) -> bool:
    """Whether a logarithmic axis is needed and can be had."""
    known = [value for value in values if math.isfinite(value)]
    return bool(known) and min(known) > 0 and max(known) > FAR_APART * min(known)


def _mixed(members: Sequence[Row], apart: Sequence[Clash]) -> list[str]:
    return [MIXED] if set(differing(members, apart)) - {"package"} else []


def _capital(sentence: str) -> str:
    return escape.plain(sentence[:1].upper() + sentence[1:])

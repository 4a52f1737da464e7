"""The pictures of one run and of a partition, drawn from files, never from objects. matplotlib is
imported only when something is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.results.escape import plain
from dpfl_bench.results.figures.files import blank, save
from dpfl_bench.results.figures.panels import Look, Mark, draw
from dpfl_bench.results.figures.style import word_of
from dpfl_bench.results.summary import together, whole_or_part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE = "#0072B2"
MEANING = "test error (1 - {metric})"


def curve(metrics: Path, result: dict[str, Any], target: Path) -> None:
    """curve.png: test error and training loss over rounds, as far as they were measured, with mean
    and range over seeds. Without a test set: the loss above the optimum, where that is known, else
    the updates' norm.
    """
    rows = np.genfromtxt(metrics, delimiter=",", names=True, ndmin=1)
    seeds = len(np.unique(rows["seed"]))
    labels = {
        "test_error": MEANING.format(metric=result["metric"]),
        "suboptimality": "training loss above the optimum",
        "update_norm": "norm of the updates",
    }
    known = [name for name in labels if name in (rows.dtype.names or ()) and not np.isnan(rows[name]).all()]
    column = known[0] if known else "test_error"
    words = {column: labels[column], "train_loss": "training loss"}
    marks = [
        mark for column, name in words.items() for mark in _over_rounds(rows, column, name, result["algo"])
    ]
    if not marks:
        return
    where = f"{word_of(result['algo'])} on {word_of(whole_or_part(result))}"
    shown = dict.fromkeys(mark.column for mark in marks)
    title = f"{where}: {' and '.join(shown)} over rounds"
    note = f"{budget(result)}; {result['local_steps']} local steps per round"
    look = Look(
        title=title,
        note=f"{note}; the band is the range of {seeds} seeds." if seeds > 1 else f"{note}.",
        x_label="round",
        width=7.0,
        share_y="none",
        log_columns=[words["train_loss"]] if _falls_far(rows["train_loss"]) else [],
        names={**{word: word for word in shown}, result["algo"]: ""},  # the title names it
        alt=f"{title}. {note}.",
    )
    save(draw(marks, look), target.with_suffix(""), ("png",))


def _falls_far(losses: np.ndarray) -> bool:
    known = losses[~np.isnan(losses)]
    return len(known) > 0 and bool(known.min() > 0 and known.max() > 10 * known.min())


def _over_rounds(rows: np.ndarray, column: str, panel: str, line: str) -> list[Mark]:
    known, several = rows[~np.isnan(rows[column])], len(np.unique(rows["seed"])) > 1
    marks = []
    for number in np.unique(known["round"]):
        values = known[column][known["round"] == number]
        ends = (float(values.min()), float(values.max())) if several else (None, None)
        marks.append(Mark("", panel, line, float(number), float(values.mean()), *ends))
    return marks


def budget(result: Mapping[str, Any]) -> str:
    """The guarantee of a result.json, for a picture's title."""
    guarantee = Guarantee.read(result)
    if guarantee.eps == float("inf"):
        return "no privacy"
    eps = f"ε = {guarantee.eps:.3g}"
    if guarantee.nominal_eps is not None and guarantee.valid_eps is not None:
        eps = f"ε = {guarantee.nominal_eps:.3g} nominal, {guarantee.valid_eps:.3g} valid"
    text = f"{eps}{together(result)}, δ = {guarantee.delta:g} ({guarantee.unit}, {guarantee.trust})"
    if guarantee.fully_accounted is False:
        text += ", not fully accounted"
    if guarantee.accountant == "paper":
        text += ", by the paper's own accountant (no guarantee)"
    return text


def partition(table: Path, target: Path, title: str, most: int = 40) -> None:
    """A bar for each of the first clients of a partition.csv, stacked by label where it has
    labels.
    """
    import pandas as pd
    from matplotlib.ticker import MaxNLocator

    rows = pd.read_csv(table)
    shown = rows.head(most)
    labels = [column for column in rows if column.startswith("label_")]
    figure = blank(max(5.0, 1.8 + 0.2 * len(shown)), 3.6)
    axes = figure.subplots()
    colours = _colours(len(labels))
    below = pd.Series(0, shown.index)
    for column, colour in zip(labels, colours, strict=True):
        axes.bar(
            shown["client"],
            shown[column],
            bottom=below,
            color=colour,
            width=0.9,
            label=column.removeprefix("label_"),
        )
        below = below + shown[column]
    if not labels:
        axes.bar(shown["client"], shown["records"], color=BLUE, width=0.9)
    axes.set_xlabel(
        "client" if len(shown) == len(rows) else f"client (the first {len(shown)} of {len(rows)})"
    )
    axes.set_ylabel("training records")
    axes.set_xlim(-0.7, len(shown) - 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title("\n".join(map(plain, title.splitlines())), fontsize=9, parse_math=False)
    if 0 < len(labels) <= 20:
        figure.legend(
            title="label",
            loc="outside right upper",
            frameon=False,
            fontsize=7,
            title_fontsize=8,
            reverse=True,
        )
    elif labels:
        _label_bar(figure, axes, len(labels))
    figure.savefig(target, dpi=120)


def _colours(count: int) -> list[Any]:
    """Told apart up to 20; beyond, neighbours are alike and a colour bar has to do."""
    import matplotlib

    if count <= 20:
        colours = matplotlib.colormaps["tab10" if count <= 10 else "tab20"]
        return [colours(index) for index in range(count)]
    return [matplotlib.colormaps["turbo"](index / (count - 1)) for index in range(count)]


def _label_bar(figure: Figure, axes: Axes, count: int) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import BoundaryNorm

    edges = [label - 0.5 for label in range(count + 1)]
    scale = ScalarMappable(BoundaryNorm(edges, 256), "turbo")
    bar = figure.colorbar(scale, ax=axes, label="label", ticks=range(0, count, max(1, count // 10)))
    bar.ax.tick_params(labelsize=7, length=2)
    bar.ax.minorticks_off()

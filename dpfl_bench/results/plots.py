"""Pictures, drawn from files, never from objects. matplotlib is imported here and only when
something is drawn.
"""

from __future__ import annotations

import hashlib
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.machine.imports import preload
from dpfl_bench.results.escape import plain
from dpfl_bench.results.folder import MEASURES
from dpfl_bench.results.summary import together, whole_or_part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE = "#0072B2"
FAR_APART = 4.0  # times the least, beyond which errors need a logarithmic axis
MEANING = "test error (1 - {metric})"


def curve(metrics: Path, result: dict[str, Any], target: Path) -> None:
    """curve.png: test error and training loss over rounds, mean and range over seeds. Without a
    test set: the loss above the optimum, where that is known, else the updates' norm.
    """
    rows = np.genfromtxt(metrics, delimiter=",", names=True, ndmin=1)
    figure = _figure(9.5, 3.6)
    left, right = figure.subplots(1, 2)
    labels = {
        "test_error": MEANING.format(metric=result["metric"]),
        "suboptimality": "training loss above the optimum",
        "update_norm": "norm of the updates",
    }
    known = [column for column in labels if not np.isnan(rows[column]).all()]
    column = known[0] if known else "test_error"
    _over_rounds(left, rows, column, labels[column])
    _over_rounds(right, rows, "train_loss", "training loss")
    losses = rows["train_loss"][~np.isnan(rows["train_loss"])]
    if len(losses) and losses.min() > 0 and losses.max() > 10 * losses.min():
        right.set_yscale("log")
    title = (
        f"{result['algo']} on {whole_or_part(result)}, {budget(result)}; {result['local_steps']} local steps"
    )
    figure.suptitle("\n".join(textwrap.wrap(plain(title), 120)), fontsize=10, parse_math=False)
    figure.savefig(target, dpi=120)


def budget(result: Mapping[str, Any]) -> str:
    """The guarantee of a result.json, for a picture's title."""
    guarantee = Guarantee.read(result)
    if guarantee.eps == float("inf"):
        return "no privacy"
    text = (
        f"ε = {guarantee.eps:.3g}{together(result)}, δ = {guarantee.delta:g} ({guarantee.unit},"
        f" {guarantee.trust})"
    )
    if guarantee.fully_accounted is False:
        text += ", not fully accounted"
    if guarantee.accountant == "paper":
        text += ", by the paper's own accountant (no guarantee)"
    return text


def _over_rounds(axes: Axes, rows: np.ndarray, column: str, label: str) -> None:
    known, seeds = rows[~np.isnan(rows[column])], len(np.unique(rows["seed"]))
    rounds = np.unique(known["round"])
    values = [known[column][known["round"] == number] for number in rounds]
    axes.plot(rounds, [v.mean() for v in values], color=BLUE)
    if seeds > 1:
        low, high = [v.min() for v in values], [v.max() for v in values]
        axes.fill_between(
            rounds, low, high, color=BLUE, alpha=0.2, linewidth=0, label=f"range of {seeds} seeds"
        )
        axes.legend(frameon=False, fontsize=8)
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def u_curves(points: Sequence[Mapping[str, Any]], target: Path, title: str, by: str = MEASURES[0]) -> None:
    """`by` against local steps: a panel for each algorithm, a line for each eps, the best point
    marked, a band of one std.
    """
    algorithms = sorted({point["algo"] for point in points})
    across = min(3, len(algorithms))
    down = -(-len(algorithms) // across)
    width = 4.0 * across + 1.9
    figure = _figure(width, 3.3 * down + 0.7)
    panels = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).flatten()
    styles = _styles(sorted({point["budget"] for point in points}, reverse=True))
    ticks = _apart(sorted({point["local_steps"] for point in points}), 3.2)
    means = [point[f"{by}_mean"] for point in points]
    lowest = (
        0.8 * min(means) if max(means) > FAR_APART * min(means) > 0 else None
    )  # of an axis that is logarithmic
    for axes, algorithm in zip(panels, algorithms, strict=False):
        for eps, style in styles.items():
            line = [point for point in points if (point["algo"], point["budget"]) == (algorithm, eps)]
            _u_curve(axes, sorted(line, key=lambda point: point["local_steps"]), style, by, lowest)
        axes.set_title("\n".join(textwrap.wrap(plain(algorithm), 44)), fontsize=10, parse_math=False)
        axes.set_xscale("log")
        axes.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=8)
        axes.minorticks_off()
        axes.tick_params(labelbottom=True, labelsize=8)
        axes.grid(alpha=0.3)
    if lowest is not None:
        _logarithmic(panels[0], lowest)
    for axes in panels[len(algorithms) :]:
        axes.remove()
    figure.supxlabel("local steps per round", fontsize=9)
    figure.supylabel(by.replace("_", " "), fontsize=9)
    lines = (part for line in title.splitlines() for part in textwrap.wrap(line, int(11.5 * width)))
    figure.suptitle("\n".join(lines), fontsize=9, parse_math=False)
    handles = _legend(styles, any(point["n_seeds"] > 1 for point in points))
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=8)
    figure.savefig(target, dpi=120)


def stem(name: str) -> str:
    """A file's name for it, one for each name: nothing of a path, and not too long."""
    safe = re.sub(r"[^\w.-]", "_", name)[:80]
    return (
        safe if safe == name else f"{safe}_{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:6]}"
    )


def _styles(budgets: Sequence[float]) -> dict[float, dict[str, Any]]:
    """No privacy is dashed and dark; budgets run through a map that the colour-blind can order too,
    each with a mark of its own.
    """
    import matplotlib

    private = [eps for eps in budgets if eps < float("inf")]
    styles = {}
    for index, eps in enumerate(private):
        colour = matplotlib.colormaps["viridis"](0.85 * (1 - index / max(1, len(private) - 1)))
        styles[eps] = {
            "color": colour,
            "marker": "osD^vPX"[index % 7],
            "linestyle": "-",
            "label": f"ε = {eps:.4g}",
        }
    without = {"color": "0.25", "marker": ".", "linestyle": "--", "label": "no privacy"}
    return {eps: styles.get(eps, without) for eps in budgets}


def _u_curve(
    axes: Axes, line: Sequence[Mapping[str, Any]], style: dict[str, Any], by: str, lowest: float | None
) -> None:
    if not line:
        return
    steps, errors = [point["local_steps"] for point in line], [point[f"{by}_mean"] for point in line]
    axes.plot(steps, errors, markersize=4, linewidth=1.4, **style)
    low = [max(point[f"{by}_mean"] - point[f"{by}_std"], lowest or -math.inf) for point in line]
    high = [point[f"{by}_mean"] + point[f"{by}_std"] for point in line]
    axes.fill_between(steps, low, high, color=style["color"], alpha=0.15, linewidth=0)
    best = min(range(len(line)), key=lambda index: (errors[index], steps[index]))
    axes.plot(steps[best], errors[best], **{**_STAR, "color": style["color"]})


def _logarithmic(axes: Axes, lowest: float) -> None:
    """With plain numbers at 1, 2 and 5 of each decade."""
    from matplotlib.ticker import LogLocator

    axes.set_yscale("log")
    axes.set_ylim(bottom=lowest)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(LogLocator(subs=()))


_STAR: dict[str, Any] = {
    "marker": "*",
    "markersize": 13,
    "markeredgecolor": "black",
    "markeredgewidth": 0.8,
    "linestyle": "",
    "zorder": 5,
}


def _legend(styles: Mapping[float, dict[str, Any]], band: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines: list[Any] = [Line2D([], [], markersize=4, linewidth=1.4, **style) for style in styles.values()]
    lines.append(Line2D([], [], label="best", **{**_STAR, "color": "white", "markersize": 10}))
    return [
        *lines,
        *([Patch(color="0.5", alpha=0.3, linewidth=0, label="± one std over seeds")] if band else []),
    ]


def _apart(ticks: Sequence[int], inches: float) -> list[int]:
    """As many of the ticks as have room beside each other on a log axis of that length, the ends
    among them.
    """
    span = max(math.log(ticks[-1] / ticks[0]), 1e-9)

    def collide(low: int, high: int) -> bool:
        return math.log(high / low) / span * inches < 0.035 * (len(str(low)) + len(str(high))) + 0.06

    kept = [ticks[0]]
    for tick in ticks[1:-1]:
        if not collide(kept[-1], tick) and not collide(tick, ticks[-1]):
            kept.append(tick)
    return [*kept, ticks[-1]] if len(ticks) > 1 else kept


def _figure(width: float, height: float) -> Figure:
    """Without pyplot: no global state, no display."""
    preload("matplotlib.backends.backend_agg")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def partition(table: Path, target: Path, title: str, most: int = 40) -> None:
    """A bar for each of the first clients of a partition.csv, stacked by label where it has
    labels.
    """
    import pandas as pd
    from matplotlib.ticker import MaxNLocator

    rows = pd.read_csv(table)
    shown = rows.head(most)
    labels = [column for column in rows if column.startswith("label_")]
    figure = _figure(max(5.0, 1.8 + 0.2 * len(shown)), 3.6)
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

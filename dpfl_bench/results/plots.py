"""Pictures, drawn from files, never from objects. matplotlib is imported here and only when something is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MEANING = "test error (1 - {metric})"


def curve(metrics: Path, result: dict[str, Any], target: Path) -> None:
    """curve.png: test error and training loss over rounds, mean and range over seeds."""
    rows = pd.read_csv(metrics)
    figure = _figure(9.5, 3.6)
    left, right = figure.subplots(1, 2)
    _over_rounds(left, rows, "test_error", MEANING.format(metric=result["metric"]))
    _over_rounds(right, rows, "train_loss", "training loss")
    losses = rows["train_loss"].dropna()
    if losses.min() > 0 and losses.max() > 10 * losses.min():
        right.set_yscale("log")
    budget = (
        "no privacy"
        if result["eps"] == float("inf")
        else f"ε = {result['eps']:.3g}, δ = {result['delta']:g} ({result['unit']}, {result['trust']})"
    )
    if result.get("fully_accounted") is False:
        budget += ", not fully accounted"
    if result.get("accountant") == "paper":
        budget += ", by the paper's own accountant (no guarantee)"
    figure.suptitle(f"{result['algo']} on {result['dataset']}, {budget}; {result['local_steps']} local steps", fontsize=10)
    figure.savefig(target, dpi=120)


def _over_rounds(axes: Axes, rows: pd.DataFrame, column: str, label: str) -> None:
    by_round = rows.groupby("round")[column]
    middle, low, high = by_round.mean(), by_round.min(), by_round.max()
    axes.plot(middle.index, middle, color="tab:blue")
    if rows["seed"].nunique() > 1:
        axes.fill_between(
            middle.index, low, high, color="tab:blue", alpha=0.2, linewidth=0, label=f"range of {rows['seed'].nunique()} seeds"
        )
        axes.legend(frameon=False, fontsize=8)
    axes.set_xlabel("round")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)


def u_curves(table: pd.DataFrame, target: Path, title: str = "") -> None:
    """Test error against local steps: a panel for each algorithm, a line for each eps, the best point marked, a band of one std."""
    algorithms = sorted(table["algo"].unique())
    figure = _figure(4.8 * len(algorithms), 4.0)
    panels = figure.subplots(1, len(algorithms), sharey=True, squeeze=False)[0]
    budgets = sorted(table["budget"].unique(), reverse=True)
    for axes, algorithm in zip(panels, algorithms, strict=True):
        for index, eps in enumerate(budgets):
            rows = table[(table["algo"] == algorithm) & (table["budget"] == eps)].sort_values("local_steps")
            if len(rows):
                _u_curve(axes, rows, f"C{index}", "no privacy" if eps == float("inf") else f"ε = {eps:.4g}")
        axes.set_title(algorithm)
        axes.set_xscale("log")
        ticks = sorted(table["local_steps"].unique())
        axes.set_xticks(ticks, [str(t) for t in ticks], fontsize=8)
        axes.minorticks_off()
        axes.set_xlabel("local steps per round")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("test error")
    figure.suptitle(title, fontsize=8)
    panels[-1].legend(frameon=False, fontsize=8)
    figure.savefig(target, dpi=120)


def _u_curve(axes: Axes, rows: pd.DataFrame, colour: str, label: str) -> None:
    steps, error, spread = rows["local_steps"], rows["test_error_mean"], rows["test_error_std"].fillna(0)
    axes.plot(steps, error, marker=".", color=colour, label=label)
    axes.fill_between(steps, error - spread, error + spread, color=colour, alpha=0.15, linewidth=0)
    best = rows.loc[error.idxmin()]
    axes.plot(best["local_steps"], best["test_error_mean"], marker="*", markersize=12, color=colour)


def _figure(width: float, height: float) -> Figure:
    """Without pyplot: no global state, no display."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def partition(table: Path, target: Path, title: str, most: int = 40) -> None:
    """A bar for each of the first clients of a partition.csv, stacked by label where it has labels."""
    from matplotlib.ticker import MaxNLocator

    rows = pd.read_csv(table)
    shown = rows.head(most)
    labels = [column for column in rows if column.startswith("label_")]
    figure = _figure(max(5.0, 1.8 + 0.2 * len(shown)), 3.6)
    axes = figure.subplots()
    colours = _colours(len(labels))
    below = pd.Series(0, shown.index)
    for column, colour in zip(labels, colours, strict=True):
        axes.bar(shown["client"], shown[column], bottom=below, color=colour, width=0.9, label=column.removeprefix("label_"))
        below = below + shown[column]
    if not labels:
        axes.bar(shown["client"], shown["records"], color="tab:blue", width=0.9)
    axes.set_xlabel("client" if len(shown) == len(rows) else f"client (the first {len(shown)} of {len(rows)})")
    axes.set_ylabel("training records")
    axes.set_xlim(-0.7, len(shown) - 0.3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(title, fontsize=9)
    if 0 < len(labels) <= 20:
        figure.legend(title="label", loc="outside right upper", frameon=False, fontsize=7, title_fontsize=8, reverse=True)
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

"""Figures: nothing is cut off or covers something else, each algorithm keeps its look, and files
are the same bytes.
"""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.figures.panels import Look, Mark, draw, save
from dpfl_bench.results.figures.style import WIDTHS, inches, label_of, name_of, style_of, styles_of

ALGORITHMS = ["dp_fedavg", "fedavg", "dp_scaffnew", "dp_scaffold", "dp_fedexp", "my_own"]
BUDGETS = ["inf", "8", "2", "0.5"]


def marks(rows: int, columns: int, lines: list[str], count: int = 8) -> list[Mark]:
    return [
        Mark(
            f"row {r}" if rows > 1 else "",
            f"column {c}" if columns > 1 else "",
            line,
            2.0**k,
            y,
            0.9 * y,
            2 * y,
        )
        for r in range(rows)
        for c in range(columns)
        for n, line in enumerate(lines)
        for k in range(count)
        for y in [0.1 + 0.01 * n + (k - 3) ** 2 / 99]
    ]


FULL: dict[str, Any] = {
    "title": "A caption of some words that says what the figure shows, and for which data; " * 2,
    "x_label": "local steps per round",
    "y_label": "test error",
    "x_log": True,
    "band": "± one standard deviation over seeds",
    "note": "Reduced: 5 of 10 splits, 100 of 1,000 rounds. Nominal ε 13, valid 0.86 (client, local). " * 3,
    "best": True,
    "verticals": [("predicted optimum", 16)],
}


def boxes(figure: Figure) -> dict[str, Any]:
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    named = {f"text {n}": text.get_window_extent(renderer) for n, text in enumerate(figure.texts)}
    named |= {f"legend {n}": each.get_window_extent(renderer) for n, each in enumerate(figure.legends)}
    return named | {f"axes {n}": axes.get_tightbbox(renderer) for n, axes in enumerate(figure.axes)}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("rows", "columns", "width", "kind"),
    [
        *((1, columns, width, "lines") for columns in (1, 3, 5) for width in ("icml", "double")),
        *((2, 2, width, "lines") for width in (*WIDTHS, 9.5)),
        *((1, 2, "icml", kind) for kind in ("points", "bars", "paths")),
        (3, 1, "ieee", "lines"),
    ],
)
def test_everything_is_on_the_page_and_nothing_covers_another(
    rows: int, columns: int, width: str | float, kind: Any
) -> None:
    figure = draw(marks(rows, columns, ALGORITHMS), Look(**FULL, width=width, kind=kind))
    parts = boxes(figure)
    page = figure.bbox
    for name, box in parts.items():
        assert page.x0 - 1 <= box.x0 < box.x1 <= page.x1 + 1, name
        assert page.y0 - 1 <= box.y0 < box.y1 <= page.y1 + 1, name
    for (one, a), (other, b) in combinations(parts.items(), 2):
        overlap = min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
        assert not overlap, f"{one} covers {other}"


def test_a_legend_in_the_panel_is_seen_by_the_test_above() -> None:
    figure = draw(marks(1, 1, BUDGETS), Look(**FULL, line_of="budget"))
    figure.legends[0].set_bbox_to_anchor((0.5, 0.5), figure.transFigure)
    parts = boxes(figure)
    assert parts["legend 0"].overlaps(parts["axes 0"])


@pytest.mark.parametrize("venue", WIDTHS)
def test_a_figure_is_as_wide_as_the_column(venue: str) -> None:
    assert draw(marks(1, 3, BUDGETS), Look(width=venue)).get_figwidth() == WIDTHS[venue]


def test_unknown_width_and_no_marks() -> None:
    with pytest.raises(ConfigError, match=r"figure.width=a4: expected icml or neurips or ieee"):
        inches("a4")
    with pytest.raises(ValueError, match="needs marks"):
        draw([], Look())


def test_an_algorithm_looks_the_same_everywhere() -> None:
    for name in ("scaffnew", "fedavg", "scaffold", "fedexp", "fedsgd", "normfedavg"):
        private, free = style_of(f"dp_{name}"), style_of(name)
        assert (private.colour, private.marker) == (free.colour, free.marker)
        assert (private.line, free.line) == ("-", "--")
        assert private.label == f"DP-{free.label}"
        for others in (["dp_fedavg", f"dp_{name}"], [f"dp_{name}", "x", "y"]):
            assert styles_of(others, "algorithm")[f"dp_{name}"] == private
    assert style_of("my_own") == style_of("my_own")
    names = [f"mine_{n}" for n in range(30)]
    looks = styles_of(names, "algorithm").values()
    assert len({(look.colour, look.marker) for look in looks}) == 30


def test_known_algorithms_are_told_apart_by_colour_and_by_marker() -> None:
    names = ["fedavg", "scaffnew", "scaffold", "scaffold_warm", "fedexp", "fedexp_scaffold", "fedsgd"]
    looks = [style_of(name) for name in [*names, "normfedavg", "pfl"]]
    assert len({look.colour for look in looks}) == len({look.marker for look in looks}) == 9


def test_budgets_are_ordered_from_light_to_dark() -> None:
    styles = styles_of(["0.5", "inf", "8", "2"], "budget")
    assert list(styles) == ["inf", "8", "2", "0.5"]
    assert [style.label for style in styles.values()] == ["no privacy", "ε = 8", "ε = 2", "ε = 0.5"]
    grey = [
        sum(w * int(s.colour[i : i + 2], 16) for w, i in ((0.3, 1), (0.59, 3), (0.11, 5)))
        for s in styles.values()
    ]
    assert grey[1] > grey[2] + 30 > grey[3] + 60, "apart in black and white"
    assert styles["inf"].line == "--"
    nominal = styles_of(["nominal 2, valid 1.4", "nominal 13, valid 0.86"], "budget")
    assert list(nominal) == ["nominal 13, valid 0.86", "nominal 2, valid 1.4"]


def test_names_for_readers() -> None:
    assert name_of("test_error") == "test error"
    assert name_of("privacy.clip") == "bound C"
    assert label_of("eps", 2.0) == "ε = 2"
    assert label_of("eps", math.inf) == "no privacy"
    assert label_of("privacy.bound", "clip") == "clip"
    assert label_of("algo", "dp_scaffnew") == "DP-ScaffNew"
    assert label_of("partition.alpha", 0.3) == "alpha = 0.3"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["lines", "bars"])
def test_the_same_figure_is_the_same_bytes(kind: Any) -> None:
    for where in ("a", "b"):
        look = Look(**FULL, kind=kind, alt="errors over local steps")
        save(draw(marks(1, 2, ALGORITHMS), look), Path(where) / "f")
    for ending in ("pdf", "svg", "png"):
        assert Path(f"a/f.{ending}").read_bytes() == Path(f"b/f.{ending}").read_bytes(), ending
    other = draw(marks(1, 2, ALGORITHMS, 7), Look(**FULL, kind=kind))
    save(other, Path("b/f"), ("pdf",))
    assert Path("a/f.pdf").read_bytes() != Path("b/f.pdf").read_bytes()


def test_fonts_are_in_the_pdf_and_no_date() -> None:
    save(draw(marks(1, 2, BUDGETS), Look(**FULL, alt="errors")), Path("f"))
    pdf = Path("f.pdf").read_bytes()
    assert b"/FontFile2" in pdf, "TrueType, embedded"
    assert b"/Type3" not in pdf
    assert b"CreationDate" not in pdf
    svg = Path("f.svg").read_text()
    assert "<dc:date>" not in svg
    assert "errors" in svg
    assert 'href="http' not in svg


def test_no_text_is_taken_for_a_formula() -> None:
    odd = "$\\frac{a$ #1"
    look = Look(title=odd, x_label=odd, y_label=odd, note=odd, line_of="other", verticals=[(odd, 4)])
    figure = draw([Mark(odd, odd, odd, float(k), 1.0) for k in range(3)], look)
    save(figure, Path("odd"))
    assert figure.get_suptitle() == odd


def test_the_star_is_at_the_least_or_the_greatest() -> None:
    for best, at in ((True, 8.0), ("greatest", 1.0)):
        figure = draw(marks(1, 1, ["dp_fedavg"], 6), Look(best=best, x_log=True))
        (star,) = [line for line in figure.axes[0].lines if line.get_marker() == "*"]
        assert list(star.get_xdata()) == [at]


def test_gaps_infinities_and_values_that_a_log_axis_cannot_show() -> None:
    points = [
        Mark("", "", "2", x, y) for x, y in ((1, 0.5), (2, math.nan), (4, 0.0), (8, 0.25), (math.inf, 0.1))
    ]
    figure = draw(points, Look(x_log=True, y_log=True, best=True, line_of="budget"))
    save(figure, Path("f"))
    level = [line for line in figure.axes[0].lines if list(line.get_ydata()) == [0.1, 0.1]]
    assert level, "x = inf is a level across the panel"
    assert Path("f.png").stat().st_size > 5_000


def test_panels_of_other_sizes_are_all_within_a_shared_log_axis() -> None:
    marks = [
        Mark("", column, "dp_fedavg", x, y)
        for column, y in (("low", 1.0), ("high", 1000.0))
        for x in (1.0, 2.0)
    ]
    low, high = (axes.get_ylim() for axes in draw(marks, Look(y_log=True)).axes[:2])
    assert low == high
    assert low[0] < 1 < 1000 < low[1]


def test_a_set_of_figures_looks_alike() -> None:
    """A line that a figure lacks takes no other's colour."""
    lines = ["clip", "normalise", "no privacy"]

    def colours(own: list[str]) -> dict[str, str]:
        figure = draw(marks(1, 1, own), Look(line_of="other", lines=lines))
        return dict(zip(own, [line.get_color() for line in figure.axes[0].lines], strict=True))

    whole = colours(lines)
    assert len(set(whole.values())) == 3
    assert colours(["normalise"])["normalise"] == whole["normalise"]


def test_the_ticks_of_shared_axes_are_of_all_panels() -> None:
    points = [
        Mark("", column, "2", x, y) for column, x, y in (("a", 1, 1e-4), ("a", 2, 1e-3), ("b", 64, 1e3))
    ]
    figure = draw(points, Look(x_log=True, y_log=True, line_of="budget"))
    figure.draw_without_rendering()
    for axes in figure.axes:
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "2", "64"]
        assert axes.get_ylim()[0] < 1e-4 < 1e3 < axes.get_ylim()[1]


def test_a_level_is_named_once() -> None:
    points = [Mark("", "", line, x, 1.0) for line, x in (("clip", 1), ("clip", 2), ("no privacy", math.inf))]
    for line, count in (("no privacy", 1), ("other", 1)):
        own = [*points[:2], Mark("", "", line, math.inf, 1.0)]
        legend = draw(own, Look(line_of="other", level="no privacy")).legends[0]
        assert [text.get_text() for text in legend.get_texts()].count("no privacy") == count

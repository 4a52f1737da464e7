"""The U-curves: which are drawn, and that nothing of them is cut off or runs into something
else.
"""

from __future__ import annotations

from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers.collected import finish, free, png_size
from matplotlib.figure import Figure

from dpfl_bench.results.collect import pictures
from dpfl_bench.results.collect.best import Table
from dpfl_bench.results.collect.gather import collect

INF = float("inf")
DIVISORS = [k for k in range(1, 2521) if 2520 % k == 0]


def points(algorithms: int, budgets: list[float], steps: list[int], seeds: int = 3) -> list[dict[str, Any]]:
    common = {"n_seeds": seeds, "test_error_std": 0.01}
    return [
        {
            "algo": f"algorithm_{a}",
            "budget": eps,
            "local_steps": k,
            "test_error_mean": 0.1 + k / 9999,
            **common,
        }
        for a in range(algorithms)
        for eps in budgets
        for k in steps
    ]


def test_u_curves_are_drawn_where_there_is_a_curve() -> None:
    for steps, error in ((1, 0.3), (5, 0.2), (20, 0.4)):
        finish(f"a{steps}", local_steps=steps, test_error_mean=error, test_error_std=0.02, seeds=[0, 1])
        free(f"b{steps}", local_steps=steps, test_error_mean=error / 2, algo="dp_scaffnew")
    finish("lone", dataset="mushrooms")
    finish("odd1", dataset="../my/data", local_steps=1)
    finish("odd2", dataset="../my/data", local_steps=2)
    collect(["runs"], "out")
    odd, plain = sorted(path.name for path in Path("out").glob("*.png"))
    assert (odd[:20], plain) == ("u_curves_.._my_data_", "u_curves_digits.png")
    picture = Path("out/u_curves_digits.png")
    assert picture.stat().st_size > 10_000
    width, height = png_size(picture)
    assert width == 1400, "two panels"
    assert 300 < height < 1000
    assert all(Path(f"out/u_curves_digits.{ending}").exists() for ending in ("pdf", "svg"))


def test_each_problem_and_guarantee_has_a_picture_with_the_runs_without_privacy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """At each number of local steps the best over whatever else was swept."""
    drawn: dict[str, tuple[list[Any], str]] = {}
    monkeypatch.setattr(
        pictures,
        "u_curves",
        lambda points, target, title, note, *_: drawn.update({target.name: (points, f"{title}|{note}")}),
    )
    for trust in ("secagg", "central"):
        for steps in (1, 2):
            for clip, error in ((0.1, 0.3), (1.0, 0.2)):
                finish(
                    f"{trust}{steps}{clip}", trust=trust, local_steps=steps, clip=clip, test_error_mean=error
                )
    free("x", local_steps=1)
    collect(["runs"], "out")
    assert list(drawn) == ["u_curves_digits_1", "u_curves_digits_2"]
    for name, trust in (
        ("u_curves_digits_1", "trusted server"),
        ("u_curves_digits_2", "secure aggregation"),
    ):
        told, title = drawn[name]
        assert sorted((p["budget"], p["local_steps"], p["test_error_mean"]) for p in told) == [
            (2.0, 1, 0.2),
            (2.0, 2, 0.2),
            (INF, 1, 0.2),
        ]
        assert title.startswith("Test error against local steps per round on digits|")
        assert f"Client level, {trust}, replace one, towards the server, δ = 1e-5. At each" in title
        assert title.endswith("the best of bound C.")


@pytest.mark.parametrize(
    ("algorithms", "budgets", "steps"),
    [
        (1, [INF], [1, 2]),
        (1, [INF, 8, 2, 0.5], DIVISORS),
        (5, [INF, 8, 4, 2, 1, 0.5, 0.2], [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 24, 30, 40, 60, 120]),
        (2, [0.001, 12.345678], [7, 700000]),
        (9, [INF, 1], [1, 10]),
    ],
)
def test_nothing_is_cut_off_or_overlaps(
    algorithms: int, budgets: list[float], steps: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Titles, legend, axes and ticks by their boxes on the drawn figure."""
    figures: list[Figure] = []
    monkeypatch.setattr(pictures, "save", lambda figure, target: figures.append(figure))
    note = "logreg, clients = 1000. " + "guarantee, " * 12
    given = points(algorithms, budgets, steps)
    pictures.u_curves(given, Path("u"), "A title of some words " * 5, note, Table([], []))
    (figure,) = figures
    figure.draw_without_rendering()  # places everything for the resolution at hand
    page = figure.bbox
    words = [text.get_window_extent() for text in figure.texts]
    boxes = [*words, figure.legends[0].get_window_extent(), *(a.get_tightbbox() for a in figure.axes)]
    for box in boxes:
        assert page.x0 - 1 <= box.x0 < box.x1 <= page.x1 + 1
        assert page.y0 - 1 <= box.y0 < box.y1 <= page.y1 + 1
    for one, other in combinations(boxes, 2):
        wide = min(one.x1, other.x1) - max(one.x0, other.x0)
        assert wide <= 1 or min(one.y1, other.y1) - max(one.y0, other.y0) <= 1
    for axes in figure.axes:
        ticks = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]
        assert all(left.x1 < right.x0 for left, right in pairwise(ticks))
        names = [tick.get_text() for tick in axes.get_xticklabels()]
        if len(steps) <= 14:
            assert {float(names[0]), float(names[-1])} == {min(steps), max(steps)}
        stars = [line for line in axes.lines if line.get_marker() == "*"]
        assert len(stars) == len(budgets)
        assert all(star.get_xdata()[0] == min(steps) for star in stars)
    styles = {
        (line.get_color(), line.get_marker()) for line in figure.axes[0].lines if line.get_marker() != "*"
    }
    assert len(styles) == len(budgets), "told apart by colour and by mark"


def test_one_seed_has_no_band_in_the_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    legends: list[list[str]] = []

    def kept(figure: Figure, target: Path) -> None:
        legends.append([text.get_text() for text in figure.legends[0].get_texts()])

    monkeypatch.setattr(pictures, "save", kept)
    for seeds in (1, 3):
        pictures.u_curves(points(1, [INF, 2.0], [1, 2], seeds), Path("u"), "x", "", Table([], []))
    assert legends == [
        ["no privacy", "ε = 2", "best"],
        ["no privacy", "ε = 2", "best", "± one std over seeds"],
    ]

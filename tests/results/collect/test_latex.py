"""table.tex and figures.tex: they compile alone and in papers of one or two columns, and fit."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.collected import finish
from helpers.command import call
from helpers.tables import checked_tex, odd_table

from dpfl_bench.results.collect import latex, pictures
from dpfl_bench.results.collect.tables import TUNING

NOTES = [TUNING, "100 % of a_b & {c} cost $5 #1 ~ ^ \\ 2", "runs/" + "a_long_name/" * 20]
compiles = pytest.mark.skipif(shutil.which("pdflatex") is None, reason="no pdflatex")
PAPERS = {
    "one column": r"\documentclass{article}\IfFileExists{booktabs.sty}{\usepackage{booktabs}}{}",
    "two columns": r"\documentclass[twocolumn]{article}",
    "in a table": r"\documentclass[twocolumn]{article}",
}


def test_it_is_well_formed() -> None:
    table = latex.table(odd_table(), NOTES)
    assert checked_tex(table) == 10
    for spoil in ((r"\_", "_"), (" & ", " "), ("{@{}p", "{@{}lp"), (" \\\\\n", "\n")):
        with pytest.raises((AssertionError, ValueError)):  # the negative control
            checked_tex(latex.HEAD + table.removeprefix(latex.HEAD).replace(*spoil, 3))


def test_what_all_rows_share_is_in_the_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for number, algo in enumerate(("dp_fedavg", "dp_scaffnew")):
        finish(f"a{number}", algo=algo, local_steps=2 + number, test_error_mean=0.3 - number / 10)
    assert call("collect", "runs", "--to", "out").code == 0
    text = Path("out/table.tex").read_text()
    (caption,) = re.findall(r"\\caption\{(.*)\}\n", text)
    assert "Client level, secure aggregation, replace one, towards the server, $\\delta$ = 1e-5." in caption
    assert caption.startswith("The local steps with the best test error at each privacy budget, digits.")
    assert "DP-FedAvg & " in text
    assert "dp\\_" not in text
    assert checked_tex(text) == 3


@pytest.mark.parametrize("width", ["icml", "double"])
def test_a_picture_for_a_venue_has_its_width_and_its_words_in_the_caption(
    width: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpfl_bench.results.figures.style import WIDTHS

    drawn: list[Any] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pictures, "save", lambda figure, target: drawn.append(figure))
    for algo in ("dp_fedavg", "dp_scaffnew"):
        for steps in (1, 5):
            finish(f"{algo}{steps}", algo=algo, local_steps=steps, test_error_mean=0.3 - steps / 100)
    said = call("collect", "runs", "--to", "out", "--width", width)
    assert said.code == 0, said.err
    (figure,) = drawn
    assert figure.get_figwidth() == WIDTHS[width]
    assert not figure.get_suptitle()
    text = Path("out/figures.tex").read_text()
    assert "\\includegraphics[width=\\linewidth]{u_curves_digits}" in text
    assert "\\caption{Test error against local steps per round on digits." in text
    assert "Client level, secure aggregation, replace one" in text
    call("collect", "runs", "--to", "out")
    assert drawn[1].get_suptitle().startswith("Test error against")


def typeset(folder: Path, name: str, text: str) -> str:
    """The log of pdflatex."""
    (folder / f"{name}.tex").write_text(text)
    asked = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", f"{name}.tex"]
    done = subprocess.run(asked, cwd=folder, capture_output=True, timeout=120)
    said = done.stdout.decode(errors="replace")
    assert done.returncode == 0, said[-2000:]
    return said


@compiles
@pytest.mark.parametrize("paper", [*PAPERS, "alone"])
def test_it_compiles_and_fits_a_column(paper: str, tmp_path: Path) -> None:
    table = latex.table(odd_table(), NOTES)
    if paper == "alone":
        said = typeset(tmp_path, "table", table)
    else:
        (tmp_path / "table.tex").write_text(table)
        inner = r"\begin{table}\input{table}\end{table}" if paper == "in a table" else r"\input{table}"
        said = typeset(
            tmp_path, "page", f"{PAPERS[paper]}\\begin{{document}}Before.{inner}After.\\end{{document}}"
        )
    assert "Overfull \\hbox" not in said
    assert "Output written on" in said


@compiles
def test_a_table_that_does_not_fit_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control of the test above."""
    monkeypatch.setattr(latex, "COLUMN", 1000.0)
    (tmp_path / "table.tex").write_text(latex.table(odd_table(), NOTES))
    page = f"{PAPERS['two columns']}\\begin{{document}}\\input{{table}}\\end{{document}}"
    assert "Overfull \\hbox" in typeset(tmp_path, "page", page)


def test_a_note_has_display_names_and_its_commands_as_they_are_typed() -> None:
    note = "dp_fedavg on mnist; to add it: dpfl-bench run algo=dp_fedavg,fedavg dataset=mnist runs/fedavg"
    text = latex.table(odd_table(), [note]).replace("\\allowbreak{}", "")
    assert "DP-FedAvg on MNIST; to add" in text
    assert "run algo=dp\\_fedavg,fedavg dataset=mnist runs/fedavg" in text


def test_words_of_a_figure_are_escaped() -> None:
    text = latex.figures([pictures.Drawn("view_1", "a_b & c%", "δ = 1e-5.")])
    assert "\\caption{a\\_\\allowbreak{}b \\& c\\%. $\\delta$ = 1e-5.}" in text

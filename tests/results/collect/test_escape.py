"""Names come from users: in Markdown, LaTeX, CSV and pictures they are text and nothing else."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import re
import struct
import warnings
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from helpers.collected import finish, free, png_size, table_of
from helpers.command import call
from helpers.tables import checked_tex, odd_table

from dpfl_bench.results import escape, plots
from dpfl_bench.results.collect import latex, pictures, tables
from dpfl_bench.results.collect.gather import collect
from dpfl_bench.results.figures.files import FORMATS, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

pytestmark = pytest.mark.one_in(4)

NASTY = [
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "a|b",
    "a\\|b",
    "`code` ``two``",
    "[text](javascript:alert(1))",
    "![x](http://host/x.png)",
    "*bold* __bold__ ~~gone~~",
    "&lt;b&gt; &amp;",
    "two\nlines\r\nthree | four\n\n# head",
    "\x1b[31mred\x07\x00\x7f",
    "=cmd|'/C calc'!A0",
    "+1+cmd()",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "\t=1+1",
    "\r=1+1",
    " =1+1",
    "-1_x & \\input{/etc/passwd}",
    "+1$ \\input{x} $",
    "$x^2$ $\\frac$ \\$ $",
    "\\end{tabular}\\input{/etc/passwd}",
    "--- ``quoted'' ^^41",
    "Ąą «þ» 日本 λ ﬁ \u202e right to left",
    "half \ud800 a pair",
    "../../x",
    "x" * 300,
    "",
]


TURNS = itertools.count()


def shown(line: str) -> str:
    """What a reader of a Markdown line sees: backslashes taken away, entities as characters."""
    return unescape(re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", line))


@pytest.mark.parametrize("name", NASTY)
def test_markdown_shows_a_name_as_it_is(name: str) -> None:
    text = escape.markdown(name)
    assert shown(text) == escape.plain(name)
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)  # what still acts
    assert not re.search(r"[<>`*|\[\]~$]", bare)
    assert not re.search(r"&(?!lt;|gt;|amp;)", bare)
    assert not re.search(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", bare)
    assert text.isprintable()


@pytest.mark.parametrize(
    "name", ["dp_fedavg", "digits", "model.l2 0.01, clients 9 (x), é ± ε", "-3", "=1", "a/b:c", "50 %"]
)
def test_ordinary_names_stay(name: str) -> None:
    assert escape.markdown(name) == name


def runs_with(field: str, name: str, number: int) -> None:
    """Two runs of that name, of the problem of that number."""
    for steps in (1, 2):
        more: dict[str, Any] = {"clients": 1000 + number, "local_steps": steps, "seeds": [0, 1]}
        if field == "override":
            more |= {"config": f"eps: 2.0\nword: {json.dumps(name)}\n", "overrides": f"- word={number}\n"}
        elif field == "column":
            more |= {
                "config": f"eps: 2.0\n{json.dumps(name + 'x')}: {steps}\n",
                "overrides": f"- x={number}\n",
            }
        else:
            given = f"{name}{number}.{steps}" if field == "run_id" else name
            more |= {**dict.fromkeys(field.split(" and "), given), "config": "eps: 2.0\n"}
        finish(f"r{number}.{steps}", **more)


def save_in_turn(figure: Figure, stem: Path) -> None:
    """A name of common letters and signs in one format, the next one in the next format; any other
    name in each.
    """
    formats = (FORMATS[next(TURNS) % 3],) if figure.get_suptitle().isascii() else FORMATS
    save(figure, stem, formats)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")
@pytest.mark.parametrize(
    "field",
    ["algo", "dataset", "algo and dataset", "model", "run_id", "subset", "unit", "override", "column"],
)
def test_a_name_is_a_cell_and_no_more(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if field != "algo and dataset":  # in pictures the others are words of a title that has these
        monkeypatch.setattr(pictures, "u_curves", lambda *_: None)
    monkeypatch.setattr(pictures, "save", save_in_turn)
    for number, name in enumerate(NASTY):
        runs_with(field, name, number)
    said = call("collect", "runs", "--to", "out", "--tuning-eps")
    assert said.code == 0, said.err
    monkeypatch.setattr(pictures, "u_curves", lambda *_: None)  # they are drawn
    assert len(call("collect", "runs", "--to", "out", "--json").json["table"]) == len(NASTY)
    page = Path("out/table.md").read_text()
    for told in (said.out, page):
        lines = [line for line in told.splitlines() if line.startswith("| ")]
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in lines}) == 1, (
            "each row has its columns"
        )
        assert len(lines) == 2 + len(NASTY)
        assert all(line.isprintable() for line in told.splitlines())
    assert not re.search(r"<\w", page), "no HTML"
    checked_tex(Path("out/table.tex").read_text())
    for file, count in (("results.csv", 2 * len(NASTY)), ("table.csv", len(NASTY))):
        lines = list(csv.reader(io.StringIO(Path(f"out/{file}").read_bytes().decode(), newline="")))
        assert len(lines) == 1 + count
        assert len({len(line) for line in lines}) == 1
        cells = [cell for line in lines for cell in line]
        assert not [
            cell for cell in cells if cell.lstrip(" ").startswith(tuple("=+-@\t\r\n")) and not is_number(cell)
        ]
    assert {path.parent for path in Path("out").rglob("*")} == {Path("out")}
    pictures_of = {ending: len(list(Path("out").glob(f"*.{ending}"))) for ending in FORMATS}
    drawn = len(NASTY) if field == "algo and dataset" else 0
    assert min(pictures_of.values()) >= drawn // 3
    assert sum(pictures_of.values()) >= drawn
    for picture in Path("out").glob("*.png"):
        assert min(png_size(picture)) > 100


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_numbers_stay_numbers_bit_for_bit() -> None:
    numbers = [-0.1, -1 / 3, -5e-324, -1.7976931348623157e308, -0.0, -1e22, -3, 7, math.inf, -math.inf]
    text = tables.csv_text([{"x": number} for number in numbers], ["x"])
    for line, number in zip(text.splitlines()[1:], numbers, strict=True):
        assert struct.pack("d", float(line)) == struct.pack("d", number)
    assert [escape.spreadsheet(word) for word in ("-3", "+1e-5", "-.5", "-inf", "-1e-5")] == [
        "-3",
        "+1e-5",
        "-.5",
        "-inf",
        "-1e-5",
    ]
    assert [escape.spreadsheet(word) for word in ("-3+1", "-a", "--1", "-", "+", "-1e", "-inf()")] == [
        "'-3+1",
        "'-a",
        "'--1",
        "'-",
        "'+",
        "'-1e",
        "'-inf()",
    ]
    assert tables.csv_text([{"x": [-1, 2]}], ["x"]).splitlines()[1] == "'-1 2"
    finish("a", test_error_mean=-0.25, theta=-1e-7)
    collect(["runs"], "out")
    assert table_of("out/results.csv")[0]["theta"] == "-1e-07"


@pytest.mark.parametrize("name", NASTY)
def test_latex_has_no_command_of_a_name(name: str) -> None:
    table = odd_table()
    rows = [
        {**row, "dataset": name, "algo": name, "setting": f"{name} {n}", "guarantee": name, "varied": [name]}
        for n, row in enumerate(table.rows)
    ]
    text = latex.table(tables.Table([{**row, name: name} for row in rows], [name]), [name])
    assert checked_tex(text) == 1 + len(rows)
    assert "\\input" not in text
    assert not re.search(r"[^\x20-\x7e\nÀ-ÿ]", text)


def test_latex_joins_no_signs_of_a_name() -> None:
    """Two minus signs would be a dash, and a number has no name in it."""
    assert escape.tex("a--b---c") == "a-{}-b-{}-{}-c"
    assert (escape.tex("-0.5"), escape.tex("+1"), escape.tex("inf")) == ("$-0.5$", "$+1$", r"$\infty$")
    assert (escape.tex("-1a"), escape.tex("infx"), escape.tex("é Ą 日")) == ("-1a", "infx", "é A ?")


@pytest.mark.slow
def test_two_names_have_two_pictures() -> None:
    """Though a file's name cannot hold their difference."""
    for number, dataset in enumerate(("a/b", "a_b", "a\\b", "x" * 300, "x" * 301)):
        for steps in (1, 2):
            finish(f"r{number}{steps}", dataset=dataset, local_steps=steps)
    collect(["runs"], "out")
    names = [path.name for path in Path("out").glob("*.png")]
    assert len(names) == 5
    assert "u_curves_a_b.png" in names
    assert max(map(len, names)) < 110


@pytest.mark.parametrize("name", ["$\\frac$", "$x$", "$", "\\$", "a_$^{", "two\nlines"])
def test_pictures_print_names_as_they_are(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dollar starts no formula, and half of one raises nothing."""
    from matplotlib.text import Text

    drawn: list[tuple[str, bool]] = []
    saved = Text.draw
    monkeypatch.setattr(
        Text,
        "draw",
        lambda text, *a, **k: (drawn.append((text.get_text(), text.get_parse_math())), saved(text, *a, **k))[
            1
        ],
    )
    for steps in (1, 2):
        finish(f"a{steps}", algo=name, dataset=name, local_steps=steps)
        free(f"b{steps}", algo=name, dataset=name, local_steps=steps)
    collect(["runs"], "out")
    mine = [
        parses
        for text, parses in drawn
        if escape.plain(name).partition(" ")[0] in text and "mathdefault" not in text
    ]
    assert mine
    assert not any(mine)
    partition = Path("p.csv")
    partition.write_text("client,records,label_0\n0,3,3\n")
    plots.partition(partition, Path("p.png"), f"{name} by {name}")
    metrics = "seed,round,test_error,train_loss\n0,0,.5,1\n0,1,.4,1\n"
    Path("metrics.csv").write_text(metrics)
    told = {
        "algo": name,
        "dataset": name,
        "eps": 2.0,
        "delta": 1e-5,
        "unit": name,
        "trust": name,
        "local_steps": 1,
        "metric": "accuracy",
    }
    plots.curve(Path("metrics.csv"), told, Path("curve.png"))
    assert min(png_size(Path("curve.png"))) > 100


def test_a_name_with_a_dollar_draws_what_it_says_without_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for steps in (1, 2):
            finish(f"a{steps}", dataset="cost $5 or $6", local_steps=steps)
        collect(["runs"], "out")

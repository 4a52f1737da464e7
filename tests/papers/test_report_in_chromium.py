"""report.html in a real browser: no error, no overflow on a phone, contrast, sorting, exports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.reported import CLAIM, PRINTED, artefact, shown

from dpfl_bench.papers import report
from dpfl_bench.results.pages.page import WORDS

pytestmark = pytest.mark.slow

LAYOUT = """
document.querySelectorAll("details").forEach((each) => { each.open = true; });
const wide = [...document.querySelectorAll("body *")].filter((each) =>
  !each.closest(".scroll, .paper") && each.getBoundingClientRect().right > innerWidth + 0.5);
const names = wide.map((each) => each.outerHTML.slice(0, 90));
return {inner: innerWidth, page: document.documentElement.scrollWidth, wide: names};
"""
CONTRAST = """
document.querySelectorAll("details").forEach((each) => { each.open = true; });
function rgba(word) {
  const numbers = word.match(/[\\d.]+/g).map(Number);
  return numbers.length === 3 ? [...numbers, 1] : numbers;
}
function lit(colour) {
  const linear = (v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
  const [r, g, b] = colour.map((v) => linear(v / 255));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function behind(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor);
    if (colour[3] === 1) return colour;
    if (colour[3] !== 0) throw new Error("half transparent");
  }
  throw new Error("no background");
}
const low = [];
let looked = 0;
for (const each of document.querySelectorAll("body *:not(svg):not(svg *):not(script)")) {
  if (![...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim())) continue;
  const [a, b] = [rgba(getComputedStyle(each).color), behind(each)].map((c) => lit(c.slice(0, 3)));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  looked += 1;
  if (ratio < 4.5) low.push([ratio, each.outerHTML.slice(0, 90)]);
}
return {low, looked, page: getComputedStyle(document.body).backgroundColor};
"""
SILENT = """
return [...document.querySelectorAll("svg:not([aria-hidden]), img, [role=img]")].filter((each) =>
  !(each.getAttribute("aria-label") || each.getAttribute("alt"))).length;
"""
SORTED = """
const table = [...document.querySelectorAll("table")].find((each) => each.id.endsWith("-table"));
const column = (at) => [...table.tBodies[0].rows].map((row) => row.cells[at].innerText);
const heads = table.tHead.querySelectorAll("button");
const orders = [];
for (const [at, times] of [[1, 1], [1, 1], [0, 1], [2, 1]]) {
  for (let n = 0; n < times; n++) heads[at].click();
  orders.push([column(0), heads[at].closest("th").getAttribute("aria-sort")]);
}
return {orders, csv: csv(table), tex: latex(table)};
"""
LONG = "aVeryLongWordThatHasNoPlaceToBreakAndGoesOnAndOnForMoreThanAPhoneIsWide_" * 3


@pytest.fixture
def page(tmp_path: Path) -> Path:
    claims = [{**CLAIM, "verdict": word, "says": f"{word} {LONG}"} for word in WORDS][:4]
    printed = [{**PRINTED, "match": word, "why": LONG} for word in list(WORDS)[4:]]
    more: dict[str, Any] = {"claims": claims, "printed": printed, "title": f"Errors {LONG}", "reduced": LONG}
    more |= {"commands": [f"dpfl-bench reproduce {LONG}"] * 2, "open": [LONG], "nominal_how": LONG}
    for at in ("smoke-paper", "cpu-paper"):
        artefact(tmp_path / "papers", "mine/fig1", at, figures=2, **more)
    artefact(tmp_path / "papers", f"mine/{LONG[:60]}")
    return report.write(tmp_path / "papers")


@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_window_and_the_console_is_silent(page: Path, width: int) -> None:
    told, console = shown(page, LAYOUT, width)
    assert console == []
    assert told["inner"] == width
    assert told["page"] <= width
    assert told["wide"] == []


def test_an_overflow_and_an_error_are_seen(page: Path) -> None:
    page.write_text(page.read_text().replace("<main>", '<main><div style="width:500px">x</div>'))
    told, console = shown(page, "setTimeout(() => { throw new Error('seen'); });" + LAYOUT, 360)
    assert told["page"] > 360
    assert len(told["wide"]) == 1
    assert "seen" in console[0]


@pytest.mark.parametrize("dark", [False, True])
def test_contrast(page: Path, dark: bool) -> None:
    told, _ = shown(page, CONTRAST, 1200, dark)
    assert told["low"] == []
    assert told["looked"] > 100
    assert told["page"] == ("rgb(22, 24, 26)" if dark else "rgb(251, 251, 250)")


def test_a_weak_contrast_is_seen(page: Path) -> None:
    page.write_text(page.read_text().replace("--soft: #55595e", "--soft: #8a8a8a"))
    told, _ = shown(page, CONTRAST, 1200)
    assert told["low"]


def test_every_image_has_words(page: Path) -> None:
    assert shown(page, SILENT, 1200)[0] == 0
    page.write_text(page.read_text().replace("<main>", "<main><svg></svg>"))
    assert shown(page, SILENT, 1200)[0] == 1


def test_tables_sort_and_export(page: Path) -> None:
    told, console = shown(page, SORTED, 1200)
    assert console == []
    assert told["orders"] == [
        [["DP-ScaffNew", "DP-FedAvg", "FedAvg"], "ascending"],  # by number, inf last
        [["FedAvg", "DP-FedAvg", "DP-ScaffNew"], "descending"],
        [["DP-FedAvg", "DP-ScaffNew", "FedAvg"], "ascending"],  # by word
        [["FedAvg", "DP-FedAvg", "DP-ScaffNew"], "ascending"],
    ]
    assert told["csv"] == "algorithm,error,rounds\nFedAvg,inf,3\nDP-FedAvg,0.10,20\nDP-ScaffNew,0.090,100\n"
    assert "DP-ScaffNew & 0.090 & 100 \\\\" in told["tex"]
    assert told["tex"].startswith("% \\usepackage{booktabs}\n\\begin{tabular}{lll}\n\\toprule")

"""report.html: one file, everything escaped, and what it says is what the folders say."""

from __future__ import annotations

import re
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from helpers.reported import CLAIM, MADE, PRINTED, artefact

from dpfl_bench.papers import report
from dpfl_bench.results.pages.page import anchor

NASTY = "</script><script>alert(1)</script> <img src=x onerror=alert(1)> & \"q\" 'r' @@FOOT@@ ]]>"
VOID = {"meta", "br", "img", "hr", "input", "link"}


class Page(HTMLParser):
    """Tags in balance, ids, and every attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, key, value or "") for key, value in attrs]
        self.ids += [value or "" for key, value in attrs if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_it_says_what_an_eps_means() -> None:
    said = Page(written()).text
    assert "ε = 2 at δ = 1e-05 means" in said
    assert "e^2 = 7.39 times as likely with the data of one client (or one record)" in said
    assert "5 % or 1 % false alarms notices the difference in at most 12.6 % or 3.4 %" in said


def written(papers: Path = Path("out/papers")) -> str:
    return report.write(papers).read_text()


def test_it_says_what_the_folders_say() -> None:
    wrong = {**PRINTED, "printed": 50.0, "match": "differs", "why": "8 below"}
    claims = [CLAIM, {**CLAIM, "verdict": "does not hold", "says": "two", "reads": ""}]
    artefact(Path("out/papers"), "mine/fig1", claims=claims, printed=[PRINTED, wrong])
    text = Page(written()).text
    for words in (
        "the optimum is interior",
        "as the theory says",
        "best 5 of 1 to 20",
        "section 5",
        "✗ does not hold",
    ):
        assert words in text
    for words in (
        "45.5 ± 0.7 44.25 43 to 46 -1.25 ≈ within",
        "50 ± 0.7 44.25 43 to 46 -5.75 ≠ differs 8 below",
    ):
        assert words in text
    assert "tested: interior kind: interior along: local_steps where: eps 2, algo a, b" in text
    assert "2 → 0.86" in text
    assert "13 → 8.5 to none" in text
    for words in (
        "20 of 500 rounds",
        "q is not stated",
        "Theorem 3, q = 1",
        "0123456789abcdef",
        "fedcba9876543210",
    ):
        assert words in text
    assert "dpfl-bench reproduce a/fig1 scale=smoke reading=paper" in text
    assert "1 of" in text
    assert "1 does not hold" in text


def test_a_flipped_number_changes_the_page() -> None:
    artefact(Path("out/papers"), "mine/fig1")
    before = written()
    artefact(Path("out/papers"), "mine/fig1", printed=[{**PRINTED, "printed": 54.5, "match": "differs"}])
    assert "-10.25" in written()
    assert "-10.25" not in before


def test_every_packaged_artefact_is_in_the_matrix() -> None:
    artefact(Path("out/papers"), "mine/fig1")
    text = written()
    from dpfl_bench.papers.artefact import artefacts

    assert text.count("not run") == len(artefacts())
    assert text.count("<article") == 1


def test_the_largest_scale_comes_first_and_the_others_follow() -> None:
    for at in ("smoke-paper", "cpu-exact", "cpu-paper", "full-paper"):
        artefact(Path("out/papers"), "mine/fig1", at, title=f"title of {at}")
    states = re.findall(r"Also at scale ([\w, ]+)<", written())
    assert states == ["cpu, reading paper", "cpu, reading exact", "smoke, reading paper"]
    assert "fig1: title of full-paper</h3>" in written()


def test_both_readings_of_the_largest_scale_are_in_the_matrix() -> None:
    """What holds with the paper's own accounting alone is seen at once."""
    artefact(Path("out/papers"), "mine/fig1", "cpu-paper")
    artefact(Path("out/papers"), "mine/fig1", "cpu-exact", claims=[{**CLAIM, "verdict": "does not hold"}])
    artefact(Path("out/papers"), "mine/fig1", "smoke-paper")
    cell = re.search(r'<li><a href="#mine-2f-fig1">.*?</li>', written(), re.DOTALL)
    assert cell
    assert re.findall(r"cpu-\w+|smoke-\w+|1 holds|1 does not hold", Page(cell[0]).text) == [
        "cpu-paper",
        "cpu-exact",
    ]
    assert cell[0].index('aria-label="1 holds"') < cell[0].index('aria-label="1 does not hold"')
    text = Page(written()).text
    assert "Claims, the paper's own accounting: ✓ 1 holds" in text
    assert "Claims, valid accounting: ✗ 1 does not hold" in text


def test_everything_is_escaped() -> None:
    claim = {**{key: NASTY for key in CLAIM}, "test": {"kind": NASTY, NASTY: {NASTY: [NASTY]}}}
    printed = {**PRINTED, **{key: NASTY for key in ("what", "place", "at", "match", "why")}}
    more: dict[str, Any] = {key: NASTY for key in ("place", "title", "nominal_how", "reduced")}
    more |= {key: [NASTY] for key in ("not_accounted", "open", "commands")}
    more |= {"lacks": {NASTY: NASTY}, "origin": {NASTY: [NASTY]}}
    folder = artefact(Path("out/papers"), "mine/fig1", claims=[claim], printed=[printed], **more)
    (folder / "table.csv").write_text(
        '"</td><script>alert(1)</script>",b\n"<img src=x onerror=alert(1)>",2\n'
    )
    page = Page(written())
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not any(key.startswith("on") for _, key, _ in page.attributes)
    assert page.text.count("@@FOOT@@") > 5, "what is put in is not read again"
    assert page.text.count("Made by dpfl-bench") == 1


def test_nothing_comes_from_elsewhere() -> None:
    artefact(Path("out/papers"), "mine/fig1")
    page = Page(written())
    for tag, key, value in page.attributes:
        assert key not in ("src", "srcset", "action")
        assert tag not in ("link", "iframe", "object", "embed")
        if key.endswith("href"):
            assert value.startswith("#")
        assert not re.search(r"url\((?!['\"]?#)", value)
    policy = next(value for _, key, value in page.attributes if value.startswith("default-src"))
    assert policy.startswith("default-src 'none'")
    assert "@import" not in written()


def test_ids_are_unique_and_references_meet_them() -> None:
    for name in ("mine/fig1", "mine/fig2", "mine-x/fig1"):
        for at in ("smoke-paper", "cpu-paper"):
            artefact(Path("out/papers"), name, at, figures=2)
    page = Page(written())
    assert len(page.ids) == len(set(page.ids))
    wanted = {value[1:] for _, key, value in page.attributes if key.endswith("href")}
    wanted |= {word for _, _, value in page.attributes for word in re.findall(r"url\(#([^)]+)\)", value)}
    wanted |= {value for _, key, value in page.attributes if key in ("data-of", "aria-labelledby")}
    assert wanted <= set(page.ids)


def test_an_svg_that_acts_is_made_quiet() -> None:
    folder = artefact(Path("out/papers"), "mine/fig1", figures=0)
    (folder / "bad.svg").write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"><script>alert(1)</script>'
        '<style>* {display: none}</style><a href="http://x"><rect id="r"/></a><path id="p" d="M 1.23456 2"/>'
        '<use href="http://x#p"/><use href="#p"/><rect fill="url(http://x)" onclick="x()"/></svg>'
    )
    (folder / "broken.svg").write_text("<svg")
    page = Page(written())
    assert page.tags.count("svg") == 1
    assert page.tags.count("script") == page.tags.count("style") == 1
    assert "http://x" not in str(page.attributes)
    assert not any(key.startswith("on") for _, key, _ in page.attributes)
    assert ("path", "d", "M 1.23 2") in page.attributes


def test_every_picture_has_words() -> None:
    artefact(Path("out/papers"), "mine/fig1", figures=2)
    page = Page(written())
    words = [value for tag, key, value in page.attributes if tag == "svg" and key == "aria-label"]
    assert len(words) == page.tags.count("svg") - 1 == 2, "and the letters, which nobody reads"
    assert all("Errors over local steps" in each for each in words)


@pytest.mark.parametrize("broken", ["{", "[]", "{}", '{"claims": 3}'])
def test_a_folder_that_cannot_be_read_is_left_out(broken: str) -> None:
    artefact(Path("out/papers"), "mine/fig1")
    folder = artefact(Path("out/papers"), "mine/fig2")
    (folder / "verdict.json").write_text(broken)
    page = written()
    assert page.count("<article") == 1


def test_commits_versions_and_machine_are_those_of_the_runs() -> None:
    other = {**MADE, "dirty": True, "machine": {**MADE["machine"], "cpu": "Xeon"}}
    artefact(Path("out/papers"), "mine/fig1", made=[MADE, other])
    text = Page(written()).text
    assert text.count("abc123 abc123 with changes") == 1
    assert text.count("dpfl-bench 0.1.0, results 10, Python 3.13.1, torch 2.13.0, numpy 2.4.6") == 1
    assert "cpu AMD EPYC" in text
    assert "cpu Xeon" in text


def test_the_same_folders_are_the_same_bytes() -> None:
    artefact(Path("out/papers"), "mine/fig1")
    assert written() == written()


def test_pictures_share_letters_of_one_shape() -> None:
    folder = artefact(Path("out/papers"), "mine/fig1", figures=2)
    one = Page(written())
    letters = [value for tag, key, value in one.attributes if key == "id" and value.startswith("DejaVuSans")]
    assert len(letters) == len(set(letters)) > 10
    for name in (letters[0], "<b>"):
        (folder / "other.svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg"><defs><path id="{escape(name)}" d="M 9 9"/></defs>'
            f'<use href="#{escape(name)}"/></svg>'
        )
        page = Page(written())
        own = {value for _, key, value in page.attributes if key == "href" and value.endswith(name)}
        assert ("path", "d", "M 9 9") in page.attributes
        assert all(value[1:] in page.ids for value in own)
        assert any(re.fullmatch(rf"#s\w{{6}}-{re.escape(name)}", value) for value in own), "its own shape"


def test_figure_2_stands_before_figure_10_and_equal_ends_once() -> None:
    for name in ("mine/fig10", "mine/fig2", "mine/table1"):
        artefact(Path("out/papers"), name, figures=0, eps={"nominal": 2, "valid": [4.00000001, 4.00000002]})
    text = written()
    places = [text.index(f'href="#{anchor(name)}"') for name in ("mine/fig2", "mine/fig10", "mine/table1")]
    assert places == sorted(places)
    assert "2 → <b>4</b>" in text


def test_audits_are_told() -> None:
    artefact(Path("out/papers"), "a/fig1", audited="violated (1 of 3 runs)")
    assert "violated (1 of 3 runs)" in Page(written()).text
    artefact(Path("out/papers"), "a/fig1")
    assert "audited" not in Page(written()).text

"""What the tests of the documentation share: the pages; which lines are prose, tables, headings,
code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = sorted(ROOT.glob("docs/*.md"))
PAGES = [ROOT / "README.md", *DOCS]  # those that these tests hold to length, words and links
WITH_COMMANDS = [*PAGES, ROOT / "CONTRIBUTING.md"]


@dataclass(frozen=True)
class Line:
    page: Path
    number: int
    kind: str  # prose, table, heading, code, fence (that opens or ends a block) or blank
    text: str
    language: str = ""  # of a fenced block

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.number}"


@cache
def lines(page: Path) -> tuple[Line, ...]:
    return tuple(_lines(page))


def _lines(page: Path) -> Iterator[Line]:
    fence, before = None, "blank"
    for number, text in enumerate(page.read_text().splitlines(), 1):
        if text.lstrip().startswith("```"):
            fence = text.strip().removeprefix("```") if fence is None else None
            before = "fence"
        elif fence is not None:
            before = "code"
        else:
            before = _kind(text, before)
        yield Line(page, number, before, text, fence or "")


def _kind(text: str, before: str) -> str:
    if not text.strip():
        return "code" if before == "code" else "blank"
    if text.startswith("    ") and before in ("blank", "code"):
        return "code"
    if text.startswith("|"):
        return "table"
    return "heading" if re.match(r"#+ ", text) else "prose"


def text_of(page: Path) -> str:
    """Without blocks of code; what is in backticks is left out too, but for the backticks."""
    kept = "\n".join(line.text for line in lines(page) if line.kind not in ("code", "fence"))
    return re.sub(r"`[^`]*`", "``", kept)


def anchors(page: Path) -> set[str]:
    """GitHub's names of a page's headings."""
    slugs: list[str] = []
    for line in lines(page):
        if line.kind == "heading":
            title = re.sub(r"[^\w\- ]", "", line.text.lstrip("#").strip().lower()).replace(" ", "-")
            slugs.append(title if title not in slugs else f"{title}-{slugs.count(title)}")
    return set(slugs)

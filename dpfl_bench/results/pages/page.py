"""A page and its pieces. Whatever comes from a file is escaped here."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?( ± [\d.]+(e[-+]?\d+)?)?")
WORDS = {
    "holds": ("good", "✓"),
    "does not hold": ("bad", "✗"),
    "undecided": ("open", "?"),
    "cannot be tested at this scale": ("", "–"),
    "exact": ("good", "="),
    "within": ("good", "≈"),
    "differs": ("bad", "≠"),
    "not at this setting": ("", "·"),
}
LONG = 4  # parts of a text that are not shown at once


def page(title: str, introduction: str, content: str, foot: str) -> str:
    """The whole."""
    template = Path(str(files(__package__) / "page.html")).read_text(encoding="utf-8")
    parts = {"TITLE": text(title), "INTRODUCTION": introduction, "CONTENT": content, "FOOT": foot}
    head, *rest = template.split("@@")  # text, name, text, name, ...: what is put in is not read again
    return head + "".join(parts.get(part, part) for part in rest)


def counts(words: Mapping[str, int], full: bool = False) -> str:
    """Chips of verdicts, in one order. full: with words, not signs alone."""
    shown = [word for word in WORDS if words.get(word)] + [word for word in words if word not in WORDS]
    return " ".join(chip(word, words[word], full) for word in shown) or '<span class="soft">none</span>'


def chip(word: str, count: int | None = None, full: bool = True) -> str:
    colour, sign = WORDS.get(word, ("", "·"))
    label = escape(f"{count} {word}" if count is not None else word)
    inner = f"{sign} {label}" if full else f'<span aria-hidden="true">{sign} {count}</span>'
    named = "" if full else f' role="img" aria-label="{label}" title="{label}"'
    return f'<span class="chip {colour}"{named}>{inner}</span>'


def facts(known: Mapping[str, str]) -> str:
    """Those that are known."""
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{value}</dd>" for key, value in known.items() if value)
    return f'<dl class="facts">{rows}</dl>'


def lines(lines: Iterable[Any]) -> str:
    return "<br>".join(escape(str(line)) for line in lines)


def ends(value: Any) -> str:
    return " to ".join(dict.fromkeys(map(number, value))) if isinstance(value, list) else number(value)


def number(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, int | float):
        return escape(str(value))
    return "none" if math.isinf(value) else f"{value:.5g}"


def text(value: Any) -> str:
    return escape(str(value or ""))


def items(lines: Iterable[str]) -> str:
    return f'<ul class="plain">{"".join(f"<li>{escape(line)}</li>" for line in lines)}</ul>'


def folded(value: str) -> str:
    """What stands behind the first `;` opens on demand, if it is much."""
    first, *others = str(value).split("; ")
    if len(others) < LONG:
        return text(value)
    return f"{text(first)}<details><summary>in {len(others)} groups</summary>{items(others)}</details>"


def codes(values: Sequence[str], most: int = 12) -> str:
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return " ".join(f"<code>{escape(value)}</code>" for value in values[:most]) + more


def table_of(file: Path, key: str, caption: str) -> str:
    """A CSV file. Nothing where there is none, or no row in it."""
    try:
        with file.open(newline="", encoding="utf-8") as lines:
            head, *rows = csv.reader(lines)
    except (OSError, ValueError):
        return ""
    return table(key, caption, head, [[*map(text, row)] for row in rows], cards=False) if rows else ""


def table(
    key: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], cards: bool = True
) -> str:
    """Sorts by a click on its head, and exports itself. cards: on a phone a row is a card."""
    words = [escape(word) for word in head]
    heads = "".join(f'<th scope="col"><button type="button">{word}</button></th>' for word in words)
    body = "".join(f"<tr>{''.join(map(_cell, words, row))}</tr>" for row in rows)
    tools = "".join(
        f'<button type="button" data-as="{kind}" data-of="{key}">{caption} as {word}</button>'
        for kind, word in (("tex", "LaTeX"), ("csv", "CSV"))
    )
    table = (
        f'<table id="{key}"{" class=cards" if cards else ""}><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    )
    scroll = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">{table}</div>'
    return f'{scroll}<div class="tools">{tools}</div>'


def _cell(head: str, cell: str) -> str:
    return f'<td data-head="{head}"{" class=number" if NUMBER.fullmatch(cell) else ""}>{cell}</td>'


def anchor(name: str) -> str:
    """For an anchor: letters, digits and -, one for each name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else f"-{ord(c):x}-" for c in name)

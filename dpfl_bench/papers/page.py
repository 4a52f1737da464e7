"""Pieces of report.html. Whatever comes from a file is escaped here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
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
    rows = "".join(f"<dt>{escape(key)}</dt><dd>{value}</dd>" for key, value in known.items())
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


def table(
    key: str, caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], cards: bool = True
) -> str:
    """Sorts by a click on its head, and exports itself. cards: on a phone a row is a card."""
    heads = "".join(f'<th scope="col"><button type="button">{escape(word)}</button></th>' for word in head)
    body = []
    for row in rows:
        cells = zip(head, row, strict=False)
        body.append(
            "<tr>"
            + "".join(f'<td data-head="{escape(h)}"{_aligned(cell)}>{cell}</td>' for h, cell in cells)
            + "</tr>"
        )
    tools = "".join(
        f'<button type="button" data-as="{kind}" data-of="{key}">{caption} as {word}</button>'
        for kind, word in (("tex", "LaTeX"), ("csv", "CSV"))
    )
    table = (
        f'<table id="{key}"{" class=cards" if cards else ""}><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )
    scroll = f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}">{table}</div>'
    return f'{scroll}<div class="tools">{tools}</div>'


def _aligned(cell: str) -> str:
    return " class=number" if NUMBER.fullmatch(cell) else ""


def anchor(name: str) -> str:
    """For an anchor: letters, digits and -, one for each name."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else f"-{ord(c):x}-" for c in name)

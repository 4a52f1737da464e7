"""Names on their way into Markdown, LaTeX, a spreadsheet or a picture: they come from users and are
text there, nothing else.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

_MARKS = re.compile(r"([\\`*\[\]<>&|~$!])|(?<![A-Za-z0-9])(_)|(_)(?![A-Za-z0-9])")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}  # also where a renderer takes no backslash before them
_FORMULA = ("=", "+", "-", "@", "\t")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf", re.IGNORECASE)
_TEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{c: f"{{{c}}}" for c in "[]*"},  # after a line's end they mean something
    **{"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "|": r"\textbar{}"},
    **{
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "±": r"$\pm$",
        "ε": r"$\varepsilon$",
        "δ": r"$\delta$",
        "Ψ": r"$\Psi$",
        "∞": r"$\infty$",
        "‖": r"$\|$",
        "–": r"\textendash{}",
        '"': "''",
        "`": r"\textasciigrave{}",
    },
}
_LETTERS = set("ßæÆøØåÅœŒłŁ")
# grave, acute, circumflex, tilde, macron, breve, dot, diaeresis, double acute, caron, cedilla: what
# every font of LaTeX has
_ACCENTS = {
    chr(code) for code in (0x300, 0x301, 0x302, 0x303, 0x304, 0x306, 0x307, 0x308, 0x30B, 0x30C, 0x327)
}


def plain(text: str) -> str:
    """One line without characters that act (a terminal's, a line's end), and that every encoding of
    Unicode can hold.
    """
    sound = text if text.isascii() else text.encode("utf-8", "replace").decode()
    return sound if sound.isprintable() else "".join(c if c.isprintable() else " " for c in sound)


def markdown(text: str) -> str:
    """A cell or a line of Markdown that shows `text` as it stands."""
    return _MARKS.sub(lambda mark: _ENTITIES.get(mark[0], f"\\{mark[0]}"), plain(text))


@lru_cache(maxsize=100_000)
def spreadsheet(text: str) -> str:
    """A cell of CSV on one line, that no spreadsheet takes for a formula. Numbers stay what they
    are.
    """
    text = text.replace("\r", " ").replace("\n", " ")
    if not text.lstrip(" \ufeff\u00a0").startswith(_FORMULA) or _NUMBER.fullmatch(text):
        return text
    return f"'{text}"


def tex(text: str) -> str:
    """Text of LaTeX, in every font encoding."""
    if text == "inf":
        return r"$\infty$"
    if text[:1] in ("+", "-") and _NUMBER.fullmatch(text):
        return f"${text}$"
    return (
        "".join(_TEX.get(c, c if c.isascii() else _letter(c)) for c in plain(text))
        .replace("--", "-{}-")
        .replace("--", "-{}-")
    )


def _letter(c: str) -> str:
    """One that fonts have, the letter without its accent, or a question mark."""
    parts: Any = unicodedata.normalize("NFKD", c)
    if c in _LETTERS or (
        len(parts) == 2 and parts[0].isascii() and parts[0].isalpha() and parts[1] in _ACCENTS
    ):
        return c
    return parts[0] if parts[0].isascii() and parts[0].isalnum() else "?"

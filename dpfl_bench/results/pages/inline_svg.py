"""An SVG file as a part of a page: its ids are its own, and nothing in it acts."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from xml.etree import ElementTree

SVG, LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
PLACES = {"d", "x", "y", "points"}  # with a hundredth of a point, which nobody sees
REFERRED = {f"{{{SVG}}}{name}" for name in ("path", "clipPath", "linearGradient", "pattern", "symbol")}
DROPPED = {"metadata", "script", "foreignObject", "title", "desc", "image", "a", "animate", "set", "style"}


GLYPH = re.compile(r"(DejaVuSans|G)[\w-]*")  # ids of letters, which all pictures draw alike


class Pictures:
    """The pictures of one page. They share the shapes of letters, a third of their bytes."""

    def __init__(self) -> None:
        self.glyphs: dict[str, str] = {}  # id -> the element

    def letters(self) -> str:
        """What the pictures refer to, anywhere in the page."""
        shapes = "".join(self.glyphs.values())
        hidden = 'aria-hidden="true" width="0" height="0" style="position: absolute"'
        return f'<svg xmlns="{SVG}" {hidden}><defs>{shapes}</defs></svg>' if shapes else ""

    def inlined(self, file: Path, prefix: str, words: str) -> str | None:
        """The picture with `words` for who cannot see it; None where it cannot be read.

        prefix: of all ids in it but letters', so that two pictures of a page share none.
        """
        root = _parsed(file)
        if root is None:
            return None
        own = f"s{hashlib.sha256(prefix.encode()).hexdigest()[:6]}"
        shared = self._share_letters(root)
        for element in root.iter():
            for key, value in list(element.attrib.items()):
                if _acts(key, value) or (key == "id" and element.tag not in REFERRED):
                    del element.attrib[key]
                elif not (_bare(key) == "href" and value[1:] in shared):
                    element.set(key, _own(key, value, own))
        root.set("style", "stroke-linejoin: round; stroke-linecap: butt")  # as matplotlib's own style
        root.set("role", "img")
        root.set("aria-label", words)
        return ElementTree.tostring(root, encoding="unicode")

    def _share_letters(self, root: ElementTree.Element) -> set[str]:
        """Moves the letters out; a letter of another shape than the page's stays where it is."""
        shared = set()
        for parent in list(root.iter(f"{{{SVG}}}defs")):
            for child in list(parent):
                name = child.get("id", "")
                if child.tag != f"{{{SVG}}}path" or not GLYPH.fullmatch(name):
                    continue
                plain: dict[str, str] = {
                    key: child.get(key, "") for key in ("id", "d", "transform") if key in child.attrib
                }
                kept = ElementTree.Element("path", plain)
                if self.glyphs.setdefault(name, _text(kept)) == _text(kept):
                    parent.remove(child)
                    shared.add(name)
        return shared


def _text(element: ElementTree.Element) -> str:
    return ElementTree.tostring(element, encoding="unicode")


def _parsed(file: Path) -> ElementTree.Element | None:
    """Without what is no picture."""
    try:
        text = file.read_text(encoding="utf-8")
        root = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", text, count=1))
    except (OSError, ValueError, ElementTree.ParseError):
        return None
    if _bare(root.tag) != "svg":
        return None
    ElementTree.register_namespace("", SVG)
    ElementTree.register_namespace("xlink", LINK)
    for parent in root.iter():
        for child in [child for child in parent if _bare(child.tag) in DROPPED]:
            parent.remove(child)
    return root


def _bare(tag: object) -> str:
    return str(tag).rpartition("}")[2]


def _acts(key: str, value: str) -> bool:
    """What runs, or reaches outside of the page."""
    link = _bare(key) == "href" and not value.startswith("#")
    return _bare(key).startswith("on") or link or re.search(r"url\((?!\s*['\"]?#)", value) is not None


def _own(key: str, value: str, prefix: str) -> str:
    if _bare(key) == "id":
        return f"{prefix}-{value}"
    if _bare(key) == "href":
        return f"#{prefix}-{value[1:]}"
    if key in PLACES:
        return re.sub(r"(\.\d\d)\d+", r"\1", value)
    return re.sub(r"url\((['\"]?)#", rf"url(\1#{prefix}-", value)

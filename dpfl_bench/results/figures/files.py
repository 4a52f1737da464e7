"""A figure as PDF, SVG and PNG. The same figure is the same bytes: no date, no name of a machine,
no random ids. Fonts are in the PDF.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl_bench.machine.imports import preload
from dpfl_bench.results.figures.style import RC

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
FORMATS = ("pdf", "svg", "png")


def blank(width: float, height: float) -> Figure:
    """In inches, without pyplot: no global state, no display."""
    preload("matplotlib.backends.backend_agg")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def stem(name: str) -> str:
    """A file's name for it, one for each name: nothing of a path, and not too long."""
    shown = re.sub(r"[^\w.-]", "_", name)[:80]
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:6]
    return shown if shown == name else f"{shown}_{digest}"


def save(figure: Figure, stem: Path, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """stem.pdf, stem.svg and stem.png, with the figure's title and, of its label, the words for
    who cannot see it.
    """
    from matplotlib import rc_context

    words = str(figure.get_label())
    title = " ".join(figure.get_suptitle().split()) or re.split("[:;]", words)[0]
    metadata: dict[str, dict[str, Any]] = {
        "pdf": {"CreationDate": None, "ModDate": None, "Creator": None, "Producer": None, "Title": title},
        "svg": {"Date": None, "Creator": "dpfl-bench", "Title": title, "Description": words},
        "png": {"Software": None, "Title": title, "Description": words},
    }
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    with rc_context(RC):
        for kind in formats:
            path = stem.with_name(f"{stem.name}.{kind}")
            figure.savefig(path, format=kind, dpi=DPI, metadata=metadata[kind])
            written.append(path)
    return written

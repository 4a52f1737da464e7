"""What stands around the panels of a figure. Each piece takes its height in inches, so that none
covers another; matplotlib lays out the panels in what is left.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpfl_bench.results.escape import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.legend import Legend
    from matplotlib.text import Text

NOTE = 6.0  # points
LINE = 1.32  # times the size of the letters
PAD = 0.04  # inches


class Frame:
    """Of a figure of fixed width. From the foot up: note, legend, label of x; at the top the
    title; at the left the label of y. Raise no piece twice, the note first.
    """

    def __init__(self, figure: Figure, panels: float) -> None:
        """panels: inches that all rows of panels take together, with their ticks."""
        self.figure, self.panels = figure, panels
        self.width = float(figure.get_figwidth())
        self.left, self.foot, self.head = 0.02, PAD, PAD
        self.placed: list[tuple[Any, float, bool]] = []  # artist, inches from the foot or from the top

    def title(self, title: str) -> None:
        text = self._text(title, 8.5, "center", self.width / 2)
        if text:
            text.set_verticalalignment("top")
            self.figure._suptitle = text  # type: ignore[attr-defined]  # read by get_suptitle
            self.placed.append((text, self.head, False))
            self.head += _height(text) + PAD

    def note(self, note: str) -> None:
        text = self._text(note, NOTE, "left", 0.04)
        if text:
            text.set_color("#333333")
            self.placed.append((text, self.foot, True))
            self.foot += _height(text) + 1.5 * PAD

    def x_label(self, label: str) -> None:
        text = self._text(label, 8, "center", self.width / 2)
        if text:
            self.placed.append((text, self.foot, True))
            self.foot += _height(text) + 0.5 * PAD

    def y_label(self, label: str) -> None:
        if label:
            middle = (self.foot + 0.5 * self.panels) / self._height
            text = self.figure.text(0.0, middle, plain(label), fontsize=8, rotation=90, parse_math=False)
            text.set(x=PAD / self.width, horizontalalignment="left", verticalalignment="center")
            text.set_in_layout(False)
            self.left = 8 * LINE / 72 + PAD

    def legend(self, handles: Sequence[Any]) -> None:
        """In as many columns as fit."""
        for columns in range(min(len(handles), 8), 0, -1):
            legend = self._legend(handles, columns)
            if legend.get_window_extent().width / self.figure.dpi <= self.width - 2 * PAD or columns == 1:
                self.placed.append((legend, self.foot, True))
                self.foot += legend.get_window_extent().height / self.figure.dpi + PAD
                return
            legend.remove()

    def close(self) -> None:
        """Set the height, and put everything in its place."""
        height = self._height
        self.figure.set_figheight(height)
        for artist, inches, from_foot in self.placed:
            y = (inches if from_foot else height - inches) / height
            if hasattr(artist, "set_bbox_to_anchor"):
                artist.set_bbox_to_anchor((0.5, y), self.figure.transFigure)
            else:
                artist.set_y(y)
        rect = (
            self.left / self.width,
            self.foot / height,
            1 - (self.left + PAD) / self.width,
            1 - (self.foot + self.head) / height,
        )
        engine: Any = self.figure.get_layout_engine()
        engine.set(rect=rect)
        self._freeze()

    def _freeze(self) -> None:
        """Lay the panels out once, for all files. The last bits of the solver's answer differ from
        one time to the next, and an SVG's ids follow from them.
        """
        self.figure.draw_without_rendering()
        self.figure.set_layout_engine(None)
        for axes in self.figure.axes:
            x, y, width, height = (round(number, 6) for number in axes.get_position().bounds)
            axes.set_position((x, y, width, height))

    @property
    def _height(self) -> float:
        return self.foot + self.panels + self.head

    def _text(self, words: str, size: float, align: str, x: float) -> Text | None:
        """In lines that fit the width."""
        letters = int(self.width * 72 / (0.575 * size)) - 1
        lines = [part for line in words.splitlines() for part in textwrap.wrap(plain(line), letters)]
        if not lines:
            return None
        text = self.figure.text(x / self.width, 0.0, "\n".join(lines), fontsize=size, parse_math=False)
        text.set(horizontalalignment=align, verticalalignment="bottom", multialignment=align)
        text.set_in_layout(False)
        return text

    def _legend(self, handles: Sequence[Any], columns: int) -> Legend:
        legend = self.figure.legend(
            handles=handles,
            loc="lower center",
            borderaxespad=0.0,
            borderpad=0.2,
            ncols=columns,
            columnspacing=1.2,
            handletextpad=0.5,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        legend.set_in_layout(False)
        return legend


def _height(text: Text) -> float:
    return (text.get_text().count("\n") + 1) * float(text.get_fontsize()) * LINE / 72

r"""What `collect` writes for a paper: table.tex and figures.tex, in display names.

Both are to be \input, in one column or two. table.tex fits a column: what all rows share goes into
the caption, and columns that do not fit beside each other stand in further blocks below. pdflatex
shows table.tex alone, too.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dpfl_bench.results import escape
from dpfl_bench.results.collect import pictures
from dpfl_bench.results.collect.best import Table
from dpfl_bench.results.collect.tables import Column, laid_out
from dpfl_bench.results.figures.style import label_of, name_of, word_of

COLUMN = 220.0  # points: a column of `article` in two columns has 229, of ICML 235, of IEEE 252
GAP, LONGEST = 6.0, 62.0  # between columns; of a column of words, beyond which it has several lines
WIDE, NARROW, OTHER = 6.6, 2.8, 4.6  # points of a letter at \footnotesize, rather too many
BREAKS = re.compile(r"(\\_|(?<=\w)[/.=](?=\w))")  # in a long name or path
KEYS = ("data set", "algorithm", "eps", "nominal eps")  # that stand in every block
ALWAYS = ("algorithm", "eps", "best local steps")  # and what is never said by the caption alone
FIRST = ("best local steps", "rounds")  # then the result, then the rest
HEAD_WIDTH, STRUT = 10, r"\rule{0pt}{2.2ex}"  # letters of a line; room below the rule above
OURS = re.compile(r"(?<![\w/.=,'-])[A-Za-z]\w*(?![\w/=])")  # words of a note that may be names of ours
HEADS = {
    "data set": "data",
    "eps": "ε",
    "nominal eps": "nominal ε",
    "eps of all n": "ε of all seeds",
    "best local steps": "local steps",
    "total steps": "steps in all",
    "n seeds": "seeds",
    "gap to no privacy": "gap",
    "eps with tuning": "ε with tuning",
    "apart": "of",
    "setting": "problem",
}
HEAD = r"""% For a paper of one column or two; \usepackage{booktabs} draws better rules.
% pdflatex shows it alone, too.
\makeatletter
\expandafter\ifx\csname @nodocument\endcsname\relax
  \let\enddpfltable\relax
\else
  \documentclass{article}
  \usepackage[T1]{fontenc}
  \begin{document}
  \def\enddpfltable{\end{document}}
\fi
\providecommand\toprule{\hline}
\providecommand\midrule{\hline}
\providecommand\bottomrule{\hline}
\ifx\@captype\@undefined
  \begin{table}[tb]
  \def\enddpflfloat{\end{table}}
\else
  \def\enddpflfloat{}
\fi
\makeatother
\centering\footnotesize\setlength{\tabcolsep}{3pt}
"""
TAIL = "\\enddpflfloat\n\\enddpfltable\n"


class Shown(NamedTuple):
    """A column with the words of a paper."""

    key: str
    head: str
    cells: list[str]
    right: bool

    @property
    def width(self) -> float:
        longest = max(map(_points, [*textwrap.wrap(self.head, HEAD_WIDTH), *self.cells]))
        return min(longest, LONGEST) if self.broken else longest

    @property
    def broken(self) -> bool:
        """Words on several lines."""
        return not self.right and max(map(_points, self.cells)) > LONGEST


def table(table: Table, notes: Iterable[str]) -> str:
    columns = [_shown(column) for column in laid_out(table)] if table.rows else []
    shared = [c for c in columns if c.key not in ALWAYS and len(set(c.cells)) == 1 and _constant(c, table)]
    kept = [column for column in columns if column not in shared]
    lines = [HEAD + rf"\caption{{{_breaks(caption(table, shared))}}}"]
    for block in _blocks(sorted(kept, key=lambda each: _rank(each, table))) if kept else []:
        lines += ["\\par\\smallskip", *_tabular(block)]
    said = (OURS.sub(lambda word: word_of(word[0]), note) for note in notes)
    lines += [rf"\par\smallskip{{\raggedright {_breaks(note)}\par}}" for note in said]
    return "\n".join(lines) + "\n" + TAIL


def figures(drawn: Sequence[pictures.Drawn]) -> str:
    """A figure environment for each picture, with its caption."""
    parts = ["% \\usepackage{graphicx}; say \\graphicspath{{this folder/}} where it lies elsewhere\n"]
    for each in drawn:
        words = _breaks(" ".join(filter(None, [f"{each.title}.", each.note])))
        parts.append(
            "\\begin{figure}[tb]\n\\centering\n"
            f"\\includegraphics[width=\\linewidth]{{{each.name}}}\n\\caption{{{words}}}\n\\end{{figure}}\n"
        )
    return "\n".join(parts)


def caption(table: Table, shared: Sequence[Shown]) -> str:
    """What the table is, and what all its rows have in common."""
    rows = table.rows
    data = "".join(f", {each.cells[0]}" for each in shared if each.key == "data set")
    sentences = [f"The local steps with the best {pictures.measure(table)} at each privacy budget{data}."]
    for key in ("setting", "guarantee"):
        values = {row[key] for row in rows if row.get(key)}
        if len(values) == 1:
            value = str(values.pop())
            same = pictures.said("", value, ()) if key == "guarantee" else pictures.said(value, None, ())
            sentences.append(same)
    said = [f"{each.head} = {each.cells[0]}" for each in shared if each.cells[0] and each.right]
    sentences += [f"{', '.join(said)[:1].upper()}{', '.join(said)[1:]}."] if said else []
    return " ".join(filter(None, sentences))


def _constant(column: Shown, table: Table) -> bool:
    """Whether the caption may say it in place of a column: no result."""
    told = ("as good", "gap to no privacy", "mixed", "audited")
    return column.key not in told and not _is_result(column, table)


def _is_result(column: Shown, table: Table) -> bool:
    return column.key.startswith(table.by.replace("_", " "))


def _rank(column: Shown, table: Table) -> int:
    """What names a row, the steps, the result, the rest."""
    if column.key in KEYS:
        return 0
    return 1 if column.key in FIRST else 2 if _is_result(column, table) else 3


def _shown(column: Column) -> Shown:
    head, cells = column.head, column.cells
    if head in ("data set", "algorithm"):
        cells = [word_of(cell) for cell in cells]
    if head == "eps":
        cells = ["∞" if cell == "inf" else cell for cell in cells]
    if head == "guarantee":
        cells = [pictures.said("", cell or None, ()).removesuffix(".") for cell in cells]
    if head in ("setting", "apart"):
        parts = [[part.split(" ", 1) for part in cell.split(", ")] for cell in cells]
        cells = [", ".join(label_of(*p) if len(p) > 1 else p[0] for p in part) for part in parts]
    name = HEADS.get(head) or (name_of(head) if "." in head or "_" in head or head == "clip" else head)
    return Shown(head, name, cells, column.right)


def _blocks(columns: Sequence[Shown]) -> list[list[Shown]]:
    """As many columns beside each other as fit; those that name a row stand in each block."""
    keys = [column for column in columns if column.key in KEYS]
    blocks, room = [[*keys]], 0.0
    used = sum(column.width + GAP for column in keys)
    for column in (column for column in columns if column not in keys):
        if used + room + column.width + GAP > COLUMN and len(blocks[-1]) > len(keys):
            blocks.append([*keys])
            room = 0.0
        blocks[-1].append(column)
        room += column.width + GAP
    return blocks


def _tabular(columns: Sequence[Shown]) -> list[str]:
    kinds = "".join(rf"p{{{LONGEST:g}pt}}" if each.broken else "r" if each.right else "l" for each in columns)
    head = " & ".join(_head(each) for each in columns)
    rows = zip(*(each.cells for each in columns), strict=True)
    lines = [
        " & ".join(
            _breaks(cell) if each.broken else escape.tex(cell)
            for each, cell in zip(columns, row, strict=True)
        )
        for row in rows
    ]
    begin = [rf"\begin{{tabular}}{{@{{}}{kinds}@{{}}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    return [*begin, *(rf"{line} \\" for line in lines), r"\bottomrule", r"\end{tabular}"]


def _head(column: Shown) -> str:
    """On several lines, the last one beside the last ones of the others."""
    side = "r" if column.right else "l"
    words = r" \\ ".join(map(escape.tex, textwrap.wrap(column.head, HEAD_WIDTH)))
    return rf"\shortstack[{side}]{{{STRUT}{words}}}"


def _breaks(text: str) -> str:
    """LaTeX that may break long names and paths."""
    return BREAKS.sub(r"\1\\allowbreak{}", escape.tex(text))


def _points(text: str) -> float:
    narrow = sum(c in "iljtf.,:;'|!()[] " for c in text)
    wide = sum(c.isupper() or c in "mw%±∞" for c in text)
    return narrow * NARROW + wide * WIDE + (len(text) - narrow - wide) * OTHER

"""Text cells under headers as Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from dpfl_bench.results import escape

Line = Sequence[str]


def markdown(head: Line, rows: Sequence[Line], right: Sequence[bool] = ()) -> str:
    """right: columns of numbers; none: all as text."""
    lines = [[escape.markdown(cell) for cell in line] for line in (head, *rows)]
    lines.insert(1, ["---:" if each else "---" for each in right or [False] * len(head)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def tabular(head: Line, rows: Sequence[Line], right: Sequence[bool] = ()) -> list[str]:
    """Lines of LaTeX. Needs booktabs."""
    first, *others = [" & ".join(map(escape.tex, line)) + r" \\" for line in (head, *rows)]
    columns = "".join("r" if each else "l" for each in right or [False] * len(head))
    begin = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", first, r"\midrule"]
    return [*begin, *others, r"\bottomrule", r"\end{tabular}"]

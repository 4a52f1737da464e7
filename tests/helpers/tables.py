"""A table of odd names, and a check of LaTeX's syntax."""

from __future__ import annotations

import math
import re

from dpfl_bench.results.collect import latex
from dpfl_bench.results.collect.best import Table

INF, NAN = math.inf, math.nan


def odd_table() -> Table:
    """Names that a markup language would stumble over."""
    names = [
        "a_b & c%",
        "$x^2$ #1 {y}",
        "back\\slash ~tilde",
        "<|>",
        "[opt]",
        "*star",
        'say "so"',
        "é ü ß",
        "λ → ∞",
    ]
    common = {
        "eps_target": 0.5,
        "clip": None,
        "lr": 0.1,
        "x_y": None,
        "guarantee": "g, δ",
        "run_ids": [],
        "points": 1,
        "eps": 0.5,
    }
    common |= {
        "local_steps": 1,
        "rounds": 100,
        "total_steps": None,
        "test_error_mean": 0.1,
        "test_error_std": 0.01,
        "tried": [1, 2, 4],
        "as_good": [1, 4],
        "varied": ["x_y"],
    }
    private, free = (
        {"budget": 0.5, "gap": NAN, "tuning_eps": 1.25, "tuning_trials": 4.0},
        {"budget": INF, "gap": -0.01, "tuning_eps": None, "tuning_trials": None},
    )
    rows = [
        {
            **common,
            **(free if n % 2 else private),
            "dataset": name,
            "algo": f"dp_{name}",
            "setting": name,
            "n_seeds": 1 + n,
        }
        for n, name in enumerate(names)
    ]
    return Table(rows, ["clip", "x_y"])


def checked_tex(text: str) -> int:
    """Its rows, of a text in which nothing special is bare and each row has as many cells as its
    tabular has columns.
    """
    assert text.startswith(latex.HEAD)
    assert text.endswith(latex.TAIL)
    text = text.removeprefix(latex.HEAD).removesuffix(latex.TAIL)
    counts = set()
    for block in re.findall(r"(?s)\\begin\{tabular\}(.*?)\\end\{tabular\}", text):
        begin, body, end = re.split(r"(?s)\\toprule\n(.*)\\bottomrule\n", block)
        assert not end
        columns = re.fullmatch(r"\{@\{\}((?:[lr]|p\{\d+pt\})+)@\{\}\}\n", begin)
        assert columns
        lines = [line for line in body.splitlines() if line != r"\midrule"]
        assert all(line.endswith(r" \\") for line in lines)
        number = len(re.sub(r"\{\d+pt\}", "", columns[1]))
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in lines} == {number}
        counts.add(len(lines))
    (rows,) = counts
    _check_marks(re.sub(r"\\(begin|end)\{tabular\}.*", "", text))
    return int(rows)


def _check_marks(text: str) -> None:
    bare = text
    for escaped in (r"\\[&%$#_{}]", r"\$\\(?:pm|infty|varepsilon|delta|Psi|\|)\$", r"\$[+-][\d.]+\$"):
        bare = re.sub(escaped, "", bare)
    depth = 0
    for c in bare.replace("&", ""):
        depth += (c == "{") - (c == "}")
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"[%$#_^~]", re.sub(r"\\text\w+", "", bare))
    assert not re.search(r"[^\x00-\u017f]", text)

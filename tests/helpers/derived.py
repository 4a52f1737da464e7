"""A verdict once more: from the rows that claims.csv gets, and the definition in verdict.json."""

from __future__ import annotations

import json
from collections.abc import Iterator

from oracles import rederived

from dpfl_bench.results.exhibits.table import Rows
from dpfl_bench.results.json_numbers import clean
from dpfl_bench.results.verdicts import taken
from dpfl_bench.results.verdicts.claim import Claim
from dpfl_bench.results.verdicts.group import Outcome

Told = tuple[str, dict[str, str]]  # the verdict, and that of each cell


def csv_of(outcome: Outcome) -> str:
    def rows() -> Iterator[list[str]]:
        for label, cell in outcome.cells.items():
            yield from taken.rows("c", label, cell.taken)

    return Rows(taken.HEAD, [*rows()]).csv()


def again(claim: Claim, text: str) -> Told:
    """By the oracle. text: claims.csv."""
    return rederived.verdicts(text, {"c": json.loads(json.dumps(clean(claim.definition)))})["c"]


def told(outcome: Outcome) -> Told:
    return outcome.verdict, {label: cell.verdict for label, cell in outcome.cells.items()}

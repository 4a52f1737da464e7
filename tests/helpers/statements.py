"""Statements about runs that lie in no folder, and how often one holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpfl_bench.results.select.sources import Source
from dpfl_bench.results.verdicts import claim
from dpfl_bench.results.verdicts.claim import Claim
from dpfl_bench.results.verdicts.group import FAILS, HOLDS, UNDECIDED, Outcome
from helpers.derived import again, csv_of, told

YES, NO, OPEN = HOLDS, FAILS, UNDECIDED


def outcome(
    kind: str,
    sources: Sequence[Source],
    terms: dict[str, Any],
    each: Sequence[str] = (),
    wanted: Any = None,
    y: str = "y",
    **asked: Any,
) -> Outcome:
    """Every one is derived once more, from the numbers that it took."""
    stated = Claim(y=y, kind=kind, terms=terms, each=[*each], at_least=wanted, **asked)
    found = claim.test(stated, sources, claim.DIGITS)
    assert not found.cells or again(stated, csv_of(found)) == told(found), csv_of(found)
    return found


def verdict(kind: str, sources: Sequence[Source], terms: dict[str, Any], **more: Any) -> str:
    return outcome(kind, sources, terms, **more).verdict


def shares(
    kind: str,
    make: Callable[[np.random.Generator], Sequence[Source]],
    times: int,
    terms: dict[str, Any],
    **asked: Any,
) -> dict[str, float]:
    """How often it has each verdict, of so many draws."""
    stated = Claim(y="y", kind=kind, terms=terms, **asked)
    draws = (make(np.random.default_rng((7, n))) for n in range(times))
    found = Counter(claim.test(stated, sources, digits=()).verdict for sources in draws)
    return {word: found[word] / times for word in (YES, NO, OPEN)}

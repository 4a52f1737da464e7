"""What scripts/fuzz runs."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from helpers import fuzzing
from hypothesis import HealthCheck, Phase, given, seed, settings

BATCH = 200  # overrides at a time, then as many files


def main() -> int:
    """Returns 1 where something was found."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    flags = parser.parse_args()
    print(f"seed {flags.seed}", flush=True)
    warnings.simplefilter("ignore")
    until, counted, found = time.monotonic() + 60 * flags.minutes, Counter[str](), dict[str, str]()
    for turn in itertools.count():
        if time.monotonic() > until:
            break
        for what, question in (*_overrides(flags.seed + turn), *_files(flags.seed + turn)):
            if time.monotonic() > until:
                break
            counted[_outcome(what, question, found)] += 1
    print(dict(counted))
    return int(bool(found))


def _outcome(what: str, question: Any, found: dict[str, str]) -> str:
    try:
        return "accepted" if fuzzing.outcome(question) == "accepted" else "refused"
    except (Exception, fuzzing.Hang) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{type(error).__name__} at {last.filename}:{last.lineno}"
        if found.setdefault(place, what) == what:  # each place once
            print(f"{what}\n  {place}: {error}", flush=True)
        return "BROKEN"


def _overrides(number: int) -> list[tuple[str, Any]]:
    drawn: list[tuple[str, ...]] = []

    @seed(number)
    @settings(
        max_examples=BATCH,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(fuzzing.overrides())
    def draw(overrides: tuple[str, ...]) -> None:
        drawn.append(overrides)

    draw()
    return [
        (" ".join(given), lambda given=given: fuzzing.check_overrides(given))
        for given in dict.fromkeys(drawn)
    ]


def _files(number: int) -> list[tuple[str, Any]]:
    def question(each: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            fuzzing.spoiled(Path(folder), each, number)

    return [
        (f"spoiled file {each} of seed {number}", lambda each=each: question(each)) for each in range(BATCH)
    ]


if __name__ == "__main__":
    sys.exit(main())

"""Whether runs that stand in one table were computed by one code, on one data set: by the hashes
that their results tell.

A run's `origin` has a hash of the modules behind its targets (algorithm, model, data set,
partition, all in one), of the rest of this package, and of the raw records. Like is compared with
like: targets among runs of the same names, and of the same `_target_`s; records among runs of the
same settings of the data set; the package among all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.results.collect.best import groups
from dpfl_bench.results.collect.columns import Source
from dpfl_bench.results.collect.folders import Run
from dpfl_bench.results.collect.points import KEYS, Row
from dpfl_bench.results.summary import whole_or_part

WHAT = {
    "targets": "different code of their own",
    "data": "different data",
    "package": "different states of dpfl-bench's code",
}
NAMES = ("algo", "model", "dataset", "partition")
FIRST = 3  # folders that are named of each kind


@dataclass(frozen=True)
class Clash:
    """Runs that ought to tell one hash and tell several."""

    part: str  # targets, data or package
    of: str  # what they are runs of
    runs: dict[str, list[Run]]  # by hash

    @cached_property
    def names(self) -> list[set[str]]:
        """Of the runs, hash by hash."""
        return [{run.name for run in runs} for runs in self.runs.values()]

    @property
    def says(self) -> str:
        hashes = "; ".join(f"{digest}: {_first(runs)}" for digest, runs in self.runs.items())
        return f"{self.of}: {WHAT[self.part]} (origin.{self.part}), {hashes}"


def clashes(runs: Sequence[Run], sources: Sequence[Source]) -> list[Clash]:
    """What differs, once each."""
    pairs = list(zip(runs, sources, strict=True))
    named = _split("targets", ((run, _names(run)) for run in runs))
    by_name = [
        _clash("targets", ", ".join(map(" ".join, zip(NAMES, of, strict=True))), by_hash)
        for of, by_hash in named.items()
    ]
    targeted = ((run, source.targets) for run, source in pairs if source.targets)
    known = {digest for clash in by_name if clash for digest in clash.runs}
    by_target = [
        _clash("targets", "runs of the same targets", by_hash)
        for by_hash in _split("targets", targeted).values()
        if not known.issuperset(by_hash)
    ]
    records = ((run, (_names(run)[2], source.records)) for run, source in pairs if source.records)
    of_data = [
        _clash("data", f"dataset {of[0]}, same settings", by_hash)
        for of, by_hash in _split("data", records).items()
    ]
    of_package = [
        _clash("package", "these runs", by_hash)
        for by_hash in _split("package", ((run, 0) for run in runs)).values()
    ]
    return [clash for clash in (*by_name, *by_target, *of_data, *of_package) if clash]


def refuse(clashes: Iterable[Clash]) -> None:
    """One line for code or data that differ; what was computed by another state of the rest of this
    package is taken, and told.
    """
    bad = [clash for clash in clashes if clash.part != "package"]
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise ConfigError(
            f"{bad[0].says}{more}; expected one: compute the others anew (dpfl-bench run --force), give other"
            " folders, or say --mixed"
        )


def differing(points: Iterable[Row], clashes: Iterable[Clash]) -> list[str]:
    """In what the runs of these points differ."""
    own = {run for point in points for run in point["run_ids"]}
    return sorted(
        {clash.part for clash in clashes if sum(not own.isdisjoint(names) for names in clash.names) > 1}
    )


def marked(rows: Sequence[Row], points: Sequence[Row], clashes: Sequence[Clash]) -> list[Row]:
    """The rows with `mixed`: in what the runs of each differ."""
    members = groups(points)
    return [{**row, "mixed": differing(members[tuple(row[key] for key in KEYS)], clashes)} for row in rows]


def origin(run: Run, part: str) -> str | None:
    hashes = (run.result or {}).get("origin")
    digest = hashes.get(part) if isinstance(hashes, dict) else None
    return digest if isinstance(digest, str) else None


def _split(part: str, keyed: Iterable[tuple[Run, Any]]) -> dict[Any, dict[str, list[Run]]]:
    """Key -> hash -> runs."""
    split: dict[Hashable, dict[str, list[Run]]] = {}
    for run, key in keyed:
        digest = origin(run, part)
        if digest is not None:
            split.setdefault(key, {}).setdefault(digest, []).append(run)
    return split


def _clash(part: str, of: str, by_hash: dict[str, list[Run]]) -> Clash | None:
    return Clash(part, of, by_hash) if len(by_hash) > 1 else None


def _names(run: Run) -> tuple[str, ...]:
    """Whose hash of targets is to be one. A part of a data set is another data set."""
    result = run.result or {}
    dealt = result.get("partition")
    partition = dealt.get("name") if isinstance(dealt, dict) else None
    return str(result.get("algo")), str(result.get("model")), whole_or_part(result), str(partition)


def _first(runs: Sequence[Run]) -> str:
    more = f" and {len(runs) - FIRST} more" if len(runs) > FIRST else ""
    return ", ".join(str(run.path) for run in runs[:FIRST]) + more

"""A caveat, and the one about a best point at the edge of what was tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dpfl_bench.results.collect.points import KEYS, Row
from dpfl_bench.results.json_numbers import clean


@dataclass(frozen=True)
class Caveat:
    kind: str
    says: str
    more: dict[str, Any] = field(default_factory=dict)  # for machines

    def json(self) -> dict[str, Any]:
        return {"kind": self.kind, "says": self.says, **clean(self.more)}


def key_of(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in KEYS)


def name(row: Row) -> str:
    return f"{row['algo']} on {row['dataset']} at eps {row['budget']:.4g}"


def edges(rows: Sequence[Row], tried: Mapping[tuple[Any, ...], Sequence[Row]]) -> Caveat | None:
    beyond = [(row, edges) for row in rows if (edges := _edge(row, tried[key_of(row)]))]
    if not beyond:
        return None
    row, edges = beyond[0]
    first = f"{name(row)}: {', '.join(edges)}{'; ...' if len(beyond) > 1 else ''}"
    count = f"{len(beyond)} of {len(rows)} rows" if len(rows) > 1 else "the row"
    says = f"The best lies at the edge of what was tried in {count} ({first}): a better one may lie beyond."
    return Caveat(
        "edge", says, {"rows": [{**{key: row[key] for key in KEYS}, "edges": edges} for row, edges in beyond]}
    )


def _edge(row: Row, members: Sequence[Row]) -> list[str]:
    """What the best has the least or the most of. Points that diverged were tried too; nothing is
    below one local step or one round.
    """
    edges = []
    steps = sorted({point["local_steps"] for point in members})
    at_least, at_most = (
        row["local_steps"] == steps[0] > 1,
        row["local_steps"] == steps[-1] and row["rounds"] > 1,
    )
    if len(steps) > 1 and (at_least or at_most):
        edges.append(f"local_steps {row['local_steps']} of {steps[0]} to {steps[-1]}")
    beside = [point for point in members if point["local_steps"] == row["local_steps"]]
    for key in ("clip", "lr"):
        values = _numbers(beside, key) if len(_numbers(beside, key)) > 1 else _numbers(members, key)
        if len(values) > 1 and row[key] in (values[0], values[-1]):
            edges.append(f"{key} {row[key]:g} of {values[0]:g} to {values[-1]:g}")
    return edges


def _numbers(points: Iterable[Row], key: str) -> list[float]:
    """In order. A clip may be a word, or nothing."""
    return sorted({point[key] for point in points if isinstance(point.get(key), int | float)})

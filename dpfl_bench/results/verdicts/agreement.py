"""Whether the verdicts of two machines agree: no opposite claims, each mean in the other's
interval, and what has no randomness equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpfl_bench.results.agreement import close
from dpfl_bench.results.verdicts.group import FAILS, HOLDS

Record = Mapping[str, Any]  # verdict.json


def apart(was: Record, now: Record) -> tuple[list[str], int]:
    """A line for each number that differs, and how many could not be compared."""
    lines, unknown = [*_claims(was, now), *_eps(was, now)], 0
    old, new = ({(each["id"], each["at"]): each for each in record["printed"]} for record in (was, now))
    for at in dict.fromkeys([*old, *new]):
        agrees = _agree(old.get(at), new.get(at))
        unknown += agrees is None
        if agrees is False:
            ours = [(each.get(at) or {}).get("ours") for each in (old, new)]
            lines.append(f"printed {' / '.join(at)}: ours was {ours[0]}, now {ours[1]}")
    return lines, unknown


def _agree(was: Record | None, now: Record | None) -> bool | None:
    """Each mean in the other's interval of the paper's mean. None: it cannot be told."""
    if was is None or now is None:
        return False
    if was["exact"] or was["ours"] is None or now["ours"] is None:
        return close(was["ours"], now["ours"])
    if was["interval"] is None or now["interval"] is None:
        return True if was["ours"] == now["ours"] else None
    pairs = ((was["interval"], now["ours"]), (now["interval"], was["ours"]))
    return all(low <= ours <= high for (low, high), ours in pairs)


def _claims(was: Record, now: Record) -> Iterator[str]:
    """Undecided is as near as intervals come; the opposite is not."""
    old, new = ({each["id"]: each["verdict"] for each in record["claims"]} for record in (was, now))
    for name in dict.fromkeys([*old, *new]):
        pair = [each.get(name, "not there") for each in (old, new)]
        if pair[0] != pair[1] and ("not there" in pair or set(pair) == {HOLDS, FAILS}):
            yield f"claim {name}: was {pair[0]}, now {pair[1]}"


def _eps(was: Record, now: Record) -> Iterator[str]:
    for key in ("nominal", "valid"):
        old, new = (list(_flat(record["eps"][key])) for record in (was, now))
        if len(old) != len(new) or not all(map(close, old, new)):
            yield f"eps, {key}: was {was['eps'][key]}, now {now['eps'][key]}"


def _flat(value: Any) -> Iterator[float | None]:
    if isinstance(value, list):
        for each in value:
            yield from _flat(each)
    else:
        yield value

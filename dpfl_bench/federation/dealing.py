"""What a partition says of itself before any record is there: `@deals(...)` beside its function.

Nothing here needs numpy. `node`: the keys of the partition's YAML file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from dpfl_bench.federation import preconditions

if TYPE_CHECKING:
    import numpy as np

OURS = "dpfl_bench."
Node = Mapping[str, Any]
Function = TypeVar("Function", bound=Callable[..., Any])


def _enough(records: int, clients: int, node: Node) -> None:
    preconditions.enough(records, clients)


def _equal(records: int, clients: int, node: Node) -> int:
    return records // clients


@dataclass(frozen=True)
class Dealing:
    """How a partition deals. Numbers are for so many training records and clients.

    check: raises a ValueError where so many records cannot be dealt.
    smallest: the records of the smallest client, at least; None where the counts do not tell.
    mean: a client's records on average, rounded down.
    drawn: the records of the smallest client exactly, by the partition's seed, where chance decides
    between `smallest` and `mean`.
    by_class: each record needs one class. natural: the data set's own clients.
    parts: who gets which record, where the counts alone decide. Then clients may share records.
    """

    check: Callable[[int, int, Node], None] = _enough
    smallest: Callable[[int, int, Node], int | None] = _equal
    mean: Callable[[int, int, Node], int] = _equal
    drawn: Callable[[int, int, Node], int] | None = None
    by_class: bool = False
    natural: bool = False
    parts: Callable[[int, int, Node], list[np.ndarray]] | None = None

    @property
    def overlapping(self) -> bool:
        """Whether a record may sit in several clients."""
        return self.parts is not None


def deals(**says: Any) -> Callable[[Function], Function]:
    """Mark a partition function with its Dealing."""

    def marked(function: Function) -> Function:
        function.__dict__["dealing"] = Dealing(**says)
        return function

    return marked


def of(node: Node) -> Dealing | None:
    """How the partition that `_target_` names deals; None for a user's own, which is not
    imported.
    """
    return _of(str(node.get("_target_")))


@cache
def _of(target: str) -> Dealing | None:
    module, _, name = target.rpartition(".")
    if not module.startswith(OURS):
        return None
    try:
        function = getattr(import_module(module), name, None)
    except ImportError:  # a run says so
        return None
    dealing = getattr(function, "dealing", None)
    return dealing if isinstance(dealing, Dealing) else None

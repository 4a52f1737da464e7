"""Which numbers of runs, as a YAML file says it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dpfl_bench.checks.errors import ConfigError, located
from dpfl_bench.results.collect.measures import Last
from dpfl_bench.results.select.cells import BEST, Better, Question
from dpfl_bench.results.select.expressions import parse

VALUE: dict[str, Any] = {"key": "value"}  # what a table calls y


@dataclass(frozen=True)
class Selection:
    """Every key has the meaning of its namesake in `Question`."""

    y: str = ""
    sweeps: list[str] = field(default_factory=list, metadata={"key": "from"})  # none: all
    where: dict[str, Any] = field(default_factory=dict)
    best_over: list[str] = field(default_factory=list)
    spread: list[str] = field(default_factory=list)
    last: Any = 1
    better: Literal["least", "most"] | None = None
    by: str | None = None

    @property
    def groups(self) -> Sequence[str]:
        """The fields that tell its cells apart."""
        return ()

    @property
    def named(self) -> Iterator[str]:
        """Every field that it names."""
        yield from (*self.where, *self.best_over, *self.spread, *self.groups)
        if self.y.startswith(BEST):
            yield self.y.removeprefix(BEST)

    @property
    def quantity(self) -> str:
        """In words: y, over which rounds, best over what."""
        last = [] if self.last == 1 else [f"last {self.last}"]
        tuned = [f"best over {' and '.join(self.best_over)}"] if self.best_over else []
        return ", ".join([self.y, *last, *tuned])

    def question(self, *names: str) -> Question:
        """`better` is of y; where y is `best FIELD`, of `by`."""
        is_best = self.y.startswith(BEST)
        by_better = (self.better if is_best else None) or (_direction(self.by) if self.by else None)
        better = self.better or ("least" if is_best else _direction(self.y))
        tuned, spread = tuple(self.best_over), tuple(self.spread)
        return Question(self.y, names, self.where, self.last, better, tuned, self.by, spread, by_better)

    def check(self, where: str) -> None:
        """ConfigError where it asks for no quantity."""
        key = type(self).__dataclass_fields__["y"].metadata.get("key", "y")
        if self.y.startswith(BEST) and not self.by:
            raise ConfigError(f"{where}.{key}: {self.y}: expected by: the quantity that the best is best in")
        check_quantity(f"{where}.{key}", self.y.removeprefix(BEST))
        with located(where):
            Last.parse(self.last)
            parse(self.by or self.y)
            self.question()


def check_quantity(where: str, text: str) -> None:
    with located(where):
        parse(text)


def _direction(quantity: str) -> Better:
    """Of a score more is better, of everything else less."""
    if not any(name.endswith("_metric") for name in parse(quantity).names):
        return "least"
    if re.fullmatch(r"\s*([\d.]+\s*\*)?\s*[\w.]+_metric\s*([*/]\s*[\d.]+)?\s*", quantity):
        return "most"
    raise ConfigError(f"{quantity}: arithmetic with a score: expected better: least or most beside it")

"""The kinds of claims that a program can check: what each says, and the keys that it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.typed import checked
from dpfl_bench.results.verdicts import comparisons, optima
from dpfl_bench.results.verdicts.group import GroupTest, Outcome


@dataclass(frozen=True)
class Kind:
    test: Callable[[GroupTest], Outcome]
    holds_if: str
    needs: tuple[str, ...]
    takes: tuple[str, ...] = ()
    presets: Mapping[str, Any] = field(default_factory=dict)  # of what it takes


KINDS = {
    "better": Kind(
        comparisons.better,
        "`of` is better than `than` by more than by_at_least; with rounds, in every evaluated round from"
        " rounds.from on",
        ("of", "than"),
        ("by_at_least", "rounds"),
        {"by_at_least": 0},
    ),
    "alike": Kind(
        comparisons.alike, "the difference of `of` and `than` lies inside +-within", ("of", "than", "within")
    ),
    "ordered": Kind(
        comparisons.ordered,
        "each value of `order` of the field `along` is better than the next",
        ("along", "order"),
    ),
    "falls": Kind(
        lambda test: comparisons.trend(test, 1),
        "y falls along the field: no step up, the last below the first",
        ("along",),
    ),
    "rises": Kind(
        lambda test: comparisons.trend(test, -1),
        "y rises along the field: no step down, the last above the first",
        ("along",),
    ),
    "interior": Kind(
        optima.interior,
        "the best of the field is neither first nor last, and both ends are worse",
        ("along",),
    ),
    "best_at": Kind(
        optima.best_at,
        "the best of the field is `at` this value, up to `within`",
        ("along", "at"),
        ("within",),
        {"within": "one"},
    ),
    "best_moves": Kind(
        optima.best_moves,
        "the best of the field moves up, down or stays the same along `with`",
        ("along", "with", "direction"),
    ),
    "gain_grows": Kind(
        comparisons.gain_grows, "the gain of `of` over `than` grows along `with`", ("of", "than", "with")
    ),
    "reaches": Kind(
        comparisons.reaches, "y lies below `most`, or above `least`", (), ("of", "most", "least")
    ),
    "fits": Kind(optima.fits, "y fits x ** power best for the form `for`", ("x", "forms", "for")),
    "equal": Kind(comparisons.equal, "y equals `to` after rounding to `digits`", ("to", "digits")),
}


def resolved(kind: str, terms: Mapping[str, Any]) -> dict[str, Any]:
    """With what is taken where a key is not given."""
    return {**KINDS[kind].presets, **terms}


def check(kind: str, terms: Mapping[str, Any], where: str) -> None:
    """ConfigError where there is no such kind, or where its keys are not the kind's."""
    if kind not in KINDS:
        raise ConfigError(f"{where}: kind={kind}: expected one of {', '.join(KINDS)}")
    known = KINDS[kind]
    if missing := [key for key in known.needs if key not in terms]:
        raise ConfigError(f"{where}: kind={kind}: expected {missing[0]}, the key is missing")
    if unknown := [key for key in terms if key not in (*known.needs, *known.takes)]:
        keys = ", ".join((*known.needs, *known.takes))
        raise ConfigError(f"{where}: {unknown[0]}: unknown key; kind={kind} has {keys}")
    if kind == "reaches" and not {"most", "least"} & terms.keys():
        raise ConfigError(f"{where}: kind=reaches: expected most or least")
    for key, value in terms.items():
        word_or_number = str if isinstance(value, str) else float
        checked(f"{where}: {key}", value, word_or_number if key in ("at", "to") else _TYPES.get(key, Any))
    if len(terms.get("order", (0, 0))) < 2:
        raise ConfigError(f"{where}: order={terms['order']}: expected at least two values")
    if "forms" in terms and (terms["for"] not in terms["forms"] or len(terms["forms"]) < 2):
        raise ConfigError(f"{where}: for={terms['for']}: expected one of at least two forms")
    if "rounds" in terms and list(terms["rounds"]) != ["from"]:
        raise ConfigError(f"{where}: rounds={terms['rounds']}: expected {{from: 10}}")
    _check_within(kind, terms, where)


def _check_within(kind: str, terms: Mapping[str, Any], where: str) -> None:
    within = terms.get("within", "one")
    if kind == "alike":
        checked(f"{where}: within", within, float)
    elif within != "one" and not re.fullmatch(r"\d+(\.\d+)?%", str(within)):
        raise ConfigError(f"{where}: within={within}: expected one, or a share like 10%")


_TYPES: dict[str, Any] = {
    **dict.fromkeys(("of", "than", "rounds", "forms"), dict),
    **dict.fromkeys(("along", "with", "x", "for"), str),
    **dict.fromkeys(("most", "least", "by_at_least"), float),
    "order": list,
    "digits": int,
    "direction": Literal["up", "down", "same"],
}

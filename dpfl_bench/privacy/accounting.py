"""Epsilon of what an observer sees of a run, by the accountants of `accountants/table.py`.

Unit: one client or one record, as in `released/`. The noise multiplier is std / sensitivity of one
release, the sensitivity of the neighbouring relation that the composition is valid for: for a
client, C under add_remove_one, 2C under replace_one. Every number is an upper bound, but for those
of `paper`, which nothing here takes by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.accountants import own, table
from dpfl_bench.privacy.divergences import pure
from dpfl_bench.privacy.divergences import renyi as rdp
from dpfl_bench.privacy.divergences.gaussian import check_delta
from dpfl_bench.privacy.released.composition import Composition, View

LARGEST = 1e7  # noise multipliers above it count as this one: less noise than there is


def accountants_for(composition: Composition) -> tuple[str, ...]:
    """Names of the accountants that bound a composition and that `auto` may ask, tightest first."""
    return tuple(accountant.name for accountant in table.valid_for(composition))


def by_name_only(composition: Composition) -> tuple[str, ...]:
    """Names of the further guarantees of a composition, asked by name alone and installed here."""
    return tuple(
        accountant.name
        for accountant in table.TABLE
        if accountant.auto == "never"
        and accountant.guarantee
        and accountant.refusal(composition) is None
        and table.installed(accountant)
    )


def epsilon(
    view: Composition | View, noise_multiplier: float, delta: float, accountant: str = "auto"
) -> float:
    """The smallest eps at delta over a view's alternatives.

    view: one composition, or alternatives of which each bounds the whole run; it says the unit and
    the neighbouring relation. noise_multiplier: std / sensitivity (pure: 1/eps_0). accountant: a
    name of the table, or auto, the tightest valid one.
    """
    return best(view, noise_multiplier, delta, accountant)[1]


def best(
    view: Composition | View, noise_multiplier: float, delta: float, accountant: str = "auto"
) -> tuple[str, float]:
    """(name of the accountant, eps) of the smallest eps over a view's alternatives and the
    accountants allowed. Arguments as of `epsilon`.
    """
    check_delta(delta)
    if not noise_multiplier >= 0:
        raise refusals.noise_multiplier_out_of_range(noise_multiplier)
    pairs = candidates(view, accountant)
    answers = [(name, one(c, noise_multiplier, delta, name)) for c, name in pairs]
    return min(answers, key=lambda answer: answer[1])


def candidates(view: Composition | View, accountant: str) -> list[tuple[Composition, str]]:
    """The (composition, accountant) pairs that may bound a view: for `auto` every one that can be
    the tightest, those that nothing beats first. PrivacyError where there is none.
    """
    compositions: Sequence[Composition] = (view,) if isinstance(view, Composition) else view
    if accountant != "auto":
        asked = table.named(accountant)
        pairs = [(c, asked) for c in compositions if asked.refusal(c) is None]
    else:
        pairs = [(c, asked) for c in compositions for asked in table.under_auto(c)]
    if not pairs:
        reason = asked.refusal(compositions[0]) if accountant != "auto" and compositions else None
        valid = sorted({name for c in compositions for name in accountants_for(c)})
        raise refusals.accountant_not_valid(accountant, compositions, reason, valid)
    pairs.sort(key=lambda pair: pair[1].auto != "alone")
    return [(c, asked.name) for c, asked in pairs]


def one(composition: Composition, noise_multiplier: float, delta: float, name: str) -> float:
    """Eps at delta of one composition by one accountant, which must be valid for it: 0 if nothing
    is released, inf without noise. noise_multiplier: std / sensitivity (pure: 1/eps_0).
    """
    asked = table.named(name)
    if composition.times == 0:
        return 0.0
    noise = noise_of(composition, noise_multiplier)
    if noise == 0:
        return math.inf
    if noise == math.inf and asked.guarantee:
        return 0.0
    return asked.epsilon(composition, noise, delta)


def question(accountant: str) -> dict[str, str]:
    """How an answer of this accountant, or of auto, is named in the cache on disk: with the version
    of the package that gives it, where that is not dp-accounting, or a hash of a user's code.
    """
    package = None if accountant == "auto" else table.named(accountant).needs
    code = own.code(accountant)  # nothing, but for a user's
    named = {"accountant": accountant} | ({package: version(package)} if package else {})
    return named | ({"code": code} if code else {})


def at_most(composition: Composition, noise_multiplier: float, delta: float, name: str) -> float:
    """`one`, and inf where the accountant cannot tell. A search then tries more noise."""
    try:
        return one(composition, noise_multiplier, delta, name)
    except refusals.OutOfReach:
        return math.inf


def noise_of(composition: Composition, noise_multiplier: float) -> float:
    """The noise multiplier of one release with its companions and its scale, at most LARGEST or
    inf; pure: 1/eps_0 as it is.
    """
    if composition.mechanism == "pure":
        return noise_multiplier
    largest = LARGEST if noise_multiplier < math.inf else math.inf
    return min(composition.joint(noise_multiplier) * composition.scale, largest)


def renyi(composition: Composition, noise_multiplier: float) -> tuple[Any, Any]:
    """(orders, Rényi divergences there) of a whole composition, either order of the neighbours.
    Unit, relation: the composition's.
    """
    c = composition
    if c.mechanism == "pure":
        if c.rounds:
            return rdp.mixed_rdp(*pure.pure_rdp(1 / noise_multiplier, 1), c.share, c.rounds)
        return pure.pure_rdp(1 / noise_multiplier, c.times)
    z = c.joint(noise_multiplier) * c.scale
    if c.rounds:
        return rdp.participation_rdp(c.mechanism, c.rate, c.population, c.sample, z, c.share, c.rounds)
    if c.mechanism == "gaussian":
        return rdp.gaussian_rdp(math.sqrt(c.times) / z)
    return rdp.sampled_rdp(c.mechanism, c.rate, c.population, c.sample, z, c.times)

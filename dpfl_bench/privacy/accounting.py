"""Epsilon of a composition: closed form, privacy loss distributions (PLD) or Rényi divergences
(RDP).

Unit: one client or one record, as in `releases.py`. The noise multiplier is std / sensitivity of
one release, the sensitivity of the neighbouring relation that the composition is valid for: for a
client, C under add_remove_one, 2C under replace_one. Every number is an upper bound:

- gaussian (no sampling, either relation): exact; PLD by dp-accounting; RDP in closed form over real
  orders.
- poisson (add_remove_one): PLD and RDP by dp-accounting (RDP: Mironov, Talwar & Zhang 2019).
- fixed (without replacement, replace_one): PLD of the dominating pair in `divergences.py`; RDP by
  dp-accounting (Wang, Balle & Kasiviswanathan 2019, Theorem 27).
- participation (`rounds`, any of the three under a coin that shows): PLD of the mixture, in one
  pass over Fourier space where dp-accounting's `compute_mixture`, to which the tests hold it, takes
  a composition for every length of round; RDP of the mixture.
- pure (any sampling, either relation): the optimal composition of eps_0-DP, exact, also over coins
  that show (`rounds`); basic composition, times * eps_0.

`paper` is dpscaffold's own accountant (`accountants/dpscaffold.py`), for what it was made for; it is no bound, and
nothing here takes it by itself.

dp-accounting's `GaussianDpEvent` means std / C in its PLD accountant under REPLACE_ONE, but std /
sensitivity in its RDP accountant, sampled or not. Here PLDs are therefore built for sensitivity 1,
never with REPLACE_ONE.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpfl_bench.privacy.accountants import dpscaffold
from dpfl_bench.privacy.divergences import losses, participation, pure
from dpfl_bench.privacy.divergences import renyi as rdp
from dpfl_bench.privacy.divergences.gaussian import check_delta, eps_of_gaussian
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.composition import Composition, View

ACCOUNTANTS = ("auto", "exact", "pld", "rdp", "basic", "paper")
LARGEST = 1e7  # noise multiplier that is told apart from a larger one


def accountants_for(composition: Composition) -> tuple[str, ...]:
    """The accountants that bound a composition, tightest first."""
    if composition.mechanism == "pure":
        return ("exact", "basic")
    return (
        ("exact", "pld", "rdp")
        if composition.mechanism == "gaussian" and not composition.rounds
        else ("pld", "rdp")
    )


def epsilon(
    view: Composition | View, noise_multiplier: float, delta: float, accountant: str = "auto"
) -> float:
    """The smallest eps over a view's alternatives; `auto` is the tightest valid accountant. Unit,
    relation: the composition's.
    """
    return best(view, noise_multiplier, delta, accountant)[1]


def best(
    view: Composition | View, noise_multiplier: float, delta: float, accountant: str = "auto"
) -> tuple[str, float]:
    """(name of the accountant, eps) of the smallest eps over a view's alternatives and the
    accountants allowed.
    """
    check_delta(delta)
    if not noise_multiplier >= 0:
        raise PrivacyError(f"noise_multiplier={noise_multiplier}: expected a number >= 0")
    pairs = candidates(view, accountant)
    return min(
        ((name, one(c, noise_multiplier, delta, name)) for c, name in pairs), key=lambda found: found[1]
    )


def candidates(view: Composition | View, accountant: str) -> list[tuple[Composition, str]]:
    """The (composition, accountant) pairs that may bound a view: for `auto` every one that can be
    the tightest.
    """
    compositions: Sequence[Composition] = (view,) if isinstance(view, Composition) else view
    if accountant not in ACCOUNTANTS:
        raise PrivacyError(f"accountant={accountant}: expected one of {', '.join(ACCOUNTANTS)}")
    if accountant == "paper":
        return _candidates_of_the_paper(compositions)
    pairs = [(c, name) for c in compositions for name in accountants_for(c) if accountant in (name, "auto")]
    if not pairs:
        valid = sorted({name for c in compositions for name in accountants_for(c)})
        kinds = ", ".join("participation" if c.rounds else c.mechanism for c in compositions)
        raise PrivacyError(f"accountant={accountant}: not valid for {kinds} (use auto or {', '.join(valid)})")
    # nothing beats the closed forms, so `auto` asks nobody else where they hold; free answers come
    # first
    if accountant == "auto":
        pairs = [(c, name) for c, name in pairs if name == "exact" or "exact" not in accountants_for(c)]
    return sorted(pairs, key=lambda pair: pair[1] != "exact")


def _candidates_of_the_paper(compositions: Sequence[Composition]) -> list[tuple[Composition, str]]:
    """dpscaffold's accountant speaks of lots without replacement within clients drawn in every
    round, to a third party.
    """
    pairs = [(c, "paper") for c in compositions if c.rounds and c.mechanism == "fixed" and c.share < 1]
    if not pairs:
        raise PrivacyError(
            "accountant=paper: dpscaffold's own accountant needs privacy.unit=record, lots of fixed size"
            " (batch_size), neighbours=replace_one, sampled clients and observer=third_party (use"
            " accountant=auto)"
        )
    return pairs


def one(composition: Composition, noise_multiplier: float, delta: float, name: str) -> float:
    """Eps of one composition by one accountant: 0 if nothing is released, inf without noise."""
    if composition.times == 0:
        return 0.0
    if composition.mechanism == "pure":
        return _one_pure(composition, noise_multiplier, delta, name)
    z = min(
        composition.joint(noise_multiplier) * composition.scale,
        LARGEST if noise_multiplier < math.inf else math.inf,
    )
    if z == 0:
        return math.inf
    if name == "paper":
        effective = z * math.sqrt(composition.cohort_size)
        return dpscaffold.epsilon(effective, composition.rate, composition.share, composition.rounds, delta)
    if z == math.inf:
        return 0.0
    if composition.rounds:
        return _one_participation(composition, z, delta, name)
    if composition.mechanism != "gaussian":
        return _one_sampled(composition, z, delta, name)
    if name == "exact":
        return eps_of_gaussian(math.sqrt(composition.times) / z, delta)
    z = z / math.sqrt(composition.times)  # T releases are one with z / sqrt(T)
    return (
        rdp.gaussian_rdp_epsilon(1 / z, delta)
        if name == "rdp"
        else losses.pld_epsilon("gaussian", 1.0, z, 1, delta)
    )


def _one_pure(c: Composition, noise_multiplier: float, delta: float, name: str) -> float:
    each = 1 / noise_multiplier if noise_multiplier > 0 else math.inf
    if each in (0, math.inf):
        return each
    if name == "basic":
        return c.times * each
    return (
        pure.participation_pure_epsilon(each, c.share, c.rounds, delta)
        if c.rounds
        else pure.pure_epsilon(each, c.times, delta)
    )


def _one_participation(c: Composition, z: float, delta: float, name: str) -> float:
    if name == "pld":
        return participation.participation_pld_epsilon(c.mechanism, c.rate, z, c.share, c.rounds, delta)
    return rdp.participation_rdp_epsilon(
        c.mechanism, c.rate, c.population, c.sample, z, c.share, c.rounds, delta
    )


def _one_sampled(c: Composition, z: float, delta: float, name: str) -> float:
    if name == "pld":
        return losses.pld_epsilon(c.mechanism, c.rate, z, c.times, delta)
    return rdp.rdp_epsilon(c.mechanism, c.rate, c.population, c.sample, z, c.times, delta)


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

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

`paper` is dpscaffold's own accountant (`paper.py`), for what it was made for; it is no bound, and
nothing here takes it by itself.

dp-accounting's `GaussianDpEvent` means std / C in its PLD accountant under REPLACE_ONE, but std /
sensitivity in its RDP accountant, sampled or not. Here PLDs are therefore built for sensitivity 1,
never with REPLACE_ONE.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dpfl_bench.privacy import divergences, paper
from dpfl_bench.privacy.releases import Composition, PrivacyError, View

ACCOUNTANTS = ("auto", "exact", "pld", "rdp", "basic", "paper")
LARGEST = 1e7  # noise multiplier that is told apart from a larger one
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_GAUSS_LEGENDRE = (  # 8 points: (node, weight), each standing for +node and -node
    (0.1834346424956498, 0.3626837833783620),
    (0.5255324099163290, 0.3137066458778873),
    (0.7966664774136267, 0.2223810344533745),
    (0.9602898564975363, 0.1012285362903763),
)


def _mills(x: float) -> tuple[float, float]:
    """R(x) = (1 - Phi(x)) / phi(x) and S(x) = 1 - x R(x) = -R'(x) > 0, both to about 1e-14, for x
    >= -1.
    """
    if x < 3:
        ratio = math.exp(x * x / 2 + _LOG_SQRT_2PI) * math.erfc(x / math.sqrt(2)) / 2
        return ratio, 1 - x * ratio
    tail = 0.0
    for k in range(120, 1, -1):  # R = 1/(x + 1/(x + 2/(x + 3/...)))
        tail = k / (x + tail)
    inner = 1 / (x + tail)
    return 1 / (x + inner), inner / (x + inner)


def _log_delta(mu: float, eps: float) -> float:
    """log of Phi(-x) - e^eps Phi(-x - mu) = phi(x) (R(x) - R(x + mu)), x = eps/mu - mu/2, with R
    Mills' ratio.
    """
    x = eps / mu - mu / 2
    if x < 0 and mu >= 0.5:  # the first term is at least 1/2, so nothing cancels
        return math.log(
            math.erfc(x / math.sqrt(2)) / 2 - math.exp(-x * x / 2 - _LOG_SQRT_2PI) * _mills(x + mu)[0]
        )
    if mu < max(0.5, x / 10):  # the integral of S > 0 over [x, x + mu]: no cancellation
        points = ((w, x + mu / 2 * (1 + sign * n)) for n, w in _GAUSS_LEGENDRE for sign in (-1, 1))
        gap = mu / 2 * sum(w * _mills(point)[1] for w, point in points)
    else:
        gap = _mills(x)[0] - _mills(x + mu)[0]
    return -x * x / 2 - _LOG_SQRT_2PI + math.log(gap)


def delta_of_gaussian(mu: float, eps: float) -> float:
    """delta(eps) of T unsampled Gaussian releases, mu = sqrt(T) / noise multiplier (exact; either
    neighbouring relation).
    """
    if mu == 0 or eps == math.inf:
        return 0.0
    return math.exp(_log_delta(mu, eps)) if mu < math.inf else 1.0


def eps_of_gaussian(mu: float, delta: float) -> float:
    """The smallest eps with `delta_of_gaussian(mu, eps)` <= delta, rounded up by at most 2e-12 of
    itself.
    """
    _check_delta(delta)
    if mu == 0 or mu == math.inf:
        return mu
    target = math.log(delta)
    if _log_delta(mu, 0.0) <= target:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(-2 * target)  # from Phi(-x) <= exp(-x^2/2)
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _log_delta(mu, middle) <= target else (middle, high)
    return high * (1 + 1e-12)


def mu_for(eps: float, delta: float) -> float:
    """The largest mu with `eps_of_gaussian(mu, delta)` <= eps, rounded down by at most 4e-12 of
    itself.
    """
    _check_delta(delta)
    if not eps >= 0:
        raise PrivacyError(f"eps={eps}: expected eps >= 0 (use eps=inf for no privacy)")
    if eps == math.inf:
        return math.inf
    target = math.log(delta)
    low = eps / (math.sqrt(eps - 2 * target) + math.sqrt(-2 * target)) if eps > 0 else delta
    high = 2 * low
    while _log_delta(high, eps) <= target:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _log_delta(middle, eps) <= target else (low, middle)
    return low * (1 - 3e-12)


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
    _check_delta(delta)
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
        effective = z * math.sqrt(composition.cohort)
        return paper.epsilon(effective, composition.rate, composition.share, composition.rounds, delta)
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
        divergences.gaussian_rdp_epsilon(1 / z, delta)
        if name == "rdp"
        else divergences.pld_epsilon("gaussian", 1.0, z, 1, delta)
    )


def _one_pure(c: Composition, noise_multiplier: float, delta: float, name: str) -> float:
    pure = 1 / noise_multiplier if noise_multiplier > 0 else math.inf
    if pure in (0, math.inf):
        return pure
    if name == "basic":
        return c.times * pure
    return (
        divergences.participation_pure_epsilon(pure, c.share, c.rounds, delta)
        if c.rounds
        else divergences.pure_epsilon(pure, c.times, delta)
    )


def _one_participation(c: Composition, z: float, delta: float, name: str) -> float:
    if name == "pld":
        return divergences.participation_pld_epsilon(c.mechanism, c.rate, z, c.share, c.rounds, delta)
    return divergences.participation_rdp_epsilon(
        c.mechanism, c.rate, c.population, c.sample, z, c.share, c.rounds, delta
    )


def _one_sampled(c: Composition, z: float, delta: float, name: str) -> float:
    if name == "pld":
        return divergences.pld_epsilon(c.mechanism, c.rate, z, c.times, delta)
    return divergences.rdp_epsilon(c.mechanism, c.rate, c.population, c.sample, z, c.times, delta)


def renyi(composition: Composition, noise_multiplier: float) -> tuple[Any, Any]:
    """(orders, Rényi divergences there) of a whole composition, either order of the neighbours.
    Unit, relation: the composition's.
    """
    c = composition
    if c.mechanism == "pure":
        if c.rounds:
            return divergences.mixed_rdp(*divergences.pure_rdp(1 / noise_multiplier, 1), c.share, c.rounds)
        return divergences.pure_rdp(1 / noise_multiplier, c.times)
    z = c.joint(noise_multiplier) * c.scale
    if c.rounds:
        return divergences.participation_rdp(
            c.mechanism, c.rate, c.population, c.sample, z, c.share, c.rounds
        )
    if c.mechanism == "gaussian":
        return divergences.gaussian_rdp(math.sqrt(c.times) / z)
    return divergences.sampled_rdp(c.mechanism, c.rate, c.population, c.sample, z, c.times)


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise PrivacyError(
            f"delta={delta}: expected 0 < delta < 1 (1e-5, or below one over the number of clients)"
        )

"""The noise that a budget asks for, the papers' formula for it, and the rounds that a noise allows.

Unit: one client; neighbouring relation and sampling are those of the `Releases` (see `releases.py`). The noise multiplier is
std / sensitivity of one release. Everything errs on the private side: the epsilon of the noise returned never exceeds the target.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from dpfl_bench.privacy.accounting import candidates, epsilon, mu_for, one
from dpfl_bench.privacy.cache import cached
from dpfl_bench.privacy.releases import Composition, Observer, PrivacyError, Releases, View, view

_TIGHT = 0.9992  # a search stops once eps lies between this part of the target and the target


def calibrate(releases: Releases, observer: Observer, eps: float, delta: float, accountant: str = "auto") -> float:
    """The noise multiplier with .999 eps < epsilon <= eps towards `observer`; 0 if eps is inf or nothing is released."""
    compositions = view(releases, observer)
    if compositions is None:
        raise PrivacyError(
            f"observer={observer}: trusted under trust={releases.trust}, no noise bounds it (use observer=third_party or trust=secagg)"
        )
    if not eps > 0:
        raise PrivacyError(f"eps={eps}: expected eps > 0 (use eps=inf for no privacy)")
    pairs = candidates(compositions, accountant)
    epsilon(compositions, 0.0, delta, accountant)  # checks delta before anything is searched
    if eps == math.inf or any(c.times == 0 for c in compositions):
        return 0.0
    if all(name == "exact" for _, name in pairs):  # solved faster than read
        noise = _solve(pairs, eps, delta)
    else:
        question = {"releases": dataclasses.asdict(releases), "observer": observer, "accountant": accountant}
        noise = cached({**question, "eps": eps, "delta": delta}, lambda: _solve(pairs, eps, delta))
    return noise


def _solve(pairs: list[tuple[Composition, str]], eps: float, delta: float) -> float:
    """The least noise over the (composition, accountant) pairs, each alone enough; then asked again of a second accountant."""
    least, winner = math.inf, pairs[0]
    for composition, name in pairs:
        if least < math.inf and one(composition, least, delta, name) > eps:
            continue  # eps falls with the noise, so this pair cannot do with less
        noise = _least_noise(composition, name, eps, delta)
        if noise < least:
            least, winner = noise, (composition, name)
    if least == math.inf:
        raise PrivacyError(f"eps={eps}, delta={delta}: {pairs[0][1]} finds no noise that is enough (use accountant=auto)")
    _cross_check(*winner, least, delta)
    return least


def _cross_check(composition: Composition, name: str, noise: float, delta: float) -> None:
    """RDP may not fall below what is tighter, PLD must be as good as the closed form: raise if the numbers say otherwise."""
    tight = "exact" if composition.mechanism == "gaussian" else "pld"
    loose = "rdp" if name == tight else name
    low, high = one(composition, noise, delta, tight), one(composition, noise, delta, loose)
    slack = 0.01 * low + 1e-3 if tight == "pld" else 0.0  # what PLD's grid may add
    if low < math.inf and (high < low - slack - 1e-6 or (loose == "pld" and high > 1.01 * low + 1e-6)):
        raise PrivacyError(
            f"{composition}: accountants disagree at noise_multiplier={noise:.6g}, {tight} says eps={low:.6g} and {loose} "
            f"{high:.6g} (report this)"
        )


def _least_noise(composition: Composition, name: str, eps: float, delta: float) -> float:
    """The least noise multiplier of one composition by one accountant; inf if none is found."""
    mu = mu_for(eps, delta)
    if name == "exact":
        return math.sqrt(composition.times) / (mu * composition.scale)
    # many small releases are nearly one Gaussian with mu^2 = T q^2 (exp(1/z^2) - 1)
    guess = 1 / math.sqrt(math.log1p((mu / composition.rate) ** 2 / composition.times)) / composition.scale
    return _search(lambda noise: one(composition, noise, delta, name), eps, guess)


def _search(spent: Callable[[float], float], eps: float, guess: float) -> float:
    """Noise with _TIGHT eps <= spent(noise) <= eps for a decreasing `spent`: secant steps in logarithms, inside a bracket."""
    low, high = (0.0, math.inf), (math.inf, 0.0)  # (noise, eps): too little noise, enough noise
    noise = guess
    for turn in range(80):
        now = spent(noise)
        if _TIGHT * eps <= now <= eps:
            return noise
        low, high = ((noise, now), high) if now > eps else (low, (noise, now))
        if low[0] * (1 + 1e-9) > high[0]:
            break  # `spent` jumps over the target
        noise = _next_noise(low, high, eps, turn)
    return high[0]


def _next_noise(low: tuple[float, float], high: tuple[float, float], eps: float, turn: int) -> float:
    if high[0] == math.inf:
        return low[0] * min(4.0, 1.05 * low[1] / eps)
    if low[0] == 0.0:
        return high[0] / min(4.0, 1.05 * eps / max(high[1], eps / 4))
    share = 0.5
    if low[1] < math.inf and high[1] > 0 and turn % 4 != 3:  # a secant step, but for every fourth
        share = math.log(low[1] / (eps * (1 + _TIGHT) / 2)) / math.log(low[1] / high[1])
    return float(low[0] * (high[0] / low[0]) ** min(0.99, max(0.01, share)))


def formula_noise(v: float, clip: float, releases_count: int, eps: float, delta: float, rate: float = 1.0) -> float:
    """The papers' noise std, C sqrt(v n ln(1/delta)) rate / eps, for a stated constant v: nominal, not a guarantee.

    `balancing`, Lemma 1: each client's own noise, rate 1, n = the communications. `normalized`, Theorem 3 with q for v:
    the noise on the cohort's sum, rate = r/n clients. Neither paper says v: the eps that such a run really has is
    `accounting.epsilon`'s.
    """
    if not (v > 0 and clip > 0 and eps > 0 and 0 < delta < 1):
        raise PrivacyError(f"v={v}, clip={clip}, eps={eps}, delta={delta}: expected v, clip, eps > 0 and 0 < delta < 1")
    return clip * math.sqrt(v * releases_count * math.log(1 / delta)) * rate / eps


def implied(noise_multiplier: float, sensitivity_over_clip: float, n: int, rate: float, eps: float, delta: float) -> dict[str, float]:
    """The papers' constants that a noise amounts to: v = (std/C)^2 eps^2 / (n ln(1/delta)), q = v / rate^2 (`formula_noise`).

    `sensitivity_over_clip`: 1 under add_remove_one, 2 under replace_one. n: releases.
    """
    v = (noise_multiplier * sensitivity_over_clip * eps) ** 2 / (n * math.log(1 / delta))
    return {"v": v, "q": v / rate**2}


def max_rounds(
    eps: float,
    delta: float,
    noise_multiplier: float,
    view_at: Callable[[int], View],
    accountant: str = "auto",
    limit: int = 10**7,
) -> int:
    """The largest number of rounds, at most `limit`, with epsilon <= eps. `view_at(t)` is the view of the first t rounds."""

    def fits(rounds: int) -> bool:
        return epsilon(view_at(rounds), noise_multiplier, delta, accountant) <= eps

    if limit < 1 or not fits(1):
        return 0
    first = view_at(1)[0]
    squared = (noise_multiplier * first.scale) ** 2
    per_round = 1 / squared if first.mechanism == "gaussian" else first.rate**2 * math.expm1(min(1 / squared, 50.0))
    guess = min(mu_for(eps, delta) ** 2 / per_round, limit)  # exact without sampling, close with it
    return _last_that_fits(fits, max(1, int(guess)), limit)


def _last_that_fits(fits: Callable[[int], bool], guess: int, limit: int) -> int:
    """The last of 1..limit that fits, searched outwards from a guess; fits(1) holds."""
    low, high, step = 1, limit + 1, 1  # low fits, high does not or is out of bounds
    if fits(guess):
        low = guess
        while low + step < high:
            if not fits(low + step):
                high = low + step
                break
            low, step = low + step, 2 * step
    else:
        high = guess
        while high - step > low:
            if fits(high - step):
                low = high - step
                break
            high, step = high - step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low

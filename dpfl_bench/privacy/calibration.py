"""The noise that a budget asks for, the papers' formula for it, and the rounds that a noise allows.

Unit, neighbouring relation and sampling are those of the `Releases` or `RecordReleases` (see
`released/`). The noise multiplier is std / sensitivity of one release (pure: 1/eps_0). Everything
errs on the private side: the epsilon of the noise returned never exceeds the target.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from dpfl_bench.privacy import accounting, refusals
from dpfl_bench.privacy.accountants import own, table
from dpfl_bench.privacy.accounting import accountants_for, at_most, candidates, epsilon
from dpfl_bench.privacy.answers_on_disk import cached, forget
from dpfl_bench.privacy.divergences.gaussian import mu_for
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Composition, View
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import Observer, view

_TIGHT = 0.9992  # a search stops once eps lies between this part of the target and the target
_ALMOST = 0.99  # a noise kept on disk that spends less than this part of the target is not believed


def calibrate(
    releases: Releases | RecordReleases,
    observer: Observer,
    eps: float,
    delta: float,
    accountant: str = "auto",
) -> float:
    """The noise multiplier with .999 eps < epsilon <= eps towards `observer`; 0 if eps is inf.

    delta: of the target. accountant: a name of `accountants/table.py`, or auto. PrivacyError where
    the observer is trusted, where the accountant is not valid, or where no noise is enough.
    """
    compositions = view(releases, observer)
    if compositions is None:
        raise refusals.trusted_observer(observer)
    if not eps > 0:
        raise refusals.eps_out_of_range(eps)
    pairs = candidates(compositions, accountant)
    epsilon(compositions, 0.0, delta, accountant)  # checks delta before anything is searched
    if eps == math.inf or any(c.times == 0 for c in compositions):
        return 0.0
    if all(table.named(name).instant for _, name in pairs):  # solving is faster than reading
        return _solve(pairs, eps, delta)
    question: dict[str, object] = {
        "kind": type(releases).__name__,
        "releases": dataclasses.asdict(releases),
        "observer": observer,
    }
    return _kept(
        question | {**accounting.question(accountant), "eps": eps, "delta": delta}, pairs, eps, delta
    )


def check_reach(
    releases: Releases | RecordReleases, observer: Observer, eps: float, delta: float, accountant: str
) -> None:
    """Raise the PrivacyError of `calibrate` where no noise is enough, without a search for the
    least: every accountant is asked about the largest noise that it tells from others.
    """
    pairs = candidates(view(releases, observer) or (), accountant)
    looser = [(c, name) for c, _ in pairs for name in accountants_for(c)] if accountant == "auto" else []
    quick = [(c, name) for c, name in pairs if table.named(name).instant]
    for composition, name in [*quick, *reversed(looser), *pairs]:
        largest = accounting.LARGEST / composition.scale
        if at_most(composition, largest, delta, name) <= eps:
            return
    raise refusals.no_noise_is_enough(eps, delta, dict.fromkeys(name for _, name in pairs))


def _kept(
    question: dict[str, object], pairs: list[tuple[Composition, str]], eps: float, delta: float
) -> float:
    """The noise from disk, or solved for and kept; either way its eps is checked."""
    noise = cached(question, lambda: _solve(pairs, eps, delta))
    if not _ALMOST * eps <= _spent(pairs, noise, delta) <= eps:  # forged, or by other code
        forget(question)
        noise = cached(question, lambda: _solve(pairs, eps, delta))
    spent = _spent(pairs, noise, delta)
    if spent > eps:
        raise refusals.overspent(noise, eps, spent)
    return noise


def _spent(pairs: list[tuple[Composition, str]], noise: float, delta: float) -> float:
    """Eps of a noise, computed afresh. It costs nothing: the run prints this eps too, and the
    accountants remember their last answers.
    """
    return min(at_most(composition, noise, delta, name) for composition, name in pairs)


def _solve(pairs: list[tuple[Composition, str]], eps: float, delta: float) -> float:
    """The least noise over the (composition, accountant) pairs, of which each alone is enough; a
    second accountant then checks it.
    """
    least, winner = math.inf, pairs[0]
    for composition, name in pairs:
        if least < math.inf and at_most(composition, least, delta, name) > eps:
            continue  # eps falls with the noise, so this pair needs more
        noise = _least_noise(composition, name, eps, delta)
        if noise < least:
            least, winner = noise, (composition, name)
    if least == math.inf:
        raise refusals.no_noise_is_enough(eps, delta, dict.fromkeys(name for _, name in pairs))
    if table.named(winner[1]).guarantee:  # else there is nothing to hold it to
        _cross_check(*winner, least, delta)
    return least


def _cross_check(composition: Composition, name: str, noise: float, delta: float) -> None:
    """Raise if the looser accountant is below the tighter one, or if PLD is worse than the closed
    form.
    """
    tight, *_, loosest = accountants_for(composition)
    loose = loosest if name == tight else name
    low, high = at_most(composition, noise, delta, tight), at_most(composition, noise, delta, loose)
    slack = 0.01 * low + 1e-3 if tight == "pld" else 0.0  # what PLD's grid may add
    if loose in own.files() and high < low - slack - 1e-6:
        raise refusals.own_is_below(loose, high, tight, low)
    if low < math.inf and (high < low - slack - 1e-6 or (loose == "pld" and high > 1.01 * low + 1e-6)):
        raise refusals.accountants_disagree(composition, noise, (tight, low), (loose, high))


def _least_noise(composition: Composition, name: str, eps: float, delta: float) -> float:
    """The least noise multiplier of one composition by one accountant; inf if none is enough."""
    mu = mu_for(eps, delta)
    alone = dataclasses.replace(composition, companions=())
    solved = table.named(name).least_noise(composition, eps, delta)
    if solved is not None:
        return composition.apart(solved)
    noise = _search(lambda z: at_most(alone, z, delta, name), eps, _first_guess(composition, mu, eps))
    return composition.apart(noise)


def _first_guess(composition: Composition, mu: float, eps: float) -> float:
    if composition.mechanism == "pure":
        # few releases spend eps_0 each; many small ones are nearly Gaussian
        return min(composition.times / eps, math.sqrt(composition.times) / mu)
    # many small releases are nearly one Gaussian with mu^2 = T q^2 (exp(1/z^2) - 1)
    expected = composition.times * composition.share
    return 1 / math.sqrt(math.log1p((mu / composition.rate) ** 2 / expected)) / composition.scale


def _search(spent: Callable[[float], float], eps: float, guess: float) -> float:
    """Noise with _TIGHT eps <= spent(noise) <= eps, where `spent` falls with the noise. Secant
    steps in logarithms, inside a bracket.
    """
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


def formula_noise(
    v: float, clip: float, releases_count: int, eps: float, delta: float, rate: float = 1.0
) -> float:
    """The papers' standard deviation of the noise, C sqrt(v n ln(1/delta)) rate / eps, for a stated
    constant v. It is nominal and no guarantee: the eps that such a run really has is
    `accounting.epsilon`'s.

    clip: C. releases_count: n. `balancing`, Lemma 1: each client's own noise, rate 1, n = the
    communications. `normalized`, Theorem 3 with q for v: the noise on the cohort's sum, rate = r/n
    clients. Neither paper says what v is.
    """
    if not (v > 0 and clip > 0 and eps > 0 and 0 < delta < 1):
        raise refusals.formula_out_of_range(v, clip, eps, delta)
    return clip * math.sqrt(v * releases_count * math.log(1 / delta)) * rate / eps


def implied(
    noise_multiplier: float, sensitivity_over_clip: float, n: int, rate: float, eps: float, delta: float
) -> dict[str, float]:
    """The papers' constants v and q that a noise amounts to in `formula_noise`: v = (std/C)^2 eps^2
    / (n ln(1/delta)), q = v / rate^2.

    sensitivity_over_clip: 1 under add_remove_one, 2 under replace_one. n: releases.
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
    """The largest number of rounds, at most `limit`, with epsilon <= eps at delta.

    view_at: t -> what the observer sees of the first t rounds. accountant: a name of
    `accountants/table.py`, or auto.
    """

    def fits(rounds: int) -> bool:
        return any(
            at_most(c, noise_multiplier, delta, name) <= eps
            for c, name in candidates(view_at(rounds), accountant)
        )

    if limit < 1 or not fits(1):
        return 0

    def spent(rounds: int) -> float:
        """By the tightest accountant alone, because every question takes time."""
        composition, name = candidates(view_at(rounds), accountant)[0]
        return at_most(composition, noise_multiplier, delta, name)

    guess = _rounds_of_a_gaussian(view_at(1)[0], noise_multiplier, mu_for(eps, delta))
    return _last_that_fits(fits, _near(spent, eps, guess, limit), limit)


def _rounds_of_a_gaussian(first: Composition, noise_multiplier: float, mu: float) -> float:
    """Rounds that mu allows if a round (`first`) were Gaussian: exact where it is, close for many
    small releases.
    """
    z = first.joint(noise_multiplier) * (1 if first.mechanism == "pure" else first.scale)
    if not 0 < z < math.inf:
        return math.inf
    plain = first.mechanism in ("gaussian", "pure")
    per_release = 1 / z**2 if plain else first.rate**2 * math.expm1(min(1 / z**2, 50.0))
    return mu**2 / (per_release * first.share * max(first.times, 1))


def _near(spent: Callable[[int], float], eps: float, guess: float, limit: int) -> int:
    """A number of rounds that spends about eps. Secant steps: log(eps) is taken as a line in
    log(rounds) through the last two answers.
    """
    rounds, slope, before = max(1, int(min(guess, limit))), 0.5, None
    for _ in range(8):
        now = spent(rounds)
        if not 0 < now < math.inf:
            break
        if before is not None and before[0] != rounds and before[1] != now:
            slope = min(2.0, max(0.2, math.log(now / before[1]) / math.log(rounds / before[0])))
        before = (rounds, now)
        aim = max(1, int(min(rounds * (eps / now) ** (1 / slope), limit)))
        if abs(aim - rounds) <= 1:
            return aim
        rounds = aim
    return rounds


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

"""The numerical accountants, PLD and RDP. Unit: client or record; noise multipliers: std /
sensitivity (`accounting.py`).

The pair of distributions behind `fixed` (m of M clients without replacement, replace_one, rate q =
m/M): whichever way the neighbours are ordered, delta(eps) of one release is at most q delta_G(log(1
+ (e^eps - 1)/q)) for eps >= 0, delta_G being the unsampled Gaussian's (Balle, Barthe & Gaboardi
2018, Theorem 10), hence at most 1 - e^eps + e^eps delta(-eps) for eps < 0. A convex profile that
bounds both orders belongs to a dominating pair, and dominating pairs compose adaptively (Zhu, Dong
& Wang 2022, Theorem 10). It halves RDP's eps.

A participation's round (`releases.Composition`): the observer sees the coin, which is the same
between neighbours, and after it k releases or none. So the privacy loss of the round is 0 with
probability 1 - share and that of k releases with probability share: its distribution is the mixture
(1 - share) delta_0 + share PLD^k, for either order of the neighbours. Independent of the past, it
composes adaptively.

dp_accounting takes a second to import, so it is imported in here only when asked for.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

from dpfl_bench.privacy.releases import Rounds

_REAL_ORDERS = [1.01, 1.02, 1.05] + [1 + k / 20 for k in range(2, 20)] + [2 + k / 10 for k in range(80)]
_WHOLE_ORDERS = [*range(2, 33), *range(36, 65, 4), 72, 80, 96, 112, 128, 160, 192, 224, 256]
_LARGE_ORDERS = [320, 384, 512, 640, 768, 1024, 1536, 2048]
CLOSED_ORDERS = 1 + 2.0 ** (
    np.arange(-48, 161) / 8
)  # where the divergences are formulas: 1 + 1/64 to 1 + 2^20
_CELLS = (
    2**17
)  # of one release's PLD (a second to make), an eighth of its composition's (8 MB, a tenth of a second)
_CUT = 1e-15  # probability beyond the window that a participation's losses are composed in


def pld_epsilon(mechanism: str, rate: float, z: float, times: int, delta: float) -> float:
    """Eps by privacy loss distributions, pessimistic; inf where a grid cannot hold it (use rdp
    there).

    gaussian: either relation, no sampling. poisson: add_remove_one, both directions. fixed:
    replace_one, without replacement. Rounding inside its FFT was seen to move delta by 2e-14, to
    the unsafe side too: delta is lowered by far more than that.
    """
    sure = delta - 1e-12 - 1e-15 * times
    if 0.5 / z**2 + 10 / z > 500 or times > 10**6 or sure <= 0:
        return math.inf
    return _pld_epsilon(mechanism, rate, z, times, sure, _interval(rate, z, times))


def _interval(rate: float, z: float, times: int) -> float:
    """The grid's step, a power of 2: a 64th of one release's standard deviation, unless that takes
    too many cells.
    """
    deviation = rate * math.sqrt(math.expm1(min(1 / z**2, 30.0)))
    mean = min(deviation**2, rate / z**2) / 2 + 1e-12
    spread = times * mean + 20 * math.sqrt(times) * min(deviation, 10 / z)
    step = max(min(1e-3, deviation / 64), _tail(rate, z) / _CELLS, spread / (8 * _CELLS))
    return float(2.0 ** math.floor(math.log2(step)))


def _tail(rate: float, z: float) -> float:
    """The privacy loss that one release exceeds with a probability below 1e-23 (ten standard
    deviations).
    """
    loss = 0.5 / z**2 + 10 / z
    if loss < 30:
        return math.log1p(rate * math.expm1(loss))
    large = loss + math.log(rate)
    return max(large, 0.0) + math.log1p(math.exp(-abs(large)))


@lru_cache(maxsize=256)
def _pld_epsilon(mechanism: str, rate: float, z: float, times: int, delta: float, interval: float) -> float:
    composed = _pld(mechanism, rate, z, interval).self_compose(times)
    return float(composed.get_epsilon_for_delta(delta))


@lru_cache(maxsize=8)
def _pld(mechanism: str, rate: float, z: float, interval: float) -> Any:
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    if mechanism != "fixed":
        return privacy_loss_distribution.from_gaussian_mechanism(
            z, sampling_prob=rate, value_discretization_interval=interval
        )
    cells = math.ceil(_tail(rate, z) / interval)
    deltas = _profile_without_replacement(np.arange(-cells, cells + 1) * interval, rate, z)
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -cells, cells, deltas)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def _profile_without_replacement(eps: Any, rate: float, z: float) -> Any:
    """delta at each eps of one release under `fixed` (module docstring). eps: (n,)."""
    size = np.abs(eps)
    delta = _delta_present(size, rate, z)
    return np.clip(np.where(eps < 0, np.exp(-size) * delta - np.expm1(-size), delta), 0, 1)


def _delta_present(eps: Any, rate: float, z: float) -> Any:
    """delta at each eps >= 0 of one sampled release, the first of the pair being the one that may
    hold the unit: (n,).
    """
    inner = np.where(eps < 30, np.log1p(np.expm1(np.minimum(eps, 30)) / rate), eps - math.log(rate))
    return rate * _delta_unsampled(inner, z)


def _delta_absent(eps: Any, rate: float, z: float) -> Any:
    """The same with the neighbours in the other order, under poisson: its loss is below log(1/(1 -
    rate)). (n,).
    """
    inner = 1 + np.expm1(-eps) / rate
    within = inner > 0
    return np.where(
        within,
        inner
        * rate
        * np.exp(np.minimum(eps, 700))
        * _delta_unsampled(-np.log(np.where(within, inner, 1)), z),
        0,
    )


def _delta_unsampled(eps: Any, z: float) -> Any:
    from scipy.special import log_ndtr, ndtr

    return np.maximum(ndtr(0.5 / z - eps * z) - np.exp(eps + log_ndtr(-0.5 / z - eps * z)), 0)


def participation_pld_epsilon(
    mechanism: str, rate: float, z: float, share: float, rounds: Rounds, delta: float
) -> float:
    """Eps of a participation by privacy loss distributions, pessimistic; inf where a grid cannot
    hold it (use rdp there).

    gaussian: either relation, no sampling of records. poisson: add_remove_one, both directions.
    fixed: replace_one, without replacement. Rounding inside the FFT was seen to move delta by
    2.5e-16 for every expected release: delta is lowered by far more.
    """
    counts: Counter[int] = Counter()
    for k, count in rounds:
        counts[k] += count
    expected = share * sum(k * count for k, count in counts.items())
    sure = delta - 1e-12 - 2e-15 * expected
    if 0.5 / z**2 + 10 / z > 500 or expected > 10**7 or sure <= 0:
        return math.inf
    orders = ("present", "absent") if mechanism == "poisson" else ("either",)
    rate, z = (
        1.0 if mechanism == "gaussian" else rate,
        min(z, 1e7),
    )  # less noise than 1e7 is pessimistic, and all that floats resolve
    return max(_participation(order, rate, z, share, tuple(sorted(counts.items())), sure) for order in orders)


@lru_cache(maxsize=512)
def _participation(order: str, rate: float, z: float, share: float, counts: Rounds, delta: float) -> float:
    """The rounds' mixtures are multiplied in Fourier space, on a window that holds all but _CUT of
    the composed losses.
    """
    (losses, pmf, lost), step, start, cells = _grid(order, rate, z, share, counts)
    where = np.round(losses / step).astype(np.int64) % cells
    release = np.fft.rfft(np.bincount(where, pmf, cells))
    composed, power, at, log_kept = np.ones_like(release), np.ones_like(release), 0, 0.0
    for k, count in counts:
        power, at = power * release ** (k - at), k
        mixture = 1 - share + share * power
        composed *= mixture if count == 1 else mixture**count
        log_kept += count * math.log1p(share * math.expm1(k * math.log1p(-lost)))
    probabilities = np.roll(np.fft.irfft(composed, cells), -(start % cells))
    return _eps_of_losses(
        (start + np.arange(cells)) * step, probabilities, _CUT - math.expm1(log_kept), delta
    )


def _grid(
    order: str, rate: float, z: float, share: float, counts: Rounds
) -> tuple[tuple[Any, Any, float], float, int, int]:
    """(losses of one release, their grid's step, the window's first cell, its cells): a 256th of
    the release's standard deviation, half or a quarter of that where it spares cells, less where
    there would be too many.
    """
    deviation = rate * math.sqrt(math.expm1(min(1 / z**2, 30.0)))
    step = 2.0 ** math.floor(math.log2(max(min(1e-3, deviation / 256), _tail(rate, z) / _CELLS)))
    while True:
        release = _release(order, rate, z, step)
        first, last = _window(*release[:2], share, counts)
        cells = 1 << math.ceil((last - first) / step).bit_length()
        if cells <= (2 if step < deviation / 64 else 8) * _CELLS:
            return release, step, math.floor(first / step), cells
        step *= 2


@lru_cache(maxsize=8)
def _release(order: str, rate: float, z: float, step: float) -> tuple[Any, Any, float]:
    """(losses, probabilities, probability of an infinite loss) of one release, by connecting the
    dots: pessimistic at every eps.

    Negative losses are those of the other order of the pair, times e^loss: nothing cancels there.
    Replaces what lies between two points of the grid by these points, so that both distributions
    keep their mass.
    """
    eps = np.arange(math.ceil(_tail(rate, z) / step) + 1) * step
    profile = {"present": (_delta_present, _delta_absent), "absent": (_delta_absent, _delta_present)}
    above, below = (f(eps, rate, z) for f in profile.get(order, (_delta_present, _delta_present)))
    up, down = _dots(above, step), _dots(below, step) * np.exp(-eps[1:])
    middle = max(0.0, 1 - up.sum() - down.sum() - above[-1])
    return np.concatenate([-eps[:0:-1], eps]), np.concatenate([down[::-1], [middle], up]), float(above[-1])


def _dots(deltas: Any, step: float) -> Any:
    """Probabilities of the losses step, 2 step, ... from delta at eps = 0, step, 2 step, ...: (n +
    1,) -> (n,).
    """
    slopes = np.diff(np.minimum.accumulate(deltas))
    inside = (slopes[1:] - slopes[:-1] * math.exp(step)) / math.expm1(step)
    return np.maximum(np.append(inside, slopes[-1] / math.expm1(-step)), 0)


def _window(losses: Any, pmf: Any, share: float, counts: Rounds) -> tuple[float, float]:
    """Ends of what the composed loss leaves with a probability of at most _CUT on either side
    (Chernoff).
    """
    mean = float(losses @ pmf)
    variance = float((losses - mean) ** 2 @ pmf)
    spread = math.sqrt(
        sum(count * share * (k * variance + (1 - share) * (k * mean) ** 2) for k, count in counts)
    )
    with np.errstate(divide="ignore"):
        log_pmf, log_absent = np.log(pmf), float(np.log1p(-share))

    def bound(order: float) -> float:
        terms = log_pmf + order * losses
        log_moment = terms.max() + math.log(np.exp(terms - terms.max()).sum())
        total = sum(count * np.logaddexp(log_absent, math.log(share) + k * log_moment) for k, count in counts)
        return float(total - math.log(_CUT)) / order

    orders = [8 / spread * 2.0**power for power in (-4, -3, -2, -1, -0.5, 0, 0.5, 1)]
    return max(bound(-order) for order in orders), min(bound(order) for order in orders)


def _eps_of_losses(losses: Any, probabilities: Any, infinite: float, delta: float) -> float:
    """The smallest eps >= 0 with delta(eps) = infinite + sum of (1 - e^(eps - loss))_+ <= delta, of
    ascending losses.
    """
    if infinite > delta:
        return math.inf
    losses, probabilities = losses[losses > 0][::-1], np.maximum(probabilities[losses > 0], 0)[::-1]
    upper = infinite + np.cumsum(probabilities)
    if not len(upper) or upper[-1] <= delta:
        return 0.0
    reference = losses[np.argmax(upper > delta)]  # eps is below, and not by much
    lower = np.cumsum(probabilities * np.exp(np.minimum(reference - losses, 700)))
    following = np.append(losses[1:], 0)
    beyond = upper - lower * np.exp(np.clip(following - reference, -700, 700)) > delta
    if not beyond.any():
        return 0.0
    i = int(np.argmax(beyond))
    return float(reference + math.log((upper[i] - delta) / lower[i]))


def pure_epsilon(pure: float, times: int, delta: float) -> float:
    """Eps of `times` adaptive releases that are pure `pure`-DP each, either relation: the optimal
    composition theorem.

    Kairouz, Oh & Viswanath 2015: none is worse than randomised response, whose losses are +pure and
    -pure. Exact, rounded up by 1e-9 of itself, and never above times * pure.
    """
    heads = np.arange(times // 2 + 1)
    log_counts = np.append(
        0, np.cumsum(np.log((times - heads[:-1]) / (heads[:-1] + 1)))
    )  # of `heads` losses of -pure
    logs = log_counts - heads * pure - times * math.log1p(math.exp(-pure))
    found = _eps_of_losses(((times - 2 * heads) * pure)[::-1], np.exp(logs)[::-1], 0.0, delta)
    return min(found * (1 + 1e-9), times * pure)


def participation_pure_epsilon(pure: float, share: float, rounds: Rounds, delta: float) -> float:
    """Eps of a participation whose releases are pure `pure`-DP each, either relation, rounded up;
    basic composition where it is too long.

    As in `pure_epsilon` none is worse than randomised response, whose losses are +pure and -pure:
    their sums are whole multiples.
    """
    most = sum(k * count for k, count in rounds)
    sure = delta - 1e-12
    if sure <= 0 or most > 2**20:
        return most * pure
    cells = 1 << (2 * most).bit_length()  # at least 2 most + 1: nothing wraps around
    losses, down = np.zeros(cells), math.exp(-pure) / (1 + math.exp(-pure))
    losses[1], losses[-1] = 1 - down, down
    release, composed = np.fft.rfft(losses), np.ones(cells // 2 + 1, complex)
    for k, count in rounds:
        composed *= (1 - share + share * release**k) ** count
    probabilities = np.fft.fftshift(np.fft.irfft(composed, cells))
    found = _eps_of_losses((np.arange(cells) - cells // 2) * pure, probabilities, 0.0, sure)
    return min(found * (1 + 1e-9), most * pure)


def rdp_epsilon(
    mechanism: str, rate: float, population: int, sample: int, z: float, times: int, delta: float
) -> float:
    """Eps by dp-accounting's RDP. poisson: add_remove_one. fixed: replace_one, without replacement."""
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, curve = sampled_rdp(mechanism, rate, population, sample, z, times)
    return float(rdp_privacy_accountant.compute_epsilon(orders, curve, delta)[0])


def participation_rdp_epsilon(
    mechanism: str,
    rate: float,
    population: int,
    sample: int,
    z: float,
    share: float,
    rounds: Rounds,
    delta: float,
) -> float:
    """Eps of a participation by RDP."""
    from dp_accounting.rdp import rdp_privacy_accountant

    orders, curve = participation_rdp(mechanism, rate, population, sample, z, share, rounds)
    return float(rdp_privacy_accountant.compute_epsilon(orders, curve, delta)[0])


def participation_rdp(
    mechanism: str, rate: float, population: int, sample: int, z: float, share: float, rounds: Rounds
) -> tuple[Any, Any]:
    """(orders, Rényi divergences)."""
    return mixed_rdp(*_rdp(mechanism, rate, population, sample, z), share, rounds)


def mixed_rdp(orders: Any, curve: Any, share: float, rounds: Rounds) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of a participation, from those of one release.

    exp((a - 1) D_a) of a round is 1 - share + share exp((a - 1) k D_a of one release).
    """
    excess = np.asarray(orders) - 1
    with np.errstate(divide="ignore"):
        absent = np.log1p(-share)
    return orders, sum(
        count * np.logaddexp(absent, math.log(share) + excess * k * curve) / excess for k, count in rounds
    )


def sampled_rdp(
    mechanism: str, rate: float, population: int, sample: int, z: float, times: int
) -> tuple[Any, Any]:
    """(orders, Rényi divergences). poisson: add_remove_one. fixed: replace_one, without
    replacement.
    """
    orders, curve = _rdp(mechanism, rate, population, sample, z)
    return orders, times * curve


def gaussian_rdp(mu: float) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of an unsampled Gaussian, either relation: exact."""
    return CLOSED_ORDERS, CLOSED_ORDERS * mu * mu / 2


def pure_rdp(pure: float, times: int) -> tuple[Any, Any]:
    """(orders, Rényi divergences) of `times` adaptive releases that are pure `pure`-DP each, either
    relation.

    Every pair that is pure-DP is a post-processing of randomised response (Kairouz, Oh & Viswanath
    2015), and post-processing lowers no divergence: exp((a - 1) D_a) is at most (e^(a pure) + e^((1
    - a) pure)) / (1 + e^pure), with equality for randomised response.
    """
    excess = CLOSED_ORDERS - 1
    logs = np.logaddexp(CLOSED_ORDERS * pure, -excess * pure) - np.logaddexp(0, pure)
    return CLOSED_ORDERS, times * np.minimum(logs / excess, pure)


@lru_cache(maxsize=64)
def _rdp(mechanism: str, rate: float, population: int, sample: int, z: float) -> tuple[Any, Any]:
    """(orders, Rényi divergence of one release at each)."""
    if mechanism == "gaussian":
        real = _REAL_ORDERS + _WHOLE_ORDERS[9:] + _LARGE_ORDERS
        return real, np.array(real) / (2 * z**2)
    import dp_accounting as dpa

    release = dpa.GaussianDpEvent(z)
    event: dpa.DpEvent
    if (
        mechanism == "fixed"
    ):  # between whole orders Theorem 27's curve is interpolated: real orders add nothing
        orders, relation = _WHOLE_ORDERS + _LARGE_ORDERS, dpa.NeighboringRelation.REPLACE_ONE
        event = dpa.SampledWithoutReplacementDpEvent(population, sample, release)
    else:
        orders, relation = (
            _REAL_ORDERS + _WHOLE_ORDERS[9:] + _LARGE_ORDERS,
            dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
        )
        event = dpa.PoissonSampledDpEvent(rate, release)
    accountant = dpa.rdp.RdpAccountant(orders, relation)
    absl = logging.getLogger("absl")
    level = absl.level
    absl.setLevel(
        logging.ERROR
    )  # it warns of each small order it leaves out, which costs tightness, not validity
    try:
        accountant.compose(event)
    finally:
        absl.setLevel(level)
    return accountant.orders, accountant.rdp


def gaussian_rdp_epsilon(mu: float, delta: float) -> float:
    """Eps of an unsampled Gaussian by RDP, alpha mu^2/2 at order alpha (either relation), over real
    orders; imports nothing.
    """
    if delta**2 > -math.expm1(-mu * mu / 2):  # total variation <= sqrt(1 - exp(-KL))
        return 0.0
    centre = math.sqrt(2 * math.log(1 / delta)) / mu  # the best order - 1, up to a factor
    excesses = (centre * 2 ** (k / 64) for k in range(-256, 257))
    return max(0.0, min(_converted((1 + a) * mu * mu / 2, a, delta) for a in excesses))


def _converted(divergence: float, excess: float, delta: float) -> float:
    """Eps from a Rényi divergence of order 1 + excess (Canonne, Kamath & Steinke 2020, Proposition
    12).
    """
    return divergence + math.log(excess / (1 + excess)) - (math.log(delta) + math.log1p(excess)) / excess

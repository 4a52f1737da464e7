"""PrivUnit and ScalarDP: golden numbers, what they are promised to do, and the tests' power to
tell.

Each test of something random accepts what lies within 5 standard errors (for the Kolmogorov-Smirnov
statistic a level of the same order) and is shown to reject a mechanism that is 10 % off, or the one
that the paper prints. The measure of the cap, m and the heights' law come here from the integral of
cos^(d-2) over latitudes, in log-space, not from incomplete beta functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dpfl_bench.privacy.privunit import PrivUnit, equal_split
from dpfl_bench.privacy.scalar_dp import ScalarDP
from dpfl_bench.rng import generator

pytestmark = pytest.mark.one_in(4)

MILLION = 10**6


def generators(clients: int, run: int = 0) -> list[np.random.Generator]:
    return [generator(0, "privunit-test", run, client) for client in range(clients)]


def mechanism(dimension: int, eps: float = 2.0, clip: float = 1.0) -> PrivUnit:
    return PrivUnit(eps, eps, eps, clip, dimension)


def update_of(dimension: int, norm: float) -> np.ndarray:
    direction = generator(1, "privunit-test").standard_normal(dimension)
    return norm * direction / np.linalg.norm(direction)


def uniforms(rows: int, count: int, run: int = 0) -> np.ndarray:
    return generator(2, "privunit-test", run).random((rows, count))


def integral(dimension: int, low: float, high: float, power: int = 0) -> float:
    """Log of the integral of t^power (1 - t^2)^((d-3)/2) over [low, high], t = sin(latitude); power
    1 from low >= 0 only.
    """
    start, end = math.asin(low), math.asin(high)
    peak = min(max(start, 0.0), end) if low >= 0 or high >= 0 else end
    reach = 45 / math.sqrt(dimension)  # beyond it less than e^-1000 of the peak
    edges = np.linspace(max(start, peak - reach), min(end, peak + reach), 65)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    halves = np.diff(edges)[:, None] / 2
    latitudes = edges[:-1, None] + halves * (1 + nodes)
    logs = (dimension - 2) * np.log(np.cos(latitudes)) + (power * np.log(np.sin(latitudes)) if power else 0)
    top = logs.max()
    return float(top + np.log(np.sum(halves * weights * np.exp(logs - top))))


# --- Golden numbers (docs/papers.md, `fedexp`) ---


@pytest.mark.parametrize(
    ("dimension", "gamma", "length"),
    [(100, 0.095933, 7.842), (237, 0.062134, 12.074), (500, 0.042730, 17.537), (5046, 0.013439, 55.712)],
)
def test_golden_caps(dimension: int, gamma: float, length: float) -> None:
    made = mechanism(dimension)
    assert made.gamma == pytest.approx(gamma, abs=5e-7)
    assert 1 / made.m == pytest.approx(length, abs=5e-4)
    assert made.release_eps == pytest.approx(5.586, abs=5e-4)


def test_golden_scalar() -> None:
    for clip in (1.0, 0.3):
        scalar = ScalarDP(2.0, clip)
        assert scalar.k == 2
        assert scalar.a / clip == pytest.approx(0.734776, abs=5e-7)
        assert scalar.b == pytest.approx(0.319521, abs=5e-7)
        assert scalar.value(np.arange(3)) / clip == pytest.approx([-0.234776, 0.5, 1.234776], abs=1e-6)
        c1, c2, c3 = scalar.variance_bound
        assert (c1, c2 / clip, c3 / clip**2) == pytest.approx((0.469553, -0.469553, 0.324241), abs=5e-7)


# --- The cap ---


def drawn_mechanisms(count: int) -> list[PrivUnit]:
    draws = uniforms(count, 3, run=9)
    eps0, eps1 = (0.01 * (3000 ** draws[:, i]) for i in range(2))
    dimensions = np.round(3 * (MILLION / 3) ** draws[:, 2]).astype(int)
    return [PrivUnit(a, b, 1.0, 1.0, int(d)) for a, b, d in zip(eps0, eps1, dimensions, strict=True)]


EDGES = [PrivUnit(e, e, 1.0, 1.0, d) for e in (1e-3, 3.1, 3.3, 30.0) for d in (3, 4, MILLION)]


def test_exact_eps_of_the_direction_is_within_the_budget() -> None:
    """The largest log-ratio is log[(p/P(cap)) / ((1-p)/P(rest))]: in one's cap, outside the
    other's.
    """
    rules = set()
    for made in [*drawn_mechanisms(150), *EDGES]:
        ratio = integral(made.dimension, -1, made.gamma) - integral(made.dimension, made.gamma, 1)
        assert made.release_eps == pytest.approx(
            made.eps0 + ratio + made.eps2, rel=1e-8
        )  # 1e-12, but scipy 1.11
        assert made.eps0 < made.release_eps - made.eps2 < made.eps0 + made.eps1
        assert 0 < made.gamma < 1
        rules.add(made.gamma < math.sqrt(2 / made.dimension))
    assert rules == {True, False}


def test_a_cap_a_tenth_higher_would_break_the_budget() -> None:
    for dimension in (100, MILLION):
        made = PrivUnit(0.1, 1.0, 1.0, 1.0, dimension)
        ratio = integral(dimension, -1, 1.1 * made.gamma) - integral(dimension, 1.1 * made.gamma, 1)
        assert ratio > made.eps1


def test_gamma_is_the_largest_that_either_rule_allows() -> None:
    """The second rule, written out as printed, holds at gamma and fails a little above it."""

    def needed(gamma: float, d: int) -> float:
        return 0.5 * math.log(d) + math.log(6) - (d - 1) / 2 * math.log1p(-(gamma**2)) + math.log(gamma)

    for made in drawn_mechanisms(150):
        first = (
            (math.exp(made.eps1) - 1)
            / (math.exp(made.eps1) + 1)
            * math.sqrt(math.pi / (2 * (made.dimension - 1)))
        )
        if made.gamma > first * (1 + 1e-12) and made.gamma < 1 - 1e-8:
            assert made.gamma >= math.sqrt(2 / made.dimension)
            assert (
                needed(made.gamma * (1 - 1e-9), made.dimension)
                <= made.eps1
                < needed(made.gamma * (1 + 1e-9), made.dimension)
            )
        elif made.gamma < 1 - 1e-8:
            assert made.gamma == pytest.approx(first, rel=1e-12)
            assert needed(math.sqrt(2 / made.dimension), made.dimension) > made.eps1


def test_m_is_the_mean_height() -> None:
    for made in [*drawn_mechanisms(150), *EDGES]:
        d, gamma = made.dimension, made.gamma
        cap, rest = integral(d, gamma, 1), integral(d, -1, gamma)
        above = integral(d, gamma, 1, power=1)  # the rest has minus that
        p = 1 / (1 + math.exp(-made.eps0))
        assert made.m == pytest.approx(p * math.exp(above - cap) - (1 - p) * math.exp(above - rest), rel=1e-8)


def heights_of(made: PrivUnit, count: int, run: int = 0) -> np.ndarray:
    return made.heights(*uniforms(2, count, run))[0]


def near(hits: int, count: int, rate: float) -> bool:
    """Is a frequency within 5 standard errors of a rate?"""
    return abs(hits - count * rate) < 5 * math.sqrt(count * rate * (1 - rate))


@pytest.mark.parametrize("dimension", [3, 4, 500, MILLION])
def test_the_cap_is_drawn_with_probability_p(dimension: int) -> None:
    count, made = 50_000, mechanism(dimension, 1.0)
    hits = int((heights_of(made, count) >= made.gamma).sum())
    assert near(hits, count, math.e / (1 + math.e))
    assert not near(hits, count, 0.9 * math.e / (1 + math.e))
    assert not near(hits, count, made.gamma)  # as printed


def distance(heights: np.ndarray, low: float, high: float, dimension: float) -> float:
    """sqrt(n) times the Kolmogorov-Smirnov distance to the density (1 - t^2)^((d-3)/2) on [low,
    high].
    """
    reach = 12 / math.sqrt(dimension)
    latitudes = np.linspace(
        max(math.asin(low), -reach), min(math.asin(high), max(math.asin(low), 0) + reach), 200_001
    )
    density = np.exp((dimension - 2) * (np.log(np.cos(latitudes)) - math.log(math.cos(max(latitudes[0], 0)))))
    cumulated = np.concatenate([[0], np.cumsum(density[1:] + density[:-1])])
    cdf = np.interp(np.arcsin(np.sort(heights)), latitudes, cumulated / cumulated[-1])
    steps = np.arange(len(heights) + 1) / len(heights)
    return math.sqrt(len(heights)) * float(max(np.max(steps[1:] - cdf), np.max(cdf - steps[:-1])))


KS = 2.6  # exceeded with probability 2 exp(-2 * 2.6^2) = 3e-6


@pytest.mark.parametrize("eps", [0.2, 4.0])  # the two rules
@pytest.mark.parametrize("dimension", [3, 4, 50, 1000, MILLION])
def test_heights_follow_their_density(dimension: int, eps: float) -> None:
    made = PrivUnit(0.1, eps, 1.0, 1.0, dimension)
    heights = heights_of(made, 100_000, run=dimension)
    inside, outside = heights[heights >= made.gamma], heights[heights < made.gamma]
    for part, low, high in ((inside, made.gamma, 1.0), (outside, -1.0, made.gamma)):
        assert distance(part, low, high, dimension) < KS
        assert distance(part, low, high, 1.21 * dimension) > KS  # a spread 10 % off
        gaps = np.abs(part - made.gamma)
        assert (
            distance(part[gaps > np.quantile(gaps, 0.1)], low, high, dimension) > KS
        )  # the nearest tenth to the edge missing


def test_heights_are_accurate_in_both_tails() -> None:
    """P(T > t) comes back, by integration, at draws that are hard to invert."""
    for dimension, eps1 in ((3, 2.0), (500, 2.0), (500, 30.0), (MILLION, 2.0), (MILLION, 80.0)):
        made = PrivUnit(2.0, eps1, 1.0, 1.0, dimension)
        draws = np.array([0.0, 1e-12, 0.5, 1 - 1e-12])
        inside, radii = made.heights(np.zeros(4), draws)
        whole = integral(dimension, -1, 1)
        assert np.all((made.gamma * (1 - 1e-9) <= inside) & (inside < 1))
        assert inside**2 + radii**2 == pytest.approx(np.ones(4), rel=1e-14)
        for t, draw in zip(inside, draws, strict=True):
            assert math.exp(integral(dimension, t, 1) - whole) == pytest.approx(
                made.cap * (1 - draw), rel=1e-8
            )
        outside, _ = made.heights(np.ones(4), draws)
        assert np.all((outside <= made.gamma * (1 + 1e-9)) & (outside > -1))
        for t, draw in zip(outside, draws, strict=True):
            assert math.exp(integral(dimension, -1, t) - whole) == pytest.approx(
                (1 - made.cap) * (1 - draw), rel=1e-8
            )


# --- The whole message ---


class AsPrinted(PrivUnit):
    """Algorithm 3 to the letter: the cap with probability gamma, and m as it is."""

    @property
    def cap_rate(self) -> float:  # type: ignore[override]
        return self.gamma


class TooShort(PrivUnit):
    """Divides by an m 10 % too large."""

    @property
    def m(self) -> float:  # type: ignore[override]
        return 1.1 * mechanism(self.dimension, self.eps0, self.clip).m


def worst_error(made: PrivUnit, update: np.ndarray, clients: int) -> float:
    """The largest error of the mean message in standard errors, along the update and orthogonal to
    it.
    """
    messages = made.randomise(np.broadcast_to(update, (clients, len(update))), generators(clients))
    norm = float(np.linalg.norm(update))
    unit = update / norm if norm else update_of(len(update), 1.0)
    along = messages @ unit
    orthogonal = messages - np.outer(along, unit)
    errors = [abs(along.mean() - norm) / along.std(), *np.abs(orthogonal.mean(0)) / orthogonal.std(0)]
    return math.sqrt(clients) * max(errors)


@pytest.mark.parametrize(("dimension", "clients"), [(3, 6_000), (20, 6_000), (237, 4_000), (1000, 3_000)])
@pytest.mark.parametrize("relative", [0.0, 0.3, 1.0])
def test_messages_are_unbiased(dimension: int, clients: int, relative: float) -> None:
    clip = 0.7
    update = update_of(dimension, relative * clip)
    assert worst_error(mechanism(dimension, 2.0, clip), update, clients) < 5
    if relative == 1:
        assert worst_error(AsPrinted(2.0, 2.0, 2.0, clip, dimension), update, clients) > 5
        assert worst_error(TooShort(2.0, 2.0, 2.0, clip, dimension), update, clients) > 5


@pytest.mark.slow
def test_unbiased_under_the_second_rule_and_unequal_eps() -> None:
    made = PrivUnit(3.0, 5.0, 1.0, 2.0, 50)
    assert made.gamma > math.sqrt(2 / 50)
    assert worst_error(made, update_of(50, 1.1), 12_000) < 5
    assert worst_error(AsPrinted(3.0, 5.0, 1.0, 2.0, 50), update_of(50, 1.1), 12_000) > 5


def second_moments_error(messages: np.ndarray) -> float:
    """How far E[v v'] is from I / d, in standard errors."""
    directions = messages / np.linalg.norm(messages, axis=1, keepdims=True)
    d = messages.shape[1]
    products = directions[:, :, None] * directions[:, None, :] - np.eye(d) / d
    return float(np.max(np.abs(products.mean(0)) / products.std(0)) * math.sqrt(len(messages)))


@pytest.mark.slow
def test_an_update_of_zero_gets_a_uniform_direction() -> None:
    made, clients = mechanism(4, 3.0), 10_000
    zeros = np.zeros((clients, 4))
    messages = made.randomise(zeros, generators(clients))
    assert second_moments_error(messages) < 5
    assert np.linalg.norm(messages, axis=1) == pytest.approx(
        np.abs(replayed(made, zeros)[0]) / made.m, rel=1e-12
    )
    assert (
        second_moments_error(
            made.randomise(np.broadcast_to(update_of(4, 1e-9), (clients, 4)), generators(clients))
        )
        > 5
    )


def replayed(made: PrivUnit, updates: np.ndarray, run: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """r_hat and t of `generators(c, run)`, from the uniforms that each client draws first."""
    draws = np.stack([client.random(5) for client in generators(len(updates), run)], axis=1)
    norms = np.linalg.norm(updates, axis=1)
    return made.scalar.randomise(norms, draws[:3]), made.heights(draws[3], draws[4])[0]


@pytest.mark.parametrize("dimension", [3, 237, 1000])
def test_a_message_has_the_length_and_the_height_that_were_drawn(dimension: int) -> None:
    made, update = mechanism(dimension), update_of(dimension, 0.6)
    updates = np.broadcast_to(update, (200, dimension))
    messages = made.randomise(updates, generators(200))
    r_hat, heights = replayed(made, updates)
    assert np.linalg.norm(messages, axis=1) == pytest.approx(np.abs(r_hat) / made.m, rel=1e-12)
    assert (messages @ update) / 0.6 * made.m / r_hat == pytest.approx(heights, abs=1e-13)
    assert messages.dtype == np.float64


@pytest.mark.parametrize("dimension", [3, 237, 1000])
def test_a_message_depends_on_nothing_but_its_client(dimension: int) -> None:
    """Bit for bit: row, company, memory layout."""
    made = mechanism(dimension)
    updates = generator(3, "privunit-test").standard_normal((33, dimension)) / math.sqrt(dimension)
    updates[5] = 0
    kept = updates.copy()
    whole = made.randomise(updates, generators(33))
    assert np.array_equal(updates, kept)
    alone = [made.randomise(updates[i : i + 1], [generators(33)[i]])[0] for i in range(33)]
    assert np.array_equal(whole, np.stack(alone))
    order = generator(4, "privunit-test").permutation(33)[:20]
    assert np.array_equal(whole[order], made.randomise(updates[order], [generators(33)[i] for i in order]))
    assert np.array_equal(whole, made.randomise(np.asfortranarray(updates), generators(33)))
    single = updates.astype(np.float32)
    assert np.array_equal(
        made.randomise(single, generators(33)), made.randomise(single.astype(np.float64), generators(33))
    )
    assert made.randomise(updates[:0], []).shape == (0, dimension)


def alike(first: np.ndarray, second: np.ndarray, update: np.ndarray) -> bool:
    """Do two messages for one update correlate, across it, by more than 5 standard errors?"""
    unit = update / np.linalg.norm(update)
    a, b = (row - (row @ unit) * unit for row in (first, second))
    return abs(float(a @ b)) / math.sqrt(float(a @ a) * float(b @ b)) > 5 / math.sqrt(len(update))


def test_two_clients_never_share_randomness() -> None:
    made, update = mechanism(1000), update_of(1000, 1.0)
    messages = made.randomise(np.broadcast_to(update, (40, 1000)), generators(40))
    assert not any(alike(messages[i], messages[j], update) for i in range(40) for j in range(i))
    same = made.randomise(np.stack([update, update]), [generators(1)[0], generators(1)[0]])
    assert alike(same[0], same[1], update)


def test_norms_at_the_edge_of_float64() -> None:
    made, unit = mechanism(5), update_of(5, 1.0)
    clamped = made.randomise(np.stack([unit, unit]), [generators(1)[0] for _ in range(2)])[0]
    for scale in (1 + 1e-12, 1e200, 1e308):
        (larger,) = made.randomise(scale * unit[None], generators(1))
        assert larger == pytest.approx(clamped, rel=1e-12)
    tiny = np.broadcast_to(1e-300 * unit, (500, 5))
    messages = made.randomise(tiny, generators(500))
    r_hat, heights = (
        made.scalar.randomise(np.zeros(500), np.stack([g.random(5) for g in generators(500)], 1)[:3]),
        replayed(made, tiny)[1],
    )
    assert messages @ unit * made.m / r_hat == pytest.approx(heights, abs=1e-12)
    assert np.isfinite(made.randomise(np.full((1, 5), 5e-324), generators(1))).all()


def test_what_is_not_finite_counts_as_zero() -> None:
    """A message like any other, by the very draws of an update of 0, without a warning: nobody sees
    that there was none.
    """
    made, unit = mechanism(5), update_of(5, 1.0)
    updates = np.stack([unit, np.full(5, np.nan), [np.inf, 0, 0, 0, 0], unit])
    with np.errstate(all="raise"):
        messages = made.randomise(updates, generators(4))
        squares = made.square_norms(messages)
    assert np.isfinite(squares).all()
    assert np.array_equal(
        messages, made.randomise(np.stack([unit, np.zeros(5), np.zeros(5), unit]), generators(4))
    )


# --- ScalarDP and the norms ---


def law(scalar: ScalarDP, norm: float, times: float = 1.0) -> np.ndarray:
    """P(J_hat = j), written out from Algorithm 4, for `times` the eps at the same k. (k + 1,)"""
    k, odds = scalar.k, math.exp(times * scalar.eps)
    exact = k * norm / scalar.clip
    low = min(math.floor(exact), k - 1)
    rounded = np.zeros(k + 1)
    rounded[low], rounded[low + 1] = low + 1 - exact, exact - low
    return rounded * odds / (odds + k) + (1 - rounded) / k * k / (odds + k)


SCALARS = [ScalarDP(eps, clip) for eps in (0.1, 1.0, 2.0, 3.5, 7.0, 12.0) for clip in (1.0, 0.3)]
PARTS = np.concatenate([np.linspace(0, 1, 41), [1 / 3, 0.999, 1e-6]])


@pytest.mark.parametrize("scalar", SCALARS, ids=str)
def test_scalar_is_unbiased_and_exactly_eps_private(scalar: ScalarDP) -> None:
    laws = np.stack([law(scalar, part * scalar.clip) for part in PARTS])
    assert laws.sum(1) == pytest.approx(np.ones(len(PARTS)), rel=1e-12)
    values = scalar.value(np.arange(scalar.k + 1))
    assert laws @ values == pytest.approx(PARTS * scalar.clip, abs=1e-12 * np.abs(values).max())
    assert np.log(laws.max(0) / laws.min(0)).max() == pytest.approx(scalar.eps, rel=1e-12)


@pytest.mark.parametrize("part", [0.0, 0.2, 0.5, 1 / 3, 0.9, 1.0])
@pytest.mark.parametrize("eps", [0.5, 2.0, 4.0])
def test_scalar_draws_from_its_law(eps: float, part: float) -> None:
    scalar, norm, count = ScalarDP(eps, 0.7), 0.7 * part, 200_000
    sent = scalar.randomise(np.full(count, norm), uniforms(3, count, run=1))
    hits = np.array([(sent == value).sum() for value in scalar.value(np.arange(scalar.k + 1))])
    assert hits.sum() == count

    def follows(expected: np.ndarray) -> bool:
        return all(near(hit, count, rate) for hit, rate in zip(hits, expected, strict=True))

    assert follows(law(scalar, norm))
    assert not follows(law(scalar, norm, times=1.1))
    assert not follows(law(scalar, abs(norm - 0.07)))


@pytest.mark.parametrize("scalar", SCALARS, ids=str)
def test_expected_square_is_at_most_the_square(scalar: ScalarDP) -> None:
    squares = scalar.square(scalar.value(np.arange(scalar.k + 1)))
    parts = np.concatenate([PARTS, (np.arange(scalar.k) + 0.5) / scalar.k])  # halfway the bound is met
    means = np.array([law(scalar, part * scalar.clip) @ squares for part in parts])
    size = np.abs(squares).max()
    assert np.all(means <= (parts * scalar.clip) ** 2 + 1e-12 * size)
    assert means[len(PARTS) :] == pytest.approx((parts[len(PARTS) :] * scalar.clip) ** 2, abs=1e-12 * size)
    shifted = means + 0.1 * scalar.variance_bound[2] / (1 + scalar.variance_bound[0])  # c3 10 % too small
    assert not np.all(shifted <= (parts * scalar.clip) ** 2 + 1e-12 * size)


@pytest.mark.parametrize("eps2", [0.05, 0.5, 1.0, 1.386, 2.0, 3.0, 4.0, 8.0, 16.0, 25.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_norms_and_signs_are_recovered_from_messages(eps2: float, dtype: type) -> None:
    made = PrivUnit(2.0, 2.0, eps2, 0.9, 50)
    clients = 600
    updates = np.outer(np.linspace(0, 0.9, clients), update_of(50, 1.0))
    updates[: clients // 3] = 0
    messages = made.randomise(updates, generators(clients)).astype(dtype)
    r_hat, _ = replayed(made, updates)
    assert (r_hat < 0).any()
    assert (r_hat > 0).any()
    sizes = made.m * np.linalg.norm(messages.astype(np.float64), axis=1)
    assert np.array_equal(made.scalar.recover(sizes), r_hat)
    assert np.array_equal(made.square_norms(messages), made.scalar.square(r_hat))


@pytest.mark.parametrize("eps2", [math.log(4), math.log(9), math.log(4) + 1e-6, 1e-6])
def test_a_sign_that_is_lost_is_refused(eps2: float) -> None:
    made = PrivUnit(2.0, 2.0, eps2, 1.0, 5)
    messages = made.randomise(np.zeros((3, 5)), generators(3))  # needs no norms
    for asks in (made.check_norms_recoverable, lambda: made.square_norms(messages)):
        with pytest.raises(
            ValueError,
            match=r"eps2=.*is whole, so the sign of a norm is lost: expected any other \(take privacy.eps2=",
        ):
            asks()
    PrivUnit(2.0, 2.0, 1.01 * max(eps2, 0.01), 1.0, 5).check_norms_recoverable()


def test_messages_of_another_mechanism_are_refused() -> None:
    made = mechanism(5)
    messages = made.randomise(np.zeros((3, 5)), generators(3))
    with pytest.raises(ValueError, match="a norm that this mechanism cannot have sent"):
        made.square_norms(messages / 2)


# --- A million coordinates ---


def test_a_million_coordinates() -> None:
    made, update = mechanism(MILLION), update_of(MILLION, 1.0)
    assert 1 / made.m == pytest.approx(55.71246603 * math.sqrt(MILLION / 5046), rel=1e-3)
    assert 0 < made.cap < 0.5
    messages = made.randomise(np.stack([update, update]), generators(2))
    r_hat, heights = replayed(made, np.stack([update, update]))
    assert np.linalg.norm(messages, axis=1) == pytest.approx(np.abs(r_hat) / made.m, rel=1e-12)
    assert (messages @ update) * made.m / r_hat == pytest.approx(heights, abs=1e-12)
    assert np.array_equal(made.square_norms(messages.astype(np.float32)), made.scalar.square(r_hat))


# --- Splitting a budget ---


@pytest.mark.parametrize("dimension", [3, 10, 500, MILLION])
def test_equal_split_meets_its_target_from_below(dimension: int) -> None:
    shares = []
    for target in (0.01, 1.0, 5.586, 6.0, 10.0, 50.0, 200.0):
        share = equal_split(target, dimension)
        assert mechanism(dimension, share).release_eps <= target
        assert mechanism(dimension, share * (1 + 1e-9)).release_eps > target
        assert share >= target / 3
        shares.append(share)
    assert shares == sorted(shares)
    assert equal_split(mechanism(dimension).release_eps, dimension) == pytest.approx(2.0, rel=1e-12)


def test_equal_split_where_the_rules_change() -> None:
    """gamma jumps as the second rule sets in: targets inside the jump get the share below it."""
    share = equal_split(8.4, 500)
    assert share == pytest.approx(3.1383, abs=1e-4)
    assert mechanism(500, share).release_eps == pytest.approx(8.22, abs=5e-3)
    assert mechanism(500, share + 1e-9).release_eps > 8.7


# --- Refusals ---


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PrivUnit(0.0, 2, 2, 1, 5), r"eps0=0.0: expected 0 < eps0 <= 100"),
        (lambda: PrivUnit(2, -1.0, 2, 1, 5), r"eps1=-1.0: expected 0 < eps1 <= 100"),
        (lambda: PrivUnit(2, 2, math.nan, 1, 5), r"eps2=nan: expected 0 < eps2 <= 100"),
        (lambda: PrivUnit(2, 2, math.inf, 1, 5), r"eps2=inf: .*use eps=inf for no privacy"),
        (lambda: PrivUnit(2, 2, 2, 0.0, 5), r"clip=0.0: expected a finite number > 0"),
        (lambda: PrivUnit(2, 2, 2, math.inf, 5), r"clip=inf: expected a finite number > 0"),
        (
            lambda: PrivUnit(2, 2, 2, 1, 2),
            r"dimension=2: expected at least 3 .*use privacy.mechanism=gaussian",
        ),
        (lambda: equal_split(0.0, 5), r"eps=0.0 a release: expected 0 < eps <= 200"),
        (lambda: equal_split(201.0, 5), r"eps=201.0 a release: expected 0 < eps <= 200"),
        (lambda: equal_split(6.0, 2), r"dimension=2: expected at least 3"),
        (
            lambda: mechanism(5).randomise(np.zeros((2, 4)), generators(2)),
            r"shape \(2, 4\): expected \(2, 5\)",
        ),
        (
            lambda: mechanism(5).randomise(np.zeros((2, 5)), generators(3)),
            r"shape \(2, 5\): expected \(3, 5\)",
        ),
    ],
)
def test_refusals(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()

"""Record level with clients that take part in some rounds: golden numbers, independent
implementations, limits, and what it must not be.
"""

import itertools
import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from dpfl_bench.privacy.accounting import best, epsilon
from dpfl_bench.privacy.calibration import calibrate, max_rounds
from dpfl_bench.privacy.divergences import participation as coins
from dpfl_bench.privacy.divergences import sampled as pld
from dpfl_bench.privacy.divergences.gaussian import delta_of_gaussian
from dpfl_bench.privacy.divergences.losses import eps_of_losses
from dpfl_bench.privacy.released.composition import Composition, Rounds
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import view

pytestmark = pytest.mark.one_in(3)


RATE = 0.2


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path))


def participation(
    mechanism: str, rounds: Rounds, share: float, rate: float = RATE, population: int = 4000
) -> Composition:
    times = sum(k * count for k, count in rounds)
    return Composition(
        mechanism, times, rate, population, round(rate * population), share=share, rounds=rounds
    )  # type: ignore[arg-type]


def records(k: int, rounds: int, share: float, worst: int | None = None) -> RecordReleases:
    """add/remove, Poisson lots; by default the drawn schedule is so unlucky that only the
    participation bounds.
    """
    return RecordReleases(
        ((k, rounds),),
        share,
        k * rounds if worst is None else worst,
        "poisson",
        0,
        0,
        RATE,
        "add_remove_one",
        5,
    )


# ---- golden numbers (docs/papers.md, dpscaffold; s = .2, l = .2 but in the last setting) ----

SETTINGS = [
    (60.0, 50, 400, 2.5e-6, 0.2, 4000),
    (30.0, 50, 100, 1 / 48000, 0.2, 800),
    (10.0, 10, 428, 2.5e-6, 0.05, 4000),
]


@pytest.mark.parametrize(("setting", "eps"), [*zip(SETTINGS, [0.8553, 0.7693, 1.3078], strict=True)])
def test_add_remove_with_poisson_lots(setting: tuple[float, int, int, float, float, int], eps: float) -> None:
    z, k, rounds, delta, share, population = setting
    found = epsilon(participation("poisson", ((k, rounds),), share, RATE, population), z, delta, "pld")
    assert eps * (1 - 1e-4) <= found <= eps * 1.005
    assert (
        epsilon(participation("poisson", ((k, rounds),), share, RATE, population), z, delta, "rdp") >= found
    )


@pytest.mark.parametrize(("setting", "eps"), [*zip(SETTINGS, [0.8599, 0.7773, 1.3404], strict=True)])
def test_replace_one_with_fixed_lots(setting: tuple[float, int, int, float, float, int], eps: float) -> None:
    z, k, rounds, delta, share, population = setting
    found = epsilon(participation("fixed", ((k, rounds),), share, RATE, population), z, delta, "pld")
    assert eps * (1 - 1e-4) <= found <= eps * 1.005


@pytest.mark.parametrize(
    ("setting", "low", "eps"), [*zip(SETTINGS, [2.0182, 1.783, 6.431], [2.0188, 1.7832, 6.4317], strict=True)]
)
def test_clients_in_every_round(
    setting: tuple[float, int, int, float, float, int], low: float, eps: float
) -> None:
    """`low`: known to be below the truth; `eps`: dp-accounting's."""
    z, k, rounds, delta, _, population = setting
    found = epsilon(participation("poisson", ((k, rounds),), 1.0, RATE, population), z, delta, "pld")
    plain = epsilon(Composition("poisson", k * rounds, RATE), z, delta, "pld")
    assert low <= found <= eps * 1.0001
    assert found == pytest.approx(plain, rel=5e-5)


@pytest.mark.parametrize(("k", "rounds"), [(1, 22311), (5, 4393), (10, 2155), (20, 1039), (40, 485)])
def test_most_rounds_for_eps_3(k: int, rounds: int) -> None:
    """sigma_g = 10, l = .05. The paper prints 542, 488, 428, 324, 72."""
    found = max_rounds(3.0, 2.5e-6, 10.0, lambda t: view(records(k, t, 0.05), "third_party")[:1], "pld")  # type: ignore[index]
    assert rounds * 0.997 <= found <= rounds


@pytest.mark.parametrize(("k", "rounds", "sigma"), [(5, 488, 3.69), (10, 428, 4.83), (20, 324, 6.00)])
def test_noise_for_eps_3(k: int, rounds: int, sigma: float) -> None:
    released = records(k, rounds, 0.05)
    found = calibrate(released, "third_party", 3.0, 2.5e-6)
    assert found == pytest.approx(sigma, abs=0.0051)
    seen = view(released, "third_party")
    assert seen is not None
    assert 0.999 * 3 < best(seen, found, 2.5e-6)[1] <= 3


# ---- independent implementations ----


@pytest.mark.parametrize(
    ("z", "share", "k", "rounds", "delta"),
    [(8.0, 0.3, 3, 40, 1e-6), (1.5, 0.05, 1, 12, 1e-3), (40.0, 0.7, 20, 200, 1e-9)],
)
def test_full_lots_against_a_sum_over_participations(
    z: float, share: float, k: int, rounds: int, delta: float
) -> None:
    """delta(eps) = E[delta of Binomial(T, l) k Gaussian releases], exactly."""
    found = epsilon(Composition("gaussian", k * rounds, share=share, rounds=((k, rounds),)), z, delta, "pld")
    taken = np.arange(rounds + 1)

    def exact(eps: float) -> float:
        return float(
            binom.pmf(taken, rounds, share) @ [delta_of_gaussian(math.sqrt(k * n) / z, eps) for n in taken]
        )

    assert exact(found) <= delta < exact(found * (1 - 2e-4))


@pytest.mark.parametrize("mechanism", ["poisson", "fixed", "gaussian"])
@pytest.mark.parametrize(
    ("z", "rate", "share", "rounds"),
    [(5.0, 0.1, 0.3, ((4, 20),)), (0.9, 0.02, 0.1, ((1, 7), (6, 3), (1, 5)))],
)
def test_against_the_library_s_own_mixture(
    mechanism: str, z: float, rate: float, share: float, rounds: Rounds
) -> None:
    """dp-accounting composes, mixes with the identity, and composes again: slower, on a coarser
    grid.
    """
    from dp_accounting.pld import privacy_loss_distribution

    rate, step = 1.0 if mechanism == "gaussian" else rate, 2.0**-13
    release, composed = pld._pld(mechanism, rate, z, step), privacy_loss_distribution.identity(step)
    for k, count in rounds:
        round_ = release.self_compose(k).compute_mixture(privacy_loss_distribution.identity(step), share)
        composed = composed.compose(round_.self_compose(count))
    found = epsilon(participation(mechanism, rounds, share, rate), z, 1e-6, "pld")
    assert found == pytest.approx(composed.get_epsilon_for_delta(1e-6), rel=2e-3)


def lower_bound(order: str, rate: float, z: float, share: float, k: int, rounds: int, delta: float) -> float:
    """Eps that Poisson lots spend at least: the losses of one release are rounded down; no code is
    shared with the accountant.
    """
    step, ends = 1e-4, np.linspace(-9 * z - 1, 9 * z + 2, 400_001)
    absent, present = (np.diff(ndtr((ends - mean) / z)) for mean in (0, 1))
    ratio = np.log1p(rate * np.expm1((2 * ends - 1) / (2 * z**2)))
    mass, loss = (rate * present + (1 - rate) * absent, ratio) if order == "present" else (absent, -ratio)
    cell = np.floor(np.minimum(loss[1:], loss[:-1]) / step).astype(int)
    pmf = np.bincount(cell - cell.min(), weights=mass)
    size = 1 << 19  # far more than the losses of a composition spread over
    round_ = 1 - share + share * np.fft.rfft(np.roll(np.pad(pmf, (0, size - pmf.size)), cell.min())) ** k
    composed = np.maximum(np.fft.fftshift(np.fft.irfft(round_**rounds, size)), 0)[::-1]
    losses = (np.arange(size) - size // 2)[::-1] * step
    kept = (losses > -20) & (composed > 1e-18)
    losses, composed = losses[kept], composed[kept]
    deltas = np.cumsum(composed) - np.exp(losses) * np.cumsum(composed * np.exp(-losses))
    return max(0.0, float(losses[np.argmax(deltas > delta)]))


@pytest.mark.parametrize(
    ("rate", "z", "share", "k", "rounds", "delta"),
    [(0.2, 3.0, 0.3, 4, 5, 1e-5), (0.05, 1.0, 0.5, 2, 6, 1e-4), (0.7, 5.0, 0.1, 8, 20, 1e-6)],
)
def test_never_below_what_neighbours_really_spend(
    rate: float, z: float, share: float, k: int, rounds: int, delta: float
) -> None:
    lower = max(lower_bound(order, rate, z, share, k, rounds, delta) for order in ("present", "absent"))
    made = participation("poisson", ((k, rounds),), share, rate)
    assert lower <= epsilon(made, z, delta, "pld") <= 1.02 * lower + 1e-3
    # the same check rejects twice the noise, and half as many participations
    assert epsilon(made, 2 * z, delta, "pld") < lower
    assert epsilon(participation("poisson", ((k, rounds),), share / 2, rate), z, delta, "pld") < lower


# ---- what it must not be: the coin as a secret ----


def test_five_clients_far_apart_show_the_coin() -> None:
    """One of five clients is drawn once and sends its record plus N(0, 1); the clients' records are
    far apart, one client's moves by 1.

    A secret coin would amplify: delta(1) = l delta_G(log(1 + (e - 1)/l)) = .0023. An integral over
    what is really seen gives .0254.
    """
    x = np.linspace(-12, 4 * 60 + 12, 1_000_001)

    def seen(first: float) -> np.ndarray:
        return (
            sum(np.exp(-((x - mean) ** 2) / 2) for mean in (first, 60, 120, 180, 240))
            / 5
            / math.sqrt(2 * math.pi)
        )

    exact = float(np.maximum(seen(1.0) - math.e * seen(0.0), 0).sum() * (x[1] - x[0]))
    claimed = 0.2 * delta_of_gaussian(1.0, math.log1p(math.expm1(1.0) / 0.2))
    assert exact == pytest.approx(0.0254, abs=5e-5)
    assert claimed == pytest.approx(0.0023, abs=5e-5)
    once = Composition("gaussian", 1, share=0.2, rounds=((1, 1),))
    assert epsilon(once, 1.0, exact, "pld") == pytest.approx(1.0, rel=1e-3)
    assert epsilon(once, 1.0, exact, "rdp") >= 1.0
    assert epsilon(once, 1.0, claimed, "pld") > 2


@cache
def with_a_secret_coin(z: float, k: int, rounds: int, share: float, delta: float) -> float:
    """Eps of the tempting pair ((1 - l) Q + l P, Q), P and Q being k releases with and without the
    record.
    """
    from dp_accounting.pld import pld_pmf

    step = 2.0**-15
    eps = np.arange(-(2**14), 2**14 + 1) * step
    steps = pld._pld("poisson", RATE, z, step).self_compose(k)
    inner = np.log1p(np.expm1(eps) / share, where=np.expm1(eps) > -share, out=np.full_like(eps, -30.0))
    deltas = np.where(inner > -30, share * steps._pmf_remove.get_delta_for_epsilon(inner), -np.expm1(eps))
    return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
        step, -(2**14), 2**14, np.clip(np.minimum.accumulate(deltas), 0, 1)
    ).self_compose(rounds).get_epsilon_for_delta(delta)  # fmt: skip


def test_the_tempting_pair_claims_less_than_half() -> None:
    z, k, rounds, delta, share, _ = SETTINGS[0]
    assert with_a_secret_coin(z, k, rounds, share, delta) == pytest.approx(0.353, abs=1e-3)
    assert epsilon(participation("poisson", ((k, rounds),), share), z, delta, "pld") > 2 * 0.353


# ---- limits, order, bounds ----


@pytest.mark.parametrize("mechanism", ["gaussian", "poisson", "fixed"])
def test_limits(mechanism: str) -> None:
    rate = 1.0 if mechanism == "gaussian" else RATE
    for k, rounds in ((1, 1), (3, 7)):
        plain = Composition(mechanism, k * rounds, rate, 100, round(100 * rate))  # type: ignore[arg-type]
        always = participation(mechanism, ((k, rounds),), 1.0, rate, 100)
        for name in ("pld", "rdp"):
            assert epsilon(always, 2.0, 1e-5, name) == pytest.approx(
                epsilon(plain, 2.0, 1e-5, name), rel=1e-2 if name == "rdp" else 1e-4
            )
    rare = [
        epsilon(participation(mechanism, ((3, 7),), share, rate), 2.0, 1e-5, "pld")
        for share in (0.1, 1e-3, 1e-5, 1e-6)
    ]
    assert rare == sorted(rare, reverse=True)
    assert rare[-1] == 0  # 7e-6 is the probability that anything is released at all
    assert epsilon(participation(mechanism, ((3, 7),), 0.1, rate), math.inf, 1e-5) == 0
    assert epsilon(participation(mechanism, ((3, 7),), 0.1, rate), 0.0, 1e-5) == math.inf


@pytest.mark.parametrize("mechanism", ["gaussian", "poisson", "fixed"])
@pytest.mark.parametrize("name", ["pld", "rdp"])
def test_monotone(mechanism: str, name: str) -> None:
    def eps(k: int = 4, rounds: int = 30, share: float = 0.2, z: float = 3.0, delta: float = 1e-5) -> float:
        return epsilon(
            participation(mechanism, ((k, rounds),), share, 1.0 if mechanism == "gaussian" else RATE, 100),
            z,
            delta,
            name,
        )

    for values in (
        [eps(k=k) for k in (1, 4, 9)],
        [eps(rounds=t) for t in (3, 30, 90)],
        [eps(share=p) for p in (0.05, 0.2, 0.6, 1.0)],
        [eps(z=z) for z in (9.0, 3.0, 0.8)],
        [eps(delta=d) for d in (1e-2, 1e-5, 1e-8)],
    ):
        assert all(0 < low < high for low, high in itertools.pairwise(values))


def test_rounds_of_many_lengths() -> None:
    """Order and grouping of the rounds do not matter; the mixture of 2 k's lies between those of
    either alone.
    """
    mixed = epsilon(participation("poisson", ((2, 10), (6, 10)), 0.3), 2.0, 1e-5, "pld")
    assert mixed == epsilon(participation("poisson", ((6, 4), (2, 3), (6, 6), (2, 7)), 0.3), 2.0, 1e-5, "pld")
    few, many = (epsilon(participation("poisson", ((k, 20),), 0.3), 2.0, 1e-5, "pld") for k in (2, 6))
    assert few < mixed < many
    for name in ("pld", "rdp"):  # the same releases in fewer rounds: luck is bunched, so it costs more
        bunched = [
            epsilon(participation("poisson", ((60 // t, t),), 0.3), 2.0, 1e-5, name) for t in (60, 12, 3)
        ]
        assert bunched == sorted(bunched)


def test_rdp_stands_where_pld_refuses() -> None:
    made = participation("poisson", ((5, 100),), 0.1)
    assert epsilon(made, 3.0, 1e-13, "pld") == math.inf
    assert best(made, 3.0, 1e-13) == ("rdp", epsilon(made, 3.0, 1e-13, "rdp"))
    for z in (0.03, 0.003, 1e-20):  # nothing overflows
        assert epsilon(made, z, 1e-5, "pld") == math.inf
        assert 100 < epsilon(made, z, 1e-5, "rdp") <= math.inf
    assert epsilon(participation("poisson", ((100, 10**6),), 0.5), 100.0, 1e-5, "pld") == math.inf


def test_eps_of_a_handful_of_losses() -> None:
    """Infinite losses count in full; delta(eps) = .01 + .3 (1 - e^(eps - 1)) + .1 (1 - e^(eps -
    2)), solved by hand.
    """
    losses, probabilities = np.array([-1.0, 1.0, 2.0]), np.array([0.59, 0.3, 0.1])
    assert eps_of_losses(losses, probabilities, 0.01, 0.009) == math.inf
    for delta, eps in (
        (0.05, 2 + math.log(0.6)),
        (0.2, math.log(0.21 / (0.3 / math.e + 0.1 / math.e**2))),
        (0.41, 0.0),
        (0.3, 0.0),
    ):
        assert eps_of_losses(losses, probabilities, 0.01, delta) == pytest.approx(eps)


def test_one_release_keeps_its_mass_and_what_is_lost() -> None:
    """Both distributions of the pair sum to 1, whichever comes first; what the grid cannot hold is
    an infinite loss.
    """
    for order in ("present", "absent", "either"):
        losses, probabilities, lost = coins._release(order, 0.3, 0.8, 2.0**-10)
        assert probabilities.sum() + lost == pytest.approx(1, abs=1e-14)
        assert probabilities @ np.exp(-losses) == pytest.approx(1, abs=1e-10)
        assert 0 <= lost < 1e-22


@pytest.mark.slow
def test_rdp_never_below_pld() -> None:
    draw = np.random.Generator(np.random.Philox(key=11))
    for _ in range(12):
        mechanism = str(draw.choice(["poisson", "fixed", "gaussian"]))
        sample, share, z = (
            int(draw.integers(1, 90)),
            float(draw.uniform(0.02, 1)),
            float(np.exp(draw.uniform(-0.3, 3))),
        )
        rounds = tuple((int(draw.integers(1, 20)), int(draw.integers(1, 60))) for _ in range(3))
        made = participation(mechanism, rounds, share, 1.0 if mechanism == "gaussian" else sample / 100, 100)
        assert epsilon(made, z, 1e-6, "rdp") >= epsilon(made, z, 1e-6, "pld")

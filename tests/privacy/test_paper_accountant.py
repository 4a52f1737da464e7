"""dpscaffold's own accountant: its tables come out, and it is labelled for what it is."""

import dataclasses
import math
from pathlib import Path

import pytest

from dpfl_bench.privacy.accounting import accountants_for, best, epsilon
from dpfl_bench.privacy.calibration import calibrate, max_rounds
from dpfl_bench.privacy.divergences import dpscaffold
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Composition, View
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import view


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path))


def records(k: int, rounds: int, clients: int, share: float, population: int = 4000) -> RecordReleases:
    """Lots of a fifth of a client's records, clients drawn in every round."""
    worst, sample, cohort = k * min(rounds, rounds // 4 + 5), population // 5, round(share * clients)
    return RecordReleases(
        ((k, rounds),), share, worst, "fixed", population, sample, 0.2, "replace_one", cohort
    )


def seen(*arguments: object) -> View:
    found = view(records(*arguments), "third_party")  # type: ignore[arg-type]
    assert found is not None
    return found


# largest T with eps <= 3: l = .05, s = .2, M = 100, R = 4000, delta = 1/(M R)
TABLE_1 = {
    10: (542, 488, 428, 324, 72),
    20: (545, 502, 451, 352, 83),
    40: (546, 505, 457, 360, 86),
    80: (546, 506, 458, 362, 87),
    160: (
        546,
        507,
        459,
        363,
        87,
    ),  # printed 546, 506, 458, 362, 87: the convention gives one more in three cells
}


@pytest.mark.parametrize(("sigma", "row"), TABLE_1.items())
def test_dpscaffold_table_1(sigma: int, row: tuple[int, ...]) -> None:
    found = [
        max_rounds(3.0, 2.5e-6, sigma, lambda t, k=k: seen(k, t, 100, 0.05), "paper")
        for k in (1, 5, 10, 20, 40)
    ]  # type: ignore[misc]
    assert found == list(row)


@pytest.mark.parametrize(
    ("k", "curve"),
    [
        (
            1,
            [
                3.203197004e-6,
                2.638391101e-4,
                1.04909529e-3,
                2.638775252e-3,
                5.324147538e-3,
                9.405875333e-3,
                1.519093862e-2,
            ],
        ),
        (
            40,
            [
                1.289233506e-4,
                8.781724425e-4,
                2.920402123e-3,
                7.583609931e-3,
                2.909119711e-2,
                1.278075727,
                7.863318947,
            ],
        ),
    ],
)
def test_curve_of_one_round(k: int, curve: list[float]) -> None:
    """docs/papers.md: K(alpha) at sigma_g = 10, five clients a round."""
    assert dpscaffold.round_curve(10 * math.sqrt(5), 0.2, 0.05, k)[:7] == pytest.approx(curve, rel=1e-8)


@pytest.mark.parametrize(
    ("clients", "population", "share", "sigma", "rounds", "delta", "eps"),
    [
        (100, 4000, 0.2, 60.0, 400, 2.5e-6, 12.9063),
        (40, 2000, 0.2, 30.0, 400, 1 / 80_000, 11.3609),
        (60, 800, 0.2, 30.0, 100, 1 / 48_000, 7.1494),
        (100, 4000, 0.05, 60.0, 400, 2.5e-6, 4.1545),
    ],
)
def test_eps_towards_a_third_party(
    clients: int, population: int, share: float, sigma: float, rounds: int, delta: float, eps: float
) -> None:
    """Printed 13, 11.4, 7.2 and 4.2 (K = 50)."""
    assert epsilon(seen(50, rounds, clients, share, population), sigma, delta, "paper") == pytest.approx(
        eps, abs=5e-5
    )


# clients, training records, share l, sigma, K = 10, delta, eps, the largest T
FIGURE_9 = [
    (100, 4000, 0.08, 60.0, 2.5e-6, 5.0, 556),
    (40, 2000, 0.08, 30.0, 1 / 80_000, 5.0, 736),
    (40, 2000, 0.10, 30.0, 1 / 80_000, 5.0, 377),
    (40, 2000, 0.12, 30.0, 1 / 80_000, 5.0, 218),
    (60, 800, 0.08, 30.0, 1 / 48_000, 3.0, 159),
    (60, 800, 0.12, 30.0, 1 / 48_000, 3.0, 46),
]


@pytest.mark.parametrize(("clients", "population", "share", "sigma", "delta", "eps", "longest"), FIGURE_9)
def test_a_share_that_is_no_whole_number_of_clients(
    clients: int, population: int, share: float, sigma: float, delta: float, eps: float, longest: int
) -> None:
    """Figure 9: of 40 clients l = .08 draws 3 and .12 draws 4, as .1 does."""
    drawn = math.floor(share * clients + 1e-9)

    def first(rounds: int) -> View:
        one = records(10, rounds, clients, drawn / clients, population)
        found = view(dataclasses.replace(one, cohort_size=drawn, client_share=share), "third_party")
        assert found is not None
        return found

    assert max_rounds(eps, delta, sigma, first, "paper") == longest


def test_valid_accountants_count_the_clients_that_are_drawn() -> None:
    said = dataclasses.replace(records(10, 100, 40, 0.1), client_share=0.001)
    seen_of_said = view(said, "third_party")
    assert seen_of_said is not None
    assert epsilon(seen_of_said, 30.0, 1e-5) == epsilon(seen(10, 100, 40, 0.1), 30.0, 1e-5)
    assert epsilon(seen_of_said, 30.0, 1e-5, "paper") < epsilon(seen(10, 100, 40, 0.1), 30.0, 1e-5, "paper")


def test_infinite_noise_prints_nearly_the_same() -> None:
    made = seen(50, 400, 100, 0.2)
    assert epsilon(made, math.inf, 2.5e-6, "paper") == pytest.approx(12.8992, abs=5e-5)
    assert epsilon(made, math.inf, 2.5e-6, "paper") == pytest.approx(math.log(1 / 2.5e-6))  # at alpha = 2
    assert epsilon(made, math.inf, 2.5e-6) == 0
    assert epsilon(made, 0.0, 2.5e-6, "paper") == math.inf
    assert epsilon(made, 1e-3, 2.5e-6, "paper") > 1e6
    assert epsilon(made, 1e-200, 2.5e-6, "paper") > 1e100  # nothing overflows
    with pytest.raises(PrivacyError, match="paper finds no noise that is enough"):
        calibrate(records(50, 400, 100, 0.2), "third_party", 12.0, 2.5e-6, "paper")


def test_rounds_of_several_lengths_add_up() -> None:
    several = RecordReleases(((1, 30), (40, 5)), 0.05, 60, "fixed", 4000, 800, 0.2, "replace_one", 5)
    found = view(several, "third_party")
    assert found is not None
    curves = [dpscaffold.round_curve(10 * math.sqrt(5), 0.2, 0.05, k) for k in (1, 40)]
    exact = min(
        (30 * a + 5 * b + math.log(1e5)) / (alpha - 1)
        for alpha, a, b in zip(range(2, 101), *curves, strict=True)
    )
    assert epsilon(found, 10.0, 1e-5, "paper") == pytest.approx(exact)


def test_it_claims_too_little() -> None:
    """docs/papers.md: K = 1, all records, sigma_g = 5, one client of a hundred, T = 1000: .90 by
    the printed rule where 3.02 is true.
    """
    rounds = ((1, 1000),)
    assert dpscaffold.epsilon(5.0, 1.0, 0.01, rounds, 1e-5) == pytest.approx(0.90, abs=5e-3)
    assert epsilon(
        Composition("gaussian", 1000, share=0.01, rounds=rounds), 5.0, 1e-5, "pld"
    ) == pytest.approx(3.02, abs=5e-3)


def test_never_taken_by_itself() -> None:
    made = seen(1, 100, 100, 0.05)
    assert all("paper" not in accountants_for(composition) for composition in made)
    assert best(made, 10.0, 1e-5)[0] == "pld"
    noise = calibrate(records(1, 600, 100, 0.05), "third_party", 3.5, 2.5e-6, "paper")
    assert 0.999 * 3.5 < epsilon(seen(1, 600, 100, 0.05), noise, 2.5e-6, "paper") <= 3.5


CLIENTS = Releases(10, 9, 3, "fixed", "secagg", "replace_one", 5, 3)
POISSON = RecordReleases(((2, 10),), 0.5, 14, "poisson", 0, 0, 0.2, "add_remove_one", 5)
EVERYBODY = RecordReleases(((2, 10),), 1.0, 20, "fixed", 100, 20, 0.2, "replace_one", 5)
OVERLAPPING = RecordReleases(((2, 10),), 0.5, 90, "fixed", 100, 20, 0.2, "replace_one", 5, holders=5)


@pytest.mark.parametrize(
    ("released", "observer"),
    [
        (records(1, 100, 100, 0.05), "server"),
        (POISSON, "third_party"),
        (EVERYBODY, "third_party"),
        (OVERLAPPING, "third_party"),
        (CLIENTS, "third_party"),
    ],
)
def test_refused_elsewhere(released: RecordReleases | Releases, observer: str) -> None:
    found = view(released, observer)  # type: ignore[arg-type]
    assert found is not None
    for ask in (
        lambda: epsilon(found, 1.0, 1e-5, "paper"),
        lambda: calibrate(released, observer, 1.0, 1e-5, "paper"),  # type: ignore[arg-type]
        lambda: max_rounds(1.0, 1e-5, 1.0, lambda _: found, "paper"),
    ):
        with pytest.raises(
            PrivacyError,
            match=r"accountant=paper: .*batch_size.*sampled clients and privacy.observer=third_party",
        ):
            ask()
    always = Composition("fixed", 20, 0.2, 100, 20, rounds=((2, 10),))
    for composition in (Composition("pure", 3), always):
        with pytest.raises(PrivacyError, match="accountant=paper"):
            epsilon(composition, 1.0, 1e-5, "paper")

"""What each observer sees: the table of rules, the refusals, and the attack behind the strictest of them."""

import math

import numpy as np
import pytest

from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.releases import Composition, PrivacyError, Releases, view


def releases(**changes: object) -> Releases:
    made: dict[str, object] = {"rounds": 100, "clients": 40, "cohort": 10, "sampling": "fixed", "trust": "secagg"}
    made |= {"neighbours": "replace_one", "worst": 35, "smallest_cohort": 10, **changes}
    if made["sampling"] == "full":
        made |= {"cohort": 40, "worst": 100, "smallest_cohort": 40}
    if made["sampling"] == "poisson":
        made |= {"smallest_cohort": 4}
    return Releases(**made)  # type: ignore[arg-type]


def seen(observer: str, **changes: object) -> list[tuple[str, int, float]] | None:
    found = view(releases(**changes), observer)  # type: ignore[arg-type]
    return None if found is None else [(c.mechanism, c.times, c.scale) for c in found]


REPLACE, ADD = {"neighbours": "replace_one"}, {"neighbours": "add_remove_one"}


@pytest.mark.parametrize("trust", ["local", "secagg"])
@pytest.mark.parametrize("neighbours", [REPLACE, ADD])
def test_the_server_knows_the_cohorts(trust: str, neighbours: dict[str, str]) -> None:
    for sampling, times in (("full", 100), ("fixed", 35), ("poisson", 35)):
        assert seen("server", trust=trust, sampling=sampling, **neighbours) == [("gaussian", times, 1.0)]


def test_a_trusted_server_is_not_bounded() -> None:
    assert seen("server", trust="central") is None


@pytest.mark.parametrize(
    ("trust", "sampling", "neighbours", "expected"),
    [
        ("central", "full", REPLACE, [("gaussian", 100, 1.0)]),
        ("central", "full", ADD, [("gaussian", 100, 1.0)]),
        ("central", "fixed", REPLACE, [("fixed", 100, 1.0), ("gaussian", 35, 1.0)]),
        ("central", "poisson", ADD, [("poisson", 100, 1.0), ("gaussian", 35, 1.0)]),
        ("secagg", "full", REPLACE, [("gaussian", 100, 1.0)]),
        ("secagg", "fixed", REPLACE, [("fixed", 100, 1.0), ("gaussian", 35, 1.0)]),
        ("secagg", "fixed", ADD, [("gaussian", 35, 1.0)]),
        ("secagg", "poisson", ADD, [("gaussian", 35, 1.0)]),
        ("local", "full", ADD, [("gaussian", 100, math.sqrt(40))]),
        ("local", "fixed", REPLACE, [("fixed", 100, math.sqrt(10)), ("gaussian", 35, math.sqrt(10))]),
        ("local", "fixed", ADD, [("gaussian", 35, math.sqrt(10))]),
        ("local", "poisson", REPLACE, [("gaussian", 35, 2.0)]),
    ],
)
def test_a_third_party_sees_sums(trust: str, sampling: str, neighbours: dict[str, str], expected: list[object]) -> None:
    assert seen("third_party", trust=trust, sampling=sampling, **neighbours) == expected


def test_rates_and_populations() -> None:
    found = view(releases(), "third_party")
    assert found is not None
    assert found[0] == Composition("fixed", 100, 0.25, 40, 10)
    everyone = releases(cohort=40, smallest_cohort=40, worst=100)
    assert view(everyone, "third_party") == view(everyone, "server")  # all 40 of 40: no coin to amplify with


@pytest.mark.parametrize(("sampling", "neighbours", "use"), [("fixed", ADD, "replace_one"), ("poisson", REPLACE, "add_remove_one")])
def test_refused_combinations_name_the_nearest(sampling: str, neighbours: dict[str, str], use: str) -> None:
    with pytest.raises(PrivacyError, match=f"sampling={sampling} neighbours=.*use neighbours={use}"):
        seen("third_party", trust="central", sampling=sampling, **neighbours)


@pytest.mark.parametrize(
    "changes",
    [
        {"cohort": 41},
        {"worst": 101},
        {"smallest_cohort": 3},
        {"sampling": "cyclic"},
        {"trust": "none"},
        {"neighbours": "swap"},
        {"sampling": "poisson", "cohort": 0},
    ],
)
def test_inconsistent_releases_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(PrivacyError, match="expected"):
        releases(**changes)


def test_memories_of_own_messages_leave_a_share_alone() -> None:
    for observer in ("server", "third_party"):
        assert seen(observer, sums_only=False) == [("gaussian", 35, pytest.approx(1 / math.sqrt(10)))]
        assert seen(observer, sums_only=False, sampling="poisson") == [("gaussian", 35, pytest.approx(1 / math.sqrt(40)))]
        assert seen(observer, sums_only=False, trust="local") == [("gaussian", 35, 1.0)]


def test_clients_that_remember_are_not_amplified() -> None:
    """Their memories tell in which rounds they took part, so the cohorts count as known."""
    for trust in ("secagg", "central"):
        assert seen("third_party", memoryless=False, trust=trust) == [("gaussian", 35, 1.0)]
    poisson = seen("third_party", memoryless=False, trust="central", sampling="poisson", neighbours="add_remove_one")
    assert poisson == [("gaussian", 35, 1.0)]


def shifts_reveal(clients: int, rounds: int, z: float) -> float:
    """mu towards the server of ScaffNew's shifts under secure aggregation, exactly, where everything is linear.

    Every client but the first has a flat loss: it offers its shift h (1/p local steps of length lr times h, p/lr times lr/p = 1) and then
    adds mean - own message to it. The first client's data decide whether it sends +C or -C in every round. Nothing is clipped while
    shares are small. The sums are then a linear map of all the shares, so the pair is one Gaussian with two means.
    """
    share = 2 * z / math.sqrt(clients)  # C = 1, replace_one
    size = rounds * clients + 1  # coefficients of every share, then of the first client's sign
    h, sums = np.zeros((clients, size)), []
    for t in range(rounds):
        message = h.copy()
        message[0] = 0
        message[0, -1] = 1
        message[np.arange(clients), t * clients + np.arange(clients)] += 1
        sums.append(message.sum(0))
        h += message.mean(0) - message
    noise, signal = np.array(sums)[:, :-1], 2 * np.array(sums)[:, -1]
    return float(math.sqrt(signal @ np.linalg.solve(noise @ noise.T, signal)) / share)


def test_zero_sum_shifts_break_the_bound_of_a_sum() -> None:
    """Why `sums_only=False` counts a client's share alone: what T sums would spend without memories is far too little."""
    clients, rounds, z = 200, 12, 5.0
    mu = shifts_reveal(clients, rounds, z)
    assert mu > 3 * math.sqrt(rounds) / z  # the claim of T independent sums, short by a factor of 3 in mu
    assert shifts_reveal(clients, 1, z) == pytest.approx(1 / z)  # one sum alone is fine
    shapes = {"rounds": rounds, "clients": clients, "cohort": clients, "sampling": "full", "trust": "secagg"}
    honest = Releases(**shapes, neighbours="replace_one", worst=rounds, smallest_cohort=clients, sums_only=False)  # type: ignore[arg-type]
    found = view(honest, "server")
    assert found is not None
    assert epsilon(found, z, 1e-5) >= epsilon(Composition("gaussian", 1), 1 / mu, 1e-5)

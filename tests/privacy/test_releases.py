"""What each observer sees: the table of rules, the refusals, and the attack behind the strictest of
them.
"""

import dataclasses
import math

import numpy as np
import pytest

from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Companion, Composition
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import fresh, view


def releases(**changes: object) -> Releases:
    made: dict[str, object] = {
        "rounds": 100,
        "clients": 40,
        "cohort_size": 10,
        "sampling": "fixed",
        "trust": "secagg",
    }
    made |= {"neighbours": "replace_one", "worst": 35, "smallest_cohort": 10, **changes}
    if made["sampling"] == "full":
        made |= {"cohort_size": 40, "worst": 100, "smallest_cohort": 40}
    if made["sampling"] == "poisson":
        made |= {"smallest_cohort": 4}
    return Releases(**made)  # type: ignore[arg-type]


def seen(observer: str, **changes: object) -> list[tuple[str, int, float]] | None:
    found = view(releases(**changes), observer)  # type: ignore[arg-type]
    return None if found is None else [(c.mechanism + "?" * bool(c.rounds), c.times, c.scale) for c in found]


def test_a_coin_that_shows_is_averaged() -> None:
    """ "gaussian?": in each of 100 rounds a client takes part with probability 1/4, and everybody
    sees whether it does.
    """
    (found,) = view(releases(neighbours="add_remove_one"), "third_party") or ()
    assert (found.share, found.rounds) == (0.25, ((1, 100),))


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
        ("central", "full", REPLACE, ("gaussian", 100, 1.0)),
        ("central", "full", ADD, ("gaussian", 100, 1.0)),
        ("central", "fixed", REPLACE, ("fixed", 100, 1.0)),
        ("central", "poisson", ADD, ("poisson", 100, 1.0)),
        ("secagg", "full", REPLACE, ("gaussian", 100, 1.0)),
        ("secagg", "fixed", REPLACE, ("fixed", 100, 1.0)),
        ("secagg", "fixed", ADD, ("gaussian?", 100, 1.0)),
        ("secagg", "poisson", ADD, ("gaussian?", 100, 1.0)),
        ("local", "full", ADD, ("gaussian", 100, math.sqrt(40))),
        ("local", "fixed", REPLACE, ("fixed", 100, math.sqrt(10))),
        ("local", "fixed", ADD, ("gaussian?", 100, math.sqrt(10))),
        ("local", "poisson", REPLACE, ("gaussian?", 100, 1.0)),
    ],
)
def test_a_third_party_sees_sums(
    trust: str, sampling: str, neighbours: dict[str, str], expected: tuple[str, int, float]
) -> None:
    assert seen("third_party", trust=trust, sampling=sampling, **neighbours) == [expected]
    times = 100 if sampling == "full" else 35
    scale = {"local": math.sqrt({"full": 40, "fixed": 10, "poisson": 4}[sampling])}.get(trust, 1.0)
    assert seen("third_party_given_cohorts", trust=trust, sampling=sampling, **neighbours) == [
        ("gaussian", times, scale)
    ]


def test_a_third_party_s_bound_never_looks_at_the_draw() -> None:
    """Whatever the drawn cohorts were like: it is secret, and a number that follows from it would
    tell.
    """
    for trust in ("local", "secagg", "central"):
        for sampling, neighbours in (
            ("fixed", REPLACE),
            ("poisson", ADD),
            ("fixed", ADD),
            ("poisson", REPLACE),
        ):
            if trust == "central" and (sampling, neighbours) in (("fixed", ADD), ("poisson", REPLACE)):
                continue
            for memory in ({}, {"sums_only": False}, {"memoryless": False}):
                shape = {"trust": trust, "sampling": sampling, **neighbours, **memory}
                lucky, unlucky = (dataclasses.replace(releases(**shape), worst=worst, smallest_cohort=size)
                                  for worst, size in ((20, 10), (90,
                                  3 if sampling == "poisson" else 10)))  # fmt: skip
                assert view(lucky, "third_party") == view(unlucky, "third_party")
                assert fresh(lucky, "server") == fresh(unlucky, "server")
                if trust != "central":
                    assert view(lucky, "server") != view(unlucky, "server")  # who knows the cohorts
    lucky, unlucky = (records(worst=worst) for worst in (60, 500))
    assert view(lucky, "third_party") == view(unlucky, "third_party") == fresh(lucky, "server")


def test_rates_and_populations() -> None:
    found = view(releases(), "third_party")
    assert found is not None
    assert found[0] == Composition("fixed", 100, 0.25, 40, 10)
    everyone = releases(cohort_size=40, smallest_cohort=40, worst=100)
    assert view(everyone, "third_party") == view(everyone, "server")  # all 40 of 40: no coin to amplify with


@pytest.mark.parametrize(
    ("sampling", "neighbours", "use"), [("fixed", ADD, "replace_one"), ("poisson", REPLACE, "add_remove_one")]
)
def test_refused_combinations_name_the_nearest(sampling: str, neighbours: dict[str, str], use: str) -> None:
    with pytest.raises(
        PrivacyError, match=f"sampling={sampling} privacy.neighbours=.*use privacy.neighbours={use}"
    ):
        seen("third_party", trust="central", sampling=sampling, **neighbours)


@pytest.mark.parametrize(
    "changes",
    [
        {"cohort_size": 41},
        {"worst": 101},
        {"smallest_cohort": 3},
        {"sampling": "cyclic"},
        {"trust": "none"},
        {"neighbours": "swap"},
        {"sampling": "poisson", "cohort_size": 0},
    ],
)
def test_inconsistent_releases_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(PrivacyError, match="expected"):
        releases(**changes)


def test_memories_of_own_messages_leave_a_share_alone() -> None:
    for observer, kind, times in (
        ("server", "gaussian", 35),
        ("third_party", "gaussian?", 100),
        ("third_party_given_cohorts", "gaussian", 35),
    ):
        assert seen(observer, sums_only=False) == [(kind, times, pytest.approx(1 / math.sqrt(10)))]
        assert seen(observer, sums_only=False, sampling="poisson") == [
            (kind, times, pytest.approx(1 / math.sqrt(40)))
        ]
        assert seen(observer, sums_only=False, trust="local") == [(kind, times, 1.0)]


def test_clients_that_remember_are_not_amplified() -> None:
    """Their memories tell in which rounds they took part, so the coins show."""
    for trust in ("secagg", "central"):
        assert seen("third_party", memoryless=False, trust=trust) == [("gaussian?", 100, 1.0)]
    poisson = seen(
        "third_party", memoryless=False, trust="central", sampling="poisson", neighbours="add_remove_one"
    )
    assert poisson == [("gaussian?", 100, 1.0)]


# ---- companions, colluding clients, pure releases ----

COMPANIONS = (Companion("norms", "squared", 0.5), Companion("bits", "times", 5.0))


def test_companions_go_with_every_view() -> None:
    for trust in ("local", "secagg", "central"):
        for sampling, neighbours in (("full", ADD), ("fixed", REPLACE), ("poisson", ADD)):
            for memory in ({}, {"sums_only": False}, {"memoryless": False}):
                for observer in ("server", "third_party"):
                    made = releases(
                        trust=trust, sampling=sampling, companions=COMPANIONS, **neighbours, **memory
                    )
                    assert all(c.companions == COMPANIONS for c in view(made, observer) or ())  # type: ignore[arg-type]


@pytest.mark.parametrize("companions", [(), COMPANIONS, COMPANIONS[:1], COMPANIONS[1:]])
@pytest.mark.parametrize("z", [1e-3, 0.4, 1.0, 30.0, 1e4])
def test_joint_noise_and_its_inverse(companions: tuple[Companion, ...], z: float) -> None:
    made = Composition("gaussian", 3, companions=companions)
    exact = (
        1 / z**2 + sum(1 / (c.value * (z if c.kind == "times" else z**2)) ** 2 for c in companions)
    ) ** -0.5
    assert made.joint(z) == pytest.approx(exact, rel=1e-12)
    assert z <= made.apart(made.joint(z)) * (1 + 1e-14) <= z * (1 + 1e-11)
    assert made.joint(made.apart(z)) >= z * (1 - 1e-15)
    assert (made.joint(0.0), made.joint(math.inf), made.apart(math.inf)) == (0.0, math.inf, math.inf)


@pytest.mark.parametrize(
    "changes", [{"kind": "cubed"}, {"value": 0.0}, {"value": -1.0}, {"value": math.inf}, {"value": math.nan}]
)
def test_companions_refused(changes: dict[str, object]) -> None:
    with pytest.raises(PrivacyError, match="expected"):
        Companion(**{"name": "norms", "kind": "times", "value": 1.0, **changes})  # type: ignore[arg-type]


def test_colluding_clients_take_their_shares_out() -> None:
    for sampling, neighbours, smallest, times in (
        ("full", ADD, 40, 100),
        ("fixed", REPLACE, 10, 35),
        ("poisson", ADD, 4, 35),
    ):
        scale = pytest.approx(math.sqrt(1 - 3 / smallest))
        assert seen("server", sampling=sampling, colluding=3, **neighbours) == [("gaussian", times, scale)]
        if sampling != "poisson":  # no amplification: they know whether they were drawn
            kind = "gaussian" if sampling == "full" else "gaussian?"
            assert seen("third_party", sampling=sampling, colluding=3, **neighbours) == [(kind, 100, scale)]
    with pytest.raises(
        PrivacyError, match=r"privacy.colluding=3: .*client_sampling=fixed"
    ):  # a cohort may be theirs alone
        seen("third_party", sampling="poisson", colluding=3, **ADD)
    for observer in ("server", "third_party"):  # a client's own share was never theirs
        assert seen(observer, sums_only=False, colluding=9) == seen(observer, sums_only=False)
    mostly = releases(colluding=9)
    found = view(mostly, "server")
    assert found is not None
    assert epsilon(found, 3.0, 1e-5) == pytest.approx(
        epsilon(Composition("gaussian", 35), 3.0 / math.sqrt(10), 1e-5)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trust": "local"}, "use privacy=secagg"),
        ({"trust": "central"}, "use privacy=secagg"),
        ({"colluding": 10}, "expected 0 to 9"),
        ({"colluding": -1}, "expected 0 to 9"),
        ({"sampling": "poisson", "colluding": 4}, "expected 0 to 3"),
    ],
)
def test_colluding_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PrivacyError, match=words):
        releases(**{"colluding": 2, **changes})


def test_pure_releases_are_known_one_by_one() -> None:
    for sampling, times in (("full", 100), ("fixed", 35), ("poisson", 35)):
        for neighbours in (REPLACE, ADD):
            for observer in ("server", "third_party"):
                for memory in ({}, {"sums_only": False}, {"memoryless": False}):
                    found = seen(
                        observer, mechanism="pure", trust="local", sampling=sampling, **neighbours, **memory
                    )
                    averaged = observer == "third_party" and sampling != "full"
                    assert found == [("pure?", 100, 1.0) if averaged else ("pure", times, 1.0)]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trust": "secagg"}, "expected privacy=local"),
        ({"trust": "central"}, "expected privacy=local"),
        ({"companions": COMPANIONS}, "norms, bits"),
    ],
)
def test_pure_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PrivacyError, match=words):
        releases(**{"mechanism": "pure", "trust": "local", **changes})


def test_after() -> None:
    assert releases().after(20, 9) == releases(rounds=20, worst=9)
    with pytest.raises(PrivacyError, match="worst=21"):
        releases().after(20, 21)


# ---- record level ----


def records(**changes: object) -> RecordReleases:
    made: dict[str, object] = {
        "rounds": ((5, 100), (2, 50)),
        "share": 0.25,
        "worst": 190,
        "lots": "fixed",
        "population": 80,
    }
    made |= {"sample": 16, "rate": 0.2, "neighbours": "replace_one", "cohort_size": 10, **changes}
    return RecordReleases(**made)  # type: ignore[arg-type]


FULL = {"lots": "full", "rate": 1.0, "sample": 0, "population": 0}
POISSON_LOTS = {"lots": "poisson", "neighbours": "add_remove_one", "sample": 0, "population": 0}


@pytest.mark.parametrize(
    ("lots", "mechanism"),
    [({}, "fixed"), (POISSON_LOTS, "poisson"), (FULL, "gaussian"), ({**FULL, **ADD}, "gaussian")],
)
def test_record_level_views(lots: dict[str, object], mechanism: str) -> None:
    made = records(**lots)
    known = Composition(mechanism, 190, made.rate, made.population, made.sample, cohort_size=10)  # type: ignore[arg-type]
    assert view(made, "server") == (known,)
    assert view(made, "third_party_given_cohorts") == (known,)
    (averaged,) = view(made, "third_party") or ()
    assert (averaged.mechanism, averaged.times, averaged.share, averaged.rounds) == (
        mechanism,
        600,
        0.25,
        ((5, 100), (2, 50)),
    )
    assert (averaged.rate, averaged.population, averaged.sample, averaged.cohort_size) == (
        made.rate,
        made.population,
        made.sample,
        10,
    )
    for changes in ({"share": 1.0}, {"rounds": (), "worst": 0}):
        (only,) = view(records(**lots, **changes), "third_party") or ()
        assert (only.mechanism, only.rounds, only.share) == (mechanism, (), 1.0)
    # the coins of a record's holders are not independent: as if all of them took part in every
    # round
    assert view(records(**lots, holders=3, worst=900), "third_party") == (
        Composition(mechanism, 1800, made.rate, made.population, made.sample, cohort_size=10),  # type: ignore[arg-type]
    )


def test_all_records_in_every_lot_is_no_sampling() -> None:
    for changes in ({"sample": 80, "rate": 1.0}, {**POISSON_LOTS, "rate": 1.0}):
        assert {c.mechanism for c in view(records(**changes), "third_party") or ()} == {"gaussian"}


def test_record_level_after() -> None:
    made = records()
    assert made.after(150, 190) == made
    assert made.after(120, 150) == records(rounds=((5, 100), (2, 20)), worst=150)
    assert made.after(100, 150).rounds == ((5, 100),)
    assert made.after(1, 5).rounds == ((5, 1),)
    nothing = made.after(0, 0)
    assert nothing.rounds == ()
    found = view(nothing, "third_party")
    assert found is not None
    assert epsilon(found, 0.0, 1e-5) == 0
    for rounds in (151, -1):
        with pytest.raises(PrivacyError, match=f"rounds_done={rounds}: expected 0 to 150"):
            made.after(rounds, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({**POISSON_LOTS, **REPLACE}, "use privacy.neighbours=add_remove_one or batch_size=N"),
        (ADD, "use privacy.neighbours=replace_one or sample_rate=R"),
        ({"lots": "shuffled"}, "lots=shuffled: expected one of full, fixed, poisson"),
        ({"neighbours": "swap"}, "neighbours=swap"),
        ({"share": 0.0}, "share=0.0"),
        ({"share": 1.1}, "share=1.1"),
        ({"rate": 0.3}, "rate=0.3: expected 0.2 under lots=fixed"),
        ({**FULL, "rate": 0.5}, "expected 1 under lots=full"),
        ({**POISSON_LOTS, "rate": 1.5}, "rate=1.5"),
        ({**POISSON_LOTS, "rate": 0.0}, "rate=0.0"),
        ({"sample": 81, "rate": 81 / 80}, "sample=81: expected 1 to population=80"),
        ({"sample": 0, "rate": 0.0}, "sample=0"),
        ({"worst": 601}, "worst=601"),
        ({"worst": -1}, "worst=-1"),
        ({"holders": 0, "worst": 0}, "holders=0"),
        ({"cohort_size": 0}, "cohort_size=0"),
        ({"rounds": ((0, 5),)}, "noised gradients >= 1"),
        ({"rounds": ((5, 0),)}, "number of rounds >= 1"),
    ],
)
def test_record_level_refusals(changes: dict[str, object], words: str) -> None:
    with pytest.raises(PrivacyError, match=words):
        records(**changes)


def test_participations_that_do_not_add_up() -> None:
    for changes in ({"times": 7}, {"times": 6, "share": 1.5}, {"times": 6, "share": 0.0}):
        with pytest.raises(PrivacyError, match=r"times=7|participation"):
            Composition(**{"mechanism": "gaussian", "rounds": ((3, 2),), **changes})  # type: ignore[arg-type]


def shifts_reveal(clients: int, rounds: int, z: float) -> float:
    """mu towards the server of ScaffNew's shifts under secure aggregation, exactly, where
    everything is linear.

    Every client but the first has a flat loss: it offers its shift h (1/p local steps of length lr
    times h, p/lr times lr/p = 1) and then adds mean - own message to it. The first client's data
    decide whether it sends +C or -C in every round. Nothing is clipped while shares are small. The
    sums are then a linear map of all the shares, so the pair is one Gaussian with two means.
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
    """Why `sums_only=False` counts a client's share alone: what T sums would spend without memories
    is far too little.
    """
    clients, rounds, z = 200, 12, 5.0
    mu = shifts_reveal(clients, rounds, z)
    assert mu > 3 * math.sqrt(rounds) / z  # the claim of T independent sums, short by a factor of 3 in mu
    assert shifts_reveal(clients, 1, z) == pytest.approx(1 / z)  # one sum alone is fine
    shapes = {
        "rounds": rounds,
        "clients": clients,
        "cohort_size": clients,
        "sampling": "full",
        "trust": "secagg",
    }
    honest = Releases(
        **shapes, neighbours="replace_one", worst=rounds, smallest_cohort=clients, sums_only=False
    )  # type: ignore[arg-type]
    found = view(honest, "server")
    assert found is not None
    assert epsilon(found, z, 1e-5) >= epsilon(Composition("gaussian", 1), 1 / mu, 1e-5)

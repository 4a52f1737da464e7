"""The noise for a budget: published values, the private side, the disk cache, refusals, and the
most rounds.
"""

import dataclasses
import json
import math
from pathlib import Path

import pytest

from dpfl_bench.privacy import answers_on_disk, calibration
from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.calibration import calibrate, formula_noise, implied, max_rounds
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Companion, Composition, View
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import view

pytestmark = pytest.mark.one_in(10)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path))
    return tmp_path / "calibration"


def full(rounds: int = 100, clients: int = 20, **changes: object) -> Releases:
    made = {"trust": "local", "neighbours": "replace_one", **changes}
    return Releases(rounds, clients, clients, "full", worst=rounds, smallest_cohort=clients, **made)  # type: ignore[arg-type]


def poisson(rounds: int, clients: int, cohort: int) -> Releases:
    return Releases(rounds, clients, cohort, "poisson", "central", "add_remove_one", rounds, 1)


def fixed(rounds: int, clients: int, cohort: int, trust: str = "secagg") -> Releases:
    return Releases(
        rounds, clients, cohort, "fixed", trust, "replace_one", min(rounds, rounds // 5 + 9), cohort
    )  # type: ignore[arg-type]


def pure(rounds: int, clients: int = 20) -> Releases:
    return full(rounds, clients, mechanism="pure")


def records(lots: str = "fixed", share: float = 0.2, **changes: object) -> RecordReleases:
    """Eight or nine noised gradients a round in twenty rounds, lots of a tenth of at least 50
    records.
    """
    neighbours = "add_remove_one" if lots == "poisson" else "replace_one"
    made = {
        "rounds": ((8, 15), (9, 5)),
        "share": share,
        "worst": 120,
        "lots": lots,
        "population": 50,
        "sample": 5,
    }
    made |= {"rate": 1.0 if lots == "full" else 0.1, "neighbours": neighbours, "cohort_size": 4, **changes}
    return RecordReleases(**made)  # type: ignore[arg-type]


COMPANIONS = (Companion("norms", "squared", 0.4), Companion("bits", "times", 5.0))


@pytest.mark.parametrize(("eps", "v"), [(3.3, 1.5469), (2, 1.3812), (1, 1.2089), (0.5, 1.0737)])
@pytest.mark.parametrize("rounds", [1, 50, 4000])
def test_balancing_v(eps: float, v: float, rounds: int) -> None:
    """docs/papers.md: v is the same for any number of releases; local trust and replace_one
    (sensitivity 2C) quadruple it.
    """
    for neighbours, ratio in (("add_remove_one", 1), ("replace_one", 2)):
        noise = calibrate(full(rounds, neighbours=neighbours), "server", eps, 1e-5)
        assert implied(noise, ratio, rounds, 1.0, eps, 1e-5)["v"] == pytest.approx(
            v * ratio**2, abs=6e-5 * ratio**2
        )
        std = formula_noise(v * ratio**2, 0.7, rounds, eps, 1e-5)
        assert std == pytest.approx(noise * ratio * 0.7, rel=5e-5)


@pytest.mark.parametrize(("eps", "delta", "q"), [(5, 1e-6, 1.7381), (5, 1e-5, 1.7273), (2, 1e-5, 1.3812)])
def test_normalized_q(eps: float, delta: float, q: float) -> None:
    noise = calibrate(full(500, neighbours="add_remove_one"), "server", eps, delta)
    assert implied(noise, 1, 500, 1.0, eps, delta)["q"] == pytest.approx(q, abs=6e-5)
    assert implied(noise, 2, 500, 0.25, eps, delta)["q"] == pytest.approx(4 * 16 * q, rel=5e-5)
    assert formula_noise(q, 3.0, 500, eps, delta, rate=0.25) == pytest.approx(noise * 3.0 * 0.25, rel=5e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rounds", "batches", "eps", "sigma"),
    [
        (1880, 94, 2.93, 0.9573),
        (1880, 94, 1.2, 1.6499),
        (1880, 94, 2.7, 0.9963),
        (1580, 79, 7.53, 0.6849),
        (1580, 79, 3.0, 0.9952),
    ],
)
def test_pfl_noise_exactly(rounds: int, batches: int, eps: float, sigma: float) -> None:
    """docs/papers.md, pfl: Poisson sampling, add/remove, delta 1e-5, PLD. Its records are our
    clients here; the arithmetic is the same.
    """
    noise = calibrate(poisson(rounds, batches, 1), "third_party", eps, 1e-5)
    assert sigma - 5e-5 <= noise <= sigma * 1.001


CASES = [
    *((full(rounds, trust=trust), "server") for rounds in (1, 300) for trust in ("local", "secagg")),
    (full(40, trust="secagg", sums_only=False), "server"),
    (poisson(30, 50, 5), "third_party"),
    (fixed(30, 50, 5), "third_party"),
    (fixed(30, 50, 45, trust="central"), "third_party"),
    (fixed(100, 100, 10, trust="local"), "third_party"),
    (full(40, trust="secagg", companions=COMPANIONS), "server"),
    (full(40, trust="secagg", companions=COMPANIONS, sums_only=False), "third_party"),
    (dataclasses.replace(fixed(30, 50, 5), companions=COMPANIONS), "third_party"),
    (full(40, trust="secagg", colluding=19), "server"),
    *((pure(rounds), "server") for rounds in (1, 7, 400)),
    *(
        (records(lots), observer)
        for lots in ("full", "fixed", "poisson")
        for observer in ("server", "third_party")
    ),
    (records("poisson", share=0.02, rounds=((30, 5), (100, 2)), worst=130), "third_party"),
    (records(holders=3, worst=400), "third_party"),
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("released", "observer"), CASES, ids=str)
@pytest.mark.parametrize(("eps", "delta"), [(0.1, 1e-5), (1.0, 1e-9), (8.0, 1e-5)])
def test_meets_the_target_from_below(released: Releases, observer: str, eps: float, delta: float) -> None:
    found = view(released, observer)  # type: ignore[arg-type]
    assert found is not None
    noise = calibrate(released, observer, eps, delta)  # type: ignore[arg-type]
    assert epsilon(found, noise, delta) <= eps
    # by the law over cohorts alone: noise that follows from how the cohorts fell would tell of that
    assert 0.999 * eps < epsilon(found[:1], noise, delta) <= eps
    assert epsilon(found[:1], noise * 0.99, delta) > eps


@pytest.mark.parametrize(("lots", "neighbours"), [("poisson", "add_remove_one"), ("fixed", "replace_one")])
def test_noise_does_not_tell_how_the_cohorts_fell(lots: str, neighbours: str) -> None:
    def noise(worst: int) -> float:
        released = RecordReleases(((5, 40),), 0.1, worst, lots, 100, 10, 0.1, neighbours, cohort_size=3)  # type: ignore[arg-type]
        return calibrate(released, "third_party", 1.0, 1e-5)

    assert noise(5) == noise(60) == noise(200)


@pytest.mark.slow
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_named_accountants(accountant: str) -> None:
    for released, observer in (
        (full(20), "server"),
        (poisson(30, 50, 5), "third_party"),
        (fixed(30, 50, 5), "third_party"),
    ):
        noise = calibrate(released, observer, 2.0, 1e-5, accountant)  # type: ignore[arg-type]
        found = view(released, observer)  # type: ignore[arg-type]
        assert found is not None
        assert 0.999 * 2 < epsilon(found, noise, 1e-5, accountant) <= 2
        assert noise >= calibrate(released, observer, 2.0, 1e-5) * 0.9999  # type: ignore[arg-type]


@pytest.mark.slow
def test_companions_cost_noise_and_are_undone() -> None:
    """The noise that meets eps with companions is that whose joint noise meets it without."""
    for released, observer in ((full(40, trust="secagg"), "server"), (fixed(30, 50, 5), "third_party")):
        dressed = dataclasses.replace(released, companions=COMPANIONS)
        alone, noise = (calibrate(r, observer, 1.0, 1e-5) for r in (released, dressed))  # type: ignore[arg-type]
        assert noise > alone
        assert Composition("gaussian", 1, companions=COMPANIONS).joint(noise) == pytest.approx(
            alone, rel=1e-9
        )


@pytest.mark.parametrize("rounds", [1, 50, 5000])
def test_pure_budgets(rounds: int) -> None:
    """At least the budget split evenly, nearly the Gaussian's where many small releases share
    it.
    """
    each = 1 / calibrate(pure(rounds), "server", 2.0, 1e-5)
    assert each >= 2.0 / rounds * (1 - 1e-9)
    assert 0.999 * 2 < epsilon(Composition("pure", rounds), 1 / each, 1e-5) <= 2
    if rounds == 5000:
        assert 1 / each == pytest.approx(calibrate(full(rounds), "server", 2.0, 1e-5), rel=0.02)
    basic = 1 / calibrate(pure(rounds), "server", 2.0, 1e-5, "basic")
    assert 0.999 * 2 / rounds < basic <= 2 / rounds


def test_no_privacy_and_nothing_released() -> None:
    assert calibrate(full(), "server", math.inf, 1e-5) == 0
    assert calibrate(full(0), "server", 1.0, 1e-5) == 0
    assert calibrate(records(), "third_party", math.inf, 1e-5) == 0
    assert calibrate(records(rounds=(), worst=0), "third_party", 1.0, 1e-5) == 0
    assert calibrate(pure(0), "server", 1.0, 1e-5) == 0


def test_refusals() -> None:
    for arguments, words in (
        (
            (poisson(10, 9, 3), "server", 1.0, 1e-5),
            "privacy.observer=server: trusted under privacy.trust=central",
        ),
        ((full(), "server", 0.0, 1e-5), "eps=0.0"),
        ((full(), "server", math.nan, 1e-5), "eps=nan"),
        ((full(), "server", 1.0, 1.0), "delta=1.0"),
        ((full(), "auditor", 1.0, 1e-5), "observer=auditor"),
        ((poisson(10, 9, 3), "third_party", 1.0, 1e-5, "paper"), "accountant=paper"),
        ((fixed(10, 9, 3, trust="central"), "third_party", 1.0, 1e-5, "gdp"), "accountant=gdp"),
    ):
        with pytest.raises(PrivacyError, match=words):
            calibrate(*arguments)  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="expected v, clip, eps > 0"):
        formula_noise(1.0, 0.0, 3, 1.0, 1e-5)


@pytest.mark.slow
def test_disagreeing_accountants_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half the eps, as from a slip in the sensitivity, is caught by the second accountant."""
    for wrong, released, observer in (
        ("exact", full(), "server"),
        ("pld", poisson(30, 50, 5), "third_party"),
        ("pld", records("poisson", worst=160), "third_party"),
        ("exact", pure(3), "server"),
    ):
        honest = calibration.at_most

        def mistaken(
            c: Composition, z: float, delta: float, name: str, wrong: str = wrong, honest: object = honest
        ) -> float:
            return honest(c, z / 2 if name == wrong else z, delta, name)  # type: ignore[operator, no-any-return]

        with monkeypatch.context() as patch:
            patch.setattr(calibration, "at_most", mistaken)
            with pytest.raises(PrivacyError, match="accountants disagree"):
                calibrate(released, observer, 1.0, 1e-5)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_question_holds_everything(folder: Path) -> None:
    """Whatever changes in what is released is another question: another entry on disk."""
    asked = records("poisson", share=0.5, worst=160)
    changes = (
        {"share": 0.4},
        {"rounds": ((8, 15), (9, 6))},
        {"worst": 159},
        {"rate": 0.11},
        {"holders": 2},
        {"cohort_size": 5},
    )
    clients = fixed(10, 20, 5)
    others = (
        {"companions": COMPANIONS},
        {"companions": COMPANIONS[:1]},
        {"memoryless": False, "colluding": 1},
        {"worst": 9},
    )
    made = [
        asked,
        *(dataclasses.replace(asked, **c) for c in changes),
        clients,
        *(dataclasses.replace(clients, **c) for c in others),
    ]
    for released in made:
        calibrate(released, "third_party", 1.0, 1e-5, "rdp")
    assert len(list(folder.iterdir())) == len(made)


def test_asked_again_the_disk_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = (poisson(30, 50, 5), "third_party", 1.5, 1e-5)
    noise = calibrate(*asked)  # type: ignore[arg-type]
    (entry,) = folder.iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(calibration, "_solve", lambda *_: pytest.fail("solved again"))
        assert calibrate(*asked) == noise  # type: ignore[arg-type]
        for other in ((*asked[:2], 1.6, 1e-5), (poisson(31, 50, 5), *asked[1:]), (*asked, "rdp")):
            with pytest.raises(pytest.fail.Exception):
                calibrate(*other)  # type: ignore[arg-type]
    for broken in (
        "",
        "{",
        "[]",
        '{"answer": 0.1}',
        json.dumps({"question": {}, "answer": 0.1}),
        entry.read_text().replace(": 0", ": -0"),
    ):
        entry.write_text(broken)
        assert calibrate(*asked) == noise  # type: ignore[arg-type]
    assert json.loads(entry.read_text())["answer"] == noise
    assert list(folder.iterdir()) == [entry]
    monkeypatch.setattr(answers_on_disk, "CACHE_VERSION", -1)
    assert calibrate(*asked) == noise  # type: ignore[arg-type]
    assert len(list(folder.iterdir())) == 2


def test_no_cache_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DPFL_CACHE_DIR", str(tmp_path / "file"))
    assert calibrate(poisson(10, 50, 5), "third_party", 1.0, 1e-5) > 0


@pytest.mark.parametrize("noise", [0.3, 3.0, 20.0, 19.9381])
@pytest.mark.parametrize("limit", [7, 10**7])
def test_max_rounds_exactly(noise: float, limit: int) -> None:
    last = max_rounds(2.0, 1e-5, noise, lambda t: (Composition("gaussian", t),), limit=limit)
    assert last == limit or epsilon(Composition("gaussian", last + 1), noise, 1e-5) > 2
    assert last == 0 or epsilon(Composition("gaussian", last), noise, 1e-5) <= 2


def test_max_rounds_inverts_calibrate() -> None:
    for rounds in (1, 2, 30, 777):
        noise = calibrate(full(rounds), "server", 2.0, 1e-5)
        assert max_rounds(2.0, 1e-5, noise, lambda t: (Composition("gaussian", t),)) == rounds
    noise = calibrate(poisson(100, 50, 5), "third_party", 2.0, 1e-5)
    assert max_rounds(2.0, 1e-5, noise, lambda t: (Composition("poisson", t, 0.1, 50, 5),)) == 100
    worst_of = max_rounds(
        2.0, 1e-5, 5.0, lambda t: (Composition("gaussian", (t + 3) // 4),)
    )  # in every fourth round
    assert worst_of == 4 * max_rounds(2.0, 1e-5, 5.0, lambda t: (Composition("gaussian", t),))
    assert max_rounds(2.0, 1e-5, 0.0, lambda t: (Composition("gaussian", t),)) == 0
    assert max_rounds(math.inf, 1e-5, 1.0, lambda t: (Composition("gaussian", t),), limit=50) == 50
    assert max_rounds(1.0, 1e-5, math.inf, lambda t: (Composition("gaussian", t),), limit=50) == 50


def test_max_rounds_of_the_new_kinds() -> None:
    for rounds in (1, 3, 40, 700):
        noise = calibrate(pure(rounds), "server", 2.0, 1e-5)
        assert max_rounds(2.0, 1e-5, noise, lambda t: (Composition("pure", t),)) == rounds
    assert max_rounds(10.0, 1e-5, 0.5, lambda t: (Composition("pure", t),), "basic") == 5
    noise = calibrate(full(77, companions=COMPANIONS), "server", 2.0, 1e-5)
    assert max_rounds(2.0, 1e-5, noise, lambda t: (Composition("gaussian", t, companions=COMPANIONS),)) == 77
    for worst in (1.0, 0.3):  # the coins' average is the tighter, or the schedule that was drawn

        def seen(rounds: int, worst: float = worst) -> View:
            cut = records("poisson", rounds=((8, rounds),), worst=math.ceil(8 * rounds * worst))
            return view(cut, "third_party") or ()

        last = max_rounds(1.5, 1e-5, 3.0, seen)
        assert epsilon(seen(last), 3.0, 1e-5) <= 1.5 < epsilon(seen(last + 1), 3.0, 1e-5)


def test_max_rounds_asks_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    honest = calibration.at_most
    monkeypatch.setattr(calibration, "at_most", lambda *question: asked.append(question) or honest(*question))
    noisy = records("poisson", share=0.05, rounds=((1, 1),), worst=1, rate=0.2)
    seen = lambda t: view(dataclasses.replace(noisy, rounds=((1, t),), worst=t), "third_party")[:1]  # type: ignore[index] # noqa: E731
    assert max_rounds(3.0, 2.5e-6, 10.0, seen, "pld") == 22311
    assert len(asked) <= 10

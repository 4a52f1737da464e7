"""The table of accountants: what a new one needs, what `auto` takes, what an unknown name gets."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest
from helpers import zcdp
from helpers.command import call

from dpfl_bench.privacy import accounting
from dpfl_bench.privacy.accountants import basic, dpscaffold, exact, pld, prv, rdp, table
from dpfl_bench.privacy.accounting import accountants_for, best, candidates, epsilon
from dpfl_bench.privacy.calibration import calibrate, max_rounds
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Composition

GAUSSIAN = Composition("gaussian", 10)
POISSON = Composition("poisson", 10, 0.5)
FIXED = Composition("fixed", 10, 0.2, 10, 2)
PURE = Composition("pure", 10)
COINS = Composition("gaussian", 30, share=0.5, rounds=((3, 10),))
LOTS_AND_COINS = Composition("fixed", 30, 0.2, 10, 2, share=0.5, rounds=((3, 10),))


@pytest.fixture
def with_zcdp(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new file's line in the table, behind those that are tighter."""
    rows = table.TABLE
    monkeypatch.setattr(table, "TABLE", [*rows[:3], zcdp.ACCOUNTANT, *rows[3:]])


@pytest.mark.parametrize(
    ("composition", "valid", "under_auto"),
    [
        (GAUSSIAN, ("exact", "pld", "rdp"), ["exact"]),
        (PURE, ("exact", "basic"), ["exact"]),
        (POISSON, ("pld", "rdp"), ["pld", "rdp"]),
        (FIXED, ("pld", "rdp"), ["pld", "rdp"]),
        (COINS, ("pld", "rdp"), ["pld", "rdp"]),
        (LOTS_AND_COINS, ("pld", "rdp"), ["pld", "rdp"]),
    ],
)
def test_who_is_valid_and_who_auto_asks(
    composition: Composition, valid: tuple[str, ...], under_auto: list[str]
) -> None:
    assert accountants_for(composition) == valid
    assert [name for _, name in candidates(composition, "auto")] == under_auto
    for accountant in table.TABLE:
        if accountant.refusal(composition) is not None:
            with pytest.raises(PrivacyError, match=f"accountant={accountant.name}: not valid for"):
                candidates(composition, accountant.name)


def test_the_table_has_every_file_once() -> None:
    files = (exact, pld, rdp, basic, prv, dpscaffold)
    assert [file.ACCOUNTANT for file in files] == table.TABLE
    assert table.names() == ("auto", "exact", "pld", "rdp", "basic", "prv", "paper")


@pytest.mark.usefixtures("with_zcdp")
def test_a_new_accountant_is_asked_by_its_name() -> None:
    rho = 10 / (2 * 2.0**2)
    assert epsilon(POISSON, 2.0, 1e-5, "zcdp") == zcdp.epsilon(POISSON, 2.0, 1e-5) > rho
    assert epsilon(POISSON, 2.0, 1e-5, "zcdp") > epsilon(POISSON, 2.0, 1e-5, "rdp")  # loose, and valid
    with pytest.raises(PrivacyError, match="accountant=zcdp: not valid for pure: it is for Gaussian noise"):
        epsilon(PURE, 2.0, 1e-5, "zcdp")


@pytest.mark.usefixtures("with_zcdp")
def test_a_new_accountant_calibrates_and_counts_rounds() -> None:
    released = Releases(10, 9, 9, "full", "secagg", "replace_one", 10, 9)
    noise = calibrate(released, "server", 1.0, 1e-5, "zcdp")
    assert 0.999 < epsilon(GAUSSIAN, noise, 1e-5, "zcdp") <= 1.0
    assert noise > calibrate(released, "server", 1.0, 1e-5, "exact")
    assert max_rounds(1.0, 1e-5, noise, lambda t: (Composition("gaussian", t),), "zcdp") == 10


@pytest.mark.usefixtures("with_zcdp")
def test_auto_takes_the_smallest() -> None:
    """At delta = 1e-13 PLDs end and RDP's orders leave a floor, which zCDP is below."""
    assert accountants_for(POISSON) == ("pld", "rdp", "zcdp")
    assert best(POISSON, 2.0, 1e-5)[0] == "pld"
    assert best(POISSON, 1e4, 1e-13) == ("zcdp", zcdp.epsilon(POISSON, 1e4, 1e-13))
    assert best(GAUSSIAN, 1e4, 1e-13)[0] == "exact"  # nothing else is asked where it is valid


def test_auto_asks_nobody_else_where_an_accountant_is_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = dataclasses.replace(zcdp.ACCOUNTANT, auto="alone")
    monkeypatch.setattr(table, "TABLE", [alone, *table.TABLE])
    assert best(POISSON, 2.0, 1e-5)[0] == "zcdp"
    assert best(GAUSSIAN, 2.0, 1e-5)[0] == "zcdp"  # the first of the two that are alone
    assert best(PURE, 2.0, 1e-5)[0] == "exact"


def test_auto_never_asks_who_wants_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    named = dataclasses.replace(zcdp.ACCOUNTANT, auto="never")
    monkeypatch.setattr(table, "TABLE", [named, *table.TABLE])
    assert best(POISSON, 1e4, 1e-13)[0] == "rdp"
    assert epsilon(POISSON, 1e4, 1e-13, "zcdp") < best(POISSON, 1e4, 1e-13)[1]


def test_a_bound_below_the_tightest_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calibration holds the last accountant of a composition against the first."""
    low = dataclasses.replace(zcdp.ACCOUNTANT, epsilon=lambda c, noise, delta: 0.5 / noise)
    monkeypatch.setattr(table, "TABLE", [*table.TABLE, low])
    released = Releases(10, 9, 9, "full", "secagg", "replace_one", 10, 9)
    with pytest.raises(PrivacyError, match="accountants disagree"):
        calibrate(released, "server", 1.0, 1e-5, "zcdp")


@pytest.mark.usefixtures("with_zcdp")
def test_plan_shows_a_new_accountant() -> None:
    given = ("algo=dp_fedavg", "rounds=5", "local_steps=2", "eps=2", "privacy=local")
    shown = call("plan", "--views", *given).err + call("plan", "--views", *given).out
    header = next(line for line in shown.splitlines() if line.split()[:1] == ["observer"])
    assert header.split()[1:5] == ["exact", "pld", "rdp", "zcdp"]
    planned = call("plan", "--json", *given, "privacy.accountant=zcdp").json
    assert planned["accountant"] == "zcdp"
    assert 1.998 < planned["eps"] <= 2


def test_an_unknown_name_is_refused_in_one_line() -> None:
    """It was once answered by RDP."""
    known = "auto, exact, pld, rdp, basic, prv, paper"
    for ask in (epsilon, accounting.one):
        with pytest.raises(PrivacyError) as refused:
            ask(POISSON, 2.0, 1e-5, "gdp")
        assert str(refused.value) == f"accountant=gdp: expected one of {known}"
    refusal = call("plan", "algo=dp_fedavg", "privacy.accountant=gdp").err
    (line,) = refusal.splitlines()
    assert "privacy.accountant=gdp: expected auto or exact or pld or rdp or basic or prv or paper" in line


def test_the_names_cost_no_library() -> None:
    code = (
        "import sys; from dpfl_bench.privacy.accountants import table; print(table.names());"
        " print(*sorted(sys.modules))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    loaded = set(printed.split())
    assert "dpfl_bench.privacy.accountants.prv" in loaded
    assert not loaded & {"numpy", "scipy", "torch", "dp_accounting", "opacus"}

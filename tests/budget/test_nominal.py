"""The eps that a paper states stands beside the eps that holds, and is never taken for it."""

from __future__ import annotations

import pytest
from helpers.command import QUICK, call, metrics, read
from helpers.refusals import check, table

FIXED = ("privacy.calibration=fixed", "privacy.noise_multiplier=1", "rounds=2", "local_steps=2", *QUICK)
STATED = ("privacy.nominal=.25", "privacy.nominal_how='Theorem 3, q = 1'")


def test_a_stated_eps_is_written_beside_the_one_that_holds() -> None:
    ran = call("run", *FIXED, *STATED)
    plain = call("run", *FIXED)
    result, ledger = read(ran.folder, "result.json"), read(ran.folder, "privacy.json")
    for file in (result, ledger, call("plan", "--json", *FIXED, *STATED).json):
        assert (file["nominal_eps"], file["nominal_how"]) == (0.25, "Theorem 3, q = 1")
        assert file["valid_eps"] == file["eps"] == read(plain.folder, "result.json")["eps"] > 4
    assert metrics(ran.folder).equals(metrics(plain.folder)), "it moves no number"
    assert read(plain.folder, "result.json")["nominal_eps"] is None
    assert ran.folder != plain.folder
    assert f"eps nominal 0.25, valid {result['eps']:.4g}" in ran.err
    assert "nominal: Theorem 3, q = 1, no guarantee" in ran.err
    assert "eps 0.25" not in ran.err
    assert (
        "nominal    eps 0.25 (Theorem 3, q = 1), which is no guarantee" in call("plan", *FIXED, *STATED).out
    )


def test_a_formulas_target_is_its_nominal_eps() -> None:
    given = ("privacy=local", "privacy.calibration=formula", "privacy.v=1", "total_steps=20", *QUICK)
    result = read(call("run", *given).folder, "result.json")
    assert (result["nominal_eps"], result["nominal_how"]) == (2, "formula with v = 1")
    assert result["valid_eps"] == result["eps"] > 2
    assert read(call("run", *given, "privacy.nominal=3").folder, "result.json")["nominal_eps"] == 3


def test_the_papers_own_accountant_is_nominal_and_valid_is_by_a_valid_one() -> None:
    given = ("algo=dp_fedavg", "privacy=record", "privacy.accountant=paper", "privacy.observer=third_party")
    given = (*given, "dataset=digits", "clients=20", "sampled_clients=5", "batch_size=7")
    given = (*given, "privacy.calibration=fixed", "privacy.noise_multiplier=2")
    said = call("run", *given, "rounds=3", "local_steps=2", *QUICK)
    result, ledger = read(said.folder, "result.json"), read(said.folder, "privacy.json")
    assert result["nominal_eps"] == result["eps"]
    assert result["valid_eps"] == ledger["views"]["third_party"] != result["eps"]
    assert f"eps nominal {result['eps']:.4g}, valid {result['valid_eps']:.4g}" in said.err


def test_without_privacy_there_is_neither() -> None:
    result = read(call("run", *FIXED, *STATED, "eps=inf").folder, "result.json")
    assert result["nominal_eps"] is result["valid_eps"] is None


def test_runs_of_before_keep_their_ids() -> None:
    from helpers.federations import settings_of

    assert settings_of("privacy.nominal=null").run_id == settings_of().run_id
    fixed = ("privacy.calibration=fixed", "privacy.noise_multiplier=1")
    assert settings_of(*fixed, "privacy.nominal=3").run_id != settings_of(*fixed).run_id


@pytest.mark.parametrize(
    ("overrides", "key", "word"),
    table("""
privacy.nominal=3 | privacy.nominal=3 | say privacy.calibration=fixed or
privacy.nominal=0 | privacy.nominal=0 | > 0
privacy.nominal=-1 | privacy.nominal=-1 | > 0
privacy.nominal=nan | privacy.nominal=nan | > 0
privacy.nominal=much | privacy.nominal=much | a number
privacy.nominal_how=guess privacy.calibration=fixed privacy.noise_multiplier=1
    | privacy.nominal_how=guess | expected privacy.nominal
privacy.nominal=3 privacy.nominal_how='' privacy.calibration=fixed privacy.noise_multiplier=1
    | privacy.nominal_how | a few words
privacy.nominal=3 privacy.nominal_how=7 privacy.calibration=fixed privacy.noise_multiplier=1
    | privacy.nominal_how=7 | a word
"""),
)
def test_what_states_nothing_is_refused(overrides: list[str], key: str, word: str) -> None:
    check(call("run", *overrides), key, word)

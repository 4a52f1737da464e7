"""Everything that is drawn before the data are looked at: coins, cohorts, lots, and the generators
behind them.

Statistical checks allow 5 standard errors of the statistic, computed beside it; the same check
rejects a rate that is 10 % off.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.federations import TINY, settings_of
from torch import nn

from dpfl_bench import rng
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.federation import sampling
from dpfl_bench.federation.sampling import LotRule, pad, smallest
from dpfl_bench.federation.schedule import Schedule, coin_steps, constant_steps


def errors(count: float, trials: int, chance: float) -> float:
    """How many standard errors a binomial count is off."""
    return abs(count - trials * chance) / math.sqrt(trials * chance * (1 - chance))


def check(count: float, trials: int, chance: float) -> None:
    assert errors(count, trials, chance) < 5
    assert errors(count, trials, 1.1 * chance) > 5
    assert errors(count, trials, 0.9 * chance) > 5


def schedule(
    sampling: str = "full", clients: int = 20, size: int = 5, rounds: int = 50, seed: int = 0
) -> Schedule:
    return Schedule(
        seed, clients, clients if sampling == "full" else size, sampling, (2,) * rounds, 0.5, 0.1, 0.9
    )


# coins


def test_coins_are_gaps_between_heads() -> None:
    steps = coin_steps(3, 200, 4)
    heads = np.flatnonzero(rng.generator(3, "coins").random(200) < 1 / 4)
    assert len(steps) == len(heads)
    assert np.array_equal(np.cumsum(steps), heads + 1)  # the step of a head is part of its round
    assert min(steps) >= 1
    assert sum(steps) <= 200
    assert len(set(steps)) > 3
    assert coin_steps(3, 200, 4) == steps != coin_steps(4, 200, 4)


def test_coins_communicate_as_often_as_they_should() -> None:
    counts = [len(coin_steps(seed, 1000, 5)) for seed in range(40)]
    check(sum(counts), 40 * 1000, 1 / 5)
    assert np.std(counts) > 0.5 * math.sqrt(1000 * 0.2 * 0.8)  # each seed has its own


def test_a_coin_of_one_communicates_at_every_step() -> None:
    assert coin_steps(0, 30, 1) == (1,) * 30 == constant_steps(30, 1)


def test_coins_without_a_head_are_refused() -> None:
    settings = settings_of("algo=dp_scaffnew", "algo.coins=true", "local_steps=1000", "total_steps=1000")
    drawn = [bool(coin_steps(seed, 1000, 1000)) for seed in range(10)]
    assert len(set(drawn)) == 2
    for seed, some in enumerate(drawn):
        if some:
            assert drawn_schedules(replace(settings, seed=seed))
        else:
            with pytest.raises(ValueError, match=f"coins of seed {seed} drew no communication"):
                drawn_schedules(replace(settings, seed=seed))


def test_a_run_has_the_schedule_of_its_settings() -> None:
    settings = settings_of(
        *TINY, "algo=dp_scaffnew", "sampled_clients=4", "lr=0.3", "lr_decay=0.5", "repeats=3", "seed=7"
    )
    drawn = drawn_schedules(settings)
    assert [s.seed for s in drawn] == [7, 8, 9]
    assert {s.steps for s in drawn} == {(3, 3, 3, 3)}
    assert {s.p for s in drawn} == {1 / 3}
    assert [drawn[0].round(k).lr for k in range(4)] == [0.3, 0.15, 0.075, 0.0375]
    assert {(len(s.round(k).cohort), s.round(k).divisor) for s in drawn for k in range(4)} == {(4, 4)}
    coins = drawn_schedules(replace(settings, algo={**settings.algo, "coins": True}, total_steps=60))
    assert len({s.steps for s in coins}) == 3
    assert {s.p for s in coins} == {1 / 3}


# cohorts


def test_full_cohorts() -> None:
    drawn = schedule()
    assert all(np.array_equal(drawn.cohort(k), np.arange(20)) for k in range(50))


MANY = 9000  # rounds: enough for 5 standard errors at a half to be 5 % of it


def test_fixed_cohorts_have_their_size_and_include_everybody_alike() -> None:
    drawn = schedule("fixed", size=10)
    cohorts = [drawn.cohort(k) for k in range(MANY)]
    assert all(len(c) == len(set(c.tolist())) == 10 and (np.diff(c) > 0).all() for c in cohorts)
    for count in np.bincount(np.concatenate(cohorts), minlength=20):
        check(count, MANY, 10 / 20)
    together = sum(3 in c and 11 in c for c in cohorts)
    assert errors(together, MANY, 10 * 9 / (20 * 19)) < 5


def test_poisson_cohorts_include_each_client_by_itself() -> None:
    drawn = schedule("poisson", size=10)
    cohorts = [drawn.cohort(k) for k in range(MANY)]
    for count in np.bincount(np.concatenate(cohorts), minlength=20):
        check(count, MANY, 10 / 20)
    sizes = np.array([len(c) for c in cohorts])
    # the variance of Binomial(20, 1/2), whose estimate has a relative standard error of about
    # sqrt(2 / MANY); fixed sizes have none
    assert abs(sizes.var() / (20 * 0.25) - 1) < 5 * math.sqrt(2 / MANY)
    assert {drawn.round(k).divisor for k in range(20)} == {10}  # the expected size, never the realised one


def test_the_smallest_cohort_is_not_empty() -> None:
    drawn = schedule("poisson", size=1)
    assert min(len(drawn.cohort(k)) for k in range(50)) == 0
    assert drawn.smallest_cohort == 1


@pytest.mark.parametrize("sampling", ["full", "fixed", "poisson"])
def test_participation_counts_the_cohorts(sampling: str) -> None:
    drawn = schedule(sampling, rounds=30)
    for rounds in (0, 1, 17, 30):
        counted = np.zeros(20, dtype=int)
        for k in range(rounds):
            counted[drawn.cohort(k)] += 1
        assert np.array_equal(drawn.first(rounds).participation, counted)
        assert np.array_equal(drawn.first(rounds).gradients, sum(drawn.steps[:1]) * counted)
    sizes = [len(drawn.cohort(k)) for k in range(30)]
    assert drawn.smallest_cohort == min(size for size in sizes if size)


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_cohorts_depend_on_seed_and_round_alone(sampling: str) -> None:
    one, other = schedule(sampling), schedule(sampling, seed=1)
    assert [one.cohort(k).tolist() for k in range(10)] == [
        schedule(sampling, rounds=10).cohort(k).tolist() for k in range(10)
    ]
    assert [one.cohort(k).tolist() for k in range(10)] != [other.cohort(k).tolist() for k in range(10)]
    assert len({tuple(one.cohort(k)) for k in range(10)}) > 5


@pytest.mark.parametrize("sampling", ["fixed", "poisson"])
def test_releases_are_those_of_the_worst_seed(sampling: str) -> None:
    settings = settings_of(
        *TINY, "algo=dp_fedavg", "sampled_clients=3", f"client_sampling={sampling}", "repeats=5"
    )
    drawn = drawn_schedules(settings)
    planned = Budget.of(settings, drawn).planned
    assert (planned.rounds, planned.clients, planned.cohort_size) == (4, 10, 3)
    worst = [int(s.participation.max()) for s in drawn]
    assert planned.worst == max(worst)
    assert len(set(worst)) > 1
    assert planned.smallest_cohort == min(s.smallest_cohort for s in drawn)


# lots


def test_full_lots() -> None:
    assert LotRule().full
    lots = LotRule().draw(0, 0, 0, 7, 3)
    assert len(lots) == 3
    assert all(np.array_equal(rows, np.arange(7)) for rows in lots)
    assert LotRule().weight(7) == 1 / 7


@pytest.mark.parametrize("records", [4, 5, 100])
def test_lots_without_replacement_are_exactly_as_large_as_asked(records: int) -> None:
    lots = LotRule(batch_size=4).draw(0, 0, 0, records, 2000)
    assert all(len(set(rows.tolist())) == len(rows) == 4 for rows in lots)
    assert LotRule(batch_size=4).weight(records) == 1 / 4
    taken = np.bincount(np.concatenate(list(lots)), minlength=records)
    assert len(taken) == records
    if records > 4:
        assert all(errors(count, 2000, 4 / records) < 5 for count in taken)
        uneven = np.bincount(
            np.concatenate([rows[rows > 0] for rows in lots]), minlength=records
        )  # the first is never taken
        assert not all(errors(count, 2000, 4 / records) < 5 for count in uneven)


def test_poisson_lots() -> None:
    lots = LotRule(sample_rate=0.2).draw(0, 0, 0, 50, 1000)
    check(sum(len(rows) for rows in lots), 50 * 1000, 0.2)
    assert len({len(rows) for rows in lots}) > 5
    assert LotRule(sample_rate=0.2).weight(50) == 1 / (0.2 * 50)  # the expected size, never the realised one
    assert all(len(set(rows.tolist())) == len(rows) for rows in lots)
    assert any(len(rows) == 0 for rows in LotRule(sample_rate=0.05).draw(0, 0, 0, 5, 50))


@pytest.mark.parametrize("rule", [LotRule(batch_size=3), LotRule(sample_rate=0.3)])
def test_lots_depend_on_seed_round_and_client_alone(rule: LotRule) -> None:
    def lots(*ids: int) -> list[list[int]]:
        return [rows.tolist() for rows in rule.draw(*ids, 40, 5)]

    assert lots(0, 0, 0) == lots(0, 0, 0)
    drawn = [lots(*ids) for ids in itertools.product((0, 1), repeat=3)]
    assert all(one != other for one, other in itertools.combinations(drawn, 2))
    assert len({tuple(lot) for lot in lots(0, 0, 0)}) == 5  # every step has its own


@pytest.mark.parametrize("rule", [LotRule(batch_size=3), LotRule(sample_rate=0.3)])
def test_lots_do_not_depend_on_how_many_are_drawn_at_once(
    rule: LotRule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of steps at a time: memory does not grow with the local steps."""
    whole = [rows.tolist() for rows in rule.draw(0, 0, 0, 40, 7)]
    for numbers in (1, 80, 200):
        monkeypatch.setattr(sampling, "DRAWN_AT_ONCE", numbers)
        assert [rows.tolist() for rows in rule.draw(0, 0, 0, 40, 7)] == whole


def test_padding_repeats_the_first_record_at_weight_zero() -> None:
    nothing = np.array([], dtype=int)
    lots = [[np.array([0, 2]), nothing], [nothing, np.array([1])], [np.array([1, 2, 4]), np.array([3, 5])]]
    index, weight, sizes = pad(lots, np.array([0, 10, 20]), np.array([0.5, 0.1, 1 / 3]))
    assert index.tolist() == [
        [[0, 2, 0], [10, 10, 10], [21, 22, 24]],
        [[0, 0, 0], [11, 10, 10], [23, 25, 20]],
    ]
    assert weight.tolist() == [
        [[0.5, 0.5, 0], [0, 0, 0], [1 / 3] * 3],
        [[0, 0, 0], [0.1, 0, 0], [1 / 3, 1 / 3, 0]],
    ]
    assert sizes.tolist() == [[2, 0, 3], [0, 1, 2]]
    index, weight, _ = pad(
        [[nothing]], np.array([3]), np.array([0.1])
    )  # a lot of nothing is one row of weight 0
    assert (index.tolist(), weight.tolist()) == ([[[3]]], [[[0.0]]])
    index, weight, sizes = pad(
        [[np.array([0, 2])], [np.array([1, 4])]], np.array([0, 10]), np.array([0.5, 0.25])
    )  # nothing to pad
    assert (index.tolist(), weight.tolist(), sizes.tolist()) == (
        [[[0, 2], [11, 14]]],
        [[[0.5] * 2, [0.25] * 2]],
        [[2, 2]],
    )


@pytest.mark.parametrize("shape", [(1, 1), (3, 7), (5, 8), (4, 9), (2, 3000)], ids=str)
def test_the_smallest_keys(shape: tuple[int, int]) -> None:
    keys = np.random.default_rng(0).integers(2**64, size=shape, dtype=np.uint64)
    for count in {1, (shape[1] + 1) // 2, shape[1]}:
        expected = np.sort(keys.argsort(axis=1)[:, :count], axis=1)
        assert np.array_equal(smallest(keys.copy(), count), expected)
    assert np.array_equal(smallest(np.zeros(shape, dtype=np.uint64), 1)[:, 0], np.zeros(shape[0])), (
        "ties go to the first"
    )


# generators


def test_every_purpose_and_number_has_its_own_key() -> None:
    ids = [(), (0,), (1,), (0, 0), (0, 1), (1, 0), (256,), (0, 0, 0), (-1,), (2**62,)]
    asked = [
        (seed, purpose, i)
        for seed in (0, 1, 256, 2**40)
        for purpose in ("noise", "lot", "cohort", "coins", "init")
        for i in ids
    ]
    assert len({rng._key(*a) for a in asked}) == len(asked)
    first = [rng.generator(seed, purpose, *i).integers(2**63) for seed, purpose, i in asked]
    assert len(set(first)) == len(asked)
    assert rng.generator(5, "noise", 1, 2).integers(2**63) == rng.generator(5, "noise", 1, 2).integers(2**63)


def test_a_long_purpose_is_refused_rather_than_cut() -> None:
    assert rng.generator(0, "a" * 16)
    with pytest.raises(ValueError, match="at most 16 letters"):
        rng.generator(0, "a" * 17)


def test_initialisation_leaves_torchs_generator_alone() -> None:
    before = torch.get_rng_state()
    one, again, other = (rng.initialised(lambda: nn.Linear(5, 4), seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.weight, again.weight)
    assert not torch.equal(one.weight, other.weight)
    torch.rand(1)
    assert torch.equal(
        rng.initialised(lambda: nn.Linear(5, 4), 1).weight, one.weight
    )  # whatever was drawn before
    assert not torch.equal(torch.get_rng_state(), before)  # the check sees a draw

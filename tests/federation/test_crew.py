"""Who works on a round changes no bit of it: one process alone, or a crew of one, two or three."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers.algorithms import Algo
from helpers.crews import by_this_process, by_workers, differing, in_chunks, same_with_a_crew, trace_of
from helpers.federations import TINY, player_of, settings_of
from helpers.processes import cpu_seconds
from helpers.small_networks import CNN, LSTM, WORDS, images, sentences

from dpfl_bench.experiment import train
from dpfl_bench.federation import evaluation, round_player, workers
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.crew import GroupResult
from dpfl_bench.federation.round_player import most_groups
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.federation.workers import Workers

pytestmark = pytest.mark.one_in(16)

LOTS = {"batch_size": 4, "sampled_clients": 9}
ROUNDING = {"float32": 1e-5, "float64": 1e-13}
LONGER = (*(o for o in TINY if not o.startswith("rounds")), "rounds=15")
SHORTER = (*(o for o in TINY if not o.startswith("rounds")), "rounds=2")


@pytest.fixture(autouse=True)
def _in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are evaluated a few at a time, so that there is something to share out."""
    monkeypatch.setattr(evaluation, "BATCH_NUMBERS", 100)


@pytest.mark.parametrize("name", ["dp_scaffold", "dp_fedexp"])
def test_crews_of_one_two_and_three(name: str) -> None:
    settings = settings_of(*TINY, f"algo={name}", "sampled_clients=9")
    same_with_a_crew(in_chunks(settings), counts=(1, 2, 3))


# algorithms


@pytest.mark.slow
def test_every_algorithm(algo: Algo) -> None:
    expected = same_with_a_crew(in_chunks(algo.settings(**LOTS, rounds=2)))
    assert bool(expected["memory"][0]) == player_of(algo.settings()).player.algorithm.remembers


VARIANTS = {
    "quantile": ("algo=dp_fedavg", "privacy.quantile=0.5"),
    "quantile, local": ("algo=dp_scaffold", "privacy=local", "privacy.quantile=0.5"),
    "central": ("algo=dp_fedexp_scaffold", "privacy=central", "privacy.memory=own_update"),
    "local": ("algo=dp_fedexp", "privacy=local", "algo.naive=true"),
    "normalise": ("algo=dp_fedavg", "privacy.bound=normalise"),
    "average, momentum": (
        "algo=dp_scaffnew",
        "average_last=3",
        "server_momentum=0.5",
        "local_momentum=0.3",
        "lr_decay=0.9",
    ),
    "full lots": ("algo=dp_scaffold", "privacy=record"),
    "record median": (
        "algo=dp_fedavg",
        "privacy=record",
        "privacy.clip=median",
        "batch_size=4",
        "privacy.neighbours=replace_one",
    ),
    "float64": ("algo=dp_scaffold", "dtype=float64", "batch_size=4"),
    "uneven": ("algo=dp_scaffnew", "partition=dirichlet", "dataset.classes=2", "model.bias=true"),
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_way_through_the_doors(variant: str) -> None:
    same_with_a_crew(in_chunks(settings_of(*TINY, *VARIANTS[variant], "sampled_clients=9")))


@pytest.mark.slow
def test_privunit() -> None:
    eps = [f"privacy.eps{k}=3" for k in range(3)]
    overrides = [o for o in TINY if "noise_multiplier" not in o]
    same_with_a_crew(
        in_chunks(
            settings_of(*overrides, "algo=dp_fedexp", "privacy=local", "privacy.mechanism=privunit", *eps)
        )
    )


@pytest.mark.slow
def test_the_median_is_of_the_whole_cohort() -> None:
    """One group, whatever the chunk: only evaluation is shared out."""
    same_with_a_crew(
        in_chunks(settings_of(*TINY, "algo=dp_fedavg", "privacy.clip=median", "sampled_clients=9")), groups=1
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dp_fedavg", "dp_fedexp", "fedavg"])
def test_poisson_cohorts(name: str) -> None:
    """Empty ones, and one more than twice as large as expected."""
    settings = in_chunks(
        settings_of(*LONGER, f"algo={name}", "client_sampling=poisson", "sampled_clients=2"), 1
    )
    first = player_of(settings)
    sizes = [len(first.schedule.cohort(index)) for index in range(first.schedule.rounds)]
    assert min(sizes) == 0
    assert max(sizes) >= 5
    same_with_a_crew(settings, groups=sizes[0])


@pytest.mark.slow
def test_poisson_lots_that_are_empty() -> None:
    neighbours = ("privacy.neighbours=add_remove_one", "sampled_clients=9")
    same_with_a_crew(
        in_chunks(settings_of(*TINY, "algo=dp_scaffold", "privacy=record", "sample_rate=0.04", *neighbours))
    )


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1, 3])
def test_groups_that_are_larger_than_a_chunk(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sums as fit are kept apart; there may be fewer than workers."""
    for where in (round_player, workers):
        monkeypatch.setattr(where, "most_groups", lambda dimension: limit)
    for name in ("dp_scaffold", "dp_fedexp"):
        same_with_a_crew(in_chunks(settings_of(*TINY, f"algo={name}", "sampled_clients=9")), groups=limit)


def test_most_groups() -> None:
    assert [most_groups(d) for d in (1, 51_300, 2**20, 2**20 + 1, 2**25, 2**26, 128_774_530)] == [
        64,
        64,
        64,
        63,
        2,
        1,
        1,
    ]
    assert all(most_groups(d) * d * 4 <= 2**28 for d in (10_000, 10**6, 10**7, 2**26))


@pytest.mark.slow
def test_more_chunks_than_groups() -> None:
    hundred = [o for o in TINY if "clients" not in o and "records" not in o]
    settings = settings_of(
        *hundred, "algo=dp_scaffnew", "clients=100", "dataset.clients=100", "dataset.records_per_client=5"
    )
    same_with_a_crew(in_chunks(settings, 1), groups=64)


# networks


LEVELS = {
    "plain": ("algo=scaffold", "local_momentum=0.5"),
    "client": ("algo=dp_scaffnew", "batch_size=4"),
    "record": ("algo=dp_scaffold", "privacy=record", "batch_size=4", "privacy.neighbours=replace_one"),
    "poisson": ("algo=dp_fedavg", "privacy=record", "sample_rate=0.1", "privacy.neighbours=add_remove_one"),
}


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("backend", ["flat", "loop", "vmap"])
def test_convolutions(backend: str, level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "BATCH_NUMBERS", 720)  # as many records as elsewhere
    settings = settings_of(*SHORTER, *LEVELS[level], "sampled_clients=9", "lr=0.3")
    engine = dataclasses.replace(settings.engine, backend=backend)  # type: ignore[arg-type]
    same_with_a_crew(in_chunks(dataclasses.replace(settings, model=CNN, engine=engine)), images)


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_sequences(level: str) -> None:
    settings = settings_of(*SHORTER, *LEVELS[level], "sampled_clients=9", "lr=0.3")
    dataset = {**settings.dataset, **WORDS}
    same_with_a_crew(in_chunks(dataclasses.replace(settings, model=LSTM, dataset=dataset)), sentences)


# what these tests would see


class Backwards(Alone):
    """Adds the groups' sums in another order."""

    def play_groups(self, state: TrainingState, round: PlannedRound) -> Iterator[GroupResult]:
        yield from reversed(list(super().play_groups(state, round)))


class Stale(Workers):
    """Takes the sums of the round before."""

    def play_groups(self, state: TrainingState, round: PlannedRound) -> Iterator[GroupResult]:
        before = self._totals.clone()
        for group, result in enumerate(super().play_groups(state, round)):
            result.sums.take(before[group])
            yield result


class Forgetful(Workers):
    def update_memories(self, *given: Any) -> None:
        pass


def test_another_order_of_the_sums_is_seen() -> None:
    settings = in_chunks(settings_of(*TINY, "algo=dp_fedavg", "sampled_clients=9"))
    expected, other = (
        trace_of(player_of(settings), by_this_process),
        trace_of(player_of(settings), lambda played: Backwards(played.player)),
    )
    assert "server.x after round 1" in differing(other, expected)
    assert not [name for name in differing(other, expected) if name.startswith(("taken", "releases"))]
    x, y = (np.frombuffer(found["server.x"][-1], np.float32) for found in (expected, other))
    np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_stale_sums_are_seen() -> None:
    settings = in_chunks(settings_of(*TINY, "algo=dp_fedavg", "sampled_clients=9"))
    expected = trace_of(player_of(settings), by_this_process)
    assert "server.x after round 1" in differing(
        trace_of(player_of(settings), lambda p: Stale(p.player, p.start, 2)), expected
    )


def test_what_was_not_remembered_is_seen() -> None:
    settings = in_chunks(settings_of(*TINY, "algo=dp_scaffold", "sampled_clients=9"))
    expected = trace_of(player_of(settings), by_this_process)
    assert "memory after round 1" in differing(
        trace_of(player_of(settings), lambda p: Forgetful(p.player, p.start, 2)), expected
    )


# waiting


def test_who_waits_sleeps() -> None:
    """After a moment."""
    played = player_of(in_chunks(settings_of(*TINY, "algo=dp_fedavg", "sampled_clients=9")))
    with by_workers(1)(played) as crew:
        next(train.rounds(played.player, played.schedule, played.start, 0, crew))
        (pid,) = [worker.pid for worker in crew._workers if worker.pid is not None]
        before = cpu_seconds(pid)
        time.sleep(0.5)
        assert cpu_seconds(pid) - before < 0.1


def test_who_looks_sees_the_next_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SECONDS_TO_LOOK", 1.5)
    played = player_of(settings_of(*TINY, "algo=dp_fedavg"))
    with by_workers(2)(played) as crew:
        began = time.perf_counter()
        for _ in range(3):
            crew.losses(played.start.server.x, test=True)
        assert time.perf_counter() - began < 1.5


# chunks


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("name", ["dp_fedavg", "dp_scaffold", "dp_fedexp_scaffold"])
def test_another_chunk_is_equal_up_to_rounding(name: str, dtype: str) -> None:
    settings = settings_of(*TINY, f"algo={name}", "sampled_clients=9", f"dtype={dtype}")
    ends = [trace_of(player_of(in_chunks(settings, chunk)), by_this_process) for chunk in (1, 2, 4, 9)]
    for end in ends[1:]:
        assert differing(end, ends[0])  # sums of other groups
        for what in ("server.x", "memory"):
            one, other = (np.frombuffer(found[what][-1], dtype) for found in (end, ends[0]))
            assert np.linalg.norm(one - other) <= ROUNDING[dtype] * np.linalg.norm(other)
        assert end["taken"] == ends[0]["taken"]

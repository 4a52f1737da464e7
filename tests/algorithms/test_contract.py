"""What every algorithm has to satisfy. One that is added under conf/algo/ (or in a folder of
DPFL_TEST_CONF) is tested without a word.

`pytest tests/algorithms/test_contract.py -k NAME` tests one of them.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import numpy as np
import pytest
import torch
from helpers.algorithms import ALGORITHMS, Algo
from helpers.federations import TINY, Played, player_of, player_on, settings_of

from dpfl_bench.algorithms.base import Algorithm, Round, Sent, Server
from dpfl_bench.algorithms.fedavg import FedAvg
from dpfl_bench.assembly.algorithm import build_algorithm
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import run, train
from dpfl_bench.federation.alone import Alone
from dpfl_bench.privacy.ledger import Ledger, OverspentError

pytestmark = pytest.mark.one_in(6)

LOTS = {"batch_size": 4, "sampled_clients": 6}  # something to draw for the algorithms without noise too
ROUNDING = {"float32": 1e-5, "float64": 1e-13}  # of sums in another order, after a few rounds


def apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Relative distance."""
    return ((one - other).norm() / other.norm()).item()


def final(settings: Settings) -> torch.Tensor:
    return player_of(settings).x()


def test_there_are_algorithms() -> None:
    assert len({algo.id for algo in ALGORITHMS}) == len(ALGORITHMS) >= 20
    assert {algo.id for algo in ALGORITHMS} >= {"dp_fedavg", "dp_fedavg-record", "dp_scaffold-record", "pfl"}


# methods, whether or not a run of TINY calls them


@dataclasses.dataclass
class Bowl:
    """What `client` has at hand, for c clients with the loss |y|^2 / 2."""

    round: Any
    lr: float = 0.5

    @property
    def steps(self) -> int:
        return self.round.steps

    def gradient(self, y: torch.Tensor) -> torch.Tensor:
        return y.clone()

    def step(self, y: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
        return y - self.lr * direction


def with_its_work(algorithm: Any) -> list[Any]:
    """The algorithm and those that it is put over."""
    return [algorithm, *(with_its_work(algorithm.work) if hasattr(algorithm, "work") else [])]


def test_methods_take_what_is_promised(algo: Algo) -> None:
    """The parameters of `algorithms.base.Algorithm`; a memory may have a name of its own."""
    for algorithm in with_its_work(build_algorithm(algo.settings())):
        assert isinstance(algorithm.remembers, bool)
        assert isinstance(getattr(algorithm, "uses_norms", False), bool)
        for name in ("start", "client", "server", "remember"):
            promised = list(inspect.signature(getattr(Algorithm, name)).parameters)[1:]
            taken = list(inspect.signature(getattr(algorithm, name)).parameters.values())
            assert [p.kind for p in taken] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * len(promised)
            named = [
                "memory" if other == "memory" else p.name for p, other in zip(taken, promised, strict=True)
            ]
            assert named == promised, f"{name}({', '.join(p.name for p in taken)})"


def test_methods_return_what_is_promised(algo: Algo) -> None:
    """Shapes, number formats, the kind of the server's state; what is given stays as it is."""
    algorithm, d = build_algorithm(algo.settings()), 18
    round = player_of(algo.settings()).schedule.round(0)
    x, memory, each = (
        torch.from_numpy(np.random.default_rng(0).normal(size=size)) for size in (d, (3, d), (3, d))
    )
    if not algorithm.remembers:
        memory = x.new_zeros(()).expand(3, d)
    server = algorithm.start(x)
    assert server._fields[0] == "x"
    assert torch.equal(server.x, x)
    sent = Sent(each.mean(0), None, x.new_tensor(0.5), x.new_tensor(0.7))
    known = [*server, memory, each, sent.mean, sent.mean_square_norm, sent.naive_square_norm]
    before = [tensor.clone() for tensor in known]
    update = algorithm.client(server, memory, Bowl(round))
    after = algorithm.server(server, sent, round)
    remembered = algorithm.remember(server, memory, dataclasses.replace(sent, messages=each), round)
    for rows in (update, remembered):
        assert (rows.shape, rows.dtype) == ((3, d), x.dtype)
        assert rows.isfinite().all()
    assert type(after) is type(server)
    assert [(t.shape, t.dtype) for t in after] == [(t.shape, t.dtype) for t in server]
    assert all(torch.equal(tensor, was) for tensor, was in zip(known, before, strict=True)), "was changed"


class Peeking(FedAvg):
    """Its server asks for single messages."""

    def server(self, server: Server, sent: Sent, round: Round) -> Server:
        return Server(server.x + sent.each.mean(0))


@pytest.mark.parametrize("trust", ["secagg", "local", "central"])
def test_a_server_that_asks_for_single_messages_is_told_why_there_are_none(trust: str) -> None:
    played = player_of(settings_of(*TINY, "algo=dp_fedavg", f"privacy={trust}"))
    round = played.schedule.round(0)

    def play(algorithm: Algorithm) -> None:
        player = dataclasses.replace(played.player, algorithm=algorithm)
        player.play(played.start, round, Alone(player))

    play(FedAvg())
    with pytest.raises(ConfigError, match=r"sent\.each: no single message .*use sent\.mean there"):
        play(Peeking())


class Watched:
    """An algorithm whose memories are noted."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.memories = inner, []  # type: Any, list[torch.Tensor]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def remember(self, *given: Any) -> torch.Tensor:
        self.memories.append(self.inner.remember(*given))
        return self.memories[-1]


def test_the_cohorts_memories_are_the_promised_ones(algo: Algo) -> None:
    """`remember` is called for each client of a cohort, in chunks, where the algorithm remembers;
    the others' memories stay.
    """
    played = player_of(algo.settings(sampled_clients=6))
    watched = Watched(played.player.algorithm)
    player = dataclasses.replace(played.player, algorithm=watched, chunk=4)
    round = played.schedule.round(0)
    state, _ = player.play(played.start, round, Alone(player))
    if not watched.inner.remembers:
        assert not watched.memories
        assert state.memory is None
        return
    assert len(watched.memories) == 2
    assert torch.equal(state.memory[round.cohort], torch.cat(watched.memories))
    assert state.memory[round.cohort].any(1).all()
    assert not state.memory[np.setdiff1d(np.arange(10), round.cohort)].any()


# rounds


def test_same_seed_is_bit_equal(algo: Algo) -> None:
    settings = algo.settings(**LOTS)
    one, other = player_of(settings), player_of(settings)
    for a, b in zip(one.states(), other.states(), strict=True):
        assert all(torch.equal(s, t) for s, t in zip(a.server, b.server, strict=True))
        assert a.memory is b.memory is None or torch.equal(a.memory, b.memory)


def test_another_seed_differs(algo: Algo) -> None:
    settings = algo.settings(**LOTS)
    assert apart(final(settings), final(dataclasses.replace(settings, seed=1))) > 1e-3


def test_noise_differs_between_seeds(private_algo: Algo) -> None:
    settings = private_algo.settings()
    assert apart(final(settings), final(dataclasses.replace(settings, seed=1))) > 1e-3


def test_state_given_to_play_is_not_mutated(algo: Algo) -> None:
    played = player_of(algo.settings(**LOTS, server_momentum=0.5))
    state = played.start
    for index in range(played.schedule.rounds):
        tensors = [t for t in (*state.server, state.velocity) if t is not None]
        before = [t.clone() for t in tensors]
        after, _ = played.play(state, played.schedule.round(index))
        assert all(torch.equal(t, was) for t, was in zip(tensors, before, strict=True)), (
            f"round {index} changed the state before it"
        )
        assert torch.equal(after.server.x, state.server.x) == (algo.warm and index == 0)
        state = after


def test_order_of_clients_is_irrelevant(algo: Algo) -> None:
    settings = algo.settings(
        eps=math.inf, dtype="float64", sample_rate=None, privacy={"bound_without_noise": True, "clip": 0.3}
    )
    one = player_of(settings)
    parts = one.job.data.parts
    other = player_on(settings, one.job.data.records, parts[::-1])
    ends, reversed_ends = one.states(), other.states()
    assert apart(reversed_ends[-1].server.x, ends[-1].server.x) < ROUNDING["float64"]
    if ends[-1].memory is not None:
        assert apart(reversed_ends[-1].memory.flip(0), ends[-1].memory) < ROUNDING["float64"]
    some = [*parts[1:], parts[1]]  # the comparison sees one client's data
    assert apart(player_on(settings, one.job.data.records, some).x(), ends[-1].server.x) > 1e-6


@pytest.mark.parametrize("lots", [{"batch_size": 4}, {"sample_rate": 0.3}], ids=str)
@pytest.mark.parametrize("dtype", ROUNDING)
def test_chunk_size_is_irrelevant(algo: Algo, lots: dict[str, Any], dtype: str) -> None:
    settings = algo.settings(**lots, sampled_clients=9, dtype=dtype)
    ends = [_in_chunks(settings, chunk) for chunk in (1, 7, 9)]
    for end in ends[1:]:
        assert apart(end.server.x, ends[0].server.x) < ROUNDING[dtype]
        assert end.memory is None or apart(end.memory, ends[0].memory) < ROUNDING[dtype]
        assert np.array_equal(end.ledger.taken, ends[0].ledger.taken)


def _in_chunks(settings: Settings, chunk: int) -> Any:
    played = player_of(
        dataclasses.replace(settings, engine=dataclasses.replace(settings.engine, chunk=chunk))
    )
    assert played.player.chunk == chunk
    return played.states()[-1]


def test_one_client_one_step_is_gradient_descent(algo: Algo) -> None:
    if algo.warm:
        pytest.skip("its model stands still at first")
    once = {"clients": 1, "sampled_clients": 1, "rounds": 1, "local_steps": 1, "total_steps": 1}
    settings = algo.settings(**once, eps=math.inf, dtype="float64", lr=0.7, sample_rate=None)
    settings = dataclasses.replace(settings, dataset={**settings.dataset, "clients": 1})
    x = np.random.default_rng(0).normal(size=18)
    made = player_of(settings).job.data
    rows, labels = made.records.train_x.astype(np.float64), made.records.train_y
    weights, biases = x[:15].reshape(3, 5), x[15:]
    scores = np.exp(rows @ weights.T + biases)
    residuals = scores / scores.sum(1, keepdims=True) - np.eye(3)[labels]
    gradient = (
        np.concatenate([(residuals.T @ rows).ravel(), residuals.sum(0)]) / len(labels) + 0.01 * x
    )  # model.l2
    end = player_on(settings, made.records, made.parts, x).x().numpy()
    np.testing.assert_allclose(end, x - 0.7 * gradient, rtol=1e-12, atol=1e-14)


def test_ledger_never_exceeds_the_schedule_and_ends_equal(algo: Algo) -> None:
    settings = algo.settings(sampled_clients=4)
    played = player_of(settings)
    each = 3 if settings.privacy.unit == "record" else 1  # gradients, or one message
    allowed = each * played.schedule.participation
    for done, state, _ in train.rounds(played.player, played.schedule, played.start, 0):
        so_far = each * played.schedule.first(done).participation if settings.private else np.zeros(10)
        assert np.array_equal(state.ledger.taken, so_far)
        assert state.ledger.rounds == (done if settings.private else 0)
    if settings.private:
        assert np.array_equal(played.start.ledger.taken, allowed)  # one ledger, written in place
        assert played.job.budget.planned.worst == allowed.max()


class Greedy:
    """An algorithm that takes one gradient more than the schedule allows."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def client(self, server: Any, memory: torch.Tensor, local: Any) -> torch.Tensor:
        offered = self.inner.client(server, memory, local)
        local.gradient(server.x.expand_as(memory))
        return offered


@pytest.mark.parametrize("batch_size", [None, 4])
def test_one_gradient_too_many_is_refused(algo: Algo, batch_size: int | None) -> None:
    played = player_of(algo.settings(batch_size=batch_size))
    greedy = dataclasses.replace(played.player, algorithm=Greedy(played.player.algorithm))
    with pytest.raises(RuntimeError, match="more than the 3 gradients"):
        greedy.play(played.start, played.schedule.round(0), Alone(greedy))


def test_a_door_that_records_too_much_fails_the_run(
    private_algo: Algo, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = Ledger.record
    monkeypatch.setattr(Ledger, "record", lambda ledger, cohort: [record(ledger, cohort) for _ in range(2)])
    settings = private_algo.settings(outputs="here")
    with pytest.raises(OverspentError, match="doors recorded"):
        run.run(settings, TINY, "")
    folder = run.RunFolder.at("here", settings.run_id)
    assert folder.finished is None
    assert folder.read("result.json") is None
    assert (folder.read("status.json") or {})["status"] == "failed"
    monkeypatch.setattr(Ledger, "record", record)
    assert run.run(settings, TINY, "").finished  # the same settings with an honest door


def test_a_door_that_forgets_to_record_fails_the_run(
    private_algo: Algo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ledger, "record", lambda ledger, clients: None)
    settings = private_algo.settings(outputs="here")
    with pytest.raises(OverspentError, match="passed unrecorded"):
        run.run(settings, TINY, "")
    assert run.RunFolder.at("here", settings.run_id).finished is None


def test_without_privacy_it_is_the_plain_one(private_algo: Algo) -> None:
    plain = [algo for algo in ALGORITHMS if f"dp_{algo.name}" == private_algo.id]
    if not plain:
        pytest.skip("it has no plain twin")
    open_door = private_algo.settings(**LOTS, eps=math.inf)
    assert torch.equal(final(open_door), final(plain[0].settings(**LOTS)))
    assert apart(final(private_algo.settings(**LOTS)), final(open_door)) > 1e-3


@pytest.mark.parametrize("dtype", ROUNDING)
def test_number_format_and_device_are_the_ones_asked_for(algo: Algo, dtype: str) -> None:
    settings = algo.settings(**LOTS)
    end = player_of(dataclasses.replace(settings, dtype=dtype)).states()[-1]
    for tensor in [*end.server, *([] if end.memory is None else [end.memory])]:
        assert (tensor.dtype, tensor.device) == (getattr(torch, dtype), torch.device("cpu"))
        assert torch.isfinite(tensor).all()
    assert apart(end.server.x.double(), final(dataclasses.replace(settings, dtype="float64"))) < 1e-4


def test_networks_train_too(algo: Algo) -> None:
    """Autograd, one client after the other, in place of the linear models' own gradients."""
    network = {"_target_": "dpfl_bench.problems.models.mlp.mlp", "name": "mlp", "hidden": [4]}
    settings = algo.settings(**LOTS, model=network, dtype="float64")
    start, ends = (
        player_of(settings).start.server.x,
        [_in_chunks(settings, chunk).server.x for chunk in (1, 6)],
    )
    assert len(start) == 5 * 4 + 4 + 4 * 3 + 3
    assert apart(ends[0], start) > 1e-3
    assert apart(ends[1], ends[0]) < ROUNDING["float64"]


def test_played_like_the_loop(algo: Algo) -> None:
    """The fixtures build what `run` builds: the same final parameters, to the bit."""
    settings = algo.settings(**LOTS, outputs="here", eval_every=4)
    saved = torch.load(run.run(settings, TINY, "").finals, weights_only=True)
    played: Played = player_of(settings)
    assert torch.equal(saved[settings.seed], played.x())

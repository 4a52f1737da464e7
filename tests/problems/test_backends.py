"""Every backend computes the same gradients, alone and in worker processes; which one is taken, and
what is refused.

The rules of single layers are in test_record_gradients.py and test_bookkeeping.py.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command import call
from helpers.crews import by_this_process, by_workers, differing, in_chunks, trace_of
from helpers.federations import TINY, Played, settings_of
from helpers.mixing_networks import Centred, Detached
from helpers.small_networks import CNN, LSTM, WORDS, images, sentences
from torch import Tensor, nn

from dpfl_bench.assembly.model import build_problem, gradient_backend
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.experiment import job
from dpfl_bench.problems.backends.flat import Flat
from dpfl_bench.problems.backends.loop import Loop
from dpfl_bench.problems.backends.vmap import Vmap
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.models.cnn import cnn
from dpfl_bench.problems.models.lstm import lstm
from dpfl_bench.problems.models.mlp import mlp
from dpfl_bench.problems.models.unet3d import unet3d
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.problems.problem import Batch
from dpfl_bench.problems.tasks import Task, classify, next_token, segment

pytestmark = pytest.mark.one_in(6)

BACKENDS = {"loop": Loop, "flat": Flat, "vmap": Vmap}  # those of any level; opacus: test_opacus.py
CLIENTS, LOT = 4, 5
DTYPES = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class Case:
    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    task: Task = dataclasses.field(default_factory=classify)

    def batch(self, dtype: torch.dtype, ragged: bool = True) -> Batch:
        """Uneven weights. Ragged: the second client's last two rows are padding, the third's lot is
        empty (Poisson).
        """
        draw = np.random.default_rng(0)
        features: Any = draw.normal(size=(CLIENTS, LOT, *self.shape))
        targets: Any = draw.integers(0, self.classes, (CLIENTS, LOT))
        if self.task.metric == "next_word_accuracy":
            features, targets = (
                draw.integers(0, self.classes, (CLIENTS, LOT, *self.shape)) for _ in range(2)
            )
            targets[0, :, -1] = -1  # a token that is padding
        if self.task.metric == "dice":
            targets = draw.integers(0, 2, (CLIENTS, LOT, *self.shape[1:])).astype(np.uint8)
        weights = draw.uniform(0.1, 1, (CLIENTS, LOT))
        if ragged:
            features[1, 3:], targets[1, 3:], weights[1, 3:], weights[2] = features[1, 0], targets[1, 0], 0, 0
        tensors = [torch.from_numpy(values) for values in (features, targets, weights)]
        return Batch(*(t.to(dtype) if t.is_floating_point() else t for t in tensors))

    def problem(self, backend: str, l2: float = 0.3) -> ModuleProblem:
        return ModuleProblem(self.make, self.classes, l2, self.task, backend)

    def rows(self, dtype: torch.dtype) -> Tensor:
        """Each client at a model of its own, alike in both formats."""
        start = self.problem("loop").start(3, torch.empty(0))
        far = 0.1 * torch.from_numpy(np.random.default_rng(1).normal(size=(CLIENTS, len(start)))).float()
        return (start + far).to(dtype)


NETWORKS = {
    "cnn": Case(partial(cnn, [1, 6, 6], 3, [4, 8], 3, "group"), (1, 6, 6), 3),
    "mlp": Case(partial(mlp, [7], 3, [6, 5]), (7,), 3),
    "lstm": Case(partial(lstm, [6], 5, 3, 4, 2, True, None), (6,), 5, next_token(1)),
    "unet3d": Case(partial(unet3d, [1, 5, 6, 4], 1, 2, 2), (1, 5, 6, 4), 1, segment()),
}
BATCH_NORM = Case(partial(cnn, [1, 6, 6], 3, [4], 3, "batch"), (1, 6, 6), 3)


def apart(found: Tensor, expected: Tensor) -> float:
    """Of each client's vector, as a part of its length."""
    lengths = expected.flatten(1).norm(dim=1).clamp(min=1e-30)
    return ((found.double() - expected.double()).flatten(1).norm(dim=1) / lengths).max().item()


def halving(norms: Tensor, weights: Tensor) -> Tensor:
    """Clips the longer half, or so, of all gradients."""
    bound = norms[weights > 0].median()
    return bound / norms.clamp(min=bound)


# the same numbers


@pytest.mark.parametrize("ragged", [False, True], ids=["full", "padded and empty"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradients(name: str, backend: str, dtype: torch.dtype, ragged: bool) -> None:
    case = NETWORKS[name]
    expected = case.problem("loop").gradient(case.rows(torch.float64), case.batch(torch.float64, ragged))
    y, batch = case.rows(dtype), case.batch(dtype, ragged)
    before = y.clone()
    found = case.problem(backend).gradient(y, batch)
    assert found.dtype == dtype
    assert apart(found, expected) < DTYPES[dtype]
    assert torch.equal(y, before)
    assert bool(ragged) == torch.equal(found[2], 0.3 * y[2])  # a lot that is empty


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_clipped_gradients(name: str, backend: str, dtype: torch.dtype) -> None:
    case = NETWORKS[name]
    expected, lengths = case.problem("loop").clipped_gradient(
        case.rows(torch.float64), case.batch(torch.float64), halving
    )
    batch = case.batch(dtype)
    found, norms = case.problem(backend).clipped_gradient(case.rows(dtype), batch, halving)
    assert found.dtype == norms.dtype == dtype
    assert apart(found, expected) < DTYPES[dtype]
    assert apart(norms[:2], lengths[:2]) < DTYPES[dtype]
    assert not norms[batch.weights == 0].any()
    assert (lengths > 1.01 * lengths[batch.weights > 0].median()).any()  # something was clipped


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_asked_twice_the_same_bits(name: str, backend: str) -> None:
    """Nothing is left in the buffers that stay, not of another model, another lot or a clipped
    sum.
    """
    case, batch = NETWORKS[name], NETWORKS[name].batch(torch.float32)
    y, problem = case.rows(torch.float32), case.problem(backend)
    first, clipped = problem.gradient(y, batch), problem.clipped_gradient(y, batch, halving)[0]
    problem.gradient(y.flip(0), batch)
    problem.clipped_gradient(2 * y, batch, halving)
    assert torch.equal(problem.gradient(y, batch), first)
    assert torch.equal(problem.clipped_gradient(y, batch, halving)[0], clipped)
    for client in range(CLIENTS):  # nor of another client
        alone = Batch(*(t[client : client + 1] for t in (batch.features, batch.targets, batch.weights)))
        assert apart(problem.gradient(y[client : client + 1], alone), first[client : client + 1]) < 1e-5


@pytest.mark.parametrize("ragged", [False, True], ids=["full", "padded and empty"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_norm_sees_no_padding(backend: str, dtype: torch.dtype, ragged: bool) -> None:
    case = BATCH_NORM
    expected = case.problem("loop").gradient(case.rows(torch.float64), case.batch(torch.float64, ragged))
    assert (
        apart(case.problem(backend).gradient(case.rows(dtype), case.batch(dtype, ragged)), expected)
        < DTYPES[dtype]
    )
    whole = case.batch(torch.float64)  # the second client's padding taken for records of weight 0
    padded = dataclasses.replace(whole, sizes=[LOT] * CLIENTS)
    found = case.problem("loop").gradient(case.rows(torch.float64), padded)
    assert apart(found[1:2], case.problem("loop").gradient(case.rows(torch.float64), whole)[1:2]) > 1e-2


def test_batch_norm_trains_with_every_backend() -> None:
    ends = []
    for backend in BACKENDS:
        settings = _with(backend, {**CNN, "norm": "batch"}, "algo=scaffold", "sample_rate=0.3")
        ends.append(images(settings).x())
    assert max(apart(end[None], ends[0][None]) for end in ends[1:]) < 1e-10


# in worker processes


def _with(backend: str, model: dict[str, Any], *overrides: str) -> Any:
    rounds = [o for o in TINY if not o.startswith("rounds")]
    settings = settings_of(*rounds, *overrides, "rounds=2", "sampled_clients=9", "lr=0.3", "dtype=float64")
    made = dataclasses.replace(
        settings, model=model, engine=dataclasses.replace(settings.engine, backend=backend)
    )  # type: ignore[arg-type]
    return in_chunks(made)


LEVELS = {
    "client": ("algo=dp_fedavg", "batch_size=4"),
    "record": ("algo=dp_fedavg", "privacy=record", "batch_size=4", "privacy.neighbours=replace_one"),
    "poisson": ("algo=dp_fedavg", "privacy=record", "sample_rate=0.15", "privacy.neighbours=add_remove_one"),
}


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ["cnn", "lstm"])
def test_backends_end_alike(name: str, level: str) -> None:
    """That a backend has the same bits whoever works: test_crew.py, but for the LSTM's loop."""
    ends = {}
    for backend in BACKENDS if name == "cnn" else ("loop", "flat"):
        settings = _with(backend, CNN if name == "cnn" else LSTM, *LEVELS[level])
        if name == "lstm":
            settings = dataclasses.replace(settings, dataset={**settings.dataset, **WORDS})
        build: Callable[[Any], Played] = images if name == "cnn" else sentences
        ends[backend] = build(settings).x()
        if (name, backend) == ("lstm", "loop"):
            alone, crew = (trace_of(build(settings), by) for by in (by_this_process, by_workers(3)))
            assert differing(crew, alone) == []
    assert max(apart(end[None], ends["loop"][None]) for end in ends.values()) < 1e-10
    if name == "cnn":
        assert len({end.numpy().tobytes() for end in ends.values()}) == 3  # they do compute differently


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_process_has_buffers_of_its_own(backend: str) -> None:
    """Made before the fork, they are still not shared: what one writes the others do not see."""
    case, y = NETWORKS["cnn"], NETWORKS["cnn"].rows(torch.float32)
    problem, batch = case.problem(backend), case.batch(torch.float32)
    expected = problem.gradient(y, batch)
    ours, theirs = os.pipe()
    if not (pid := os.fork()):
        try:
            problem.gradient(5 * y, batch)
        finally:
            os.write(theirs, b".")
            os._exit(0)
    os.read(ours, 1)
    os.waitpid(pid, 0)
    os.close(ours), os.close(theirs)
    assert torch.equal(problem.gradient(y, batch), expected)


# records that mix


class Scaled(nn.Module):
    """Hidden units over their mean square in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 3), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.hidden(x)
        return self.out((hidden / (hidden.square().mean() + 1e-5).sqrt()).relu())


@pytest.mark.parametrize("first", ["two records", "one record", "records alike", "records of zero"])
@pytest.mark.parametrize("make", [Centred, Detached, Scaled])
def test_records_that_mix_are_taken_one_by_one(make: Callable[[], nn.Module], first: str) -> None:
    """What an unknown network does to its batch must not reach the clipped sum: whatever lot a
    process happens to see first.
    """
    case = Case(make, (4,), 3)
    batch, y = case.batch(torch.float64, ragged=False), case.rows(torch.float64)
    expected, norms = case.problem("loop").clipped_gradient(y, batch, halving)
    features = {
        "two records": batch.features[:1, :2],
        "one record": batch.features[:1, :1],
        "records alike": batch.features[:1, :1].expand(1, 2, 4),
        "records of zero": torch.zeros(1, 2, 4).double(),
    }[first]
    count = features.shape[1]
    problem = case.problem("flat")
    problem.clipped_gradient(
        y[:1], Batch(features, batch.targets[:1, :count], batch.weights[:1, :count]), halving
    )
    found, lengths = problem.clipped_gradient(y, batch, halving)
    assert apart(lengths, norms) < 1e-10
    assert apart(found, expected) < 1e-10


# which one


def _module(name: str) -> nn.Module:
    with torch.device("meta"):
        return NETWORKS[name].make()


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1", "mps", "meta"])
@pytest.mark.parametrize("name", NETWORKS)
def test_auto_chooses_by_model_and_device(name: str, device: str) -> None:
    chosen = gradient_backend(settings_of(*TINY), _module(name), torch.device(device))
    assert chosen == ("flat" if device == "cpu" or name == "lstm" else "vmap")


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda"])
def test_auto_asks_for_the_device_of_the_run(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpfl_bench.machine.device.choose", torch.device)
    settings = dataclasses.replace(settings_of(*TINY), device=device, model=CNN)
    problem = build_problem(settings, [1, 6, 6], 3)
    assert isinstance(problem, ModuleProblem)
    assert problem.backend == ("flat" if device == "cpu" else "vmap")


@pytest.mark.parametrize("backend", ["flat", "vmap", "loop"])
def test_a_backend_that_is_asked_for_is_taken(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kind: Any = BACKENDS[backend]
    for name, other in BACKENDS.items():
        gradient = other.gradient
        monkeypatch.setattr(
            other,
            "gradient",
            lambda *given, name=name, gradient=gradient: calls.append(name) or gradient(*given),
        )
    images(_with(backend, CNN, "algo=fedavg")).x()
    assert set(calls) == {backend}
    assert isinstance(kind, type)


def test_linear_models_have_closed_forms() -> None:
    for backend in ("auto", "closed_form"):
        settings = settings_of("dataset=digits", f"engine.backend={backend}")
        assert isinstance(build_problem(settings, [64], 10), LinearProblem)


REFUSED = {
    "closed_form for a network": ("dataset=digits", "model=mlp", "engine.backend=closed_form"),
    "vmap for a recurrent one": ("dataset=shakespeare", "engine.backend=vmap", "clients=3", "records=10"),
    "flat for a linear one": ("dataset=digits", "engine.backend=flat"),
    "vmap for a linear one": ("dataset=digits", "engine.backend=vmap"),
    "loop for a linear one": ("dataset=synthetic_linear", "engine.backend=loop"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_one_line_before_data_loads(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def loaded(*_: Any) -> None:
        raise AssertionError("data")

    monkeypatch.setattr(job, "load_data", loaded)
    overrides = ("eps=inf", "device=cpu", *REFUSED[what])
    settings = settings_of(*overrides)
    with pytest.raises(ConfigError) as error:
        build_problem(settings, settings.dataset["shape"], settings.dataset["classes"])
    said = str(error.value)
    backend, model = settings.engine.backend, settings.model["name"]
    assert "\n" not in said
    assert said.startswith(f"engine.backend={backend}: ")
    assert f"model={model}" in said
    assert "use engine.backend=auto" in said
    told = call("run", *overrides)
    assert told.code == 2
    assert told.err.strip().splitlines()[-1] == f"dpfl-bench: {said}"


def test_a_word_that_is_no_backend() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^engine\.backend=fast: expected auto or closed_form or flat or vmap or loop or opacus"
        r"; did you mean engine\.backend=flat\?$",
    ):
        settings_of("engine.backend=fast")

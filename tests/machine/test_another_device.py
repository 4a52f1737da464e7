"""On a device that is not there (`helpers/twin.py`) everything plays with the CPU's numbers, and
what is left on the CPU is found.

What this does not show: the speed of a GPU, and the rounding of its kernels. The twin computes with
the CPU's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers import twin
from helpers.algorithms import ALGORITHMS, Algo
from helpers.command import call, read
from helpers.federations import TINY, Played, player_of, player_on, settings_of
from helpers.runs import same_numbers
from helpers.small_networks import CNN, LSTM, WORDS, images, sentences
from torch import nn

from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.experiment import train
from dpfl_bench.federation import dissimilarity
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.crew import Crew
from dpfl_bench.federation.doors.send_noise import SendNoise
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.evaluation import evaluate
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine import device
from dpfl_bench.privacy import bounding
from dpfl_bench.problems.module import ModuleProblem

ROUNDING = 1e-6  # of kernels that sum in another order
Build = Callable[[Settings], Played]


@pytest.fixture(autouse=True)
def _the_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch multiplies on the CPU too, as it does on every other device."""
    twin.device()
    monkeypatch.setattr(device, "numpy_multiplies", lambda: False)
    with torch.autograd.set_multithreading_enabled(False):  # a backward pass under its caller's lines
        yield


def on(where: str, settings: Settings, build: Build = player_of) -> Played:
    """The same chunks and backend wherever it runs."""
    engine = dataclasses.replace(settings.engine, chunk=4, workers=1)
    if engine.backend == "auto" and "linear" not in settings.model["_target_"]:
        engine = dataclasses.replace(engine, backend="flat")
    return build(dataclasses.replace(settings, device=where, engine=engine, rounds=2))


def numbers(played: Played) -> dict[str, np.ndarray]:
    """Everything that the rounds leave behind, and the evaluation of the last model."""
    found: dict[str, np.ndarray] = {}
    where = played.job.data.federation.features.device
    for done, state, facts in train.rounds(played.player, played.schedule, played.start, 0):
        parts = {**state.server._asdict(), "velocity": state.velocity, "memory": state.memory}
        for name, tensor in {**parts, "output": state.output}.items():
            if tensor is not None:
                assert tensor.device == where, name
                found[f"{name} {done}"] = tensor.cpu().double().numpy()
        told = [getattr(facts, f.name) for f in dataclasses.fields(facts) if f.name != "passage"]
        told += [state.clip, *facts.signal_and_noise(), facts.norm_of(0)]
        found[f"facts {done}"] = np.array(told, dtype=float)
        found[f"taken {done}"] = state.ledger.taken.copy()
    x, problem, federation = state.output, played.job.problem, played.job.data.federation
    found["scores"] = np.array(dataclasses.astuple(evaluate(problem, federation, x)))
    between = dissimilarity.dissimilarity(Alone(played.player).gradients(x), federation.clients)
    found["dissimilarity"] = np.array(between)
    return found


def assert_same(settings: Settings, build: Build = player_of, rounding: float = 0.0) -> None:
    there, here = (numbers(on(where, settings, build)) for where in (twin.NAME, "cpu"))
    assert there.keys() == here.keys()
    for name, expected in here.items():
        np.testing.assert_allclose(there[name], expected, rounding, rounding, err_msg=name)


# algorithms and doors


LOTS = {"batch_size": 4, "sampled_clients": 6, "server_momentum": 0.5, "average_last": 2}
OWN_UPDATE = {"memory": "own_update"}
DOORS: dict[str, dict[str, Any]] = {
    "local": {"trust": "local"},
    "secagg": {"trust": "secagg", **OWN_UPDATE},
    "central": {"trust": "central", **OWN_UPDATE},
    "discrete": {"trust": "secagg", "noise": "discrete", **OWN_UPDATE},
    "discrete, central": {"trust": "central", "noise": "discrete", **OWN_UPDATE},
    "normalise": {"bound": "normalise"},
    "quantile": {"trust": "central", "quantile": 0.5, **OWN_UPDATE},
    "median": {"clip": "median"},
    "privunit": {"trust": "local", "mechanism": "privunit", "eps0": 2.0, "eps1": 2.0, "eps2": 2.0},
}
RECORD_DOORS: dict[str, dict[str, Any]] = {
    "fixed lots": {"batch_size": 4},
    "full lots": {"batch_size": None},
    "poisson lots": {"batch_size": None, "sample_rate": 0.4},
    "median of a lot": {"privacy": {"clip": "median"}},
}


def doors_of(algo: Algo) -> list[str]:
    settings = algo.settings()
    if not settings.private:
        return ["open"]
    return [*(RECORD_DOORS if settings.privacy.unit == "record" else DOORS), "open"]


@pytest.mark.one_in(7)
@pytest.mark.parametrize(
    ("algo", "door"),
    [(algo, door) for algo in ALGORITHMS for door in doors_of(algo)],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_every_algorithm_at_every_door(algo: Algo, door: str) -> None:
    changes = {**LOTS, **RECORD_DOORS.get(door, {"privacy": DOORS.get(door, {})})}
    if door == "open":
        changes["eps"] = float("inf")
    assert_same(algo.settings(**changes))


# models and backends


def of_shape(shape: tuple[int, ...], classes: int, **more: Any) -> Build:
    """Ten clients with eight records each."""

    def build(settings: Settings) -> Played:
        draw = np.random.default_rng(0)
        x = draw.normal(size=(100, *shape)).astype(np.float32)
        y = draw.integers(0, max(classes, 2), (100, *(shape[1:] if more.get("task") == "segment" else ())))
        if more.get("task") == "segment":
            y = y.astype(np.uint8)
        if classes == 0:
            y = y.astype(np.float32)
        owners = {"owners": np.repeat(np.arange(10), 8), "test_owners": np.arange(20) % 10}
        records = Records(x[:80], y[:80], x[80:], y[80:], None, classes, "random", None, **more)
        records = dataclasses.replace(records, **owners)
        return player_on(settings, records, list(np.arange(80).reshape(10, 8)))

    return build


def model(name: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": f"dpfl_bench.problems.models.{name}.{name}", "name": name, **arguments}


MLP = model("mlp", hidden=[4])
PLAIN = model(
    "cnn", channels=[4, 3], kernel=3, stride=2, norm="none", pool=1, activation="tempered", hidden=[5]
)
VGG = model("vgg", channels=[3, 4, 4], pool=[2, 1, 1], pooled=2, hidden=[5], norm="group")
UNET = model("unet3d", channels=2, blocks=2)
ONE_CLASS = {**LSTM, "every_position": False}
LEAST_SQUARES = {
    "_target_": "dpfl_bench.problems.linear.linreg",
    "name": "linreg",
    "l2": 0.1,
    "bias": True,
    "init": "near_optimum",
    "init_scale": 1.0,
}
SEGMENTS = {"task": "segment"}
# name -> (model, dataset's settings, its records); the model's family, as in conf/model
MODELS: dict[str, tuple[dict[str, Any] | None, dict[str, Any], Build]] = {
    "two classes": (None, {}, of_shape((5,), 2)),
    "least squares": (LEAST_SQUARES, {}, of_shape((5,), 0)),
    "mlp": (MLP, {}, of_shape((5,), 3)),
    "cnn": (CNN, {}, images),
    "plain cnn": (PLAIN, {}, of_shape((2, 7, 7), 3)),
    "vgg": (VGG, {}, of_shape((1, 6, 6), 3)),
    "unet3d": (UNET, SEGMENTS, of_shape((1, 4, 4, 4), 1, task="segment")),
    "lstm": (LSTM, WORDS, sentences),
}
UNITS = {"client": ("algo=dp_scaffold",), "record": ("algo=dp_scaffold", "privacy=record", "batch_size=3")}
BACKENDS = {"client": ["flat", "vmap", "loop"], "record": ["flat", "vmap", "loop", "opacus"]}
CLOSED = {"two classes", "least squares"}


def backends_of(name: str, unit: str) -> list[str]:
    if name in CLOSED:
        return ["auto"]
    # recurrent layers: vmap refuses them, Opacus has none
    return [each for each in BACKENDS[unit] if name != "lstm" or each in ("flat", "loop")]


def played_by(name: str, unit: str, backend: str) -> tuple[Settings, Build]:
    node, dataset, build = MODELS[name]
    settings = settings_of(*UNITS[unit], *TINY)
    engine = dataclasses.replace(settings.engine, backend=backend)
    settings = dataclasses.replace(
        settings,
        model=settings.model if node is None else node,
        dataset={**settings.dataset, **dataset},
        engine=engine,
        local_steps=2,
        sampled_clients=5,
    )
    return settings, build


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("name", "unit", "backend"),
    [(name, unit, each) for name in MODELS for unit in UNITS for each in backends_of(name, unit)],
)
def test_every_model_by_every_backend(name: str, unit: str, backend: str) -> None:
    settings, build = played_by(name, unit, backend)
    assert_same(settings, build, ROUNDING)


# whole runs


GIVEN = (
    "run",
    *(word for word in TINY if word != "device=cpu"),
    "algo=dp_scaffnew",
    "server_momentum=.5",
    "eval_every=1",
    "checkpoint_every=2",
    "measure=[client,iterates,train_error,dissimilarity]",
    "engine.chunk=4",
    "engine.workers=1",
)
DEVICES = ("cpu", twin.NAME)


def whole(where: str) -> Path:
    return call(*GIVEN, f"device={where}", f"outputs=whole-{where}").folder.absolute()


def test_a_run_has_the_same_files() -> None:
    here, there = map(whole, DEVICES)
    same_numbers(here, there)
    assert read(there, "env.json")["device"] == f"{twin.NAME}:0"


@pytest.mark.parametrize("first", DEVICES)
def test_a_run_goes_on_on_another_device(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (second,) = set(DEVICES) - {first}
    play = RoundPlayer.play

    def until_broken(player: RoundPlayer, state: TrainingState, round: PlannedRound, crew: Crew) -> Any:
        if round.index == 3:
            raise OSError("killed")
        return play(player, state, round, crew)

    with monkeypatch.context() as patched:
        patched.setattr(RoundPlayer, "play", until_broken)
        with pytest.raises(OSError, match="killed"):
            call(*GIVEN, f"device={first}", "outputs=cut")
    (folder,) = Path("cut/runs").iterdir()
    kept = train.Checkpoint.load(folder / "checkpoint" / "latest.pt")
    assert kept.done == 2
    assert {t.device.type for t in (*kept.server, kept.velocity, kept.memory, kept.earlier)} == {"cpu"}
    said = call(*GIVEN, f"device={second}", "outputs=cut")
    assert "goes on" not in said.err
    same_numbers(whole(second), said.folder)


# what is left on the CPU is found


class Forgetful(nn.Module):
    """Makes a tensor in its forward pass, wherever torch makes one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x) + torch.ones(3)
        return out


def in_a_door(patched: pytest.MonkeyPatch, played: Played) -> None:
    def passage(player: RoundPlayer, round: PlannedRound, clip: float, x: torch.Tensor) -> SendPassage:
        return SendPassage(player.send_door, round, clip, torch.zeros(len(x)))

    patched.setattr(RoundPlayer, "passage", passage)


def in_the_factors(patched: pytest.MonkeyPatch, played: Played) -> None:
    scales = bounding.scales
    patched.setattr(bounding, "scales", lambda norms, bound: scales(norms, bound).cpu())


def in_the_noise(patched: pytest.MonkeyPatch, played: Played) -> None:
    patched.setattr(SendNoise, "on_total", lambda self, total: total + torch.zeros(len(total)))


def in_the_memories(patched: pytest.MonkeyPatch, played: Played) -> None:
    assert played.start.memory is not None
    object.__setattr__(played.start, "memory", played.start.memory.cpu())


def in_the_evaluation(patched: pytest.MonkeyPatch, played: Played) -> None:
    federation = played.job.data.federation
    patched.setattr(federation, "record_weights", federation.record_weights.cpu())


def in_the_test_set(patched: pytest.MonkeyPatch, played: Played) -> None:
    federation = played.job.data.federation
    patched.setattr(federation, "test_targets", federation.test_targets.cpu())


def in_a_model(patched: pytest.MonkeyPatch, played: Played) -> None:
    object.__setattr__(played.player, "problem", ModuleProblem(Forgetful, 3, backend="vmap"))


PLANTED = {
    in_a_door: ("client", r"cpu \(18,\) at federation/doors/send_passage\.py:\d+"),
    in_the_factors: ("record", r"cpu \(3, 3\) at problems/linear_problem\.py:\d+"),
    in_the_noise: ("client", r"cpu \(18,\) at federation/doors/send_passage\.py:\d+"),
    in_the_memories: ("client", r"federation/round_player\.py:\d+|algorithms/scaffold\.py:\d+"),
    in_the_evaluation: ("client", r"cpu \(120,\) at federation/evaluation\.py:\d+"),
    in_the_test_set: ("client", r"problems/linear_problem\.py:\d+"),
    in_a_model: ("client", r"cpu \(3,\) at problems/network\.py:\d+"),
}


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_what_is_left_on_the_cpu_is_found(
    plant: Callable[[pytest.MonkeyPatch, Played], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    unit, words = PLANTED[plant]
    for where in DEVICES:
        played = on(where, settings_of(*UNITS[unit], *TINY))
        with monkeypatch.context() as patched:
            plant(patched, played)
            if where == "cpu":
                numbers(played)  # nobody would notice
            else:
                with pytest.raises(twin.Apart, match=words):
                    numbers(played)


def test_the_twin_s_own_rules() -> None:
    x, here = torch.arange(6.0).view(2, 3).to(twin.NAME), torch.ones(3)
    for mix in (
        lambda: x + here,
        lambda: here + x,
        lambda: here.mul_(x[0]),
        lambda: torch.cat([x[0], here]),
        lambda: torch.stack([x[0, 0], torch.tensor(1.0)]),
        lambda: x @ here,
        lambda: torch.where(torch.ones(3, dtype=torch.bool), x, 0.0),
        lambda: torch.tensor(0.0).add_(x[0, 0]),
        lambda: nn.Linear(3, 2)(x),
    ):
        with pytest.raises(twin.Apart, match=r"privateuseone meets cpu"):
            mix()
    with pytest.raises(TypeError, match="numpy"):
        x.numpy()
    assert torch.equal((x * torch.tensor(2.0)).cpu(), 2 * x.cpu()), "a number of the CPU may come"
    assert torch.equal(x[torch.tensor([1])].cpu(), x.cpu()[1:]), "so may indices"
    x[0].mul_(0)
    assert x.sum().item() == 12, "a view is a view"


def test_the_twin_counts() -> None:
    x = torch.arange(6.0).view(2, 3).to(twin.NAME)
    with twin.watched() as seen:
        _ = x.sum().item(), float(x[0, 0]), bool(x[0, 1] > 0), x.tolist(), x.cpu(), x[x > 1], x.nonzero()
        assert sum(seen.reads.values()) == 7
        torch.ones(3).to(x), torch.as_tensor(1.0, device=x.device), torch.tensor([1], device=x.device)
        assert sum(seen.uploads.values()) == 3
        seen.clear()
        _ = (x * 2).sum(), x.clone(), torch.zeros_like(x), x.new_ones(2), torch.arange(3, device=x.device)
        assert not seen.reads
        assert not seen.uploads

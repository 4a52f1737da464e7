"""On a device that is not there (`helpers/twin.py`) everything plays with the CPU's numbers, and
what is left on the CPU is found.

What this does not show: the speed of a GPU, and the rounding of its kernels. The twin computes with
the CPU's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import twin
from helpers.algorithms import ALGORITHMS, Algo
from helpers.command import call, read
from helpers.devices import (
    DOORS,
    LOTS,
    MODELS,
    RECORD_DOORS,
    ROUNDING,
    UNITS,
    assert_crossings,
    assert_same,
    backends_of,
    doors_of,
    numbers,
    on,
    played_by,
    rounds,
)
from helpers.federations import TINY, Played, settings_of
from helpers.runs import same_numbers
from torch import nn

from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import train
from dpfl_bench.federation.crew import Crew
from dpfl_bench.federation.doors.send_noise import SendNoise
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.round_player import RoundPlayer
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.privacy import bounding
from dpfl_bench.problems.module import ModuleProblem


@pytest.mark.one_in(16)
@pytest.mark.parametrize(
    ("algo", "door"),
    [(algo, door) for algo in ALGORITHMS for door in doors_of(algo)],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_every_algorithm_at_every_door(algo: Algo, door: str) -> None:
    changes = {**LOTS, **RECORD_DOORS.get(door, {"privacy": DOORS.get(door, {})})}
    if door == "open":
        changes["eps"] = float("inf")
    settings = algo.settings(**changes)
    assert_crossings(assert_same(settings), settings, door)


@pytest.mark.one_in(8)
@pytest.mark.parametrize(
    ("name", "unit", "backend"),
    [(name, unit, each) for name in MODELS for unit in UNITS for each in backends_of(name, unit)],
)
def test_every_model_by_every_backend(name: str, unit: str, backend: str) -> None:
    settings, build = played_by(name, unit, backend)
    assert_crossings(assert_same(settings, build, ROUNDING), settings)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "backend"), [("two classes", "auto"), ("mlp", "flat"), ("mlp", "vmap")])
@pytest.mark.parametrize("unit", UNITS)
def test_what_is_not_finite_is_left_out_there_too(name: str, unit: str, backend: str) -> None:
    """Nobody asks there whether there is anything to leave out."""
    settings, build = played_by(name, unit, backend)
    settings = dataclasses.replace(settings, sampled_clients=10, batch_size=None)

    def broken(settings: Settings) -> Played:
        played = build(settings)
        played.job.data.federation.features[0] = float("inf")
        return played

    assert sum(assert_same(settings, broken, ROUNDING).waits.values()) == 1
    assert all(facts.blanked for _, _, facts, _ in rounds(on(twin.NAME, settings, broken)))


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
    assert read(there, "result.json")["engine"] == {"backend": "closed_form", "chunk": 4}
    assert "gpu_memory: 4.0" in (there / ".hydra" / "config.yaml").read_text()


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
        assert seen.blocking == seen.uploads
        assert sum(seen.waits.values()) == 7 + 3
        seen.clear()
        _ = x.where(x > 1, torch.tensor(0.0)), torch.ones(3).to(x.device, non_blocking=True)
        assert sum(seen.uploads.values()) == 2
        assert [name for name, _ in seen.blocking] == ["where.self"]
        seen.clear()
        _ = x.where(x > 1, 0), x.masked_fill(x > 1, 0)
        _ = (x * 2).sum(), x.clone(), torch.zeros_like(x), x.new_ones(2), torch.arange(3, device=x.device)
        assert not seen.reads
        assert not seen.uploads

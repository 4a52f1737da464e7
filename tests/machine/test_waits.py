"""What a round waits for on a device, what it sends there, and that neither depends on who else
uses the device. `assert_crossings` holds the counts for every algorithm, unit, trust, model and
backend (`test_another_device.py`); here are the negative controls.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from helpers import twin
from helpers.devices import CHUNKS, LOTS, assert_crossings, numbers, on
from helpers.federations import TINY, player_of, settings_of
from torch import Tensor

from dpfl_bench.algorithms.base import Local, Server
from dpfl_bench.algorithms.fedavg import FedAvg
from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import engine
from dpfl_bench.federation import evaluation
from dpfl_bench.federation.doors import gradient
from dpfl_bench.machine import device
from dpfl_bench.problems.problem import Problem

STEPS = 3


def settings_with(*overrides: str) -> Settings:
    return dataclasses.replace(settings_of("algo=dp_fedavg", *TINY, *overrides), **LOTS)


def record_level() -> Settings:
    return settings_with("privacy=record", "privacy.neighbours=replace_one")


def crossed(settings: Settings) -> twin.Seen:
    return numbers(on(twin.NAME, settings))[1]


def test_a_program_that_asks_waits_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does on a CPU, where asking costs nothing. No number differs."""
    settings = record_level()
    found, seen = numbers(on(twin.NAME, settings))
    assert_crossings(seen, settings)
    monkeypatch.setattr(device, "apart", lambda tensor: False)
    asked, seen = numbers(on(twin.NAME, settings))
    assert sum(seen.waits.values()) > 3 * CHUNKS * STEPS
    uploads = {place.partition(":")[0]: often for (_, place), often in seen.uploads.items()}
    assert uploads["federation/doors/gradient.py"] == CHUNKS * STEPS
    assert all(np.array_equal(asked[name], found[name], equal_nan=True) for name in found)
    with pytest.raises(AssertionError):
        assert_crossings(seen, settings)


class Asks(FedAvg):
    def client(self, server: Server, memory: Tensor, local: Local) -> Tensor:
        update = super().client(server, memory, local)
        return update if update.sum().item() < 1e9 else update / 2


def test_a_number_that_an_algorithm_asks_for_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_with()
    played = on(twin.NAME, settings)
    object.__setattr__(played.player, "algorithm", Asks())
    waits = numbers(played)[1].waits
    assert sum(waits.values()) == 1 + CHUNKS


def test_a_copy_that_is_not_queued_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "QUEUED", {"cuda"})
    seen = crossed(settings_with())
    assert seen.blocking == seen.uploads
    assert sum(seen.waits.values()) == 1 + sum(seen.uploads.values())


def test_much_noise_goes_in_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two steps at a time here: 3 clients, 18 numbers. No number differs."""
    settings = record_level()
    found, _ = numbers(on(twin.NAME, settings))
    monkeypatch.setattr(gradient, "PIECE_NUMBERS", 2 * 3 * 18)
    again, seen = numbers(on(twin.NAME, settings))
    sent = [often for (_, place), often in seen.uploads.items() if "doors/gradient" in place]
    assert sent == [2 * CHUNKS]
    assert all(np.array_equal(again[name], found[name], equal_nan=True) for name in found)


def test_an_evaluation_does_not_wait_for_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    played = on(twin.NAME, settings_with())
    waits = []
    for size in (2**18, 5 * 7):  # one batch, and batches of seven records
        monkeypatch.setattr(evaluation, "BATCH_NUMBERS", size)
        with twin.watched() as seen:
            evaluation.evaluate(played.job.problem, played.job.data.federation, played.start.output)
        waits.append(sum(seen.waits.values()))
    assert waits[0] == waits[1] <= 10


# the chunk of a GPU


def played_with(free: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bytes]:
    """Clients at a time, and the model after two rounds, where so many bytes are free."""
    monkeypatch.setattr(device, "free_memory", lambda where: free)
    settings = settings_with("algo=dp_fedavg")
    chosen = dataclasses.replace(settings.engine, chunk=None, workers=1)
    played = player_of(dataclasses.replace(settings, device=twin.NAME, engine=chosen, rounds=2))
    return played.player.chunk, played.x().cpu().numpy().tobytes()


FREE = (2 * 10**3, 10**4, 10**12)


def test_no_bit_depends_on_who_else_uses_the_card(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({played_with(free, monkeypatch) for free in FREE}) == 1


def test_a_chunk_by_free_memory_would_move_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    chunk = engine.chunk

    def planted(settings: Settings, problem: Problem, federation: Any) -> int:
        free = (device.free_memory(torch.device(twin.NAME)) or 0) / 1e9
        given = dataclasses.replace(settings.engine, gpu_memory=free)
        return chunk(dataclasses.replace(settings, engine=given), problem, federation)

    monkeypatch.setattr(engine, "chunk", planted)
    found = [played_with(free, monkeypatch) for free in FREE]
    assert len({clients for clients, _ in found}) == len({bits for _, bits in found}) == len(FREE)

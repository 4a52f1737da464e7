"""Runs played by one process and by worker processes, and what each round of them leaves behind."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from typing import Any

import torch

from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import train
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.federation.workers import Workers
from helpers.federations import Played, player_of

CHUNK = 2  # of 9 clients: five groups, the last of which has one
Trace = dict[str, list[bytes]]  # what is compared -> its bytes after each round
Build = Callable[[Settings], Played]


def in_chunks(settings: Settings, chunk: int = CHUNK) -> Settings:
    return dataclasses.replace(settings, engine=dataclasses.replace(settings.engine, chunk=chunk))


def bits(tensor: torch.Tensor | None) -> bytes:
    return b"" if tensor is None else tensor.contiguous().numpy().tobytes()


def left_behind(state: TrainingState, diagnostics: Any, crew: Any) -> dict[str, bytes]:
    """Everything that a round leaves behind, to the bit (a NaN is a NaN)."""
    ledger = state.ledger
    trace = {f"server.{name}": bits(t) for name, t in zip(state.server._fields, state.server, strict=True)}
    trace |= {"velocity": bits(state.velocity), "memory": bits(state.memory), "earlier": bits(state.earlier)}
    trace |= {
        "taken": ledger.taken.tobytes(),
        "releases": repr((ledger.rounds, sorted(ledger.sums.items()))).encode(),
    }
    facts = [field.name for field in dataclasses.fields(diagnostics) if field.name != "passage"]
    numbers = [state.clip, *(getattr(diagnostics, fact) for fact in facts)]
    numbers += diagnostics.signal_and_noise()
    numbers += [diagnostics.norm_of(client) for client in range(len(ledger.taken))]
    trace["numbers"] = struct.pack(
        f"{len(numbers)}d", *(float("nan") if number is None else number for number in numbers)
    )
    sums = [bits(column) for one in crew.gradients(state.output) for column in one]
    trace["gradients"] = b"".join(sums)
    for test in (False, True):
        trace |= {f"{name} {test}": bits(t) for name, t in crew.losses(state.output, test)._asdict().items()}
    return trace


def by_this_process(played: Played) -> Alone:
    return Alone(played.player)


def by_workers(count: int) -> Callable[[Played], Workers]:
    return lambda played: Workers(played.player, played.start, count)


def trace_of(played: Played, crew_of: Callable[[Played], Any]) -> Trace:
    """What all rounds leave behind, played by the crew that `crew_of` builds."""
    trace: Trace = {}
    with crew_of(played) as crew:
        for _, state, diagnostics in train.rounds(played.player, played.schedule, played.start, 0, crew):
            for name, value in left_behind(state, diagnostics, crew).items():
                trace.setdefault(name, []).append(value)
    return trace


def differing(one: Trace, other: Trace) -> list[str]:
    assert list(one) == list(other)
    return [
        f"{name} after round {k + 1}"
        for name in one
        for k, (a, b) in enumerate(zip(one[name], other[name], strict=True))
        if a != b
    ]


def same_with_a_crew(
    settings: Settings, build: Build = player_of, groups: int = 6, counts: tuple[int, ...] = (3,)
) -> Trace:
    """What one process finds; asserts that it worked in so many groups, that crews of so many
    workers agree, and that something happened.
    """
    first = build(settings)
    assert len(first.player.groups(first.schedule.round(0).cohort)) == groups
    expected = trace_of(first, by_this_process)
    assert len(set(expected["server.x"])) > 1
    for count in counts:
        assert differing(trace_of(build(settings), by_workers(count)), expected) == [], f"{count} workers"
    return expected

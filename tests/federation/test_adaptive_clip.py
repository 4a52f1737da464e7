"""C that follows the norms: adaptive quantile clipping, accounted; the median, which is not and
says so wherever it shows.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.command import QUICK, call, metrics, read
from helpers.federations import TINY, player_of, settings_of

from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.experiment.build_player import build_send_door
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.doors.send import SendDoor
from dpfl_bench.federation.doors.send_passage import SendPassage
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.privacy.ledger import Ledger

pytestmark = pytest.mark.one_in(3)


CLIENTS = 50
EVERYONE = np.arange(CLIENTS)


def door_of(*overrides: str) -> SendDoor:
    settings = settings_of(
        "algo=dp_fedavg",
        f"clients={CLIENTS}",
        "privacy.quantile=0.5",
        "privacy.calibration=fixed",
        "privacy.noise_multiplier=0.6",
        *overrides,
    )
    return build_send_door(settings, Budget.of(settings, drawn_schedules(settings)), 0)


def next_clip(door: SendDoor, updates: torch.Tensor, round: int, clip: float) -> float:
    passage = SendPassage(
        door,
        PlannedRound(round, 1, 1.0, 1.0, EVERYONE, CLIENTS),
        clip,
        torch.zeros(updates.shape[1], dtype=torch.float64),
    )
    passage.send(updates, EVERYONE)
    passage.sent(Ledger(CLIENTS))
    return passage.next_clip()


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_without_noise_c_goes_to_the_quantile(quantile: float) -> None:
    door = door_of("privacy=central")
    assert door.quantile is not None
    still = replace(door, noise=0.0, quantile=replace(door.quantile, target=quantile, std=0.0))
    lengths = torch.linspace(0.1, 3.0, CLIENTS, dtype=torch.float64)
    updates = lengths[:, None] * torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    clip = 0.01
    for k in range(300):
        clip = next_clip(still, updates, k, clip)
    assert clip == pytest.approx(lengths.quantile(quantile).item(), rel=0.1)


@pytest.mark.parametrize("neighbours", ["replace_one", "add_remove_one"])
@pytest.mark.parametrize("trust", ["central", "secagg", "local"])
def test_the_bits_have_the_noise_that_is_accounted_for(trust: str, neighbours: str) -> None:
    """Multiplier 5 * .6 of a sum that one client moves by 1 if it is replaced, by 1/2 if it falls
    silent (the bits are centred).
    """
    door = door_of(f"privacy={trust}", f"privacy.neighbours={neighbours}", "privacy.quantile_noise=5")
    updates = torch.ones(CLIENTS, 2, dtype=torch.float64)  # all norms below C
    rounds = 400
    shares = np.array([0.5 - math.log(next_clip(door, updates, k, 2.0) / 2.0) / 0.2 for k in range(rounds)])
    expected = 5 * 0.6 * {"replace_one": 1, "add_remove_one": 0.5}[neighbours] / CLIENTS
    expected *= math.sqrt(CLIENTS) if trust == "local" else 1
    assert abs(shares.std(ddof=1) / expected - 1) < 5 / math.sqrt(2 * rounds) < abs(1.3 - 1)
    assert abs(shares.mean() - 1) < 5 * expected / math.sqrt(rounds)


def test_the_bits_cost_what_the_closed_form_says() -> None:
    from dpfl_bench.privacy.divergences.gaussian import eps_of_gaussian

    folder = call(
        "run",
        "algo=dp_fedavg",
        "privacy.quantile=0.5",
        "eps=3",
        "rounds=4",
        "local_steps=2",
        "eval_every=1",
        *QUICK,
    ).folder
    told = read(folder, "privacy.json")
    kinds = {release["kind"]: release for release in told["releases"]}
    z, bits = kinds["update"]["noise_multiplier"], kinds["number of norms below C"]["noise_multiplier"]
    assert bits == pytest.approx(5 * z)
    assert told["eps"] == pytest.approx(eps_of_gaussian(math.sqrt(4 * (z**-2 + bits**-2)), 1e-5), rel=1e-9)
    assert told["fully_accounted"] is True
    clips = metrics(folder)["clip"].dropna()
    assert clips.iloc[0] == 0.3
    assert clips.nunique() == 4


@pytest.mark.slow
def test_noise_follows_c() -> None:
    """Standard deviation z S with the S of the round's own C."""
    shared = [*TINY, "algo=dp_fedavg", "privacy.quantile=0.5", "dtype=float64"]
    played = player_of(settings_of(*[o for o in shared if not o.startswith("rounds")], "rounds=300"))
    quiet = replace(played.player, send_door=replace(played.player.send_door, noise=0.0))
    found = []
    for clip in (0.1, 1.0):
        start = replace(played.start, clip=clip)
        same = quiet.play(start, played.schedule.round(0), Alone(quiet))[0].server.x
        ends = torch.stack([played.play(start, played.schedule.round(k))[0].server.x for k in range(300)])
        found.append((ends - same).square().mean().sqrt().item() * 10 / (2 * clip))
    assert found == pytest.approx([0.5, 0.5], rel=5 / math.sqrt(2 * 300 * 18))


MEDIAN = ("algo=dp_fedavg", "privacy.clip=median", "eps=3", "rounds=3", "local_steps=2", "device=cpu")


@pytest.mark.parametrize("unit", ["client", "record"])
def test_the_median_is_marked_everywhere(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpfl_bench.results import plots
    from dpfl_bench.results.figures import panels

    looks: list[panels.Look] = []
    drawn = panels.draw
    monkeypatch.setattr(plots, "draw", lambda marks, look: [looks.append(look), drawn(marks, look)][1])
    overrides = [
        *MEDIAN,
        "plot=true",
        *(["privacy=record", "privacy.clip=median"] if unit == "record" else []),
    ]
    said = call("run", *overrides)
    told, result = read(said.folder, "privacy.json"), read(said.folder, "result.json")
    assert told["fully_accounted"] is result["fully_accounted"] is False
    assert any("median" in leak for leak in told["not_accounted"])
    assert "not fully accounted" in said.err
    assert "not fully accounted" in looks[0].title + looks[0].note
    collected = call("collect", str(said.folder))
    table = json.loads(call("collect", str(said.folder), "--json").out)["table"]
    assert "not fully accounted" in table[0]["guarantee"]
    assert collected.code == 0
    planned = call("plan", *overrides)
    assert "NOT FULLY ACCOUNTED" in planned.out


def test_a_fixed_c_is_not_marked() -> None:
    folder = call("run", "algo=dp_fedavg", "eps=3", "rounds=3", "local_steps=2", *QUICK).folder
    assert read(folder, "privacy.json")["fully_accounted"] is True
    assert "NOT FULLY" not in call("plan", "algo=dp_fedavg").out

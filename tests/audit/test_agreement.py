"""A record that contradicts itself is refuted, whatever number in it is changed."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.federations import TINY, settings_of

from dpfl_bench.audit import agreement
from dpfl_bench.audit.claim import BROKEN, Claim
from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.experiment import privacy_record
from dpfl_bench.experiment.job import prepare

Record = dict[str, Any]
Place = tuple[str | int, ...]

RECORD = ("privacy=record", "algo=dp_fedavg", "rounds=2")
PRIVUNIT = ("privacy.mechanism=privunit", "privacy.noise_multiplier=null", "algo=dp_fedexp")
RUNS: dict[str, tuple[str, ...]] = {
    "messages": ("privacy=local", "algo=dp_scaffold"),
    "shares, of which some collude": ("privacy.colluding=3",),
    "squared norms": ("privacy=central", "algo=dp_fedexp"),
    "zero-out": ("algo=dp_fedexp", "privacy.neighbours=add_remove_one"),
    "bits, and a C that changes": ("algo=dp_fedavg", "privacy.quantile=0.5"),
    "a median": ("algo=dp_fedavg", "privacy.clip=median"),
    "on a grid": ("algo=dp_fedavg", "privacy.noise=discrete"),
    "own messages": ("privacy.memory=own_message",),
    "cohorts that remember": ("sampled_clients=4",),
    "secret cohorts": ("algo=dp_fedavg", "sampled_clients=4", "privacy.observer=third_party"),
    "Poisson cohorts": (
        *("algo=dp_fedavg", "privacy=central", "sampled_clients=4", "client_sampling=poisson"),
        "privacy.neighbours=add_remove_one",
    ),
    "all records": RECORD,
    "fixed lots": (*RECORD, "batch_size=3"),
    "Poisson lots": (*RECORD, "sample_rate=0.25", "privacy.neighbours=add_remove_one"),
    "lots of sampled clients": (*RECORD, "batch_size=3", "sampled_clients=4", "privacy.observer=third_party"),
    "PrivUnit": ("privacy=local", *PRIVUNIT, *(f"privacy.eps{i}=1.4" for i in range(3))),
    "Renyi's accountant": ("privacy.accountant=rdp", *RECORD, "batch_size=3"),
    "a paper's accountant": (
        *(*RECORD, "algo=dp_scaffold", "batch_size=3", "sampled_clients=4"),
        *("privacy.observer=third_party", "privacy.accountant=paper"),
    ),
}


@pytest.fixture(params=RUNS)
def record(request: pytest.FixtureRequest) -> Record:
    job = prepare(settings_of(*TINY, *RUNS[request.param]))
    made: Record = json.loads(json.dumps(privacy_record.privacy(job, None, Guarantee.of(job.budget))))
    return made


def seen(record: Record) -> bool:
    """Whether a contradiction is seen, or the record is refused."""
    try:
        return bool(list(agreement.contradictions(Claim.read(record))))
    except (ConfigError, *BROKEN):
        return True


def numbers(node: Any, place: Place = ()) -> Iterator[Place]:
    """Where the numbers stand."""
    if isinstance(node, dict | list):
        for key, each in node.items() if isinstance(node, dict) else enumerate(node):
            yield from numbers(each, (*place, key))
    elif isinstance(node, int | float) and not isinstance(node, bool):
        yield place


def changed(record: Record, place: Place, factor: float) -> Record:
    new = copy.deepcopy(record)
    node: Any = new
    for key in place[:-1]:
        node = node[key]
    value = node[place[-1]]
    node[place[-1]] = value * factor if isinstance(value, float) else value + 1
    return new


ANYTHING = ("rate", "population", "sample", "share", "scale", "cohort_size", "repeats")  # not always used
OF_DRAWS = ("sampling", "lots", "rounds", "times_of_worst_client")  # what was drawn is held to them
LOOKED_AT = ("clip", "sensitivity_over_clip", "epsilons")  # replay and law are held to them


@pytest.mark.one_in(4)
def test_every_number_is_tied_to_the_others(record: Record) -> None:
    assert not seen(record)
    for top in ("accounted", "releases", "eps", "delta"):
        for place in numbers(record[top], (top,)):
            if "fresh" in place or {*ANYTHING, *OF_DRAWS, *LOOKED_AT} & {*place}:
                continue
            if place == ("delta",) and record["mechanism"] == "privunit":
                continue  # pure: no delta is in it
            assert seen(changed(record, place, 0.95)), place
            assert seen(changed(record, place, 1.05)), place


@pytest.mark.parametrize("key", ["rate", "sample", "population"])
def test_the_draws_that_amplify_are_those_that_took_place(key: str) -> None:
    name = "Poisson lots" if key == "rate" else "fixed lots"
    job = prepare(settings_of(*TINY, *RUNS[name]))
    record = json.loads(json.dumps(privacy_record.privacy(job, None, Guarantee.of(job.budget))))
    assert seen(changed(record, ("accounted", "as_one_of", 0, key), 0.95))


def test_noise_that_was_raised_everywhere_is_found_in_the_noise() -> None:
    """The record then agrees with itself, but for eps."""
    job = prepare(settings_of(*TINY, "privacy=local", "algo=dp_fedavg"))
    record = privacy_record.privacy(job, None, Guarantee.of(job.budget))
    right = Claim.read(record)
    record["accounted"]["noise_multiplier"] *= 1.05
    assert Claim.read(record).std_ratio == pytest.approx(1.05 * right.std_ratio, rel=1e-12)
    assert Claim.read(record).noise["update"] == record["accounted"]["noise_multiplier"]

"""run_id: the same question has the same id however it is put; what can change a number changes it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.federations import settings_of

from dpfl_bench.config import settings as schema
from dpfl_bench.config.settings import Settings

DEFAULT = settings_of()

SAME = """
seed=0
rounds=10 local_steps=10
local_steps=10 total_steps=100
rounds=10 total_steps=100
total_steps=100
lr=4
lr=4.0
clients=90
sampled_clients=90
eval_every=1
eps=2 delta=1e-5
algo=dp_scaffnew dataset=breast_cancer model=logreg partition=shards privacy=secagg
device=cuda
plot=false
outputs=/elsewhere
checkpoint_every=3
engine.chunk=7
theory.psi0=3 theory.L=5
records=400
"""
DIFFERENT = """
algo=dp_fedavg
dataset=digits
model.l2=.02
partition=iid
privacy=local
eps=3
eps=inf
local_steps=5
rounds=20
privacy.clip=2
privacy.neighbours=add_remove_one
algo.coins=true
partition.seed=1
dataset.seed=1
"""
REPEATS = """
seed=1
repeats=3
dataset.seed=1
partition.seed=1
eval_every=3
"""
# what cannot change a number, beyond float rounding
UNTOLD = {"device", "checkpoint_every", "outputs", "plot", "trackers", "engine", "theory", "records"}


def lines(text: str) -> list[pytest.param]:
    return [pytest.param(line.split(), id=line) for line in text.strip().splitlines()]


@pytest.mark.parametrize("overrides", lines(SAME))
def test_the_same_question(overrides: list[str]) -> None:
    assert settings_of(*overrides).run_id == DEFAULT.run_id


@pytest.mark.parametrize("given", lines(REPEATS))
def test_repeats_are_of_one_point(given: list[str]) -> None:
    other = settings_of(*given)
    assert (other.run_id != DEFAULT.run_id, other.point_id) == (True, DEFAULT.point_id)


@pytest.mark.parametrize("given", lines(DIFFERENT)[:-2])
def test_other_settings_are_other_points(given: list[str]) -> None:
    assert settings_of(*given).point_id != DEFAULT.point_id


@pytest.mark.parametrize("overrides", lines(DIFFERENT))
def test_another_question(overrides: list[str]) -> None:
    assert settings_of(*overrides).run_id != DEFAULT.run_id


def test_it_is_ten_hex_digits() -> None:
    assert len(DEFAULT.run_id) == 10
    int(DEFAULT.run_id, 16)


def test_the_order_of_overrides_and_keys_is_irrelevant() -> None:
    some = ["eps=3", "lr=.5", "algo=dp_fedavg", "model.l2=.1"]
    one = settings_of(*some)
    assert settings_of(*some[::-1]).run_id == one.run_id
    turned = {
        name: dict(reversed(getattr(one, name).items())) for name in ("algo", "dataset", "model", "partition")
    }
    assert dataclasses.replace(one, **turned).run_id == one.run_id


def test_eps_inf_is_fedavgs_default() -> None:
    assert settings_of("algo=fedavg").run_id == settings_of("algo=fedavg", "eps=inf").run_id


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if value is None:
        return 1
    return value + ("x" if isinstance(value, str) else [7] if isinstance(value, list) else 1)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Settings)])
def test_every_field_counts_or_is_known_not_to(name: str) -> None:
    """A field that is added later counts, unless it is written down here too."""
    value = getattr(DEFAULT, name)
    if dataclasses.is_dataclass(value):
        changes = [
            dataclasses.replace(value, **{f.name: other(getattr(value, f.name))})
            for f in dataclasses.fields(value)
        ]
    elif isinstance(value, dict):
        of_groups = {
            "dataset": {"lr", "root", "download", "url", "records", "gram", "max_row_norm", "holds"},
            "model": {"needs"},
        }
        untold = of_groups.get(name, set())
        changes = [{**value, key: other(value[key])} for key in value if key not in untold]
        assert {
            **DEFAULT.dataset,
            "lr": 9.0,
        } != DEFAULT.dataset  # the key is there; it is settings.lr that counts
        assert dataclasses.replace(DEFAULT, dataset={**DEFAULT.dataset, "lr": 9.0}).run_id == DEFAULT.run_id
    else:
        changes = [other(value)]
    ids = {dataclasses.replace(DEFAULT, **{name: change}).run_id for change in changes}
    if name in UNTOLD:
        assert ids == {DEFAULT.run_id}
    else:
        assert DEFAULT.run_id not in ids
        assert len(ids) == len(changes)


def test_a_new_version_of_the_results_is_a_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = DEFAULT.run_id
    monkeypatch.setattr(schema, "RESULTS_VERSION", schema.RESULTS_VERSION + 1)
    assert DEFAULT.run_id != before


@pytest.mark.parametrize(
    ("overrides", "every"),
    [
        ((), 1),  # 10 rounds of 90 clients, 10 steps, 5 records each
        (("rounds=100", "local_steps=10"), 4),  # 25 in all
        (("rounds=100", "local_steps=1"), 9),  # 25 * 456 / (3 * 90 * 5)
        (("rounds=100", "local_steps=1", "sampled_clients=1"), 25),  # four in all
        (("rounds=2", "local_steps=1", "sampled_clients=1"), 1),
        (("rounds=100", "local_steps=1", "eval_every=3"), 3),
    ],
)
def test_how_often_a_run_evaluates_by_default(overrides: tuple[str, ...], every: int) -> None:
    assert settings_of(*overrides).eval_every == every


def test_the_readme_shows_what_its_command_prints() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert re.findall(r"    outputs/runs/(\w+)", readme) == [settings_of("algo=dp_scaffnew", "eps=2").run_id]

"""run_id: the same question has the same id however it is put; what can change a number changes
it.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.federations import CONF, settings_of

from dpfl_bench.config import compose, identity
from dpfl_bench.config.settings import Settings

pytestmark = pytest.mark.one_in(5)

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
measure=[] measured_client=7
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
measure=[client]
measure=[client] measured_client=7
partition.seed=1
dataset.seed=1
"""
REPEATS = """
seed=1
repeats=3
dataset.seed=1
partition.seed=1
eval_every=3
measure=[iterates]
"""
# what cannot change a number, beyond float rounding
WHERE = {"root", "download", "url", "licence", "address"}  # of a data set: where its files are, for a reader
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


@pytest.mark.parametrize("given", lines(DIFFERENT)[:-4])
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
    # whose update is measured counts where it is
    base = dataclasses.replace(DEFAULT, measure=["client"]) if name == "measured_client" else DEFAULT
    value = getattr(DEFAULT, name)
    if dataclasses.is_dataclass(value):
        changes = [
            dataclasses.replace(value, **{f.name: other(getattr(value, f.name))})
            for f in dataclasses.fields(value)
        ]
    elif isinstance(value, dict):
        of_groups = {
            "dataset": {*WHERE, "lr", "records", "gram", "max_row_norm", "holds"},
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
    ids = {dataclasses.replace(base, **{name: change}).run_id for change in changes}
    if name in UNTOLD:
        assert ids == {DEFAULT.run_id}
    else:
        assert base.run_id not in ids
        assert len(ids) == len(changes)


@pytest.mark.parametrize(("group", "key"), [("privacy", "client_share"), ("dataset", "keep")])
def test_later_keys_count_where_they_say_something(group: str, key: str) -> None:
    """A run that leaves them out keeps the id that it had before they were there."""
    plain = settings_of("dataset=mnist", "partition=iid")
    without = {**dataclasses.asdict(plain.privacy)} if group == "privacy" else dict(plain.dataset)
    assert without.pop(key) is None
    given = {f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)}
    as_plain = {
        name: dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value
        for name, value in given.items()
    }
    assert identity.run_id(as_plain, False) == plain.run_id
    assert identity.run_id({**as_plain, group: without}, False) == plain.run_id
    assert identity.run_id({**as_plain, group: {**without, key: 1}}, False) != plain.run_id


def test_a_new_version_of_the_results_is_a_new_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = DEFAULT.run_id
    monkeypatch.setattr(identity, "RESULTS_VERSION", identity.RESULTS_VERSION + 1)
    assert DEFAULT.run_id != before


# --- a run id names the choice, not an import path ---

GROUPS_WITH_CODE = ("algo", "dataset", "model", "partition")
OPTIONS = [
    pytest.param(group, file.stem, id=f"{group}={file.stem}")
    for group in GROUPS_WITH_CODE
    for file in sorted((CONF / group).glob("[!_]*.yaml"))
]


def move(node: Any) -> Any:
    """The same node as if our modules lay elsewhere."""
    if isinstance(node, dict):
        return {key: move(value) for key, value in node.items()}
    return node.replace("dpfl_bench.", "dpfl_bench.elsewhere.") if isinstance(node, str) else node


@pytest.mark.parametrize("overrides", [(), ("algo=dp_fedexp_scaffold",)])
def test_moving_a_module_changes_no_id(overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged files name the new place, and so do the composed settings."""
    before = settings_of(*overrides)
    ids = (before.run_id, before.point_id)
    moved = {group: move(getattr(before, group)) for group in GROUPS_WITH_CODE}
    assert moved["algo"] != before.algo
    there = dataclasses.replace(before, **moved)
    assert there.run_id != ids[0], "the packaged files still name the old place"
    shipped = identity.packaged
    monkeypatch.setattr(identity, "packaged", lambda group, name: move(shipped(group, name)))
    assert (there.run_id, there.point_id) == ids
    assert before.run_id != ids[0], "now the old place is somebody's own"


@pytest.mark.parametrize(("group", "name"), OPTIONS)
def test_no_import_path_of_ours_is_in_an_id(group: str, name: str) -> None:
    composed = compose.composed([f"{group}={name}"]).config[group]
    assert "dpfl_bench." in str(composed), "the option names code"
    assert "dpfl_bench." not in str(identity.by_choice(group, composed))


@pytest.mark.parametrize(
    ("group", "change"),
    [
        pytest.param("algo", {"_target_": "mine.FedAvg"}, id="own code under a packaged name"),
        pytest.param("dataset", {"_target_": "mine.load"}, id="own loader under a packaged name"),
        pytest.param("algo", {"name": "mine"}, id="our code under a name of one's own"),
        pytest.param("algo", {"name": "dp_scaffnew"}, id="our code under the name of another option"),
        pytest.param(
            "algo",
            {"_target_": "dpfl_bench.algorithms.scaffnew.ScaffNew"},
            id="other code of ours, set by hand",
        ),
        pytest.param("algo", {"work": {"_target_": "mine.Work"}}, id="own code inside"),
    ],
)
def test_other_code_or_another_name_is_another_run(group: str, change: dict[str, Any]) -> None:
    first = settings_of("algo=dp_fedavg")
    node = {**getattr(first, group), **change}
    assert dataclasses.replace(first, **{group: node}).run_id != first.run_id


def test_no_two_targets_have_one_id() -> None:
    """Every target that any packaged option names, and some of a user's, under every name."""
    first = settings_of("algo=dp_fedavg")
    names = ["mine", "dp_fedavg", "fedavg", "dp_scaffnew", "no/such", ""]
    targets = {identity.packaged("algo", file.stem)["_target_"] for file in (CONF / "algo").glob("*.yaml")}
    targets |= {"mine.FedAvg", "dp_fedavg", "option", "algo/dp_fedavg"}
    nodes = [{**first.algo, "name": name, "_target_": target} for name in names for target in sorted(targets)]
    ids = {dataclasses.replace(first, algo=node).run_id for node in nodes}
    assert len(ids) == len(nodes) == len(names) * len(targets)


def test_the_work_inside_a_step_rule_counts() -> None:
    first = settings_of("algo=dp_fedexp")
    works = ["dpfl_bench.algorithms.scaffold.Scaffold", "dpfl_bench.algorithms.fedavg.FedAvg", "mine.FedAvg"]
    nodes = [{**first.algo, "work": {**first.algo["work"], "_target_": work}} for work in works]
    ids = [dataclasses.replace(first, algo=node).run_id for node in nodes]
    assert ids[1] == first.run_id
    assert len(set(ids)) == 3


def test_a_users_file_in_front_of_ours(tmp_path: Path) -> None:
    """The same option name in two folders: the id follows the code that the file names."""
    shipped = (CONF / "algo" / "dp_fedavg.yaml").read_text()
    ours = settings_of("algo=dp_fedavg").run_id
    ids = []
    for folder, target in (("a", "mine.A"), ("b", "mine.B"), ("same", "dpfl_bench.algorithms.fedavg.FedAvg")):
        (tmp_path / folder / "algo").mkdir(parents=True)
        text = re.sub("_target_: .*", f"_target_: {target}", shipped)
        (tmp_path / folder / "algo" / "dp_fedavg.yaml").write_text(text)
        node = compose.composed(["algo=dp_fedavg"], str(tmp_path / folder)).config["algo"]
        ids.append(dataclasses.replace(settings_of("algo=dp_fedavg"), algo=node).run_id)
    assert ids[2] == ours
    assert len({*ids, ours}) == 3


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

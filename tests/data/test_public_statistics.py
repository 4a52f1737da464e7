"""What of one client's records reaches another's before training: nothing, or the run is marked as
not fully accounted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import QUICK, call, read
from helpers.federations import CONF, player_on, settings_of
from omegaconf import OmegaConf

from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.data import breast_cancer, synthetic
from dpfl_bench.data.prepare import owned, prepare
from dpfl_bench.data.records import DataError, Records, Scaling

pytestmark = pytest.mark.one_in(6)

PLAIN: dict[str, Any] = {"test_fraction": 0.0, "unit_norm": False, "seed": 0}
CANCER: Any = OmegaConf.to_container(OmegaConf.load(CONF / "dataset/breast_cancer.yaml"))
CONSTANTS = {key: CANCER[key] for key in ("centres", "scales", "limit")}
EXTREME = (1e6, -1e6, float(np.finfo(np.float32).max), -float(np.finfo(np.float32).max), 1e-45, -0.0)
SHIPPED = sorted(file.stem for file in (CONF / "dataset").glob("[!_]*.yaml"))


def prepared(raw: Records, way: str, **change: Any) -> Records:
    return prepare(
        replace(raw, train_x=raw.train_x.copy()), **{**PLAIN, **CONSTANTS, "standardise": way, **change}
    )


# --- one client's extreme feature ---


def attacked(value: float) -> tuple[Records, Records, np.ndarray]:
    """The published records; the same with one client's first feature at `value`; and which records
    are the others'.
    """
    honest = breast_cancer.load()
    x, mine = honest.train_x.copy(), np.arange(40, 46)
    x[mine, 0] = value
    return honest, replace(honest, train_x=x), np.setdiff1d(np.arange(569), mine)


@pytest.mark.parametrize("unit_norm", [True, False])
@pytest.mark.parametrize("way", ["public", "none"])
@pytest.mark.parametrize("value", EXTREME)
def test_an_extreme_feature_moves_nobody_else_s_records(value: float, way: str, unit_norm: bool) -> None:
    honest, other, rest = attacked(value)
    one, two = (prepared(raw, way, unit_norm=unit_norm) for raw in (honest, other))
    assert one.train_x[rest].tobytes() == two.train_x[rest].tobytes()
    assert not np.array_equal(one.train_x, two.train_x)
    assert np.isfinite(two.train_x).all()
    if way == "public" and not unit_norm:
        assert abs(two.train_x).max() <= CANCER["limit"]


def test_the_training_statistics_let_one_client_collapse_a_column() -> None:
    """The negative control, and the reason for it all."""
    honest, other, rest = attacked(1e6)
    one, two = (prepared(raw, "data").train_x[rest, 0] for raw in (honest, other))
    assert one.std() == pytest.approx(1, abs=0.02)
    assert two.std() < 1e-4


def test_test_records_move_nothing_either() -> None:
    honest = breast_cancer.load()
    extreme = replace(honest, test_x=np.full((3, 30), 1e30, np.float32), test_y=np.zeros(3, np.int64))
    assert np.array_equal(prepared(honest, "public").train_x, prepared(extreme, "public").train_x)


# --- a run says what it is ---


def test_the_default_run_is_fully_accounted_and_the_other_is_marked_everywhere(tmp_path: Path) -> None:
    short = (*QUICK, "local_steps=2", "total_steps=4")
    plain, marked = (call("run", *short, *more) for more in ((), ("dataset.standardise=data",)))
    assert "accounted" not in plain.err
    assert "not fully accounted" in marked.err.lower()
    for said, whole in ((plain, True), (marked, False)):
        assert read(said.folder, "result.json")["fully_accounted"] is whole
        ledger = read(said.folder, "privacy.json")
        assert ledger["fully_accounted"] is whole
        assert any(line.startswith("dataset.standardise=public: ") for line in ledger["assumes"]) is whole
        assert (
            any(line.startswith("dataset.standardise=data: ") for line in ledger["not_accounted"])
            is not whole
        )
    assert "NOT FULLY ACCOUNTED: dataset.standardise=data" in call("plan", "dataset.standardise=data").out
    collected = call("collect", "outputs/runs", "--json").out
    assert "accounted" in collected
    assert "not fully accounted" in call("collect", "outputs/runs").out.lower()


# of which the file knows too little, or whose files are made of private records
LEAKING = {
    **{own: ["dataset.shape=null", "dataset.classes=null"] for own in ("libsvm", "csv", "npz")},
    "reddit": ["dataset.vocabulary_from=data"],
}


@pytest.mark.parametrize("name", SHIPPED)
def test_what_ships_is_fully_accounted_or_says_why_not(name: str) -> None:
    given = {
        "libsvm": ("clients=10",),
        "csv": ("clients=10", "dataset.path=x.csv", "dataset.target=y"),
        "npz": ("clients=10", "dataset.path=x.npz"),
    }
    made = settings_of(f"dataset={name}", *given.get(name, ()))
    assert [leak.split(":")[0] for leak in made.leaks] == LEAKING.get(name, [])


SAID = [
    (("dataset=libsvm", "dataset.shape=[5]", "dataset.classes=2"), []),
    (("dataset=reddit", "dataset.vocabulary_from=public"), []),
    (("dataset=mnist", "dataset.standardise=data"), ["dataset.standardise=data"]),
    (
        ("dataset=mnist", "dataset.standardise=data", "dataset.transform=pca"),
        ["dataset.standardise=data", "dataset.transform=pca"],
    ),
    (
        ("dataset=mnist", "dataset.standardise=data", "algo=fedavg"),
        [],
    ),  # without privacy there is nothing to account for
]


@pytest.mark.parametrize(("overrides", "leaks"), SAID)
def test_what_is_said_to_be_public_is_taken_so(overrides: tuple[str, ...], leaks: list[str]) -> None:
    assert [leak.split(":")[0] for leak in settings_of(*overrides).leaks] == leaks


def test_a_renamed_reddit_is_reddit(tmp_path: Path) -> None:
    """The loader counts, not the name; a file of one's own that says nothing about its vocabulary
    is taken to have counted words.
    """
    text = (CONF / "dataset/reddit.yaml").read_text().replace("name: reddit", "name: mine")
    (tmp_path / "own/dataset").mkdir(parents=True)
    (tmp_path / "own/dataset/mine.yaml").write_text(
        "".join(line + "\n" for line in text.splitlines() if "vocabulary_from" not in line)
    )
    made = settings_of("dataset=mine", "partition=natural", "model=lstm", config_dir=str(tmp_path / "own"))
    assert [leak.split(":")[0] for leak in made.leaks] == ["dataset.vocabulary_from=data"]


# --- the numbers that are public ---


def test_the_file_s_numbers_are_those_of_the_published_records() -> None:
    x = breast_cancer.load().train_x.astype(np.float64)
    assert np.allclose(x.mean(axis=0), CANCER["centres"], atol=6e-7 * np.maximum(1, abs(x.mean(axis=0))))
    assert np.allclose(x.std(axis=0, ddof=1), CANCER["scales"], atol=6e-7 * np.maximum(1, x.std(axis=0)))
    beyond = abs(x - CANCER["centres"]) / CANCER["scales"]
    assert (
        12 < beyond.max() < 12.1 < CANCER["limit"]
    )  # as the file says: nothing of the published set is clipped


@pytest.mark.parametrize("beta", [0.0, 3.0])
def test_the_law_of_generated_records(beta: float) -> None:
    count, dimension = 2000, 12
    raw = synthetic.logistic(
        clients=count,
        records_per_client=10,
        dimension=dimension,
        classes=3,
        alpha=2.0,
        beta=beta,
        flip=0.05,
        seed=0,
    )
    assert raw.law is not None
    square, mean = raw.train_x.astype(float).reshape(count, 10, dimension) ** 2, np.asarray(raw.law.centres)
    each = (
        square.mean(axis=1) / np.asarray(raw.law.scales) ** 2
    )  # of expectation 1, independent between clients
    error = each.std(axis=0) / count**0.5
    assert (abs(each.mean(axis=0) - 1) < 5 * error).all()
    assert (
        abs(each.mean(axis=0) / 1.5 - 1) > 5 * error / 1.5
    ).all()  # a variance that is half as large again is seen
    assert (abs(raw.train_x.mean(axis=0) - mean) < 5 * np.asarray(raw.law.scales) / count**0.5).all()
    done = prepare(raw, **{**PLAIN, "standardise": "public", "limit": 8.0})
    assert np.allclose(done.train_x, raw.train_x / raw.law.scales, atol=1e-5)


def test_a_scale_of_nothing_gives_zeros_and_a_tiny_one_the_limit() -> None:
    x = np.array([[1, 1e30, -1e30, 0]], np.float32)
    raw = Records(x, np.zeros(1, np.int64), x[:0], np.zeros(0, np.int64), None, 2, "toy", None)
    done = prepare(
        raw, **PLAIN, standardise="public", centres=[0.0] * 4, scales=[0.0, 5e-324, 5e-324, 5e-324], limit=3.0
    )
    assert done.train_x.tolist() == [[0, 3, -3, 0]]


# overrides | the whole line begins so
REFUSED = [
    (
        ("dataset=mnist", "dataset.standardise=public"),
        "dataset.standardise=public: expected centres and scales of dataset=mnist, there",
    ),
    (
        ("dataset=libsvm", "dataset.standardise=public"),
        "dataset.standardise=public: expected centres and scales of dataset=libsvm, there",
    ),
    (("dataset.centres=null",), "dataset.centres=null: expected a list like [1,2]"),
    (
        ("dataset.centres=[1,2]",),
        "dataset.centres, dataset.scales: expected equally long lists, found 2 and 30 numbers",
    ),
    (("dataset.centres=[1,x]", "dataset.scales=[1,2]"), "dataset.centres: expected finite numbers, found x"),
    (
        ("dataset.centres=[1,inf]", "dataset.scales=[1,2]"),
        "dataset.centres: expected finite numbers, found inf",
    ),
    (
        ("dataset.centres=[1,1]", "dataset.scales=[1,-2]"),
        "dataset.scales: expected finite numbers >= 0 (0: the feature becomes 0)",
    ),
    (("dataset.limit=0",), "dataset.limit=0: expected a number > 0"),
    (("dataset.limit=inf",), "dataset.limit=inf: expected a number > 0"),
    (("dataset=synthetic_logistic", "dataset.limit=null"), "dataset.limit=null: expected a number"),
]


@pytest.mark.parametrize(("overrides", "message"), REFUSED)
def test_numbers_that_are_missing_or_cannot_be(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as told:
        settings_of(*overrides)
    assert str(told.value).startswith(message)
    assert "\n" not in str(told.value)


def test_as_many_numbers_as_features_are_asked_for() -> None:
    said = call("run", "dataset.centres=[1,2]", "dataset.scales=[1,2]", *QUICK)
    assert (said.code, said.err) == (
        2,
        "dpfl-bench: dataset.centres: expected one number for each of 30 features, found 2\n",
    )


def test_a_loader_without_a_law_is_refused_when_its_records_are_there() -> None:
    raw = synthetic.logistic(
        clients=3, records_per_client=5, dimension=4, classes=2, alpha=0.0, beta=0.0, flip=0.0, seed=0
    )
    with pytest.raises(DataError, match=r"expected centres and scales of generated: .*, there are none"):
        prepare(replace(raw, law=None), **PLAIN, standardise="public", limit=8.0)
    with pytest.raises(DataError, match="expected one number for each of 4 features, found 2"):
        prepare(replace(raw, law=Scaling((0.0, 0.0), (1.0, 1.0))), **PLAIN, standardise="public", limit=8.0)


# --- numbers that float32 does not have ---


@pytest.mark.parametrize("way", ["public", "data", "none"])
@pytest.mark.parametrize("value", [1e300, -1e39, np.inf, np.nan])
@pytest.mark.parametrize("part", ["training", "test"])
def test_what_would_become_infinite_in_float32_is_refused(value: float, way: str, part: str) -> None:
    x = np.zeros((4, 30), np.float64)
    bad = x.copy()
    bad[2, 1] = value
    y = np.zeros(4, np.int64)
    raw = Records(*((bad, y, x, y) if part == "training" else (x, y, bad, y)), None, 2, "toy", None)
    with pytest.raises(DataError, match=f"toy: a {part} record is not finite as float32 numbers"):
        prepare(raw, **PLAIN, **CONSTANTS, standardise=way)  # type: ignore[arg-type]


def test_projections_that_overflow_are_refused() -> None:
    x = np.full((6, 40), float(np.finfo(np.float32).max), np.float32) * np.where(np.arange(6) % 2, 1, -1)[
        :, None
    ].astype(np.float32)
    raw = Records(x, np.zeros(6, np.int64), x[:0], np.zeros(0, np.int64), None, 2, "toy", None)
    with (
        np.errstate(over="ignore"),
        pytest.raises(DataError, match="a prepared record is not finite as float32 numbers"),
    ):
        prepare(raw, **PLAIN, standardise="none", transform="pca", dimensions=2)


# --- who is dealt what ---


def test_a_natural_client_s_split_looks_at_its_own_records_alone() -> None:
    """Neither how many records another client has, nor which, moves a record of this one in or out
    of the test set.
    """
    draw = np.random.default_rng(0)
    x, y, owners = (
        draw.normal(size=(60, 3)).astype(np.float32),
        draw.integers(0, 3, 60),
        np.repeat(np.arange(3), 20),
    )
    raw = Records(x, y, x[:0], y[:0], owners, 3, "toy", None)
    kept = np.setdiff1d(np.arange(60), np.arange(42, 60))  # the last client has two records instead of twenty
    fewer = replace(
        raw,
        train_x=x[kept] * np.where(owners[kept] == 2, -7, 1)[:, None].astype(np.float32),
        train_y=y[kept],
        owners=owners[kept],
    )
    one, two = (prepare(each, **{**PLAIN, "test_fraction": 0.3}, standardise="none") for each in (raw, fewer))
    for client in (0, 1):
        assert np.array_equal(one.train_x[one.owners == client], two.train_x[two.owners == client])
    pooled = [
        prepare(replace(each, owners=None), **{**PLAIN, "test_fraction": 0.3}, standardise="none")
        for each in (raw, fewer)
    ]
    mine = [{row.tobytes() for row in each.train_x} & {row.tobytes() for row in x[:40]} for each in pooled]
    assert (
        mine[0] != mine[1]
    )  # the negative control: a pooled set is split before it is dealt, which is the simulation's affair


def test_a_client_s_own_split_too() -> None:
    raw = Records(
        np.arange(40, dtype=np.float32)[:, None],
        np.zeros(40, int),
        np.zeros((0, 1), np.float32),
        np.zeros(0, int),
        None,
        2,
        "toy",
        None,
    )
    parts = [np.arange(10), np.arange(10, 40)]
    other = replace(raw, train_x=raw.train_x[:30], train_y=raw.train_y[:30])
    one = prepare(owned(raw, parts), **{**PLAIN, "test_fraction": 0.5}, standardise="none")
    two = prepare(
        owned(other, [parts[0], np.arange(10, 30)]), **{**PLAIN, "test_fraction": 0.5}, standardise="none"
    )
    assert np.array_equal(one.train_x[one.owners == 0], two.train_x[two.owners == 0])


@pytest.mark.slow
def test_labels_and_features_that_the_file_did_not_declare_are_refused(tmp_path: Path) -> None:
    """What is declared counts as public, so a record must not be able to change it."""
    file = tmp_path / "mine"
    lines = [f"{i % 2} 1:{i}.5 3:1\n" for i in range(40)]
    asked = (f"dataset.path={file}", "clients=4", "partition=iid", *QUICK, "local_steps=1", "total_steps=2")
    file.write_text("".join(lines))
    declared = ("dataset.shape=[3]", "dataset.classes=2")
    for said, whole in ((declared, True), ((), False)):
        assert (
            read(call("run", "dataset=libsvm", *asked, *said).folder, "result.json")["fully_accounted"]
            is whole
        )
    refused = {
        "7 1:1 3:1\n": r"dataset.classes=2: the records of .* have 3; ",
        "1 1:1 4:1\n": r"dataset.shape=\[3\]: .* have \[4\]; ",
    }
    for line, message in refused.items():
        file.write_text("".join([*lines, line]))
        told = call("run", "dataset=libsvm", *asked, *declared, "outputs=other")
        assert told.code == 2
        assert told.err.count("\n") == 1
        assert re.search(message, told.err), told.err


def shift(way: str, value: float) -> float:
    """How far one client moves the first round's sum, in standard deviations of its noise. The
    noise is the same on both sides.
    """
    settings = settings_of(
        "algo=dp_fedavg",
        "rounds=1",
        "local_steps=10",
        "device=cpu",
        "plot=false",
        f"dataset.standardise={way}",
    )
    honest = prepared(breast_cancer.load(), way, unit_norm=True)
    parts = np.array_split(np.argsort(honest.train_y, kind="stable"), settings.clients)
    raw = breast_cancer.load()
    raw.train_x[parts[0], 0] = value
    released = [
        player_on(settings, records, parts).x().numpy().astype(float)
        for records in (honest, prepared(raw, way, unit_norm=True))
    ]
    std = Budget.of(settings, drawn_schedules(settings)).noise.std
    assert std is not None
    return float(np.linalg.norm(released[1] - released[0])) * settings.clients / std


@pytest.mark.slow
@pytest.mark.parametrize("value", EXTREME)
def test_one_client_moves_the_release_by_what_is_claimed_and_no_more(value: float) -> None:
    planned = Budget.of(
        *(lambda made: (made, drawn_schedules(made)))(
            settings_of("algo=dp_fedavg", "rounds=1", "local_steps=10")
        )
    )
    claimed = 1 / planned.noise_multiplier
    assert shift("public", value) <= claimed * (1 + 1e-4)
    assert shift("none", value) <= claimed * (1 + 1e-4)
    if abs(value) >= 1e6:
        assert shift("data", value) > 3 * claimed  # the negative control: everybody's column collapsed

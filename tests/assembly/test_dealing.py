"""From records to the clients' store: in their own memory where that can be, whatever holds them;
splits within clients.
"""

from __future__ import annotations

import csv
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.command import call
from helpers.federations import settings_of

from dpfl_bench.assembly.data import _parts, _prepared, load_data
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.call import call as call_target
from dpfl_bench.data.prepare import arranged
from dpfl_bench.data.records import Records
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.evaluation import evaluate
from dpfl_bench.federation.partition import overlap
from dpfl_bench.federation.parts import digest
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.problems import tasks
from dpfl_bench.problems.models.lstm import lstm
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.rng import generator

DIGITS = ("dataset=digits", "clients=10", "privacy=local", "eps=inf", "device=cpu", "plot=false")


def store(records: Records, parts: list[np.ndarray]) -> Federation:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of memory that must not be written to
        return Federation(records, parts, LotRule(), torch.device("cpu"), torch.float32)


def on_disk(x: np.ndarray, mode: str) -> np.ndarray:
    np.save("x.npy", x)
    return np.load("x.npy", mmap_mode=mode)  # type: ignore[call-overload,no-any-return]


PARTS = {
    "a permutation": np.array_split(np.random.default_rng(0).permutation(40), 3),
    "in order": np.array_split(np.arange(40), 3),
    "partial": [np.arange(5, 9), np.array([0, 39])],
    "overlapping": overlap(np.zeros(40), None, 3, np.random.default_rng(1), 60.0),
}


@pytest.mark.parametrize("held", ["memory", "r", "c", "strided"])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64", "int8"])
@pytest.mark.parametrize("way", PARTS)
def test_the_store_holds_client_after_client(way: str, dtype: str, held: str) -> None:
    parts, x = PARTS[way], generator(0, "x").integers(0, 100, (40, 2, 3)).astype(dtype)
    kept = {
        "memory": x.copy,
        "r": lambda: on_disk(x, "r"),
        "c": lambda: on_disk(x, "c"),
        "strided": lambda: np.asfortranarray(x),
    }[held]()
    records = Records(kept, np.arange(40), kept[:0], np.arange(0), None, 40, "toy", None)
    made = store(*arranged(records, parts))
    order = np.concatenate(parts)
    assert np.array_equal(made.features.numpy(), x[order])
    assert made.targets.tolist() == order.tolist()
    assert made.features.dtype == (torch.float32 if dtype[0] == "f" else getattr(torch, dtype))
    if way == "a permutation" and dtype != "float64" and held in ("memory", "c"):
        assert np.shares_memory(made.features.numpy(), kept)  # one store, not two
    on_disk_still = np.load("x.npy") if held in ("r", "c") else x
    assert np.array_equal(on_disk_still, x)


def test_narrow_tokens_give_the_very_numbers_of_wide_ones() -> None:
    draw = np.random.default_rng(0)
    x, y = draw.integers(0, 30, (12, 5)), draw.integers(-1, 30, (12, 5))
    parts = [np.arange(4), np.arange(4, 9)]
    problem = ModuleProblem(lambda: lstm([5], 30, 4, 6, 2, None, None), 30, task=tasks.next_token(1))
    found = []
    for kind in (np.int64, np.int16, np.int8):
        a, b = x.astype(kind), y.astype(kind)
        made = store(Records(a[:9], b[:9], a[9:], b[9:], None, 30, "toy", None, "next_token"), parts)
        assert made.features.element_size() == made.targets.element_size() == np.dtype(kind).itemsize
        start = problem.start(0, torch.empty(0))
        gradient = problem.gradient(start.expand(2, -1), next(made.batches(0, 0, np.arange(2), 1)))
        found.append((gradient, evaluate(problem, made, start)))
    for gradient, scores in found[1:]:
        assert torch.equal(gradient, found[0][0])
        assert scores == replace(found[0][1], client_metric=scores.client_metric)  # both nan
    assert found[0][0].abs().max() > 0


@pytest.mark.parametrize("way", ["partition=dirichlet", "partition=overlap", "partition=shards"])
def test_a_partitions_hash_is_that_of_the_records_as_they_came(way: str) -> None:
    made = load_data(settings_of("dataset=digits", "clients=10", way))
    again = _prepared(
        settings_of("dataset=digits").dataset, call_target(settings_of("dataset=digits").dataset, "dataset")
    )
    parts = _parts(settings_of("dataset=digits", "clients=10", way), again)
    assert made.partition_hash == digest(parts)
    assert [len(part) for part in made.parts] == [len(part) for part in parts]
    order = np.concatenate(parts)
    assert np.array_equal(made.federation.features.numpy(), again.train_x[order])
    assert np.array_equal(made.federation.targets.numpy(), again.train_y[order])
    for ours, theirs in zip(made.parts, parts, strict=True):  # records and parts still belong together
        assert np.array_equal(made.records.train_x[ours], again.train_x[theirs])


@pytest.mark.parametrize("way", ["partition=similarity", "partition=dirichlet", "partition=iid"])
def test_each_client_tests_on_its_own_records(way: str) -> None:
    made = load_data(settings_of(*DIGITS, way, "dataset.split=client"))
    federation = made.federation
    assert federation.test_owners is not None
    tests = np.bincount(federation.test_owners.numpy(), minlength=10)
    sizes = federation.sizes + tests
    assert sizes.sum() == 1797
    assert np.array_equal(tests, np.floor(0.2 * sizes + 0.5))
    # a client's own classes are those that it is tested on; a split before the deal would test
    # everyone on all ten
    if way == "partition=similarity":
        trained, tested = (
            [np.bincount(y, minlength=10).argmax() for y in parts]
            for parts in (
                [
                    federation.targets[a:b]
                    for a, b in zip(federation.offsets, federation.offsets[1:], strict=False)
                ],
                [federation.test_targets[federation.test_owners == i] for i in range(10)],
            )
        )
        assert trained == tested
        assert len(set(trained)) == 10


@pytest.mark.slow
def test_client_test_metric_is_reported(tmp_path: Path) -> None:
    told = {}
    for split in ("global", "client"):
        said = call(
            "run",
            *DIGITS,
            "partition=similarity",
            f"dataset.split={split}",
            "rounds=3",
            "local_steps=5",
            "algo=fedavg",
        )
        assert said.code == 0, said.err
        with (Path(said.out.splitlines()[-1]) / "metrics.csv").open() as file:
            told[split] = list(csv.DictReader(file))[-1]
    assert told["global"]["client_test_metric"] == ""
    assert 0 < float(told["client"]["client_test_metric"]) <= 1
    # clients differ by at most one test record, so the mean over clients is nearly that over
    # records
    assert float(told["client"]["client_test_metric"]) == pytest.approx(
        float(told["client"]["test_metric"]), abs=0.02
    )


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("dataset.split=clients",), "dataset.split=clients: expected global or client"),
        (
            ("dataset.split=client", "dataset.test_fraction=0.0"),
            "dataset.split=client: expected dataset.test_fraction > 0, .* found 0",
        ),
        (
            ("dataset.split=client", "partition=overlap"),
            "split=client, partition=overlap: .* test records may train another; use partition=iid",
        ),
        (
            ("dataset=mnist", "dataset.split=client"),
            "dataset.split=client: expected dataset.test_fraction > 0",
        ),
    ],
)
def test_splits_that_make_no_sense_are_refused_before_data_loads(
    overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings_of("dataset=digits", *overrides)
    assert "\n" not in str(caught.value)


def test_a_file_s_constants_hold_for_its_own_split_only() -> None:
    plain, own = settings_of("dataset=digits"), settings_of("dataset=digits", "dataset.split=client")
    assert plain.dataset["gram"] is not None
    assert own.dataset["gram"] is None
    assert own.dataset["records"] is None
    assert (
        settings_of("dataset=digits", "dataset.split=client", "dataset.records=1440").dataset["records"]
        == 1440
    )
    assert own.run_id != plain.run_id


EMPTY = """
import numpy as np
def deal(labels, owners, clients, rng):
    return [np.arange(len(labels)), *(np.arange(0) for _ in range(clients - 1))]
"""


def test_a_client_without_records_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lopsided.py").write_text(EMPTY)
    (tmp_path / "own" / "partition").mkdir(parents=True)
    (tmp_path / "own" / "partition" / "lopsided.yaml").write_text(
        "_target_: lopsided.deal\nname: lopsided\nseed: 0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = settings_of(
        "dataset=digits", "partition=lopsided", "clients=3", config_dir=str(tmp_path / "own")
    )
    with pytest.raises(
        ConfigError, match="partition=lopsided: a client of 3 has no records; use fewer clients"
    ):
        load_data(settings)

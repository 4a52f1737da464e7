"""partition.npz: a split is rebuilt elsewhere, from the source's records and this file alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.command import QUICK, call, read
from helpers.federations import settings_of

from dpfl_bench.assembly.data import load_data
from dpfl_bench.config.call import call as load
from dpfl_bench.data.indices import Indices
from dpfl_bench.federation.parts import digest

PLAIN = ("dataset.standardise=none", "dataset.unit_norm=false")
CASES = {
    "a test set is split off": ("dataset=digits", *PLAIN, "partition=dirichlet", "clients=20"),
    "within each client": ("dataset=digits", *PLAIN, "dataset.split=client", "partition=iid", "clients=20"),
    "records dealt to nobody": (
        "dataset=digits",
        *PLAIN,
        "dataset.split=client",
        "partition=one_label",
        "partition.percent=10",
        "clients=8",
    ),
    "natural clients": (
        "dataset=synthetic_logistic",
        *PLAIN,
        "dataset.clients=6",
        "dataset.records_per_client=20",
        "clients=6",
    ),
    "clients overlap": ("dataset=digits", *PLAIN, "partition=overlap", "clients=5"),
    "no test set": ("dataset=digits", *PLAIN, "dataset.test_fraction=0", "partition=shards", "clients=20"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_split_is_rebuilt_of_the_source_and_the_file(name: str) -> None:
    given = ("algo=fedavg", *CASES[name], "total_steps=2", "local_steps=1", *QUICK)
    folder = call("run", *given).folder
    dealt = Indices.read(folder / "partition.npz")
    assert digest(dealt.parts) == read(folder, "result.json")["partition"]["hash"]
    settings = settings_of(*given)
    raw, used = load(settings.dataset, "dataset"), load_data(settings)
    assert dealt.records == len(raw.train_y)
    assert len(dealt.clients) == settings.clients
    for part, indices in zip(used.parts, dealt.clients, strict=True):
        np.testing.assert_array_equal(raw.train_x[indices], used.records.train_x[part])
        np.testing.assert_array_equal(raw.train_y[indices], used.records.train_y[part])
    if settings.dataset["test_fraction"]:
        np.testing.assert_array_equal(raw.train_x[dealt.test], used.records.test_x)
    else:
        assert len(dealt.test) == 0
    assert not set(dealt.test) & set(np.concatenate(dealt.clients))


def test_it_is_small_and_holds_no_pickles(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    order = draw.permutation(100_000)
    made = Indices.of(100_000, None, np.array_split(order, 100))
    made.save(tmp_path / "partition.npz")
    assert (tmp_path / "partition.npz").stat().st_size < 400_000
    assert [path.name for path in tmp_path.iterdir()] == ["partition.npz"]
    with np.load(tmp_path / "partition.npz", allow_pickle=False) as held:
        assert sorted(held) == ["indices", "records", "sizes", "test"]
    again = Indices.read(tmp_path / "partition.npz")
    assert all(np.array_equal(one, other) for one, other in zip(made.clients, again.clients, strict=True))

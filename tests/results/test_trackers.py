"""TensorBoard and W&B get the rows of metrics.csv, also where a run was cut off and went on; their
failures are not the run's.
"""

from __future__ import annotations

import contextlib
import json
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.command import QUICK, call, metrics
from helpers.federations import settings_of

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import tracker_names as config_trackers
from dpfl_bench.experiment import train
from dpfl_bench.results import trackers
from dpfl_bench.results.folder import METRICS, RunFolder
from dpfl_bench.results.hyper_parameters import About

ARGUMENTS = (
    "run",
    "algo=dp_scaffnew",
    "repeats=2",
    "total_steps=40",
    "privacy.clip=0.3",
    "local_steps=4",
    "eval_every=1",
    "checkpoint_every=3",
    *QUICK,
)
NAME = "dp_scaffnew-breast_cancer-eps_2-steps_4-rounds_10"


def rows(folder: Path) -> list[dict[str, float]]:
    """metrics.csv without empty cells."""
    table = metrics(folder)
    return [
        {name: float(value) for name, value in row.items() if value == value}
        for row in table.to_dict("records")
    ]


def of_tensorboard(folder: Path) -> list[dict[str, float]]:
    """What TensorBoard shows, as rows of metrics.csv."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.util import tensor_util

    found: dict[tuple[int, int], dict[str, float]] = {}
    for path in sorted((folder / "tensorboard").iterdir()):
        seed = int(path.name.rpartition("-seed_")[2])
        events = accumulators.EventAccumulator(str(path), size_guidance={"tensors": 0}).Reload()
        for name in [tag for tag in events.Tags()["tensors"] if not tag.startswith("_hparams_")]:
            told = events.Tensors(name)
            assert len({event.step for event in told}) == len(told), "a round twice"
            for event in told:
                row = found.setdefault((seed, event.step), {"seed": seed, "round": event.step})
                row[name] = float(tensor_util.make_ndarray(event.tensor_proto).item())
    return [found[key] for key in sorted(found)]


def of_wandb(folder: Path) -> list[dict[str, float]]:
    """The histories of the offline runs, one a seed, as rows of metrics.csv."""
    internal = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    found = []
    for path in (folder / "wandb").glob("offline-run-*/*.wandb"):
        records = _written(path, internal.Record)
        (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"][:1]
        assert (run.run_group, run.project) == (folder.name, "dpfl-bench")
        shown = {item.key: json.loads(item.value_json) for item in run.config.update}
        assert run.run_id == f"{folder.name}-seed_{shown['seed']}"
        assert run.display_name == f"{NAME}-seed_{shown['seed']}"
        assert (shown["rounds"], shown["privacy.clip"]) == (10, 0.3)
        for record in records:
            if record.WhichOneof("record_type") == "history":
                items = {
                    item.key or item.nested_key[0]: json.loads(item.value_json)
                    for item in record.history.item
                }
                assert items["_step"] == items["round"]
                assert items["seed"] == shown["seed"]
                found.append({name: float(value) for name, value in items.items() if name[0] != "_"})
        kinds = [record.metric for record in records if record.WhichOneof("record_type") == "metric"]
        assert any((kind.glob_name or kind.name, kind.step_metric) == ("*", "round") for kind in kinds)
    return sorted(found, key=lambda row: (row["seed"], row["round"]))


def _written(path: Path, kind: Any) -> list[Any]:
    """All of wandb's records. Its own process writes them, sometimes a moment after the run."""
    from google.protobuf.message import DecodeError

    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(DecodeError, struct.error):  # half a record
            records = [kind.FromString(data) for data in _records(path.read_bytes())]
            if any(record.WhichOneof("record_type") == "exit" for record in records):
                return records
        time.sleep(0.05)
    raise AssertionError(f"{path}: wandb wrote no end of the run")


def _records(data: bytes) -> Iterator[bytes]:
    """The log format of LevelDB, after a header of 7 bytes: blocks of 32 KiB with parts of records
    (crc, length, kind).
    """
    at, parts = 7, b""
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, last
            yield parts
            parts = b""


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "of_wandb"))


def cut_off(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that dies without a word `after` so many rounds, whatever it has evaluated since its
    checkpoint.
    """
    played, count = train.rounds, 0

    def rounds(*given: Any) -> Iterator[Any]:
        nonlocal count
        for made in played(*given):
            yield made
            count += 1
            if count == after:
                raise MemoryError("cut off")

    monkeypatch.setattr(train, "rounds", rounds)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "read"), [("tensorboard", of_tensorboard), ("wandb", of_wandb)])
def test_the_history_is_metrics_csv(name: str, read: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit, of an undisturbed run and of one that was cut off twice, once in each
    seed.
    """
    pytest.importorskip(name)
    whole = call(*ARGUMENTS, f"trackers=[{name}]", "outputs=whole")
    assert whole.out.splitlines() == [str(whole.folder)], "nothing but the folder on stdout"
    assert read(whole.folder) == rows(whole.folder)
    assert len(rows(whole.folder)) == 22
    for after in (5, 9):
        with monkeypatch.context() as killed:
            cut_off(after, killed)
            with pytest.raises(MemoryError):
                call(*ARGUMENTS, f"trackers=[{name}]", "outputs=cut")
    cut = call(*ARGUMENTS, f"trackers=[{name}]", "outputs=cut").folder
    assert (cut / "metrics.csv").read_bytes() == (whole.folder / "metrics.csv").read_bytes()
    assert read(cut) == rows(cut)


def test_trackers_change_no_number_and_no_run_id() -> None:
    pytest.importorskip("tensorboard")
    assert settings_of("trackers=[tensorboard]").run_id == settings_of().run_id
    with_one, without = (
        call(*ARGUMENTS, f"trackers={t}", f"outputs=out{len(t)}").folder for t in ("[tensorboard]", "[]")
    )
    assert with_one.name == without.name
    assert (with_one / "metrics.csv").read_bytes() == (without / "metrics.csv").read_bytes()
    assert not (without / "tensorboard").exists()


class Failing:
    def __init__(self, folder: Path, about: About) -> None:
        if "opening" in sys.argv:
            raise OSError("no space\nleft")
        self.rows = 0

    def log(self, row: dict[str, float]) -> None:
        self.rows += 1
        if self.rows > 3:
            raise ConnectionError("the server is away\nfor long")

    def close(self) -> None:
        raise RuntimeError("not asked any more")


@pytest.mark.parametrize("where", ["opening", "logging"])
@pytest.mark.parametrize("beside", ["", ",tensorboard"])
def test_a_tracker_that_fails_is_told_once_and_stops_nothing(
    where: str, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.setattr(sys, "argv", [*sys.argv, where])
    monkeypatch.setitem(trackers.TRACKERS, "wandb", Failing)
    monkeypatch.setattr(config_trackers, "find_spec", lambda name: SimpleNamespace(origin="here"))
    said = call(*ARGUMENTS, f"trackers=[wandb{beside}]")
    assert said.code == 0
    told = [line for line in said.err.splitlines() if "trackers: wandb failed" in line]
    cause = {"opening": "OSError: no space", "logging": "ConnectionError: the server is away"}[where]
    assert told == [
        f"dpfl-bench: trackers: wandb failed ({cause}); the run goes on without it, metrics.csv has all rows"
    ]
    assert not beside or of_tensorboard(said.folder) == rows(said.folder)


def test_a_run_that_failed_closes_its_trackers(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = []
    quiet = SimpleNamespace(log=lambda row: None, close=lambda: closed.append(True))
    monkeypatch.setitem(trackers.TRACKERS, "tensorboard", lambda folder, about: quiet)
    monkeypatch.setattr(config_trackers, "find_spec", lambda name: SimpleNamespace(origin="here"))
    cut_off(2, monkeypatch)
    with pytest.raises(MemoryError):
        call(*ARGUMENTS, "trackers=[tensorboard]")
    assert closed == [True]


def test_online_a_resumed_wandb_run_gets_only_the_rows_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps what an attempt sent. (A stand-in for wandb: there is no network here.)"""
    sent: dict[str, list[tuple[int, float]]] = {}
    asked: list[dict[str, Any]] = []

    def init(**given: Any) -> Any:
        asked.append(given)
        had = sent.setdefault(given["id"], [])
        return SimpleNamespace(
            starting_step=had[-1][0] + 1 if had else 0,
            log=lambda row, step: had.append((step, row["eps"])),
            finish=lambda: finished.append(given["id"]),
            define_metric=lambda name, step_metric: None,
        )

    finished: list[str] = []
    settings = SimpleNamespace(project=None)
    package = SimpleNamespace(init=init, Settings=dict, setup=lambda: SimpleNamespace(settings=settings))
    monkeypatch.setattr(trackers, "import_module", lambda name: package)
    folder = RunFolder(tmp_path / "abc")
    for count in (7, 5, 10):  # cut back to 5 rows in between
        folder.metrics.start()
        with trackers.following(["wandb"], folder, About("mine", {"eps": 2.0})) as followers:
            for n in range(count):
                folder.metrics.append({"seed": n // 6, "round": 3 * (n % 6), "eps": n / 3})
                followers.follow()
    assert sent["abc-seed_0"] == [(3 * n, n / 3) for n in range(6)]
    assert sent["abc-seed_1"] == [(3 * n, (n + 6) / 3) for n in range(4)]
    assert finished == [given["id"] for given in asked]  # one at a time
    told = {key: asked[0][key] for key in ("id", "name", "group", "resume", "config")}
    config = {"eps": 2.0, "seed": 0}
    assert told == dict(id="abc-seed_0", name="mine-seed_0", group="abc", resume="allow", config=config)


def test_tensorboard_has_names_and_hyper_parameters() -> None:
    pytest.importorskip("tensorboard")
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    from tensorboard.plugins.hparams import plugin_data_pb2

    folder = call(*ARGUMENTS, "trackers=[tensorboard]").folder
    assert sorted(path.name for path in (folder / "tensorboard").iterdir()) == [
        f"{NAME}-seed_{seed}" for seed in (0, 1)
    ]
    events = accumulators.EventAccumulator(str(folder / "tensorboard" / f"{NAME}-seed_1")).Reload()
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    shown = plugin_data_pb2.HParamsPluginData.FromString(content).session_start_info.hparams
    assert (shown["algo.name"].string_value, shown["seed"].number_value) == ("dp_scaffnew", 1)
    assert (shown["privacy.clip"].number_value, shown["rounds"].number_value) == (0.3, 10)
    assert not {"outputs", "engine.workers", "algo._target_"} & set(shown)
    content = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    experiment = plugin_data_pb2.HParamsPluginData.FromString(content).experiment
    assert [each.name.tag for each in experiment.metric_infos] == [*trackers.COMPARED]


def test_rows_are_handed_on_once_and_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[dict[str, float]] = []
    monkeypatch.setitem(
        trackers.TRACKERS, "tensorboard", lambda *_: SimpleNamespace(log=got.append, close=lambda: None)
    )
    folder = RunFolder(tmp_path)
    folder.metrics.start()
    with trackers.following(["tensorboard", "tensorboard"], folder, About()) as followers:
        folder.metrics.append({"seed": 0, "round": 0, "eps": float("inf"), "train_loss": 1 / 3})
        followers.follow()
        followers.follow()
        folder.metrics.append({"seed": 0, "round": 1, "eps": 5e-324, "train_loss": float("nan")})
    assert got == [
        {"seed": 0, "round": 0, "eps": float("inf"), "train_loss": 1 / 3},
        {"seed": 0, "round": 1, "eps": 5e-324},
    ]
    assert set(got[0]) < set(METRICS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("tensorboard", "trackers=tensorboard: expected a list of tensorboard, wandb, like [tensorboard]"),
        ("[mlflow]", "trackers=['mlflow']: expected a list of tensorboard, wandb, found mlflow"),
        ("null", "trackers=None: expected a list"),
        ("[[wandb]]", "expected a list of tensorboard, wandb, found ['wandb']"),
    ],
)
def test_unknown_trackers_are_refused(given: str, said: str) -> None:
    found = call("run", f"trackers={given}")
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where a folder of that name is in the way, as `wandb/` is where wandb was used."""
    for found in (None, SimpleNamespace(origin=None)):
        monkeypatch.setattr(config_trackers, "find_spec", lambda name, found=found: found)
        with pytest.raises(ConfigError, match=r"pip install 'dpfl-bench\[wandb\]'$"):
            config_trackers.check(["wandb"])

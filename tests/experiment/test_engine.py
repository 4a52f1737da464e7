"""How many workers, how many clients at a time, how much memory: what the engine decides, and what
it refuses.
"""

from __future__ import annotations

import dataclasses
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command import call
from helpers.crews import by_this_process, differing, trace_of
from helpers.federations import TINY, Played, player_of, settings_of
from helpers.small_networks import CNN, images

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.experiment import engine, run
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.round_player import RoundPlayer, most_groups
from dpfl_bench.federation.workers import Workers
from dpfl_bench.machine import device

ALGO = "algo=dp_fedavg"


def settings_with(*overrides: str, **asked: Any) -> Settings:
    """asked: of `engine`."""
    settings = settings_of(*TINY, *overrides)
    return dataclasses.replace(settings, engine=dataclasses.replace(settings.engine, **asked))


def workers(settings: Settings, played: Played | None = None) -> int:
    return engine.workers(settings, (played or player_of(settings)).player)


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with eight cores, on which no round is too small."""
    monkeypatch.setattr(device, "cores_of_a_run", lambda: 8)
    monkeypatch.setattr(engine, "SMALL_ROUND", 0)


# workers


def test_all_cores_by_default(eight: None) -> None:
    assert workers(settings_with(ALGO, chunk=1)) == 8
    assert workers(settings_with(ALGO, chunk=1, workers=3)) == 3
    assert workers(settings_with(ALGO, chunk=1, workers=10)) == 10


def test_no_more_than_there_is_to_do(eight: None) -> None:
    assert [workers(settings_with(ALGO, chunk=chunk)) for chunk in (1, 2, 3, 5, 10, 100)] == [
        8,
        6,
        4,
        2,
        1,
        1,
    ]
    assert [
        workers(settings_with(ALGO, "sampled_clients=3", chunk=chunk, workers=4)) for chunk in (1, 2, 3)
    ] == [3, 2, 1]
    assert (
        workers(settings_with(ALGO, "sampled_clients=2", "client_sampling=poisson", chunk=1, workers=9)) == 2
    )  # 2 are expected


def test_no_more_than_sums_can_be_kept_apart(eight: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpfl_bench.federation.round_player.most_groups", lambda dimension: 3)
    assert workers(settings_with(ALGO, chunk=1)) == 3
    assert (
        workers(settings_with(ALGO, "privacy.clip=median", chunk=1, workers=4)) == 1
    )  # the median is of all


def test_a_small_round_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "cores_of_a_run", lambda: 8)
    assert workers(settings_with(ALGO, chunk=1)) == 1
    assert workers(settings_with(ALGO, chunk=1, workers=2)) == 2  # unless somebody says so
    assert workers(settings_with(ALGO, "rounds=1", "local_steps=3000", chunk=1)) == 8


def test_memory_limits_the_workers(eight: None, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_with(ALGO, chunk=2)
    each = 2 * (8 * 18 + 12 * 5) * 4  # bytes: two clients with eight vectors and a lot of 12 records each
    engines = [dataclasses.replace(settings.engine, memory=n * each / 1e9) for n in (0.5, 1, 3, 99)]
    assert [workers(dataclasses.replace(settings, engine=engine)) for engine in engines] == [1, 1, 3, 6]
    monkeypatch.setattr(device, "free_memory", lambda where: 2 * 3 * each)  # half of it is ours
    assert workers(settings) == 3
    monkeypatch.setattr(device, "free_memory", lambda where: None)
    assert workers(settings) == 6


@pytest.mark.parametrize("kind", ["cuda", "mps", "meta"])
def test_devices_that_cannot_be_shared(kind: str, eight: None, monkeypatch: pytest.MonkeyPatch) -> None:
    played = player_of(settings_with(ALGO, chunk=1))
    elsewhere = torch.device(kind)
    monkeypatch.setattr(played.player.federation, "features", _On(elsewhere))
    assert workers(settings_with(ALGO, chunk=1), played) == 1
    assert workers(settings_with(ALGO, chunk=1, workers=1), played) == 1
    with pytest.raises(ConfigError, match=f"^engine.workers=2: expected 1 on device={kind} of this system$"):
        workers(settings_with(ALGO, chunk=1, workers=2), played)


@dataclasses.dataclass
class _On:
    device: torch.device


def test_where_forking_is_not_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(ConfigError, match=r"^engine\.workers=2: expected 1 on device=cpu of this system$"):
        workers(settings_with(ALGO, chunk=1, workers=2))


@pytest.mark.slow
def test_the_crew(eight: None) -> None:
    for count, kind in ((1, Alone), (2, Workers)):
        settings = settings_with(ALGO, chunk=1, workers=count)
        played = player_of(settings)
        with engine.crew(settings, played.player, played.start) as crew:
            assert type(crew) is kind
    for asked in (5, 50):  # more than groups: as many as groups
        settings = settings_with(ALGO, chunk=4, workers=asked)
        expected = trace_of(player_of(settings), by_this_process)
        assert (
            differing(
                trace_of(
                    player_of(settings), lambda p, settings=settings: engine.crew(settings, p.player, p.start)
                ),
                expected,
            )
            == []
        )


CORES: list[tuple[dict[str, str], int, int]] = [
    ({"SLURM_CPUS_PER_TASK": "3", "OMP_NUM_THREADS": "2"}, 3, 3),
    ({"OMP_NUM_THREADS": "2"}, 2, 5),
    ({"OMP_NUM_THREADS": "0"}, 5, 5),
    ({}, 5, 5),
]


@pytest.mark.parametrize(("environment", "of_a_run", "of_a_sweep"), CORES, ids=str)
def test_cores(
    environment: dict[str, str], of_a_run: int, of_a_sweep: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(5)))
    assert (device.cores_of_a_run(), device.cores()) == (of_a_run, of_a_sweep)


# chunks


@pytest.mark.slow
def test_a_chunk_fits_the_cache() -> None:
    small = player_of(settings_with(ALGO, "dataset.dimension=5")).player
    large = player_of(settings_with(ALGO, "dataset.dimension=2000", "batch_size=12")).player
    assert small.chunk * (12 * 5 + 18) <= engine.CACHE_NUMBERS < (small.chunk + 1) * (12 * 5 + 18)
    assert large.chunk * (12 * 2000 + 6003) <= engine.CACHE_NUMBERS
    assert large.chunk == 8
    many = player_of(
        settings_with(ALGO, "dataset.dimension=2000", "batch_size=12", "dataset.clients=80", "clients=80")
    ).player
    assert many.chunk == 34, "up to four times as many, where two workers get as much"
    assert many.chunk * (12 * 2000 + 6003) <= engine.CHUNK_NUMBERS
    assert player_of(settings_with(ALGO, chunk=7)).player.chunk == 7


def test_chunks_of_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of the cohort, for workers to share; a large one goes alone."""
    settings = dataclasses.replace(settings_with(ALGO, "batch_size=4"), model={**CNN, "channels": [64, 64]})
    played = images(settings)
    federation, problem = played.player.federation, played.player.problem
    for clients, chunk in (
        (3, 1),
        (10, 2),
        (40, 5),
        (4000, engine.CHUNK_NUMBERS // (problem.dimension + 4 * federation.features[0].numel())),
    ):
        assert (
            engine.chunk(dataclasses.replace(settings, sampled_clients=clients), problem, federation) == chunk
        )
    monkeypatch.setattr(engine, "CHUNK_NUMBERS", problem.dimension)
    assert engine.chunk(settings, problem, federation) == 1


def test_a_chunk_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `engine.gpu_memory` holds; at record level with the noise of all local steps."""

    def asked(*_: object) -> None:
        raise AssertionError("what is free is nobody's business")

    monkeypatch.setattr(device, "free_memory", asked)
    played = player_of(settings_with(ALGO, memory=1.0))
    monkeypatch.setattr(played.player.federation, "features", _Features(torch.device("cuda")))
    record = ("privacy=record", "privacy.neighbours=replace_one")
    for level, vectors in ((), 8), (record, 8 + 3):
        each = (vectors * 18 + 16 * 12 * 5) * 4
        for clients, chunk in ((0.5, 1), (3.5, 3), (1000, engine.GPU_CLIENTS)):
            settings = settings_with(ALGO, *level, gpu_memory=clients * each / 1e9)
            assert engine.chunk(settings, played.player.problem, played.player.federation) == chunk


class _Features(_On):
    def __getitem__(self, _: object) -> torch.Tensor:
        return torch.empty(1, 5)


# memory


def test_client_memories_that_do_not_fit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 clients, 18 numbers, 4 bytes: 720."""
    message = (
        r"^algo=dp_scaffold keeps a model-sized vector for each client, 10 x 18 numbers: 0\.0 GB, expected at"
        r" most 0\.0; "
        r"say engine\.memories=disk, raise engine\.memory, lower clients or take a smaller model$"
    )
    with pytest.raises(ConfigError, match=message):
        run.prepare(settings_with("algo=dp_scaffold", memory=700e-9))
    run.prepare(settings_with("algo=dp_scaffold", memory=720e-9))
    run.prepare(settings_with("algo=dp_fedavg", memory=1e-9))  # it remembers nothing
    with pytest.raises(ConfigError, match="10 x 18 numbers"):
        run.prepare(settings_with("algo=dp_scaffold", "dtype=float64", memory=720e-9))
    monkeypatch.setattr(device, "free_memory", lambda where: 1400)
    with pytest.raises(ConfigError, match="expected at most"):
        run.prepare(settings_with("algo=dp_scaffold"))


def test_they_are_refused_before_they_are_allocated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def allocated(*_: Any) -> None:
        raise AssertionError("allocated")

    monkeypatch.setattr(RoundPlayer, "start", allocated)
    done = call("run", *TINY, "algo=dp_scaffnew", "engine.memory=1e-7", f"outputs={tmp_path}")
    assert done.code == 2
    assert "engine.memory" in done.err.splitlines()[-1]
    assert not list(tmp_path.iterdir())


def test_sums_that_are_kept_apart_stay_under_256_megabytes() -> None:
    assert all(most_groups(d) * d * 4 <= 2**28 for d in (1, 18, 51_300, 9_225_610, 2**26))
    assert most_groups(128_774_530) == 1


def test_free_memory_is_told() -> None:
    free = device.free_memory()
    assert free is not None
    assert 10**7 < free < 10**14


def test_images_stay_bytes_until_their_batch() -> None:
    """What is loaded is held once, and shared with the workers."""
    from dpfl_bench.data.records import Records
    from dpfl_bench.federation.sampling import LotRule

    x, y = np.zeros((40, 1, 8, 8), np.uint8), np.zeros(40, np.int64)
    federation = Federation(
        Records(x, y, x, y, None, 10, "", None),
        list(np.arange(40).reshape(4, 10)),
        LotRule(5, None),
        torch.device("cpu"),
        torch.float32,
    )
    assert federation.features.dtype == torch.uint8
    assert federation.features.data_ptr() == x.ctypes.data


FAULTS = """
import resource, torch
from dpfl_bench.machine import device
def step():
    return [torch.zeros(2**21) for _ in range(6)]  # 8 MB each
def faults():
    for _ in range(8):
        step()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
given_back = faults()
device.for_small_tensors(torch.device("cpu"))
print(given_back, faults())
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library than glibc")
def test_memory_that_is_freed_is_kept() -> None:
    """Pages that come from the system again in each step, where malloc is told to give back what it
    can, against none.
    """
    eager = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "131072", "MALLOC_MMAP_THRESHOLD_": "131072"}
    given_back, kept = map(int, subprocess.check_output([sys.executable, "-c", FAULTS], env=eager).split())
    assert kept < 500 < given_back

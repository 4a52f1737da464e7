"""Batched products of small matrices, by either library, against plain loops in float64; and which
library a machine gets.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers.crews import in_chunks, same_with_a_crew
from helpers.federations import TINY, player_of, settings_of
from helpers.kernels import ROUNDING, SHAPES, check_kernels, drawn, looped
from torch import Tensor

from dpfl_bench.federation import evaluation
from dpfl_bench.machine import device
from dpfl_bench.problems import products
from dpfl_bench.problems.products import bmm, packed

pytestmark = pytest.mark.one_in(4)


@pytest.fixture
def multiplied(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who multiplied."""
    calls: list[str] = []
    real_torch, real_numpy = torch.bmm, np.matmul
    monkeypatch.setattr(torch, "bmm", lambda *a, **k: calls.append("torch") or real_torch(*a, **k))
    monkeypatch.setattr(products.np, "matmul", lambda *a, **k: calls.append("numpy") or real_numpy(*a, **k))
    return calls


LAID_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda t: t.contiguous(),
    "columns": lambda t: t.transpose(1, 2).contiguous().transpose(1, 2),
    "rows with gaps": lambda t: torch.cat([t, t], 2)[:, :, : t.shape[2]],
    "records far apart": lambda t: torch.cat([t, t], 1)[:, : t.shape[1]],
    "every other number": lambda t: t.repeat_interleave(2, 2)[:, :, ::2],
}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("right", LAID_OUT)
@pytest.mark.parametrize("left", LAID_OUT)
def test_products(multiplies: str, left: str, right: str, dtype: torch.dtype) -> None:
    for n, i, j, k in SHAPES[:4] if left != right else SHAPES:
        a, b = LAID_OUT[left](drawn(n, i, j, dtype=dtype)), LAID_OUT[right](drawn(n, j, k, dtype=dtype))
        expected = looped(a, b)
        apart = torch.zeros(n, i + 2, k, dtype=dtype)
        for found in (
            bmm(a, b),
            bmm(a, b, out=torch.full((n, i, k), float("nan"), dtype=dtype)),
            bmm(a, b, out=apart[:, 1:-1]),
        ):
            assert found.dtype == dtype
            assert (found - expected).abs().max() <= ROUNDING[dtype] * max(1, expected.abs().max())
        assert torch.equal(apart[:, 1:-1].clone(), bmm(a, b))
        assert not apart[:, [0, -1]].any()


def test_one_with_several(multiplies: str, multiplied: list[str]) -> None:
    """Which may share numbers."""
    a, numbers = drawn(3, 2, 8), drawn(3, 5, 14)
    shifted = numbers.as_strided((4, 3, 5, 8), (2, *numbers.stride())).transpose(2, 3)
    apart = torch.zeros(3, 4, 2, 5, dtype=torch.float64)
    expected = torch.stack([looped(a, numbers[:, :, 2 * m : 2 * m + 8].transpose(1, 2)) for m in range(4)])
    for found in (bmm(a, shifted), bmm(a, shifted, out=apart.transpose(0, 1))):
        assert torch.allclose(found, expected, rtol=1e-13)
    assert torch.equal(apart.transpose(0, 1), bmm(a, shifted))
    assert set(multiplied) == {multiplies}


def test_rows_that_overlap(multiplies: str, multiplied: list[str]) -> None:
    """What a BLAS cannot take is copied."""
    numbers = drawn(2, 20)
    windows = numbers.as_strided((2, 8, 5), (20, 2, 1))
    assert torch.allclose(bmm(drawn(2, 3, 8), windows), looped(drawn(2, 3, 8), windows))
    assert multiplied == ["torch"]


@pytest.mark.parametrize("shape", [(0, 2, 3, 4), (2, 0, 3, 4), (2, 2, 0, 4), (2, 2, 3, 0)])
def test_nothing_to_multiply(multiplies: str, shape: tuple[int, int, int, int]) -> None:
    n, i, j, k = shape
    found = bmm(drawn(n, i, j), drawn(n, j, k))
    assert found.shape == (n, i, k)
    assert not found.any()


def test_who_multiplies(multiplies: str, multiplied: list[str]) -> None:
    bmm(drawn(2, 3, 4), drawn(2, 4, 5))
    assert multiplied == [multiplies]


def test_other_devices_multiply_by_torch(multiplies: str) -> None:
    found = bmm(torch.empty(2, 3, 4, device="meta"), torch.empty(2, 4, 5, device="meta"))
    assert (found.device.type, found.shape) == ("meta", (2, 3, 5))


def test_numpy_does_not_tell_who_diverges(multiplies: str, multiplied: list[str]) -> None:
    """In rounds or when they are evaluated."""
    played = player_of(
        settings_of(
            *TINY, "algo=dp_fedavg", "eps=inf", "privacy.calibration=exact", "lr=1e200", "dtype=float64"
        )
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state, _ = played.play(played.start, played.schedule.round(0))
        assert not state.server.x.isfinite().all()
        x = torch.full_like(state.server.x, torch.inf)
        assert (
            not evaluation.evaluate(played.player.problem, played.player.federation, x).train_loss < torch.inf
        )
    assert set(multiplied) == {multiplies}


def test_kernels_that_openblas_is_told_to_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "numpy_multiplies", lambda: True)
    check_kernels()


@pytest.mark.slow
def test_kernels_that_openblas_takes_by_itself() -> None:
    """Whatever this environment says."""
    script = (
        "from dpfl_bench.machine import device; device.numpy_multiplies = lambda: True; from helpers import"
        " kernels; kernels.check_kernels()"
    )
    own = {name: word for name, word in os.environ.items() if not name.startswith("OPENBLAS_")}
    subprocess.run(
        [sys.executable, "-c", script],
        env=own | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )


@pytest.mark.parametrize(
    "b", [drawn(2, 4, 5).float(), drawn(1, 4, 5), drawn(2, 3, 5)], ids=["format", "one for many", "length"]
)
def test_what_torch_refuses(multiplies: str, b: Tensor) -> None:
    with pytest.raises(RuntimeError, match=r"[Ee]xpected"):
        bmm(drawn(2, 3, 4), b)


def test_packed() -> None:
    windows = drawn(2, 30).as_strided((2, 4, 3, 5), (30, 4, 1, 2))
    found = packed(windows)
    assert found.is_contiguous()
    assert torch.equal(found, windows.contiguous())
    assert found.data_ptr() % 64 == 0  # as torch's own, on which MKL's last bits may depend
    assert packed(torch.empty(2, 3, device="meta").t()).stride() == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("level", [(), ("privacy=record", "privacy.neighbours=replace_one")])
def test_the_same_bits_with_every_crew(
    multiplies: str, multiplied: list[str], level: tuple[str, ...]
) -> None:
    same_with_a_crew(
        in_chunks(settings_of(*TINY, "algo=dp_fedavg", "batch_size=4", "sampled_clients=9", *level))
    )
    assert set(multiplied) == {multiplies}


# which library


NUMPYS, SCIPYS, SHARED = "/venv/numpy.libs", "/venv/scipy.libs", "/usr/lib"


@pytest.mark.parametrize(
    ("vendor", "kernels", "mkl", "expected"),
    [
        ("AuthenticAMD", {NUMPYS: "SkylakeX"}, True, True),
        (
            "AuthenticAMD",
            {NUMPYS: "Cooperlake", SCIPYS: "Zen"},
            True,
            True,
        ),  # scipy comes with the first accountant
        (
            "AuthenticAMD",
            {NUMPYS: "Haswell", SCIPYS: "SkylakeX"},
            True,
            False,
        ),  # by OPENBLAS_CORETYPE, or all that the processor has
        ("AuthenticAMD", {SCIPYS: "SkylakeX"}, True, False),  # numpy has another BLAS
        ("AuthenticAMD", {SHARED: "SkylakeX"}, True, False),  # or may have
        ("AuthenticAMD", {}, True, False),
        ("AuthenticAMD", {NUMPYS: "SkylakeX"}, False, False),  # torch without MKL
        ("GenuineIntel", {NUMPYS: "SkylakeX"}, True, False),
        (None, {NUMPYS: "SkylakeX"}, True, False),
    ],
)
def test_numpy_multiplies_on_amd_with_avx512(
    vendor: str | None,
    kernels: dict[str, str],
    mkl: bool,
    expected: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    if vendor:
        device.CPUINFO.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\ncpu family\t: 26\n")
    found = [
        {"filepath": f"{folder}/libopenblas.so", "architecture": name} for folder, name in kernels.items()
    ]
    monkeypatch.setattr(device, "_openblas", lambda: SimpleNamespace(info=lambda: found))
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert device.numpy_multiplies.__wrapped__() is expected


THREADS = (
    "print({l['num_threads'] for l in threadpoolctl.threadpool_info() if l['internal_api'] == 'openblas'})\n"
)


def threads_of_numpy(script: str, **environment: str) -> list[str]:
    """What a script prints of them, in a process of its own."""
    told = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    ).stdout.split()
    if "set()" in told or device.cores() == 1:
        pytest.skip("numpy without OpenBLAS, or a machine with one core")
    return told


@pytest.mark.slow
def test_a_run_leaves_numpy_one_thread() -> None:
    """Whose number would move the last bits, and take the cores of other workers."""
    imports = "import numpy, threadpoolctl, torch\nfrom dpfl_bench.machine import device\n"
    script = f"{imports}{THREADS}device.for_small_tensors(torch.device('cpu'))\n{THREADS}"
    assert threads_of_numpy(script, OPENBLAS_NUM_THREADS="2") == ["{2}", "{1}"]


def test_commands_import_numpy_with_one_thread() -> None:
    """Unless told otherwise."""
    script = (
        f"from dpfl_bench.machine.imports import preload\npreload('numpy')\nimport threadpoolctl\n{THREADS}"
    )
    assert threads_of_numpy(script) == ["{1}"]
    assert threads_of_numpy(script, OPENBLAS_NUM_THREADS="2") == ["{2}"]

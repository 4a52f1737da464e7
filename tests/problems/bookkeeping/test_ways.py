"""Every way to form a record's gradient gives the same, and which way is chosen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.odd_layers import (
    LAYERS,
    MIXED,
    WAYS,
    go,
    random_convolution,
    random_linear,
    random_strided_convolution,
)
from oracles.record_gradients import DTYPES, built, drawn, errors, length, records
from torch import nn

from dpfl_bench.problems.bookkeeping import convolutions, sums

pytestmark = pytest.mark.one_in(12)

each_dtype = pytest.mark.parametrize("dtype", DTYPES)


@pytest.mark.usefixtures("multiplies")
@each_dtype
@pytest.mark.parametrize("name", MIXED)
def test_ways(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    make, shape = LAYERS[name]
    for way in WAYS:
        with monkeypatch.context() as patch:
            go(way, patch)
            assert errors(built(make, dtype), records(shape, dtype)) < DTYPES[dtype], way


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("way", ["kept", "records as groups", "records as groups, not kept", "unfolded"])
def test_convolutions_of_any_shape(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go(way, monkeypatch)
    assert [seed for seed in range(40) if not errors(*random_convolution(seed)) < 1e-10] == []


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("way", ["unfolded", "unfolded, one at a time", "unfolded, not kept"])
def test_strided_convolutions_of_any_shape(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mostly with several shifts of the patches."""
    go(way, monkeypatch)
    through: list[Any] = []
    real = convolutions._patch_gradients
    monkeypatch.setattr(
        convolutions, "_patch_gradients", lambda layer, *given: through.append(layer) or real(layer, *given)
    )
    for seed in range(30):
        through.clear()
        module, x = random_strided_convolution(seed)
        assert errors(module, x) < 1e-10, seed
        assert {module} == set(through), seed
        assert convolutions._unfolds(module), seed  # type: ignore[arg-type]
        assert convolutions._shifts(module) == module.kernel_size[0] // module.stride[0], seed  # type: ignore[arg-type,operator,index]


@pytest.mark.usefixtures("multiplies")
def test_linear_layers_of_any_shape() -> None:
    assert [seed for seed in range(40) if not errors(*random_linear(seed)) < 1e-10] == []


@pytest.mark.parametrize(
    ("layer", "size", "expected", "unfolds"),
    [
        (nn.Conv2d(2, 3, 3), 8, "_patch_gradients", False),  # 36 positions
        (nn.Conv2d(2, 3, 3), 9, "_gradients", False),
        (nn.Conv2d(300, 300, 3), 9, None, False),  # 49, of large gradients, which are not formed
        (nn.Conv2d(2, 4, 3, groups=2), 5, "_gradients", False),
        (nn.ConvTranspose2d(2, 3, 3, 2), 5, "_gradients", False),
        (nn.Conv2d(1, 3, 8, 2), 26, "_patch_gradients", True),
        (nn.Conv2d(1, 3, 9, 2), 30, "_gradients", False),  # a row of the kernel is left over
        (nn.Conv2d(1, 3, 4, 2), 18, "_gradients", False),  # few places
        (nn.Conv2d(8, 3, 4, 2), 18, "_gradients", False),
    ],
)
def test_how_convolutions_go(
    layer: Any, size: int, expected: str | None, unfolds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for name in ("_patch_gradients", "_gradients"):
        way = getattr(convolutions, name)
        monkeypatch.setattr(
            convolutions,
            name,
            lambda *given, way=way, name=name, **named: called.append(name) or way(*given, **named),
        )
    assert errors(layer.double(), drawn(2, channels(layer), size, size)) < 1e-10
    assert set(called) == ({expected} if expected else set())
    assert convolutions._unfolds(layer) == unfolds


@pytest.mark.parametrize(
    ("layer", "by_torch", "by_numpy"),
    [
        (nn.Conv2d(8, 3, 6, 2), 1, 3),
        (nn.Conv2d(8, 3, 3), 1, 3),
        (nn.Conv2d(8, 3, (5, 4), 2), 1, 1),  # a row of the kernel is left over
        (nn.Conv2d(8, 3, 4, 2, dilation=(2, 1)), 1, 1),
        (nn.Conv2d(8, 3, 2, 2), 1, 1),
        (nn.Conv2d(1, 3, 8, 2), 4, 4),  # of few channels
    ],
)
def test_in_how_many_parts(layer: Any, by_torch: int, by_numpy: int, multiplies: str) -> None:
    assert convolutions._shifts(layer) == (by_numpy if multiplies == "numpy" else by_torch)


def channels(layer: nn.Module) -> int:
    return int(layer.in_channels)  # type: ignore[arg-type]


@pytest.mark.slow
def test_which_way_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small Gram matrix, the small gradient; and what exceeds the room is not kept."""
    called: list[str] = []
    for name in ("_gram_lengths", "formed"):
        way = getattr(sums, name)
        monkeypatch.setattr(sums, name, lambda *given, way=way, name=name: called.append(name) or way(*given))
    for p, o, k, numbers, expected in (
        (2, 20, 30, 10**6, "_gram_lengths"),
        (50, 3, 4, 24, "formed"),
        (50, 3, 4, 23, None),
    ):
        called.clear()
        g, a = drawn(2, p, o), drawn(2, p, k)
        found = sums.over_positions(sums.Positions(g, a.__getitem__, a.shape[2]), room := sums.Room(numbers))
        assert called == ([expected] if expected else [])
        assert room.numbers == (0 if expected == "formed" else numbers)
        torch.testing.assert_close(length(found), (g.transpose(1, 2) @ a).flatten(1).norm(dim=1))

"""Layers of every kind and of any shape, and the ways in which their gradients are formed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from oracles.record_gradients import TOKENS, Make, built, drawn
from torch import Tensor, nn

from dpfl_bench.problems.bookkeeping import convolutions, sums, trace

# layers


class Recurrent(nn.Module):
    """Tokens into an LSTM, whose every state counts; with states to begin with, they come from the
    first token.
    """

    def __init__(self, begun: bool = False, **how: Any):
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 4)
        self.begin = nn.Linear(4, 3 * how.get("num_layers", 1)) if begun else None
        self.recurrent = nn.LSTM(4, 3, **how)

    def forward(self, x: Tensor) -> Tensor:
        states = self.embedding(x)
        given = None
        if self.begin is not None:
            first = self.begin(states[:, 0]).unflatten(1, (-1, 3)).transpose(0, 1).contiguous()
            given = (first.tanh(), first)
        first_axis = self.recurrent.batch_first
        outputs, (hidden, cells) = self.recurrent(states if first_axis else states.transpose(0, 1), given)
        outputs = outputs if first_axis else outputs.transpose(0, 1)
        return torch.cat([outputs, hidden.transpose(0, 1), cells.transpose(0, 1)], 1)


class Residual(nn.Module):
    """Adds to what came in; `overwriting` does so in place."""

    def __init__(self, overwriting: bool = False):
        super().__init__()
        self.layer, self.overwriting = nn.Conv1d(2, 2, 3, padding=1), overwriting

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return x.add_(y) if self.overwriting else x + y


def after(first: Make, *rest: Callable[[], nn.Module]) -> Make:
    return lambda: nn.Sequential(first(), *(make() for make in rest))


INPLACE = partial(nn.ReLU, inplace=True)


LAYERS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "linear": (after(partial(nn.Linear, 4, 3), nn.Tanh, partial(nn.Linear, 3, 2)), (4,)),
    "linear alone": (partial(nn.Linear, 4, 3), (4,)),
    "linear without bias": (partial(nn.Linear, 4, 3, bias=False), (4,)),
    "few positions": (
        after(partial(nn.Linear, 40, 30), nn.Tanh, partial(nn.Linear, 30, 50, bias=False)),
        (3, 40),
    ),
    "many positions": (after(partial(nn.Linear, 4, 3), nn.Tanh, partial(nn.Linear, 3, 2)), (2, 9, 4)),
    "in place": (
        after(partial(nn.Linear, 4, 6), INPLACE, partial(nn.Linear, 6, 6), INPLACE, partial(nn.Linear, 6, 2)),
        (4,),
    ),
    "conv1d": (partial(nn.Conv1d, 2, 3, 3), (2, 9)),
    "conv2d": (
        after(partial(nn.Conv2d, 2, 4, 3, 2, 1), INPLACE, partial(nn.Conv2d, 4, 3, (1, 2))),
        (2, 7, 6),
    ),
    "long rows": (partial(nn.Conv1d, 1, 3, 4, 2, 1), (1, 19)),
    "long dilated rows": (partial(nn.Conv2d, 2, 3, 2, (2, 1), (0, 1), (2, 3)), (2, 4, 9)),
    "long rows of volumes": (partial(nn.Conv3d, 1, 2, (2, 1, 3), (1, 2, 3)), (1, 3, 2, 14)),
    "conv3d": (partial(nn.Conv3d, 2, 3, (1, 2, 3), (2, 1, 1), bias=False), (2, 4, 3, 5)),
    "one position": (partial(nn.Conv2d, 3, 4, (4, 5)), (3, 4, 5)),
    "few patches": (partial(nn.Conv2d, 20, 30, 3), (20, 4, 4)),
    "same": (partial(nn.Conv2d, 2, 3, (4, 3), padding="same", dilation=(1, 2)), (2, 6, 7)),
    "valid": (partial(nn.Conv1d, 2, 3, 2, padding="valid", dilation=3), (2, 9)),
    "circular": (partial(nn.Conv2d, 2, 3, 3, padding=(1, 2), padding_mode="circular"), (2, 5, 6)),
    "reflected, grouped": (partial(nn.Conv1d, 4, 6, 3, padding=2, padding_mode="reflect", groups=2), (4, 8)),
    "same, grouped": (partial(nn.Conv2d, 4, 4, (2, 3), padding="same", groups=4), (4, 5, 6)),
    "grouped": (partial(nn.Conv3d, 4, 6, 2, 2, 1, groups=2), (4, 3, 4, 5)),
    "transposed 1d": (partial(nn.ConvTranspose1d, 3, 2, 3), (3, 5)),
    "transposed 2d": (
        partial(nn.ConvTranspose2d, 4, 6, 3, (2, 3), 1, (1, 0), groups=2, dilation=(1, 2)),
        (4, 4, 3),
    ),
    "transposed 3d": (partial(nn.ConvTranspose3d, 2, 3, 2, 2, bias=False), (2, 2, 3, 2)),
    "embedding": (partial(nn.Embedding, TOKENS, 3), (9, 0)),
    "one token": (partial(nn.Embedding, TOKENS, 3), (0,)),
    "tokens of two axes": (partial(nn.Embedding, TOKENS, 3, padding_idx=2, sparse=True), (2, 4, 0)),
    "padding": (partial(nn.Embedding, TOKENS, 3, padding_idx=-1), (9, 0)),
    "group norm": (after(partial(nn.Conv2d, 2, 4, 2), partial(nn.GroupNorm, 2, 4), INPLACE), (2, 4, 5)),
    "group norm of rows": (after(partial(nn.Linear, 3, 6), partial(nn.GroupNorm, 2, 6)), (3,)),
    "layer norm": (after(partial(nn.Linear, 3, 6), partial(nn.LayerNorm, 6), INPLACE), (2, 3)),
    "layer norm of maps": (partial(nn.LayerNorm, [4, 5]), (3, 4, 5)),
    "layer norm without bias": (partial(nn.LayerNorm, 5, bias=False), (5,)),
    "root mean square norm": (partial(nn.RMSNorm, [4, 5]), (3, 4, 5)),
    "instance norm 1d": (partial(nn.InstanceNorm1d, 3, affine=True), (3, 5)),
    "instance norm 2d": (
        after(partial(nn.Conv2d, 2, 3, 2), partial(nn.InstanceNorm2d, 3, affine=True, eps=0.1)),
        (2, 4, 5),
    ),
    "instance norm 3d": (partial(nn.InstanceNorm3d, 3, affine=True), (3, 2, 3, 2)),
    "prelu": (after(partial(nn.Conv1d, 2, 3, 2), nn.PReLU), (2, 5)),
    "prelu of channels": (after(partial(nn.Conv1d, 2, 3, 2), partial(nn.PReLU, 3)), (2, 5)),
    "prelu of columns": (partial(nn.PReLU, 4), (4,)),
    "lstm": (partial(Recurrent, batch_first=True), (4, 0)),
    "lstm of layers": (partial(Recurrent, num_layers=3, bias=False), (7, 0)),
    "lstm of one step": (partial(Recurrent, num_layers=2, batch_first=True, begun=True), (1, 0)),
    "lstm of many steps": (partial(Recurrent, num_layers=2, begun=True), (40, 0)),
    "residual": (after(Residual, nn.Tanh, Residual), (2, 5)),
    "without parameters": (
        after(partial(nn.Linear, 4, 6), partial(nn.GroupNorm, 2, 6, affine=False), nn.Flatten),
        (4,),
    ),
}


# layers of any shape


def random_convolution(seed: int) -> tuple[nn.Module, Tensor]:
    draw = np.random.default_rng(seed)
    dims, groups = int(draw.integers(1, 4)), int(draw.choice([1, 1, 2]))
    kernel, stride, dilation = (draw.integers(1, 4, dims) for _ in range(3))
    padding = draw.integers(0, kernel)
    size = dilation * (kernel - 1) + 1 + draw.integers(0, 4, dims) + padding  # so that reflections fit
    transposed = draw.uniform() < 0.2
    kind = [[nn.Conv1d, nn.Conv2d, nn.Conv3d], [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d]][
        transposed
    ][dims - 1]
    mode = "zeros" if transposed else draw.choice(["zeros", "zeros", "reflect", "circular", "replicate"])
    widths = groups * draw.integers(1, 4, 2)
    how = {
        name: tuple(map(int, value))
        for name, value in {"stride": stride, "padding": padding, "dilation": dilation}.items()
    }
    module = built(
        lambda: kind(
            *map(int, widths),
            tuple(map(int, kernel)),
            groups=groups,
            bias=bool(draw.integers(2)),
            padding_mode=str(mode),
            **how,
        ),
        torch.float64,
    )
    return module, drawn(int(draw.integers(1, 5)), int(widths[0]), *map(int, size), seed=seed)


def random_strided_convolution(seed: int) -> tuple[nn.Module, Tensor]:
    """That unfolds."""
    draw = np.random.default_rng(seed)
    dims = int(draw.integers(1, 4))
    stride, dilation = draw.integers(1, 4, dims), draw.integers(1, 3, dims)
    stride[draw.integers(dims)], dilation[0] = 2, 1
    kernel = np.concatenate([stride[:1] * draw.integers(1, 4), draw.integers(1, 4, dims - 1)])
    padding = draw.integers(0, kernel)
    size = dilation * (kernel - 1) + 1 + draw.integers(0, 4, dims) + padding
    kind, mode = (
        [nn.Conv1d, nn.Conv2d, nn.Conv3d][dims - 1],
        draw.choice(["zeros", "zeros", "reflect", "circular", "replicate"]),
    )
    how = {
        name: tuple(map(int, value))
        for name, value in {"stride": stride, "padding": padding, "dilation": dilation}.items()
    }
    c, o = map(int, draw.integers(1, 4, 2))
    module = built(lambda: kind(c, o, tuple(map(int, kernel)), padding_mode=str(mode), **how), torch.float64)
    return module, drawn(int(draw.integers(1, 5)), c, *map(int, size), seed=seed)


def random_linear(seed: int) -> tuple[nn.Module, Tensor]:
    draw = np.random.default_rng(seed)
    positions, (k, o) = draw.integers(1, 6, draw.integers(0, 3)), draw.integers(1, 40, 2)
    return built(lambda: nn.Linear(int(k), int(o), bool(draw.integers(2))), torch.float64), drawn(
        int(draw.integers(1, 5)), *map(int, positions), int(k), seed=seed
    )


# ways


WAYS: dict[str, dict[str, int]] = {
    "kept": {},
    "not kept": {"KEPT_NUMBERS": 0},
    "some kept": {"KEPT_NUMBERS": 700},
    "one record at a time": {"WORKING_NUMBERS": 0},
    "one record at a time, not kept": {"WORKING_NUMBERS": 0, "KEPT_NUMBERS": 0},
    "formed": {"FORMING": 0},
    "formed, not kept": {"FORMING": 0, "KEPT_NUMBERS": 0},
    "gram": {"FORMING": 10**9},
    "gram, one record at a time": {"FORMING": 10**9, "WORKING_NUMBERS": 0},
    "records as groups": {"MANY_POSITIONS": 0, "FORMING": 0},
    "records as groups, one at a time": {"MANY_POSITIONS": 0, "FORMING": 0, "WORKING_NUMBERS": 0},
    "records as groups, not kept": {"MANY_POSITIONS": 0, "FORMING": 0, "KEPT_NUMBERS": 0},
    "records as groups, one at a time, not kept": {
        "MANY_POSITIONS": 0,
        "FORMING": 0,
        "WORKING_NUMBERS": 0,
        "KEPT_NUMBERS": 0,
    },
    "unfolded": {"MANY_POSITIONS": 0, "FORMING": 0, "FEW_CHANNELS": 10**9, "MANY_PLACES": 0},
    "unfolded, one at a time": {
        "MANY_POSITIONS": 0,
        "FORMING": 0,
        "FEW_CHANNELS": 10**9,
        "MANY_PLACES": 0,
        "WORKING_NUMBERS": 0,
    },
    "unfolded, not kept": {
        "MANY_POSITIONS": 0,
        "FORMING": 0,
        "FEW_CHANNELS": 10**9,
        "MANY_PLACES": 0,
        "KEPT_NUMBERS": 0,
    },
    "unfolded, gram": {"FORMING": 10**9, "FEW_CHANNELS": 10**9, "MANY_PLACES": 0},
    "not unfolded": {"MANY_POSITIONS": 0, "FORMING": 0, "FEW_CHANNELS": 0},
}


MIXED = (
    "few positions", "many positions", "conv2d", "conv3d", "long rows", "long dilated rows", "few patches",
    "circular",
    "transposed 2d", "lstm of many steps",
)  # fmt: skip


def go(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        in_convolutions = name in ("MANY_POSITIONS", "FEW_CHANNELS", "MANY_PLACES")
        place = convolutions if in_convolutions else trace if name == "KEPT_NUMBERS" else sums
        monkeypatch.setattr(place, name, value)

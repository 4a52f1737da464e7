"""Records' gradients from one forward and one backward pass, against each record alone in an
ordinary float64 module.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers.networks import CASES, Case, started
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode

from dpfl_bench import rng
from dpfl_bench.problems import tasks
from dpfl_bench.problems.bookkeeping import (
    Tapped,
    Untappable,
    convolutions,
    layers_of,
    rules,
    sums,
    supported,
    trace,
)
from dpfl_bench.problems.bookkeeping.recurrent import lstm
from dpfl_bench.problems.models.mlp import mlp

N, TOKENS = 5, 6
DTYPES = {torch.float32: 1e-5, torch.float64: 1e-10}
each_dtype = pytest.mark.parametrize("dtype", DTYPES)
Make = Callable[[], nn.Module]


# what the records' gradients are


def score(outputs: Tensor, targets: Tensor) -> Tensor:
    """A loss that bends, of outputs of any shape."""
    return (outputs.flatten(1).tanh() * targets.flatten(1)).sum(1)


def each_alone(
    module: nn.Module, x: Tensor, targets: Tensor, losses: Callable[[Tensor, Tensor], Tensor] = score
) -> Tensor:
    """(n, d), in float64."""
    module, rows = copy.deepcopy(module).double(), []
    for r in range(len(x)):
        module.zero_grad()
        losses(module(in_double(x[r : r + 1])), in_double(targets[r : r + 1])).sum().backward()
        rows.append(
            torch.cat(
                [
                    (torch.zeros_like(p) if p.grad is None else p.grad.to_dense()).flatten()
                    for p in module.parameters()
                ]
            )
        )
    return torch.stack(rows)


def in_double(t: Tensor) -> Tensor:
    return t.double() if t.is_floating_point() else t


def differs(found: Tensor, expected: Tensor) -> float:
    """The largest difference, as a part of the largest entry."""
    return ((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()


def scales(n: int, seed: int = 0) -> Tensor:
    """Of all sizes, one of them 0."""
    found = np.random.default_rng(seed).exponential(size=n)
    found[n // 2] = 0
    return torch.from_numpy(found)


def errors(
    module: nn.Module,
    x: Tensor,
    losses: Callable[[Tensor, Tensor], Tensor] = score,
    targets: Tensor | None = None,
) -> float:
    """The largest of norms, of weighted sums and of the plain sum."""
    if targets is None:
        with torch.no_grad():
            targets = drawn(*module(x).shape, seed=1).to(next(module.parameters()))
    rows = each_alone(module, x, targets, losses)
    assert (rows.norm(dim=1) > 0).all()
    tapped = Tapped(module, losses, x, targets)
    lengths = rows.norm(dim=1)
    found = [((tapped.norms - lengths).abs() / lengths).max().item()]
    for c in (scales(len(x)), torch.ones(len(x)), torch.zeros(len(x))):
        out = torch.full((rows.shape[1],), torch.nan, dtype=next(module.parameters()).dtype)
        tapped.weighted(c, out)
        found.append(differs(out, c.double() @ rows) if c.any() else out.abs().max().item())
    return max(found)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def records(shape: tuple[int, ...], dtype: torch.dtype, n: int = N) -> Tensor:
    """Numbers, or for an empty last length tokens, of which every record repeats some."""
    if shape and shape[-1] == 0:
        return torch.from_numpy(np.random.default_rng(0).integers(0, TOKENS, (n, *shape[:-1])))
    return drawn(n, *shape).to(dtype)


def made(make: Make, dtype: torch.dtype, seed: int = 0) -> nn.Module:
    """Parameters that are all drawn, norms' too."""
    module = rng.initialised(make, seed).to(dtype)
    for number, parameter in enumerate(module.parameters()):
        parameter.data += 0.1 * drawn(*parameter.shape, seed=number).to(dtype)
    return module


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
        found, (hidden, cells) = self.recurrent(states if first_axis else states.transpose(0, 1), given)
        found = found if first_axis else found.transpose(0, 1)
        return torch.cat([found, hidden.transpose(0, 1), cells.transpose(0, 1)], 1)


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


@pytest.mark.usefixtures("multiplies")
@each_dtype
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: torch.dtype) -> None:
    make, shape = LAYERS[name]
    module, x = made(make, dtype), records(shape, dtype)
    assert supported(module)
    assert supported(module, x)
    assert errors(module, x) < DTYPES[dtype]


def test_every_rule_is_tested() -> None:
    kinds = {type(layer) for make, _ in LAYERS.values() for layer in make().modules()}
    assert kinds >= {*rules.RULES, nn.LSTM}


@pytest.mark.usefixtures("multiplies")
@each_dtype
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.name != "vgg11_light" or case.classes == 10],
    ids=lambda case: case.id,
)
def test_models(case: Case, dtype: torch.dtype) -> None:
    small = case.smaller
    n = 2 if "vgg" in case.name else 3
    module, x = started(small).to(dtype), small.records(n, dtype)
    draw = np.random.default_rng(2)
    if case.name == "unet3d":
        task, targets = tasks.segment(), torch.from_numpy(draw.integers(0, 2, (n, *small.shape[1:])))
    elif case.tokens and not case.overrides:
        task, targets = (
            tasks.next_token(None),
            torch.from_numpy(draw.integers(-1, case.classes, (n, *small.shape))),
        )
    else:
        task, targets = tasks.classify(), torch.from_numpy(draw.integers(0, case.classes, n))
    assert supported(module, x)
    assert errors(module, x, task.losses, targets) < DTYPES[dtype]


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
    module = made(
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
    module = made(lambda: kind(c, o, tuple(map(int, kernel)), padding_mode=str(mode), **how), torch.float64)
    return module, drawn(int(draw.integers(1, 5)), c, *map(int, size), seed=seed)


def random_linear(seed: int) -> tuple[nn.Module, Tensor]:
    draw = np.random.default_rng(seed)
    positions, (k, o) = draw.integers(1, 6, draw.integers(0, 3)), draw.integers(1, 40, 2)
    return made(lambda: nn.Linear(int(k), int(o), bool(draw.integers(2))), torch.float64), drawn(
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
    "few positions", "many positions", "conv2d", "conv3d", "long rows", "long dilated rows", "few patches", "circular",
    "transposed 2d", "lstm of many steps",
)  # fmt: skip


def go(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS[way].items():
        in_convolutions = name in ("MANY_POSITIONS", "FEW_CHANNELS", "MANY_PLACES")
        place = convolutions if in_convolutions else trace if name == "KEPT_NUMBERS" else sums
        monkeypatch.setattr(place, name, value)


@pytest.mark.usefixtures("multiplies")
@each_dtype
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MIXED)
def test_ways(name: str, way: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    go(way, monkeypatch)
    make, shape = LAYERS[name]
    assert errors(made(make, dtype), records(shape, dtype)) < DTYPES[dtype]


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("way", ["kept", "records as groups", "records as groups, not kept", "unfolded"])
def test_convolutions_of_any_shape(way: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    go(way, monkeypatch)
    assert errors(*random_convolution(seed)) < 1e-10


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("way", ["unfolded", "unfolded, one at a time", "unfolded, not kept"])
def test_strided_convolutions_of_any_shape(way: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mostly with several shifts of the patches."""
    go(way, monkeypatch)
    module, x = random_strided_convolution(seed)
    through: list[Any] = []
    way = convolutions._patch_gradients
    monkeypatch.setattr(
        convolutions, "_patch_gradients", lambda layer, *given: through.append(layer) or way(layer, *given)
    )
    assert errors(module, x) < 1e-10
    assert {module} == set(through)
    assert convolutions._unfolds(module)  # type: ignore[arg-type]
    assert convolutions._shifts(module) == module.kernel_size[0] // module.stride[0]  # type: ignore[arg-type,operator,index]


@pytest.mark.usefixtures("multiplies")
@pytest.mark.parametrize("seed", range(40))
def test_linear_layers_of_any_shape(seed: int) -> None:
    assert errors(*random_linear(seed)) < 1e-10


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


# what the comparisons above would see


def test_errors_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias left out, its norm left out, positions that do not meet, a token's repetitions apart,
    a neighbour's gradient.
    """
    few, tokens, conv = (
        partial(errors, made(make, torch.float64), records(shape, torch.float64))
        for make, shape in (LAYERS[name] for name in ("few positions", "embedding", "conv2d"))
    )
    assert max(few(), tokens(), conv()) < 1e-10
    linear, kept = rules.RULES[nn.Linear], sums.Found

    def replaced(kind: type[nn.Module], rule: Any) -> None:
        monkeypatch.setitem(rules.RULES, kind, rule)

    with monkeypatch.context():
        replaced(nn.Linear, lambda *given: list(linear(*given))[:1])
        assert few() > 1e-2
        replaced(
            nn.Linear,
            lambda *given: [
                (name, kept([0 * f.lengths[0]] if name == "bias" else f.lengths, f.add))
                for name, f in linear(*given)
            ],
        )
        assert few() > 1e-3
        replaced(nn.Linear, linear)
        monkeypatch.setattr(
            sums,
            "_gram_lengths",
            lambda g, a: [(g.square().sum(2) * a.square().sum(2)).sum(1).sqrt()[:, None]],
        )
        assert few() > 1e-2
        replaced(nn.Conv2d, lambda room, layer, x, g: convolutions.convolution(room, layer, x.roll(1, 0), g))
        assert conv() > 1e-2
        replaced(
            nn.Embedding,
            lambda room, layer, x, g: rules.embedding(
                room, layer, torch.arange(x[0].numel()).expand_as(x) % TOKENS, g
            ),
        )
        assert tokens() > 1e-2


# what is not silently wrong


class Using(nn.Module):
    """Two layers, used as `how` says."""

    def __init__(self, how: Callable[[Any, Tensor], Tensor]):
        super().__init__()
        self.first, self.second, self.how = nn.Linear(4, 4), nn.Linear(4, 4), how

    def forward(self, x: Tensor) -> Tensor:
        return self.how(self, x)


def overwrite(m: Any, x: Tensor) -> Tensor:
    h = m.first(x)
    y = m.second(h)
    h.relu_()
    return y + h


USES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "twice": lambda m, x: m.second(m.first(m.first(x))),
    "outside": lambda m, x: m.second(x) @ m.first.weight,
    "outside as well": lambda m, x: m.second(m.first(x)) + m.first.bias,
    "before": lambda m, x: m.first(x * m.first.bias),
    "overwritten": overwrite,
    "positions first": lambda m, x: m.second(m.first(x.unsqueeze(0).expand(2, -1, -1)).tanh()).sum(0),
    "flattened": (
        lambda m, x: m.second(m.first(x).unsqueeze(1).expand(-1, 3, -1).flatten(0, 1)).unflatten(
            0, (len(x), 3)
        )
    ),
    "mixed": lambda m, x: m.second(x + m.first(x).mean(0)),
    "mixed with those before": lambda m, x: m.second(m.first(x).cumsum(0)),
    "mixed with those behind": lambda m, x: m.second(m.first(x).flip(0).cumsum(0).flip(0)),
    "turned": lambda m, x: m.second(m.first(x).flip(0)),
}
RIGHT: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "unused": lambda m, x: m.second(x),
    "without gradient": lambda m, x: m.second(m.first(x).detach()),
    "first without gradient": lambda m, x: m.second(nograd(m.first, x)) + m.first(x),
    "branches": lambda m, x: m.first(x) * m.second(x),
    "named": lambda m, x: m.second(input=m.first(input=x)),
    "a view of it in place": lambda m, x: doubled(m.first(x)) + m.second(x),
    "there and back": lambda m, x: m.second(m.first(x).flip(0).flip(0)),
}


def nograd(layer: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = layer(x)
    return found


def doubled(y: Tensor) -> Tensor:
    y[:, :2] *= 2
    return y


@pytest.mark.parametrize("use", RIGHT)
def test_uses_that_are_right(use: str) -> None:
    module, x = made(lambda: Using(RIGHT[use]), torch.float64), records((4,), torch.float64)
    assert supported(module, x)
    assert errors(module, x) < 1e-10


@pytest.mark.parametrize("use", USES)
def test_uses_that_are_refused(use: str) -> None:
    """Where a rule would go wrong that is seen, if not at every call then when it is tried."""
    module, x = made(lambda: Using(USES[use]), torch.float64), records((4,), torch.float64)
    before = [p.clone() for p in module.parameters()]
    assert supported(module)
    assert not supported(module, x)
    if "mixed" not in use and use != "turned":
        with pytest.raises(Untappable):
            Tapped(module, score, x, torch.ones_like(module(x)))
    assert all(
        torch.equal(p, q) and p.requires_grad for p, q in zip(module.parameters(), before, strict=True)
    )
    assert not any("forward" in vars(layer) for layer in module.modules())


def test_what_has_been_tried() -> None:
    """The same is found with its layers; that no parameter is used elsewhere is not looked for
    again.
    """
    module, x = made(partial(mlp, [4], 3, [5]), torch.float64), records((4,), torch.float64)
    assert supported(module, x)
    found = [Tapped(module, score, x, drawn(N, 3), *layers) for layers in ([], [layers_of(module)])]
    assert torch.equal(found[0].norms, found[1].norms)
    other = made(lambda: Using(USES["outside as well"]), torch.float64)
    Tapped(other, score, x, drawn(N, 4), layers_of(other))
    assert not supported(other, x)


def sharing() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    module[1].weight = module[0].weight
    return module


def patched() -> nn.Module:
    module = nn.Linear(4, 4)
    module.forward = lambda x: 2 * functional.linear(x, module.weight, module.bias)  # type: ignore[method-assign]
    return module


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.layer(x) * self.scale
        return found


NO_RULE: dict[str, Make] = {
    "shared": sharing,
    "subclass": lambda: Scaled(4, 4),
    "patched": patched,
    "a parameter of its own": Own,
    "parametrised": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(4, 4), "weight", 3),
    "gru": lambda: nn.GRU(4, 3),
    "two directions": lambda: nn.LSTM(4, 3, bidirectional=True),
    "projected": lambda: nn.LSTM(4, 3, proj_size=2),
    "batch norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)),
    "running statistics": lambda: nn.InstanceNorm1d(3, affine=True, track_running_stats=True),
    "rows that are renormed": lambda: nn.Embedding(TOKENS, 3, max_norm=1.0),
    "rows scaled by their frequency": lambda: nn.Embedding(TOKENS, 3, scale_grad_by_freq=True),
    "bilinear": lambda: nn.Bilinear(4, 4, 3),
    "attention": lambda: nn.MultiheadAttention(4, 2),
}


@pytest.mark.parametrize("name", NO_RULE)
def test_no_rule(name: str) -> None:
    module = NO_RULE[name]()
    assert not supported(module)
    with pytest.raises(Untappable):
        Tapped(module, score, drawn(2, 4).float(), drawn(2, 4).float())


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (nn.Linear(3, 2), drawn(3)),
        (nn.Conv2d(3, 2, 2), drawn(3, 4, 5)),
        (nn.InstanceNorm1d(3, affine=True), drawn(3, 5)),
        (nn.LayerNorm([3, 4]), drawn(3, 4)),
        (nn.LSTM(4, 2), drawn(3, 4)),
        (nn.LSTM(4, 2), nn.utils.rnn.pack_sequence([drawn(3, 4)])),
    ],
)
def test_one_record_without_an_axis_for_records(module: nn.Module, x: Any) -> None:
    """As many channels, or whatever is first, as records."""

    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module.double()

        def forward(self, records: Tensor) -> Tensor:
            found: Any = self.module(x)
            return found if isinstance(found, Tensor) else found[1][0]

    with pytest.raises(Untappable, match="expected a tensor of records"):
        Tapped(Alone(), lambda outputs, targets: outputs.sum() * targets, drawn(3, 1), torch.ones(3).double())


def test_positions_as_many_as_records() -> None:
    """(positions, records, width) with as many positions as records: wrong without a sign, so that
    it has to be tried.
    """
    module = made(
        lambda: Using(lambda m, x: m.second(m.first(x.transpose(0, 1)).tanh()).transpose(0, 1)), torch.float64
    )
    assert not any(supported(module, drawn(n, t, 4)) for n in (1, 2, 3, 7) for t in (2, 3, 7))
    rest = made(lambda: Using(lambda m, x: m.second(m.first(x).tanh())), torch.float64)
    assert all(supported(rest, drawn(n, t, 4)) for n in (0, 1, 2, 3, 7) for t in (2, 3, 7))


def test_losses_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"losses: expected one for each of 5 records, got shape \(\)"):
        Tapped(nn.Linear(4, 3), lambda outputs, targets: outputs.sum(), torch.zeros(5, 4), torch.zeros(5))


def test_used_again_on_the_way_back() -> None:
    """Checkpointing computes the forward pass once more."""
    checkpoint = partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
    module = made(
        lambda: Using(lambda m, x: checkpoint(lambda h: m.second(m.first(h).tanh()), x + 0 * m.first.bias)),
        torch.float64,
    )
    with pytest.raises(Untappable):
        errors(module, records((4,), torch.float64))


# dropout


@pytest.mark.parametrize("name", ["dropout", "in place", "between recurrent layers"])
def test_dropout(name: str) -> None:
    """Against the gradients of each record's loss in one forward pass with the same coins."""
    layers = (partial(nn.Dropout, 0.5, name == "in place"), partial(nn.Linear, 8, 3))
    module, x = made(after(partial(nn.Linear, 4, 8), *layers), torch.float64), records((4,), torch.float64)
    if name == "between recurrent layers":
        module, x = (
            made(partial(Recurrent, num_layers=3, dropout=0.5, batch_first=True), torch.float64),
            records((4, 0), torch.float64),
        )
    assert supported(module, x)
    targets, parameters = drawn(*module(x).shape), list(module.parameters())
    with torch.random.fork_rng(devices=[]):
        tapped = Tapped(module, score, x, targets)
    with torch.random.fork_rng(devices=[]):
        if isinstance(module, Recurrent):  # nn.LSTM would toss its coins in another order
            module.recurrent.forward = partial(lstm, lambda out, *_: out, sums.Room(0), module.recurrent)  # type: ignore[method-assign]
        losses = score(module(x), targets)
    rows = torch.stack(
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, retain_graph=True)])
            for loss in losses
        ]
    )
    torch.testing.assert_close(tapped.norms, rows.norm(dim=1), rtol=1e-10, atol=0)
    tapped.weighted(scales(N), out := torch.empty(rows.shape[1]).double())
    assert differs(out, scales(N) @ rows) < 1e-10


# the bound


def longest(tapped: Tapped, n: int, dimension: int, bound: float) -> float:
    """The longest that one record adds, clipped, over the bound."""
    factors, found = (bound / tapped.norms).clamp(max=1), []
    for r in range(n):
        tapped.weighted(factors * (torch.arange(n) == r), out := torch.empty(dimension))
        found.append(out.double().norm().item() / bound)
    return max(found)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [*MIXED, "instance norm 2d", "group norm", "padding", "in place"])
def test_no_record_is_longer_than_the_bound(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go(way, monkeypatch)
    make, shape = LAYERS[name]
    module, x = made(make, torch.float32), records(shape, torch.float32)
    tapped = Tapped(module, score, x, drawn(*module(x).shape).float())
    dimension = sum(p.numel() for p in module.parameters())
    assert 1 - 1e-5 < longest(tapped, N, dimension, tapped.norms.min().item() / 3) < 1 + 1e-5


@pytest.mark.parametrize("way", ["kept", "not kept", "gram"])
def test_records_on_a_kink(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At a ReLU's kink rounding decides which gradient a record has: only the one that was measured
    is bounded.
    """
    go(way, monkeypatch)
    module = made(partial(mlp, [50], 3, [8]), torch.float32)
    first, last = module[1], module[3]  # type: ignore[index]
    last.weight.data[:, 0] *= 1e4  # of the hidden unit on whose kink all records are
    weight, shift = first.weight.data[0].double(), first.bias.data[0].double()
    x = drawn(64, 50)
    for _ in range(4):
        x = x - ((x @ weight + shift) / weight.square().sum())[:, None] * weight
    x, targets = x.float(), torch.arange(64) % 3
    losses = tasks.classify().losses
    tapped = Tapped(module, losses, x, targets)
    assert longest(tapped, 64, sum(p.numel() for p in module.parameters()), 0.1) < 1 + 1e-5
    elsewhere = each_alone(module, x, targets, losses).norm(dim=1)  # measured with other rounding
    assert (tapped.norms / elsewhere).max() > 10


def test_gradients_of_zero() -> None:
    module = made(partial(mlp, [4], 3, [5]), torch.float32)
    module[3].bias.data[0] = 1e4  # type: ignore[index]
    tapped = Tapped(
        module, tasks.classify().losses, records((4,), torch.float32), torch.tensor([0, 0, 1, 0, 2])
    )
    assert torch.equal(tapped.norms > 0, torch.tensor([False, False, True, False, True]))
    tapped.weighted(torch.tensor([1.0, 1, 0, 1, 0]), out := torch.full((43,), torch.nan))
    assert not out.any()


# norms


def length(found: sums.Found) -> Tensor:
    return torch.cat([one.double() for one in found.lengths], 1).norm(dim=1)


@pytest.mark.parametrize("numbers", [3, 255, 256, 257, 512, 1025, 5000, 3_000_001])
@pytest.mark.parametrize("size", [1.0, 1e-15, 1e15])
def test_lengths(numbers: int, size: float) -> None:
    """A float32 sum of millions of squares errs by 1e-5 and more."""
    draw = np.random.default_rng(0)
    rows = torch.from_numpy(
        (size * draw.uniform(0.5, 1, (3, numbers)) * draw.choice([1, 1e-3], (3, 1))).astype(np.float32)
    )
    rows[1] = 0
    found = length(sums.Found(sums.lengths_of(rows), lambda *_: None))
    torch.testing.assert_close(found, rows.double().norm(dim=1), rtol=2e-7, atol=0)


def test_terms_that_cancel() -> None:
    """Few positions whose gradients nearly add up to zero: float32 Gram matrices would find nothing
    like the norm.
    """
    a = 1 + 1e-3 * drawn(2, 4, 50)
    g = drawn(2, 4, 60, seed=1)
    g = g - g.mean(1, keepdim=True)
    a, g = a.float(), g.float()
    exact = (g.double().transpose(1, 2) @ a.double()).square().sum((1, 2))
    positions = sums.Positions(g, a.__getitem__, a.shape[2])
    found = length(sums.over_positions(positions, sums.Room(0))).square()
    torch.testing.assert_close(found, exact, rtol=2e-6, atol=0)
    narrow = ((g @ g.transpose(1, 2)) * (a @ a.transpose(1, 2))).sum((1, 2))
    assert ((narrow.double() - exact).abs() / exact).max() > 1e-4


@pytest.mark.parametrize("way", ["gram", "not kept"])
def test_what_rounding_leaves_of_cancelling_positions_is_bounded_too(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sum is taken in float32, where a gradient that is nothing beside its terms comes out
    longer than it is.
    """
    go(way, monkeypatch)
    a, g = 1e7 * (1 + 1e-7 * drawn(3, 8, 64)), drawn(3, 8, 64, seed=1)
    g = g - g.mean(1, keepdim=True)
    positions = sums.Positions(g.float(), a.float().__getitem__, a.shape[2])
    found = sums.over_positions(positions, sums.Room(0))
    for r in range(3):
        scales = 0.1 / length(found) * (torch.arange(3) == r)
        found.add(scales.float(), out := torch.zeros(64 * 64))
        assert out.double().norm() < 0.1 * (1 + 1e-6)
    exact = (g.float().double().transpose(1, 2) @ a.float().double()).square().sum((1, 2))
    alone = (0.1 / exact.sqrt()).float()  # the negative control
    found.add(alone * (torch.arange(3) == 0), out := torch.zeros(64 * 64))
    assert out.double().norm() > 0.1 * (1 + 1e-5)


@pytest.mark.parametrize(
    "layer", [nn.Conv1d(2, 3, 5), nn.ConvTranspose1d(2, 3, 5), nn.Conv1d(2, 4, 3, 2, groups=2)]
)
def test_the_same_of_convolutions(layer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which gradients are summed again where they are not kept."""
    go("records as groups, not kept", monkeypatch)
    x = drawn(3, 2, 60)
    g = drawn(*layer.double()(x).shape, seed=1)
    large, other = (g, x) if layer.transposed else (x, g)  # patches of the one meet the other's positions
    large.copy_(1e7 * (1 + 1e-7 * large))
    other -= other.mean(2, keepdim=True)
    x, g = x.float(), g.float()
    with torch.no_grad():
        exact = each_gradient(layer, x.double(), g.double())
        found = dict(convolutions.convolution(sums.Room(0), layer.float(), x, g))["weight"]
    for r in range(3):
        scales = 0.1 / length(found) * (torch.arange(3) == r)
        found.add(scales.float(), out := torch.zeros(layer.weight.numel()))
        assert out.double().norm() < 0.1 * (1 + 1e-6)
    alone = [
        (0.1 / exact[r].norm() * (torch.arange(3) == r)).float() for r in range(3)
    ]  # the negative control
    added = [torch.zeros(layer.weight.numel()) for _ in alone]
    for scales, out in zip(alone, added, strict=True):
        found.add(scales, out)
    assert max(out.double().norm() for out in added) > 0.1 * (1 + 1e-5)


def each_gradient(layer: Any, x: Tensor, g: Tensor) -> Tensor:
    """Of the weight alone: (n, numbers)."""
    with torch.enable_grad():
        rows = [
            torch.autograd.grad(layer(x[r : r + 1]), layer.weight, g[r : r + 1])[0].flatten()
            for r in range(len(x))
        ]
    return torch.stack(rows)


# how it behaves


def test_sums_add_up_or_overwrite() -> None:
    module, x = made(partial(mlp, [4], 3, [5]), torch.float32), records((4,), torch.float32)
    targets = drawn(N, 3).float()
    whole, pieces = (
        Tapped(module, score, x, targets),
        [Tapped(module, score, x[s], targets[s]) for s in (slice(0, 2), slice(2, N))],
    )
    torch.testing.assert_close(torch.cat([piece.norms for piece in pieces]), whole.norms)
    c = scales(N)
    whole.weighted(c, expected := torch.full((43,), torch.nan))
    found = torch.ones(43)
    for piece, part in zip(pieces, c.split([2, 3]), strict=True):
        piece.add(part, found)
    torch.testing.assert_close(found, 1 + expected)
    assert not expected.requires_grad
    assert whole.norms.dtype == torch.float64


def test_a_lot_of_none() -> None:
    module = nn.Conv2d(1, 2, 3)
    tapped = Tapped(module, score, torch.zeros(0, 1, 5, 5), torch.zeros(0, 18))
    assert tapped.norms.shape == (0,)
    tapped.weighted(torch.zeros(0), out := torch.full((20,), torch.nan))
    assert not out.any()


@pytest.mark.parametrize("required", [False, True])
def test_the_module_is_left_as_it_was(required: bool) -> None:
    """And nothing is learnt of how the caller calls it: without gradients, with features that need
    some.
    """
    module = made(partial(mlp, [4], 3, [5]), torch.float32).requires_grad_(required)
    kept, x = copy.deepcopy(module.state_dict()), records((4,), torch.float32).requires_grad_()
    with torch.no_grad():
        Tapped(module, score, x, drawn(N, 3).float())
    assert x.grad is None
    assert all(p.requires_grad == required and p.grad is None for p in module.parameters())
    assert all(torch.equal(value, kept[key]) for key, value in module.state_dict().items())
    assert not any("forward" in vars(layer) or layer._forward_hooks for layer in module.modules())


def test_an_error_on_the_way_leaves_the_module_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(4, 3), nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        Tapped(module, score, torch.zeros(2, 4), torch.zeros(2, 2))
    assert all(p.requires_grad for p in module.parameters())
    assert not any("forward" in vars(layer) for layer in module.modules())


@pytest.mark.parametrize(
    "name", ["conv2d", "few patches", "group norm", "instance norm 2d", "transposed 2d", "same"]
)
@pytest.mark.parametrize("way", ["kept", "not kept", "gram"])
def test_channels_last(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    go(way, monkeypatch)
    make, shape = LAYERS[name]
    module = made(make, torch.float64)
    assert errors(module, records(shape, torch.float64).contiguous(memory_format=torch.channels_last)) < 1e-10
    module = module.to(memory_format=torch.channels_last)
    assert errors(module, records(shape, torch.float64).contiguous(memory_format=torch.channels_last)) < 1e-10


class Largest(TorchDispatchMode):
    """Numbers of the largest tensor that any operation makes."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else [found]:
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return found


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3)), (300,)),
        (
            lambda: nn.Sequential(
                nn.Conv2d(30, 40, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(640, 3)
            ),
            (30, 4, 4),
        ),
        (lambda: nn.Sequential(nn.Embedding(20_000, 5), nn.Flatten(), nn.Linear(20, 3)), (4, 0)),
        (lambda: nn.Sequential(nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 3)), (3, 300)),
    ],
)
def test_no_tensor_of_all_gradients(
    make: Make, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    go("one record at a time, not kept", monkeypatch)
    module, x = made(make, torch.float32), records(shape, torch.float32, 16)
    targets = drawn(*module(x).shape).float()
    d = sum(p.numel() for p in module.parameters())
    out = torch.empty(d)
    with Largest() as largest:
        Tapped(module, score, x, targets).weighted(torch.ones(16), out)
    assert d <= largest.numbers < 5 * d  # of 16 d


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_nothing_waits_for_the_garbage_collector() -> None:
    module, x = made(LAYERS["conv2d"][0], torch.float32), records(LAYERS["conv2d"][1], torch.float32)
    targets, out = torch.ones_like(module(x)), torch.empty(sum(p.numel() for p in module.parameters()))
    gc.collect()
    Tapped(module, score, x, targets).weighted(torch.ones(N), out)
    assert gc.collect() == 0

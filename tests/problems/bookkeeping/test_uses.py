"""What a module may do with its layers: what is right, what is refused, and that errors are
seen.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from helpers.odd_layers import LAYERS
from oracles.record_gradients import TOKENS, Make, N, built, drawn, errors, records, score
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import prune

from dpfl_bench.problems.bookkeeping import (
    Tapped,
    Untappable,
    convolutions,
    layers_of,
    rules,
    sums,
    supported,
)
from dpfl_bench.problems.models.mlp import mlp

pytestmark = pytest.mark.one_in(8)

# what the comparisons in test_layers.py would see


def test_errors_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias left out, its norm left out, positions that do not meet, a token's repetitions apart,
    a neighbour's gradient.
    """
    few, tokens, conv = (
        partial(errors, built(make, torch.float64), records(shape, torch.float64))
        for make, shape in (LAYERS[name] for name in ("few positions", "embedding", "conv2d"))
    )
    assert max(few(), tokens(), conv()) < 1e-10
    linear, kept = rules.RULES[nn.Linear], sums.ParameterGradients

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
    module, x = built(lambda: Using(RIGHT[use]), torch.float64), records((4,), torch.float64)
    assert supported(module, x)
    assert errors(module, x) < 1e-10


@pytest.mark.parametrize("use", USES)
def test_uses_that_are_refused(use: str) -> None:
    """Where a rule would go wrong that is seen, if not at every call then when it is tried."""
    module, x = built(lambda: Using(USES[use]), torch.float64), records((4,), torch.float64)
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
    module, x = built(partial(mlp, [4], 3, [5]), torch.float64), records((4,), torch.float64)
    assert supported(module, x)
    found = [Tapped(module, score, x, drawn(N, 3), *layers) for layers in ([], [layers_of(module)])]
    assert torch.equal(found[0].norms, found[1].norms)
    other = built(lambda: Using(USES["outside as well"]), torch.float64)
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
    module = built(
        lambda: Using(lambda m, x: m.second(m.first(x.transpose(0, 1)).tanh()).transpose(0, 1)), torch.float64
    )
    assert not any(supported(module, drawn(n, t, 4)) for n in (1, 2, 3, 7) for t in (2, 3, 7))
    rest = built(lambda: Using(lambda m, x: m.second(m.first(x).tanh())), torch.float64)
    assert all(supported(rest, drawn(n, t, 4)) for n in (0, 1, 2, 3, 7) for t in (2, 3, 7))


def test_losses_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"losses: expected one for each of 5 records, got shape \(\)"):
        Tapped(nn.Linear(4, 3), lambda outputs, targets: outputs.sum(), torch.zeros(5, 4), torch.zeros(5))


@pytest.mark.slow
def test_used_again_on_the_way_back() -> None:
    """Checkpointing computes the forward pass once more."""
    checkpoint = partial(torch.utils.checkpoint.checkpoint, use_reentrant=False)
    module = built(
        lambda: Using(lambda m, x: checkpoint(lambda h: m.second(m.first(h).tanh()), x + 0 * m.first.bias)),
        torch.float64,
    )
    with pytest.raises(Untappable):
        errors(module, records((4,), torch.float64))

"""Records' gradients one by one, in an ordinary float64 module, and how far others are from
them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from dpfl_bench import rng
from dpfl_bench.problems.bookkeeping import Tapped, sums

N, TOKENS = 5, 6
DTYPES = {torch.float32: 1e-5, torch.float64: 1e-10}
Make = Callable[[], nn.Module]


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


def differs(tensor: Tensor, expected: Tensor) -> float:
    """The largest difference, as a part of the largest entry."""
    return ((tensor.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30)).item()


def scales(n: int, seed: int = 0) -> Tensor:
    """Of all sizes, one of them 0."""
    numbers = np.random.default_rng(seed).exponential(size=n)
    numbers[n // 2] = 0
    return torch.from_numpy(numbers)


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
    worst = [((tapped.norms - lengths).abs() / lengths).max().item()]
    for c in (scales(len(x)), torch.ones(len(x)), torch.zeros(len(x))):
        out = torch.full((rows.shape[1],), torch.nan, dtype=next(module.parameters()).dtype)
        tapped.weighted(c, out)
        worst.append(differs(out, c.double() @ rows) if c.any() else out.abs().max().item())
    return max(worst)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape))


def records(shape: tuple[int, ...], dtype: torch.dtype, n: int = N) -> Tensor:
    """Numbers, or for an empty last length tokens, of which every record repeats some."""
    if shape and shape[-1] == 0:
        return torch.from_numpy(np.random.default_rng(0).integers(0, TOKENS, (n, *shape[:-1])))
    return drawn(n, *shape).to(dtype)


def built(make: Make, dtype: torch.dtype, seed: int = 0) -> nn.Module:
    """Parameters that are all drawn, norms' too."""
    module = rng.initialised(make, seed).to(dtype)
    for number, parameter in enumerate(module.parameters()):
        parameter.data += 0.1 * drawn(*parameter.shape, seed=number).to(dtype)
    return module


def length(contribution: sums.ParameterGradients) -> Tensor:
    """The records' norms, over the parts in which they came."""
    return torch.cat([one.double() for one in contribution.lengths], 1).norm(dim=1)

"""Products of many small matrices, beside the same by loops."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.problems.products import bmm

ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-13}


def drawn(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.from_numpy(np.random.default_rng(sum(shape)).normal(size=shape)).to(dtype)


def looped(a: Tensor, b: Tensor) -> Tensor:
    """einsum's own loops: no BLAS."""
    return torch.from_numpy(np.einsum("nij,njk->nik", a.double().numpy(), b.double().numpy(), optimize=False))


SHAPES = [(3, 4, 5, 6), (1, 1, 7, 9), (2, 9, 1, 3), (4, 3, 8, 1), (2, 16, 196, 16), (3, 1, 1, 1)]


LARGER = [
    (2, 10, 784, 20),
    (2, 10, 20, 784),
    (2, 1, 5000, 1),
    (2, 64, 7, 7),
    (3, 32, 25, 256),
    (2, 16, 196, 16),
]


def check_kernels() -> None:
    """Right, and the same bits wherever the numbers lie."""
    for dtype in ROUNDING:
        for n, i, j, k in [*SHAPES, *LARGER]:
            a, b = drawn(n, i, j, dtype=dtype), drawn(n, k, j, dtype=dtype).transpose(1, 2)
            expected, results = looped(a, b), set()
            for offset in (0, 1, 3, 8):
                shifted = [
                    torch.empty(t.numel() + 8, dtype=dtype)[offset : offset + t.numel()]
                    .view(t.shape)
                    .copy_(t)
                    for t in (a, b)
                ]
                product = bmm(shifted[0], shifted[1], out=torch.full((n, i, k), float("nan"), dtype=dtype))
                assert (product - expected).abs().max() <= ROUNDING[dtype] * max(1, expected.abs().max())
                results.add(product.numpy().tobytes())
            assert len(results) == 1

"""Batched products of small matrices, by torch or by numpy, whichever is faster on this
processor.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.machine import device


def bmm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Products of n pairs of matrices: (n, i, j), (n, j, k) -> (n, i, k), written to `out` if
    given.

    One `a` can meet m of `b`: (n, i, j), (m, n, j, k) -> (m, n, i, k). numpy multiplies where it is
    faster, on some processors by 2 to 4 times.
    """
    if out is None:
        out = a.new_empty(*b.shape[:-2], a.shape[1], b.shape[-1])
    if device.numpy_multiplies() and a.is_cpu and b.is_cpu and _suit(left := a.numpy(), right := b.numpy()):
        np.matmul(left, right, out=out.numpy())
        return out
    if b.dim() == 4:
        for factor, product in zip(b, out, strict=True):
            bmm(a, factor, product)
        return out
    # torch is slow to write into a tensor with gaps
    return torch.bmm(a, b, out=out) if out.is_contiguous() else out.copy_(torch.bmm(a, b))


def packed(view: Tensor) -> Tensor:
    """A copy of the view with its numbers side by side. numpy copies short runs faster than
    torch.
    """
    if view.device.type != "cpu":
        return view.contiguous()
    copy = torch.empty(view.shape, dtype=view.dtype)
    copy.numpy()[...] = view.numpy()
    return copy


def _suit(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the factors fit as torch demands: numpy would also multiply different number formats,
    and one matrix with many.
    """
    return (
        a.dtype == b.dtype and (a.shape[0], a.shape[2]) == b.shape[-3:-1] and _is_packed(a) and _is_packed(b)
    )


def _is_packed(rows: np.ndarray) -> bool:
    """Whether a BLAS takes each matrix: rows or columns without gaps or overlaps. Other matrices
    numpy would multiply number by number.
    """
    (i, j), (down, across), size = rows.shape[-2:], rows.strides[-2:], rows.itemsize
    return (across == size and down >= j * size) or (down == size and across >= i * size)

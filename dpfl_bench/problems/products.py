"""Batched products of small matrices, and what goes into them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.machine import device


def bmm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """(n, i, j), (n, j, k) -> (n, i, k), written to `out` if given. By numpy where that is faster:
    2 to 4 times for some processors.

    One `a` can be multiplied with several: (n, i, j), (m, n, j, k) -> (m, n, i, k).
    """
    if out is None:
        out = a.new_empty(*b.shape[:-2], a.shape[1], b.shape[-1])
    if device.numpy_multiplies() and a.is_cpu and b.is_cpu and _suit(left := a.numpy(), right := b.numpy()):
        np.matmul(left, right, out=out.numpy())
        return out
    if b.dim() == 4:
        for each, found in zip(b, out, strict=True):
            bmm(a, each, found)
        return out
    return (
        torch.bmm(a, b, out=out) if out.is_contiguous() else out.copy_(torch.bmm(a, b))
    )  # torch fills gaps slowly


def packed(view: Tensor) -> Tensor:
    """Its numbers side by side. numpy copies short runs faster than torch."""
    if view.device.type != "cpu":
        return view.contiguous()
    found = torch.empty(view.shape, dtype=view.dtype)
    found.numpy()[...] = view.numpy()
    return found


def _suit(a: np.ndarray, b: np.ndarray) -> bool:
    """numpy would also take what torch refuses: other formats, and one matrix for many."""
    return (
        a.dtype == b.dtype and (a.shape[0], a.shape[2]) == b.shape[-3:-1] and _is_packed(a) and _is_packed(b)
    )


def _is_packed(rows: np.ndarray) -> bool:
    """Whether each matrix is what a BLAS takes: rows or columns without gaps or overlaps. Others
    numpy would multiply number by number.
    """
    (i, j), (down, across), size = rows.shape[-2:], rows.strides[-2:], rows.itemsize
    return (across == size and down >= j * size) or (down == size and across >= i * size)

"""Batched products of small matrices, and what goes into them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dpfl_bench import device


def bmm(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """(n, i, j), (n, j, k) -> (n, i, k), written to `out` if given. By numpy where that is faster: 2 to 4 times for some processors.

    One `a` can be multiplied with several: (n, i, j), (m, n, j, k) -> (m, n, i, k).
    """
    if out is None:
        out = a.new_empty(*b.shape[:-2], a.shape[1], b.shape[-1])
    if device.numpy_multiplies() and _suit(a, b):
        with np.errstate(all="ignore"):  # who diverges is found elsewhere
            np.matmul(a.numpy(), b.numpy(), out=out.numpy())
        return out
    if b.dim() == 4:
        for each, found in zip(b, out, strict=True):
            bmm(a, each, found)
        return out
    return torch.bmm(a, b, out=out) if out.is_contiguous() else out.copy_(torch.bmm(a, b))  # torch fills gaps slowly


def packed(view: Tensor) -> Tensor:
    """Its numbers side by side. numpy copies short runs faster than torch."""
    if view.device.type != "cpu":
        return view.contiguous()
    found = torch.empty(view.shape, dtype=view.dtype)
    np.copyto(found.numpy(), view.numpy())
    return found


def _suit(a: Tensor, b: Tensor) -> bool:
    """numpy would also take what torch refuses: other formats, and one matrix for many."""
    alike = a.device.type == b.device.type == "cpu" and a.dtype == b.dtype and (len(a), a.shape[2]) == b.shape[-3:-1]
    return alike and _is_packed(a) and _is_packed(b)


def _is_packed(rows: Tensor) -> bool:
    """Whether each matrix is what a BLAS takes: rows or columns without gaps or overlaps. Others numpy would multiply number by number."""
    i, j = rows.shape[-2:]
    down, across = rows.stride()[-2:]
    return (across == 1 and down >= j) or (down == 1 and across >= i)

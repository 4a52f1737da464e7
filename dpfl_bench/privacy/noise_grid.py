"""`privacy.noise=discrete`: what is released lies on a grid, so its last bits reveal nothing more.

A float64 sum of an update and Gaussian noise has 53 bits. Which bits can occur depends on the
update, so the last bits of a release may rule out a neighbouring data set altogether (Mironov
2012). Here everything lies on a grid of spacing g, a power of two that follows from the noise's
standard deviation s alone. Then the last bits rule out nothing:

1. The bounded message x is rounded towards zero onto the grid. No entry grows, so neither the norm
   nor the sensitivity grows.
2. Each drawn noise N ~ N(0, s^2) is rounded to the nearest point, R(N), and the two are added as
   whole multiples of g, exactly.
3. x lies on the grid, so x + R(N) = R(x + N): post-processing of the Gaussian release x + N. Its
   eps is the Gaussian's.

Shares of the noise. With independent uniforms U_i on (-g/2, g/2), R(N_i) has at each grid point g
times the density of N_i + U_i there. The characteristic function of R(N_i) is therefore that of N_i
+ U_i, repeated with the period 2 pi / g and added up. In that of the sum of m shares, the products
of different repetitions are at most exp(-pi^2 (s/g)^2). Neglecting them, R(N_1) + ... + R(N_m) has
at each grid point g times the density of N_1 + ... + N_m + U_1 + ... + U_m. R(N_1 + ... + N_m + U_1
+ ... + U_(m-1)) has the same density. The cohort's sum is thus R(sum of x_i + sum of N_i + uniforms
that depend on nothing), which is again post-processing of the Gaussian release, up to that
exponential. With s/g >= 2^12 the exponential is less than 10^(-7e7). The same holds for the shares
that are left beside colluding clients.

Sums are float64, which holds whole numbers up to 2^53 exactly. So any order of the terms, and any
number of workers, gives the same bits.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.machine import device

FINE = 12  # a standard deviation is 2^12 to 2^13 spacings
LARGEST_DRAW = 10  # standard deviations; `normals` ends at 9.5
WHOLE = 2.0**53


def spacing(std: float) -> float:
    """The grid's spacing g for draws of this standard deviation."""
    return math.ldexp(1.0, math.frexp(std)[1] - 1 - FINE)


def towards_zero(rows: Tensor, grid: float) -> Tensor:
    """The rows on the grid, none of their entries larger than before, in the widest format. rows:
    (c, d) or (d,).
    """
    return torch.trunc(rows.to(device.wide(rows.device)) / grid) * grid


def nearest(noise: np.ndarray, grid: float) -> np.ndarray:
    """The draws at their nearest points of the grid, of any shape."""
    rounded: np.ndarray = np.rint(noise / grid) * grid
    return rounded


def sums_exactly(terms: int, noise: float) -> bool:
    """Whether `terms` messages of norm at most C, each with a draw of standard deviation `noise` C,
    add up within what float64 holds exactly.
    """
    return bool(terms * (1 / noise + LARGEST_DRAW) * 2.0 ** (FINE + 1) < WHOLE)

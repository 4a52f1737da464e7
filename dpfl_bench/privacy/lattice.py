"""`privacy.noise=discrete`: what is released lies on a grid, so no low-order bit of it depends on
anything but its value.

A float64 sum of an update and Gaussian noise has 53 bits. Which of them can occur depends on the
update, so that the last bits of a release may rule out a neighbouring data set altogether (Mironov
2012). On a grid of spacing g, a power of two that follows from the noise's standard deviation s
alone, nothing of that is left:

1. The bounded message x is rounded towards zero onto the grid. No entry grows, so the norm and the
   sensitivity are what they were.
2. Each drawn noise N ~ N(0, s^2) is rounded to the nearest point, R(N), and the two are added as
   whole multiples of g, exactly.
3. x lies on the grid, so x + R(N) = R(x + N): post-processing of the Gaussian release x + N. Its
   eps is the Gaussian's.

Shares of the noise. With independent uniforms U_i on (-g/2, g/2), R(N_i) has at each grid point g
times the density of N_i + U_i there. The characteristic function of R(N_i) is therefore that of N_i
+ U_i, repeated with the period 2 pi / g and added up. In that of the sum of m shares, the products
of different repetitions are at most exp(-pi^2 (s/g)^2): neglecting them, R(N_1) + ... + R(N_m) has
at each grid point g times the density of N_1 + ... + N_m + U_1 + ... + U_m. So has R(N_1 + ... +
N_m + U_1 + ... + U_(m-1)). The cohort's sum is thus R(sum of x_i + sum of N_i + uniforms that
depend on nothing), again post-processing of the Gaussian release, up to that exponential: s/g >=
2^12 makes it less than 10^(-7e7). The same holds for the shares that are left beside colluding
clients.

Sums are float64, which holds whole numbers up to 2^53 exactly: in any order, by any number of
workers, the same bits.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from dpfl_bench.machine import device

FINE = 12  # a standard deviation is 2^12 to 2^13 spacings
LARGEST_DRAW = 10  # standard deviations; mechanisms.normals ends at 9.5
WHOLE = 2.0**53


def spacing(std: float) -> float:
    """g, for draws of this standard deviation."""
    return math.ldexp(1.0, math.frexp(std)[1] - 1 - FINE)


def towards_zero(rows: Tensor, grid: float) -> Tensor:
    """No entry grows. In the widest format."""
    return torch.trunc(rows.to(device.wide(rows.device)) / grid) * grid


def nearest(noise: np.ndarray, grid: float) -> np.ndarray:
    rounded: np.ndarray = np.rint(noise / grid) * grid
    return rounded


def sums_exactly(terms: int, noise: float) -> bool:
    """Whether so many terms of at most C, each with a draw of standard deviation noise C, add up
    within what float64 holds exactly.
    """
    return bool(terms * (1 / noise + LARGEST_DRAW) * 2.0 ** (FINE + 1) < WHOLE)

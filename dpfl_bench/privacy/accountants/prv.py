"""Opacus' PRV accountant: privacy loss random variables, composed by FFT, with error bounds (Gopi,
Lee & Wutschitz 2021, "Numerical Composition of Differential Privacy").

Valid for Gaussians without sampling (either neighbouring relation) and under Poisson sampling
(add_remove_one). Opacus computes one order of the neighbours, "present against absent"; the other
order is computed here in the same way, and the larger eps holds.

eps is the upper end of the interval that the theorem gives, with these errors:

- delta_error = delta / 1000, as Opacus has it.
- eps_error = at most 1/400 of the eps of one Gaussian with about this loss, so that the number of
  cells is a power of 2. It is larger where that takes more than 2^21 cells (small eps, many
  releases): looser, and a bound all the same. From 0.5 on there is none, because the theorem's
  window asks for less than 1.
- Rounding inside the FFT is not part of the theorem. delta is lowered by 1e-12 + 1e-15 a release
  for it, as for our own PLDs, so there is no answer for a delta below that.

Opacus takes seconds to import, so it is imported only when an epsilon is asked for.
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache
from typing import Any

from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.divergences.gaussian import eps_of_gaussian
from dpfl_bench.privacy.released.composition import Composition

_FINENESS = 400  # eps / eps_error
_CELLS = 2**21
_LARGEST_ERROR = 0.5
_LARGEST_LOSS = 600.0  # e^loss stays within float64


def refusal(composition: Composition) -> str | None:
    """Opacus' random variables are those of Poisson-sampled Gaussians."""
    if composition.mechanism in ("gaussian", "poisson") and not composition.rounds:
        return None
    return "Opacus' accountant is for Gaussian noise, unsampled or Poisson-sampled (add_remove_one)"


def epsilon(composition: Composition, noise: float, delta: float) -> float:
    """Eps at delta. noise: std / sensitivity. `OutOfReach` where the discretisation cannot tell."""
    c = composition
    if c.mechanism == "gaussian":  # T releases are one with noise / sqrt(T)
        return _epsilon(1.0, noise / math.sqrt(c.times), 1, delta)
    return _epsilon(c.rate, noise, c.times, delta)


@lru_cache(maxsize=256)
def _epsilon(rate: float, noise: float, times: int, delta: float) -> float:
    import numpy as np

    sure = delta - 1e-12 - 1e-15 * times
    if sure <= delta / 2:
        raise refusals.out_of_reach("prv", f"delta={delta:g} is lost in rounding")
    if 0.5 / noise**2 + 10 / noise > _LARGEST_LOSS:
        raise refusals.out_of_reach("prv", f"noise_multiplier={noise:.3g} is too small for its grid")
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of orders at the end of their range: they cost cells only
        orders = [True] if rate == 1 else [True, False]  # unsampled, both orders are alike
        return max(_of_one_order(present, rate, noise, times, sure) for present in orders)


def _of_one_order(present: bool, rate: float, noise: float, times: int, delta: float) -> float:
    """Eps at delta of one order of the neighbours."""
    from opacus.accountants.analysis.prv import (
        Domain,
        PoissonSubsampledGaussianPRV,
        TruncatedPrivacyRandomVariable,
        compose_heterogeneous,
        compute_safe_domain_size,
        discretize,
    )

    loss = PoissonSubsampledGaussianPRV(rate, noise) if present else _Absent(rate, noise)
    delta_error = delta / 1000
    steps = math.sqrt(times * math.log(12 / delta_error) / 2)  # cells of one eps_error
    half = float(compute_safe_domain_size([loss], [times], _LARGEST_ERROR, delta_error))
    wanted = _of_one_gaussian(rate, noise, times, delta) / _FINENESS
    cells = min(_CELLS, 1 << math.ceil(2 * half * steps / wanted + 2).bit_length())
    step = 2 * half / (cells - 2)
    eps_error = step * steps
    if not (eps_error < _LARGEST_ERROR and half < _LARGEST_LOSS):
        raise refusals.out_of_reach("prv", f"{times} releases take more than {_CELLS} cells")
    try:
        domain = Domain(-(cells // 2 - 1) * step, cells // 2 * step, cells)  # 0 is one of its points
        cut = TruncatedPrivacyRandomVariable(loss, domain.t_min, domain.t_max)
        composed = compose_heterogeneous([discretize(cut, domain)], [times])
        _, _, upper = composed.compute_epsilon(delta, delta_error, eps_error)
    except (RuntimeError, ValueError, IndexError) as error:
        raise refusals.out_of_reach("prv", f"Opacus says: {error}") from None
    if not math.isfinite(upper):
        raise refusals.out_of_reach("prv", f"Opacus says eps={upper}")
    return max(0.0, float(upper))


def _of_one_gaussian(rate: float, noise: float, times: int, delta: float) -> float:
    """About the eps to come, between 1e-3 and 100: that of one Gaussian with mu^2 = T q^2
    (exp(1/z^2) - 1), or T/z^2 if that is less. It sizes the grid, and no bound leans on it.
    """
    per_release = min(rate**2 * math.expm1(min(1 / noise**2, 30.0)), 1 / noise**2)
    return max(1e-3, min(eps_of_gaussian(math.sqrt(times * per_release), delta), 100.0))


class _Absent:
    """The privacy loss in the other order, log(Q/P) under Q = N(0, s^2), with P = (1 - q) Q + q
    N(1, s^2): what Opacus asks of a loss. Its Rényi divergences are at most those of the first
    order (Mironov, Talwar & Zhang 2019, Theorem 5), so the window that Opacus takes from those
    holds it.
    """

    def __init__(self, sample_rate: float, noise_multiplier: float) -> None:
        self.sample_rate, self.noise_multiplier = sample_rate, noise_multiplier

    def cdf(self, t: Any) -> Any:
        """P(loss <= t) = Q(x >= threshold), (n,) -> (n,): the loss falls with x, and stays below
        -log(1 - q).
        """
        import numpy as np
        from scipy.special import ndtr

        q, s = self.sample_rate, self.noise_multiplier
        inner = (np.exp(-np.asarray(t, dtype=float)) - (1 - q)) / q
        threshold = s * s * np.log(np.where(inner > 0, inner, 1.0)) + 0.5
        return np.where(inner > 0, ndtr(-threshold / s), 1.0)


ACCOUNTANT = Accountant("prv", refusal, epsilon, auto="never", needs="opacus")

"""Zero-concentrated DP (Bun & Steinke 2016): rho = T / (2 z^2), sampled or not. docs/extend.md
shows this file as the example of an accountant.
"""

from __future__ import annotations

import math

from dpfl_bench.privacy.accountants.accountant import Accountant
from dpfl_bench.privacy.released.composition import Composition


def refusal(composition: Composition) -> str | None:
    return "it is for Gaussian noise" if composition.mechanism == "pure" else None


def epsilon(composition: Composition, noise: float, delta: float) -> float:
    rho = composition.times / (2 * noise**2)
    return rho + 2 * math.sqrt(rho * math.log(1 / delta))


ACCOUNTANT = Accountant("zcdp", refusal, epsilon)

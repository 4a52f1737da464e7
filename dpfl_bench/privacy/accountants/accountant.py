"""What every accountant's file says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dpfl_bench.privacy.released.composition import Composition


@dataclass(frozen=True)
class Accountant:
    """One way to bound the epsilon of a composition.

    name: what `privacy.accountant` calls it.

    refusal: composition -> why the accountant is not valid for it, or None where it is valid.

    epsilon: (composition, noise, delta) -> eps, an upper bound at that delta, in the composition's
    unit and neighbouring relation. `noise` is the noise multiplier std / sensitivity of one
    release, with the companions and the scale already in it (`accounting.noise_of`); of pure
    releases it is 1/eps_0. It is > 0, and finite but for an accountant that is no guarantee. eps
    must not rise with the noise: calibration and the largest number of rounds are searches on that.

    auto: its place in `privacy.accountant=auto`, see `table.py`.

    guarantee: False for numbers that a paper printed and that bound nothing.

    needs: a package beyond those that are always installed; the extra of the same name installs it.

    least_noise: (composition, eps, delta) -> the noise for that eps in closed form, or None where
    a search has to find it. It is divided by the scale; companions are not taken out of it.

    instant: it answers faster than a kept answer is read from disk.
    """

    name: str
    refusal: Callable[[Composition], str | None]
    epsilon: Callable[[Composition, float, float], float]
    auto: Literal["alone", "compared", "never"] = "compared"
    guarantee: bool = True
    needs: str | None = None
    least_noise: Callable[[Composition, float, float], float | None] = lambda *_: None
    instant: bool = False

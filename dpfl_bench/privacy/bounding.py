"""How the norm of an update is bounded by C: clip or normalise.

After either, one client moves the sum by at most C (add_remove_one, as zero-out) or 2C (replace_one), up to the rounding of each entry.
So norms are summed in the widest format: in float32 that of a hundred million numbers comes out 1 % too small, or 40 % if they are chosen.
"""

from __future__ import annotations

from torch import Tensor

from dpfl_bench.problems.problem import lengths


def clip(updates: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """min(1, C / ||u||) u for each row u. updates: (c, d); also returns the norms before, (c,)."""
    norms = lengths(updates)
    factors = bound / norms.clamp(min=bound)  # 1 where ||u|| <= C, without dividing by zero
    return updates * factors.to(updates).unsqueeze(1), norms.to(updates)


def normalise(updates: Tensor, bound: float) -> tuple[Tensor, Tensor]:
    """C u / ||u|| for each row u; a zero row, where the paper's norm(0) is undefined, becomes C (1, ..., 1) / sqrt(d).

    updates: (c, d); also returns the norms before, (c,).
    """
    norms = lengths(updates).to(updates)
    zero = (updates == 0).all(dim=1, keepdim=True)  # not norms == 0: the norm of a tiny update underflows
    # dividing by the largest entry first keeps ||u|| from underflowing for tiny updates
    scaled = (updates / updates.abs().amax(dim=1, keepdim=True)).where(~zero, updates.new_ones(()))
    return scaled * (bound / lengths(scaled)).to(updates).unsqueeze(1), norms

"""How the norm of an update is bounded by C: clip or normalise.

After either, one client moves the sum by at most C (add_remove_one, as zero-out) or 2C (replace_one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def clip(updates: torch.Tensor, bound: float) -> tuple[torch.Tensor, torch.Tensor]:
    """min(1, C / ||u||) u for each row u. updates: (c, d); also returns the norms before, (c,)."""
    norms = updates.norm(dim=1)
    factors = (bound / norms.clamp(min=bound)).unsqueeze(1)  # 1 where ||u|| <= C, without dividing by zero
    return updates * factors, norms


def normalise(updates: torch.Tensor, bound: float) -> tuple[torch.Tensor, torch.Tensor]:
    """C u / ||u|| for each row u; a zero row, where the paper's norm(0) is undefined, becomes C (1, ..., 1) / sqrt(d).

    updates: (c, d); also returns the norms before, (c,).
    """
    norms = updates.norm(dim=1)
    zero = (updates == 0).all(dim=1, keepdim=True)  # not norms == 0: the norm of a tiny update underflows
    # dividing by the largest entry first keeps ||u|| from underflowing for tiny updates
    scaled = (updates / updates.abs().amax(dim=1, keepdim=True)).where(~zero, updates.new_ones(()))
    return scaled * (bound / scaled.norm(dim=1, keepdim=True)), norms

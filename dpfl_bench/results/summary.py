"""A result in one line for a person."""

from __future__ import annotations

import math
from typing import Any


def summary(result: dict[str, Any]) -> str:
    budget = "no privacy" if result["eps"] == math.inf else f"eps {result['eps']:.4g} ({_noise(result)})"
    where = f"{result['algo']} on {result['dataset']}: {result['rounds']} rounds of {result['local_steps']} local steps, {budget}"
    if result["status"] == "diverged":
        return f"{where}: diverged in round {result['diverged']['round']} (seed {result['diverged']['seed']}); lower lr"
    spread = f" ± {result['test_error_std']:.4f} over {len(result['seeds'])} seeds" if len(result["seeds"]) > 1 else ""
    subset = f"; {result['data']['subset']}" if result["data"]["subset"] else ""
    return f"{where}: test error {result['test_error_mean']:.4f}{spread}{subset}"


def _noise(result: dict[str, Any]) -> str:
    z = result["noise_multiplier"]
    said = result["mechanism"] if z is None else f"noise multiplier {z:.4g}"
    if result["accountant"] == "paper":
        said += "; by the paper's own accountant, no guarantee"
    return said if result["fully_accounted"] else f"{said}; not fully accounted"

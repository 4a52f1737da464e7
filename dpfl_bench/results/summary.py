"""A result in one line for a person."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def summary(result: dict[str, Any]) -> str:
    budget = (
        "no privacy"
        if result["eps"] == math.inf
        else f"eps {result['eps']:.4g}{together(result)} ({_noise(result)})"
    )
    where = (
        f"{result['algo']} on {whole_or_part(result)}: {result['rounds']} rounds of {result['local_steps']}"
        f" local steps, {budget}"
    )
    if result["status"] == "diverged":
        return f"{where}: {_divergence(result['diverged'])}; lower lr"
    spread = (
        f" ± {result['test_error_std']:.4f} over {len(result['seeds'])} seeds"
        if len(result["seeds"]) > 1
        else ""
    )
    return f"{where}: test error {result['test_error_mean']:.4f}{spread}"


def together(result: Mapping[str, Any]) -> str:
    """Several repeats release several models; of a run that ended early not all seeds were played."""
    known, models = (
        result.get("eps_all_repeats"),
        0 if result.get("status") == "diverged" else len(result.get("seeds") or []),
    )
    return f" each, {known:.3g} all {models} together" if models > 1 and known is not None else ""


def _divergence(found: Mapping[str, Any]) -> str:
    where = f"diverged in round {found['round']} (seed {found['seed']})"
    if found.get("cause", "overflow") != "overflow":
        return f"{where}: {found['cause']}" + (
            ", which tells of the data" if found["tells_of_the_data"] else ""
        )
    return where + (
        " by overflow, which is post-processing of what was released"
        if found.get("tells_of_the_data")
        else ""
    )


def whole_or_part(result: Mapping[str, Any]) -> str:
    """The data set, and if only a part of it was there, how much: nobody is to take one for the
    other.
    """
    return f"{result['dataset']} ({result['subset']})" if result.get("subset") else str(result["dataset"])


def _noise(result: dict[str, Any]) -> str:
    z = result["noise_multiplier"]
    said = result["mechanism"] if z is None else f"noise multiplier {z:.4g}"
    if result["accountant"] == "paper":
        said += "; by the paper's own accountant, no guarantee"
    return said if result["fully_accounted"] else f"{said}; not fully accounted"

"""A result in one line for a person."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpfl_bench.budget.guarantee import Guarantee


def summary(result: Mapping[str, Any]) -> str:
    """The last line of `run`, of a result.json."""
    where = (
        f"{result['algo']} on {whole_or_part(result)}: {result['rounds']} rounds of {result['local_steps']}"
        f" local steps, {_budget(result)}"
    )
    if result["status"] == "diverged":
        return f"{where}: {_divergence(result['diverged'])}; lower lr"
    return f"{where}: {_end(result)}"


def _end(result: Mapping[str, Any]) -> str:
    """How good the last model is: its test error; where nobody knows that, its training loss."""
    tested = _known(result.get("test_error_mean"))
    by, name = ("test_error", "test error") if tested else ("train_loss", "training loss")
    many = len(result["seeds"]) > 1
    spread = f" ± {result[f'{by}_std']:.4f} over {len(result['seeds'])} seeds" if many else ""
    text = f"{name} {result[f'{by}_mean']:.4f}{spread}"
    above = result.get("suboptimality_mean")
    return text if tested or not _known(above) else f"{text}, {above:.4g} above the optimum"


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _budget(result: Mapping[str, Any]) -> str:
    guarantee = Guarantee.read(result)
    if guarantee.eps == math.inf:
        return "no privacy"
    return f"{guarantee.said}{together(result)} ({_noise(guarantee)})"


def together(result: Mapping[str, Any]) -> str:
    """What the models of all repeats spend together. Nothing for one repeat, and for a run that
    ended early: it did not play all seeds.
    """
    guarantee = Guarantee.read(result)
    eps = guarantee.eps_all_repeats if guarantee.accountant != "paper" else None
    models = 0 if result.get("status") == "diverged" else len(result.get("seeds") or [])
    return f" each, {eps:.3g} all {models} together" if models > 1 and eps is not None else ""


def _divergence(diverged: Mapping[str, Any]) -> str:
    where = f"diverged in round {diverged['round']} (seed {diverged['seed']})"
    tells = diverged.get("tells_of_the_data")
    if diverged.get("cause", "overflow") != "overflow":
        return f"{where}: {diverged['cause']}" + (", which tells of the data" if tells else "")
    return f"{where} by overflow" + (", which is post-processing of what was released" if tells else "")


def whole_or_part(result: Mapping[str, Any]) -> str:
    """The data set, and if only a part of it was there, how much: nobody is to take one for the
    other.
    """
    return f"{result['dataset']} ({result['subset']})" if result.get("subset") else str(result["dataset"])


def _noise(guarantee: Guarantee) -> str:
    z = guarantee.noise_multiplier
    noise = guarantee.mechanism if z is None else f"noise multiplier {z:.4g}"
    if guarantee.accountant == "paper":
        noise = f"{noise}; by the paper's own accountant, no guarantee"
    elif guarantee.nominal_how:
        noise = f"{noise}; nominal: {guarantee.nominal_how}, no guarantee"
    return f"{noise}" if guarantee.fully_accounted else f"{noise}; not fully accounted"

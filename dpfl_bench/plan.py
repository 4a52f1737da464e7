"""What a run would spend and what theory expects of it, without training, without data, without torch."""

from __future__ import annotations

import math
from typing import Any

from dpfl_bench import theory
from dpfl_bench.config import target
from dpfl_bench.privacy import calibration
from dpfl_bench.privatise import Budget, drawn_schedules
from dpfl_bench.results.clean import clean
from dpfl_bench.settings import ConfigError, Settings

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of T*, for the table of B(T)


def plan(settings: Settings) -> dict[str, Any]:
    """Everything that `dpfl-bench plan --json` prints."""
    schedules = drawn_schedules(settings)
    budget = Budget.of(settings, schedules)
    privacy = settings.privacy
    implied = _implied(settings, budget)
    made = {
        "run_id": settings.run_id,
        "algo": settings.algo["name"],
        "dataset": settings.dataset["name"],
        "noise_multiplier": budget.noise_multiplier,
        "noise_std": budget.noise_std,
        "clip": privacy.clip,
        "sensitivity": privacy.sensitivity,
        "eps": budget.eps,
        "eps_target": settings.eps,
        "delta": settings.delta,
        "unit": privacy.unit,
        "trust": privacy.trust,
        "neighbours": privacy.neighbours,
        "observer": budget.observer,
        "memory": privacy.remembered if settings.private and target(settings.algo).remembers else None,
        "accountant": budget.accountant,
        "releases": budget.planned.rounds,
        "releases_of_worst_client": budget.planned.worst,
        "rounds": budget.planned.rounds,
        "local_steps": settings.local_steps,
        "total_steps": settings.total_steps,
        "max_rounds": budget.max_rounds(),
        "views": budget.views(),
        "accountants": budget.accountants(),
        "implied": implied,
        "records_per_client": settings.records or _records(settings),
        "theory": _theory(settings, budget),
    }
    cleaned: dict[str, Any] = clean(made)
    return cleaned


def _records(settings: Settings) -> int | None:
    known = settings.dataset["records"]
    return known // settings.clients if known else None


def _implied(settings: Settings, budget: Budget) -> dict[str, float] | None:
    """The constants v (`balancing`) and q (`normalized`) that this noise means."""
    if not settings.private or budget.observed == 0:
        return None
    ratio = settings.privacy.sensitivity / settings.privacy.clip
    return calibration.implied(budget.noise_multiplier, ratio, budget.observed, budget.rate, settings.eps, settings.delta)


def _theory(settings: Settings, budget: Budget) -> dict[str, Any] | None:
    """Theorem 1 and Corollary 1 of `balancing`, for l2-regularised logistic regression. None where they do not apply."""
    model, dataset = settings.model, settings.dataset
    decay = model.get("l2", 0.0) + settings.weight_decay
    if model["name"] != "logreg" or decay <= 0 or not settings.private or budget.planned.worst == 0:
        return None
    bias = model["bias"] if model["bias"] is not None else dataset["classes"] != 2
    if dataset["classes"] is None or dataset["shape"] is None or (settings.theory.L is None and dataset["gram"] is None):
        return None
    curvature = theory.curvature(dataset["classes"])
    L = settings.theory.L or curvature * (dataset["gram"] + bias) + decay
    if not decay < L:
        raise ConfigError(f"theory.L={L:g}: expected more than mu={decay:g} (model.l2 and weight_decay); raise it or leave it out")
    p = theory.p_star(decay, L)
    clients, eps, delta, clip = settings.clients, settings.eps, settings.delta, settings.privacy.clip
    dimension = (1 if dataset["classes"] == 2 else dataset["classes"]) * (math.prod(dataset["shape"]) + bias)
    row_norm = math.hypot(dataset["max_row_norm"], bias) if dataset["max_row_norm"] else None
    psi0, source = settings.theory.psi0, "theory.psi0"
    if psi0 is None and row_norm is not None:
        psi0, source = theory.prior_psi0(decay, L, p, clients, dataset["classes"], row_norm), "a-priori bound"
    v = _client_v(settings, budget)
    made: dict[str, Any] = {"mu": decay, "L": L, "p_star": p, "local_steps_star": 1 / p, "v": v, "psi0": psi0, "psi0_from": source}
    made["covers"] = "ScaffNew with every client, full gradients and no clipping; L is of the pooled data unless theory.L says otherwise"
    made["L_every_client"] = curvature * row_norm**2 + decay if row_norm else None
    if psi0 is None:
        return {**made, "T_star": None, "bound": []}
    best = theory.optimal_steps(psi0, eps, delta, decay, L, v, clip, clients, dimension)
    at = sorted({max(1, round(best * f)) for f in FACTORS} | {settings.total_steps})
    bounds = [{"T": t, "bound": theory.bound(t, psi0, eps, delta, decay, L, v, clip, clients, dimension)} for t in at]
    return {**made, "T_star": best, "rounds_star": p * best, "bound": bounds}


def _client_v(settings: Settings, budget: Budget) -> float:
    """v of the noise that one client adds, which is what the theorem speaks of: its own, or its share of the sum's."""
    ratio = budget.client_noise_std / settings.privacy.clip
    return ratio**2 * settings.eps**2 / (budget.planned.rounds * math.log(1 / settings.delta))


def text(planned: dict[str, Any]) -> str:
    """The plan for a person."""
    lines = [f"{planned['algo']} on {planned['dataset']}: {planned['rounds']} rounds of {planned['local_steps']} local steps"]
    if planned["eps"] == math.inf:
        return lines[0] + ", no privacy\n"
    lines += [
        f"  noise      multiplier {planned['noise_multiplier']:.6g}, standard deviation {planned['noise_std']:.6g} "
        f"(C {planned['clip']:g}, sensitivity {planned['sensitivity']:g}, {planned['trust']}, {planned['neighbours']})",
        f"  spends     eps {planned['eps']:.6g} at delta {planned['delta']:g} towards the {planned['observer']} ({planned['accountant']}); "
        f"the target is {planned['eps_target']:g}",
        f"  releases   {planned['releases']} ({planned['releases_of_worst_client']} of the client that takes part most); "
        f"eps {planned['eps_target']:g} allows {planned['max_rounds']} rounds at this noise",
        "  views      " + ", ".join(f"{name}: {eps:.6g}" for name, eps in planned["views"].items()),
        "  accountants " + ", ".join(f"{name}: {eps:.6g}" for name, eps in planned["accountants"].items()),
    ]
    if planned["implied"] is not None:
        lines.append(f"  implied    v {planned['implied']['v']:.6g}, q {planned['implied']['q']:.6g}")
    return "\n".join(lines + _theory_lines(planned["theory"])) + "\n"


def _theory_lines(made: dict[str, Any] | None) -> list[str]:
    if made is None:
        return []
    lines = [
        f"  theory     mu {made['mu']:g}, L {made['L']:.6g}: p* {made['p_star']:.6g}, so {made['local_steps_star']:.3g} local steps; "
        f"v {made['v']:.6g} for one client's noise"
    ]
    if made["T_star"] is None:
        return [*lines, "             T* needs theory.psi0"]
    lines.append(f"             covers {made['covers']}")
    none = " (the budget buys nothing)" if made["T_star"] == 0 else ""
    lines.append(
        f"             T* {made['T_star']:.6g}{none}, {made['rounds_star']:.4g} rounds; psi_0 {made['psi0']:.4g} ({made['psi0_from']})"
    )
    return [*lines, "             T          B(T)", *(f"             {row['T']:<10} {row['bound']:.6g}" for row in made["bound"])]

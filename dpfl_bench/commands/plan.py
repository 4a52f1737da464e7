"""What a run would spend and what theory expects of it, without training, without data, without
torch.
"""

from __future__ import annotations

import math
from typing import Any

from dpfl_bench.budget.budget import Budget, drawn_schedules
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import only_ours, remembers
from dpfl_bench.privacy import calibration
from dpfl_bench.problems import theory
from dpfl_bench.results.clean import clean

MOMENTS = 10  # of a run, at which the plan says what is spent
NO_CALL = (
    "plan calls no code of your own; say in the YAML file how many parameters the model has (parameters: N),"
    " which the noise needs"
)
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of T*, for the table of B(T)


def plan(settings: Settings, detailed: bool = True) -> dict[str, Any]:
    """Everything that `dpfl-bench plan --json` prints; with all observers and the course of eps
    over the rounds if `detailed`.
    """
    with only_ours(NO_CALL):
        return _plan(settings, detailed)


def _plan(settings: Settings, detailed: bool) -> dict[str, Any]:
    budget = Budget.of(settings, drawn_schedules(settings))
    privacy = settings.privacy
    implied = _implied(settings, budget)
    made = {
        "run_id": settings.run_id,
        "algo": settings.algo["name"],
        "dataset": settings.dataset["name"],
        "noise_multiplier": None if budget.privunit else budget.noise_multiplier,
        "privunit": _privunit(budget),
        "noise_std": budget.noise_std,
        "clip": privacy.clip,
        "sensitivity": privacy.sensitivity,
        "eps": budget.eps,
        "eps_all_repeats": budget.eps_all_repeats,
        "eps_target": settings.eps,
        "delta": settings.delta,
        "unit": privacy.unit,
        "trust": privacy.trust,
        "neighbours": privacy.neighbours,
        "observer": budget.observer,
        "memory": (
            privacy.remembered
            if settings.private and remembers(settings.algo) and privacy.unit == "client"
            else None
        ),
        "accountant": budget.accountant,
        "releases": budget.rounds,
        "releases_of_worst_client": budget.planned.worst if settings.private else 0,
        "further_releases": [
            {
                "name": c.name,
                "rounds": budget.rounds,
                "noise_multiplier": c.noise_multiplier(budget.noise_multiplier),
            }
            for c in budget.companions
        ],
        "rounds": budget.rounds,
        "local_steps": settings.local_steps,
        "total_steps": max(sum(s.steps) for s in budget.schedules),
        "max_rounds": budget.max_rounds(),
        "views": budget.views(),
        "accountants": budget.accountants(),
        "observers": {o: budget.accountants(o, every=True) for o in budget.observers} if detailed else None,
        "spent": _course(budget) if detailed else None,
        "fully_accounted": not settings.leaks if settings.private else None,
        "not_accounted": settings.leaks,
        "overlapping": settings.overlapping,
        "holders_known": settings.dealing is not None or settings.overlapping is False,
        "implied": implied,
        "records_per_client": settings.records_per_client,
        "theory": _theory(settings, budget),
    }
    cleaned: dict[str, Any] = clean(made)
    return cleaned


def _privunit(budget: Budget) -> dict[str, float] | None:
    """Of one message: the three budgets, and the pure eps that they really amount to."""
    made = budget.privunit
    return (
        None
        if made is None
        else {"eps0": made.eps0, "eps1": made.eps1, "eps2": made.eps2, "release_eps": made.release_eps}
    )


def _course(budget: Budget) -> list[dict[str, float]]:
    """The largest eps spent after each of about ten rounds."""
    if not budget.settings.private:
        return []
    rounds = sorted({max(1, round(budget.rounds * k / MOMENTS)) for k in range(1, MOMENTS + 1)})
    return [{"rounds": r, "eps": budget.first(r).eps} for r in rounds]


def _implied(settings: Settings, budget: Budget) -> dict[str, float] | None:
    """The constants v (`balancing`) and q (`normalized`) that this noise means."""
    gaussian = settings.privacy.unit == "client" and settings.privacy.mechanism == "gaussian"
    if not settings.private or not gaussian or budget.observed == 0:
        return None
    return calibration.implied(
        budget.noise_multiplier,
        settings.privacy.ratio,
        budget.observed,
        budget.rate,
        settings.eps,
        settings.delta,
    )


def _theory(settings: Settings, budget: Budget) -> dict[str, Any] | None:
    """Theorem 1 and Corollary 1 of `balancing`, for l2-regularised logistic regression. None where
    they do not apply.
    """
    model, dataset = settings.model, settings.dataset
    decay = model.get("l2", 0.0) + settings.weight_decay
    clip, messages = (
        settings.privacy.fixed_clip,
        settings.privacy.unit == "client" and settings.privacy.mechanism == "gaussian",
    )
    if (
        model["_target_"] != "dpfl_bench.problems.linear.logreg"
        or decay <= 0
        or not settings.private
        or budget.planned.worst == 0
        or clip is None
        or not messages
    ):
        return None
    bias = model["bias"] if model["bias"] is not None else dataset["classes"] != 2
    if (
        dataset["classes"] is None
        or dataset["shape"] is None
        or (settings.theory.L is None and dataset["gram"] is None)
    ):
        return None
    curvature = theory.curvature(dataset["classes"])
    L = settings.theory.L or curvature * (dataset["gram"] + bias) + decay
    if not decay < L:
        raise ConfigError(
            f"theory.L={L:g}: expected more than mu={decay:g} (model.l2 and weight_decay); raise it or leave"
            " it out"
        )
    p = theory.p_star(decay, L)
    clients, eps, delta = settings.clients, settings.eps, settings.delta
    dimension = (1 if dataset["classes"] == 2 else dataset["classes"]) * (math.prod(dataset["shape"]) + bias)
    row_norm = math.hypot(dataset["max_row_norm"], bias) if dataset["max_row_norm"] else None
    psi0, source = settings.theory.psi0, "theory.psi0"
    if psi0 is None and row_norm is not None:
        psi0, source = theory.prior_psi0(decay, L, p, clients, dataset["classes"], row_norm), "a-priori bound"
    v = _client_v(settings, budget)
    made: dict[str, Any] = {
        "mu": decay,
        "L": L,
        "p_star": p,
        "local_steps_star": 1 / p,
        "v": v,
        "psi0": psi0,
        "psi0_from": source,
    }
    made["covers"] = (
        "ScaffNew with every client, full gradients and no clipping; L is of the pooled data unless theory.L"
        " says otherwise"
    )
    made["L_every_client"] = curvature * row_norm**2 + decay if row_norm else None
    if psi0 is None:
        return {**made, "T_star": None, "bound": []}
    best = theory.optimal_steps(psi0, eps, delta, decay, L, v, clip, clients, dimension)
    at = sorted({max(1, round(best * f)) for f in FACTORS} | {settings.total_steps})
    bounds = [
        {"T": t, "bound": theory.bound(t, psi0, eps, delta, decay, L, v, clip, clients, dimension)}
        for t in at
    ]
    return {**made, "T_star": best, "rounds_star": p * best, "bound": bounds}


def _client_v(settings: Settings, budget: Budget) -> float:
    """v of the noise that one client adds, which is what the theorem speaks of: its own, or its
    share of the sum's.
    """
    return budget.client_noise_ratio**2 * settings.eps**2 / (budget.rounds * math.log(1 / settings.delta))


def text(planned: dict[str, Any]) -> str:
    """The plan for a person."""
    lines = [
        f"{planned['algo']} on {planned['dataset']}: {planned['rounds']} rounds of {planned['local_steps']}"
        " local steps"
    ]
    if planned["eps"] == math.inf:
        return lines[0] + ", no privacy\n"
    lines += [
        f"  noise      {_noise(planned)}",
        f"  spends     eps {planned['eps']:.6g} at delta {planned['delta']:g} towards the"
        f" {planned['observer']} ({planned['accountant']}); the target is {planned['eps_target']:g}"
        + _together(planned),
        f"  releases   {planned['releases']} rounds ({planned['releases_of_worst_client']} releases of the"
        f" worst {planned['unit']})"
        + (
            ""
            if planned["max_rounds"] is None
            else f"; eps {planned['eps_target']:g} allows {planned['max_rounds']} rounds at this noise"
        ),
        *(
            f"             with each: {c['name']}, noise multiplier {c['noise_multiplier']:.6g}"
            for c in planned["further_releases"]
        ),
        "  views      " + ", ".join(f"{name}: {eps:.6g}" for name, eps in planned["views"].items()),
        "  accountants " + ", ".join(f"{name}: {eps:.6g}" for name, eps in planned["accountants"].items()),
        *(f"  NOT FULLY ACCOUNTED: {leak}" for leak in planned["not_accounted"]),
        *([_UNKNOWN] if not planned["holders_known"] and planned["unit"] == "record" else []),
    ]
    if planned["accountant"] == "paper":
        lines.append("  accountant=paper is dpscaffold's own and no guarantee; the views are by valid ones")
    lines += _table(planned)
    if planned["implied"] is not None:
        lines.append(f"  implied    v {planned['implied']['v']:.6g}, q {planned['implied']['q']:.6g}")
    return "\n".join(lines + _theory_lines(planned["theory"])) + "\n"


def _together(planned: dict[str, Any]) -> str:
    if planned["eps_all_repeats"] == planned["eps"]:
        return ""
    return f"; the models of all repeats together spend {planned['eps_all_repeats']:.6g}"


_UNKNOWN = (
    "  overlapping: not known before the data are dealt. These numbers hold if no record sits in two clients"
    " (deals: disjoint in the\n             partition's YAML file says so, and a run checks it). Else a run"
    " counts all holders of a record, and spends more"
)


def _noise(planned: dict[str, Any]) -> str:
    if planned["privunit"] is not None:
        made = planned["privunit"]
        return (
            f"PrivUnit, eps0 {made['eps0']:.6g}, eps1 {made['eps1']:.6g}, eps2 {made['eps2']:.6g}: one"
            f" message is {made['release_eps']:.6g}-DP (C {planned['clip']}, local)"
        )
    std = "following C" if planned["noise_std"] is None else f"{planned['noise_std']:.6g}"
    return (
        f"multiplier {planned['noise_multiplier']:.6g}, standard deviation {std} (C {planned['clip']},"
        f" sensitivity {planned['sensitivity']}, {planned['unit']}, {planned['trust']},"
        f" {planned['neighbours']})"
    )


def _table(planned: dict[str, Any]) -> list[str]:
    """--views: every observer by every accountant, and eps over the rounds."""
    if planned["observers"] is None:
        return []
    names = list(dict.fromkeys(name for by in planned["observers"].values() for name in by))
    lines = ["", "  observer    " + "".join(f"{name:>12}" for name in names)]
    for observer, by in planned["observers"].items():
        cells = "".join(f"{by[name]:>12.6g}" if name in by else f"{'-':>12}" for name in names)
        lines.append(
            f"  {observer:<12}{cells}" if by else f"  {observer:<12} trusted, or without a valid accountant"
        )
    lines += ["", "  rounds          eps"]
    return [*lines, *(f"  {moment['rounds']:<10} {moment['eps']:>8.5g}" for moment in planned["spent"]), ""]


def _theory_lines(made: dict[str, Any] | None) -> list[str]:
    if made is None:
        return []
    lines = [
        f"  theory     mu {made['mu']:g}, L {made['L']:.6g}: p* {made['p_star']:.6g}, so"
        f" {made['local_steps_star']:.3g} local steps; v {made['v']:.6g} for one client's noise"
    ]
    if made["T_star"] is None:
        return [*lines, "             T* needs theory.psi0"]
    lines.append(f"             covers {made['covers']}")
    none = " (the budget buys nothing)" if made["T_star"] == 0 else ""
    lines.append(
        f"             T* {made['T_star']:.6g}{none}, {made['rounds_star']:.4g} rounds; psi_0"
        f" {made['psi0']:.4g} ({made['psi0_from']})"
    )
    return [
        *lines,
        "             T          B(T)",
        *(f"             {row['T']:<10} {row['bound']:.6g}" for row in made["bound"]),
    ]

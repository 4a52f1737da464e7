"""`dpfl-bench plan`: what a run would spend and what theory expects of it. No training, no data, no
torch.
"""

from __future__ import annotations

import math
from typing import Any

from dpfl_bench.budget import theory
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import only_ours
from dpfl_bench.privacy import calibration
from dpfl_bench.results.clean import clean

MOMENTS = 10  # of a run, at which the plan says what is spent
NO_CALL = (
    "plan calls no code of your own; say in the YAML file how many parameters the model has (parameters: N),"
    " which the noise needs"
)


def plan(settings: Settings, detailed: bool = True) -> dict[str, Any]:
    """Everything that `dpfl-bench plan --json` prints; with all observers and the course of eps
    over the rounds if `detailed`.
    """
    with only_ours(NO_CALL):
        budget = Budget.of(settings, drawn_schedules(settings))
        plan: dict[str, Any] = clean(_plan(budget, Guarantee.of(budget, every=detailed), detailed))
    return plan


def _plan(budget: Budget, guarantee: Guarantee, detailed: bool) -> dict[str, Any]:
    settings, privacy = budget.settings, budget.settings.privacy
    return {
        "run_id": settings.run_id,
        "algo": settings.algo["name"],
        "dataset": settings.dataset["name"],
        **guarantee.plan(),
        "privunit": _privunit(budget),
        "clip": privacy.clip,
        "sensitivity": privacy.sensitivity,
        "memory": guarantee.memory,
        "releases": budget.rounds,
        "releases_of_worst_client": budget.planned.worst if settings.private else 0,
        "further_releases": _further(budget),
        "rounds": budget.rounds,
        "local_steps": settings.local_steps,
        "total_steps": max(sum(s.steps) for s in budget.schedules),
        "max_rounds": budget.max_rounds(),
        "observers": guarantee.observers if detailed else None,
        "spent": _course(budget) if detailed else None,
        "overlapping": settings.overlapping,
        "holders_known": settings.dealing is not None or settings.overlapping is False,
        "implied": _implied(budget),
        "records_per_client": settings.records_per_client,
        "theory": theory.expected(budget),
    }


def _further(budget: Budget) -> list[dict[str, Any]]:
    """The further sums that go out with every round's messages."""
    return [
        {
            "name": companion.name,
            "rounds": budget.rounds,
            "noise_multiplier": companion.noise_multiplier(budget.noise_multiplier),
        }
        for companion in budget.companions
    ]


def _privunit(budget: Budget) -> dict[str, float] | None:
    """Of one message: the three budgets, and the pure eps that they really amount to."""
    privunit = budget.noise.privunit
    names = ("eps0", "eps1", "eps2", "release_eps")
    return None if privunit is None else {name: getattr(privunit, name) for name in names}


def _course(budget: Budget) -> list[dict[str, float]]:
    """The largest eps spent after each of about ten rounds."""
    if not budget.settings.private:
        return []
    rounds = sorted({max(1, round(budget.rounds * k / MOMENTS)) for k in range(1, MOMENTS + 1)})
    return [{"rounds": r, "eps": budget.first(r).eps} for r in rounds]


def _implied(budget: Budget) -> dict[str, float] | None:
    """The constants v (`balancing`) and q (`normalized`) that this noise means."""
    settings = budget.settings
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
        unit = planned["privunit"]
        return (
            f"PrivUnit, eps0 {unit['eps0']:.6g}, eps1 {unit['eps1']:.6g}, eps2 {unit['eps2']:.6g}: one"
            f" message is {unit['release_eps']:.6g}-DP (C {planned['clip']}, local)"
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


def _theory_lines(expected: dict[str, Any] | None) -> list[str]:
    if expected is None:
        return []
    lines = [
        f"  theory     mu {expected['mu']:g}, L {expected['L']:.6g}: p* {expected['p_star']:.6g}, so"
        f" {expected['local_steps_star']:.3g} local steps; v {expected['v']:.6g} for one client's noise"
    ]
    if expected["T_star"] is None:
        return [*lines, "             T* needs theory.psi0"]
    lines.append(f"             covers {expected['covers']}")
    none = " (the budget buys nothing)" if expected["T_star"] == 0 else ""
    lines.append(
        f"             T* {expected['T_star']:.6g}{none}, {expected['rounds_star']:.4g} rounds; psi_0"
        f" {expected['psi0']:.4g} ({expected['psi0_from']})"
    )
    return [
        *lines,
        "             T          B(T)",
        *(f"             {row['T']:<10} {row['bound']:.6g}" for row in expected["bound"]),
    ]

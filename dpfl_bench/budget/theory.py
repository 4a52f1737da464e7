"""What theory expects of a budget: Theorem 1 and Corollary 1 of `balancing`, without data.

`T_star` counts local steps in all, as the paper's T does; `rounds_star` = p* T_star counts rounds.
"""

from __future__ import annotations

import math
from typing import Any

from dpfl_bench.assembly.choice import names
from dpfl_bench.assembly.dimension import dimension
from dpfl_bench.budget.budget import Budget
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import target
from dpfl_bench.problems import linear, theory

FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # of T*, for the table of B(T)
MEASURED = "measured on the data, without noise"
_COVERS = (
    "ScaffNew with every client, full gradients, no clipping and shifts of noisy messages{shifts}; L is of"
    " the pooled data unless theory.L says otherwise"
)
_OF_UPDATES = " (of updates here: privacy.memory=own_update)"


def expected(budget: Budget) -> dict[str, Any] | None:
    """The optimal p and T, and the bound over T, for l2-regularised logistic regression with
    Gaussian noise on each client's message. None where the theorem does not apply, or where the
    data set's file does not know enough.
    """
    settings = budget.settings
    if not _applies(budget) or not _known(settings):
        return None
    model, dataset = settings.model, settings.dataset
    mu = _decay(settings)
    bias = linear.logreg_bias(dataset["classes"], model.get("bias"))
    curvature = theory.curvature(dataset["classes"])
    L = settings.theory.L or curvature * (dataset["gram"] + bias) + mu
    if not mu < L:
        raise ConfigError(
            f"theory.L={L:g}: expected more than mu={mu:g} (model.l2 and weight_decay); raise it or leave"
            " it out"
        )
    row_norm = math.hypot(dataset["max_row_norm"], bias) if dataset["max_row_norm"] else None
    p, v = theory.p_star(mu, L), client_v(budget)
    psi0, source = _psi0(settings, mu, L, row_norm)
    return {
        "mu": mu,
        "L": L,
        "p_star": p,
        "local_steps_star": 1 / p,
        "v": v,
        "psi0": psi0,
        "psi0_from": source,
        "covers": _COVERS.format(shifts=_OF_UPDATES if settings.privacy.remembered == "own_update" else ""),
        "L_every_client": curvature * row_norm**2 + mu if row_norm else None,
        **_over_steps(settings, psi0, mu, L, v, p),
    }


def _decay(settings: Settings) -> float:
    return float(settings.model.get("l2", 0.0) + settings.weight_decay)


def gap(settings: Settings) -> str | None:
    """Why Theorem 1 says nothing about a run with these settings, as far as they alone show it."""
    privacy = settings.privacy
    if getattr(target(settings.algo), "potential", None) is None:
        return f"algo={settings.algo['name']} is not ScaffNew"
    if settings.sampling != "full" or settings.batch_size or settings.sample_rate:
        return "needs every client and full gradients"
    plain = (settings.local_momentum, settings.server_momentum, settings.server_lr, settings.lr_decay)
    if plain != (0, 0, 1, 1):
        return "needs plain steps: no momentum, server_lr=1, lr_decay=1"
    if privacy.bound == "normalise" and (settings.private or privacy.bound_without_noise):
        return "needs updates that are not normalised"
    if settings.average_last > 1:
        return "needs the last iterate, not an average"
    noised = privacy.unit == "client" and privacy.mechanism == "gaussian" and privacy.fixed_clip
    return "needs Gaussian noise of one size on the messages" if settings.private and not noised else None


def why_none(budget: Budget) -> str | None:
    """Why the plan of a private run on l2-regularised logistic regression has no theory."""
    return gap(budget.settings) if _fits(budget.settings) else None


def _fits(settings: Settings) -> bool:
    return settings.private and names(settings.model, linear.logreg) and _decay(settings) > 0


def _applies(budget: Budget) -> bool:
    return _fits(budget.settings) and gap(budget.settings) is None and budget.planned.worst > 0


def _known(settings: Settings) -> bool:
    dataset = settings.dataset
    sized = dataset["classes"] is not None and dataset["shape"] is not None
    return sized and (settings.theory.L is not None or dataset["gram"] is not None)


def _psi0(settings: Settings, mu: float, L: float, row_norm: float | None) -> tuple[float | None, str]:
    """(the potential at the start, where it is from)."""
    psi0, classes = settings.theory.psi0, settings.dataset["classes"]
    if psi0 is not None or row_norm is None:
        return psi0, MEASURED if settings.theory.measured else "theory.psi0"
    p = theory.p_star(mu, L)
    return theory.prior_psi0(mu, L, p, settings.clients, classes, row_norm), "a-priori bound"


def _over_steps(
    settings: Settings, psi0: float | None, mu: float, L: float, v: float, p: float
) -> dict[str, Any]:
    """T* and the bound B(T) around it; nothing of both where psi0 is not known."""
    if psi0 is None:
        return {"T_star": None, "rounds_star": None, "bound": [], "bound_here": None}
    clip = settings.privacy.fixed_clip
    assert clip is not None
    of_run = (psi0, settings.eps, settings.delta, mu, L, v, clip, settings.clients, dimension(settings))
    best = theory.optimal_steps(*of_run)
    steps = sorted({max(1, round(best * factor)) for factor in FACTORS} | {settings.total_steps})
    bounds = [{"T": t, "bound": theory.bound(t, *of_run)} for t in steps]
    here = theory.bound(settings.total_steps, *of_run)
    return {"T_star": best, "rounds_star": p * best, "bound": bounds, "bound_here": here}


def client_v(budget: Budget) -> float:
    """v of the noise that one client adds, its own or its share of the sum's: the theorem speaks of
    that noise.
    """
    settings = budget.settings
    squared = budget.noise.client_ratio**2 * settings.eps**2
    return squared / (budget.rounds * math.log(1 / settings.delta))

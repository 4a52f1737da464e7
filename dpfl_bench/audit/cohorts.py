"""Who was drawn: sizes, overlaps and frequencies of the cohorts, against the sampling that was
accounted. Cohorts are drawn by the run's own schedule; those of further seeds stand beside them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpfl_bench.audit import statistics
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.finding import Part, exact, with_test

NAME = "lots and cohorts"
DRAWS = 4000  # cohorts
APART = 8  # rounds between which overlaps are counted


def parts(audited: Audited) -> list[Part]:
    claim = audited.claim
    sampling, worst = claim.main["sampling"], int(claim.main["times_of_worst_client"])
    clients, size = int(sampling["clients"]), int(sampling["cohort"])
    taken = participations(audited)
    says = f"the worst client took part in {taken} rounds, {worst} were accounted"
    counted = exact(taken, worst)
    if sampling["scheme"] == "full":
        whole = all(len(s.cohort(t)) == clients for s in audited.job.schedules for t in range(s.rounds))
        p = min(counted, float(whole))
        return [Part(NAME, "holds" if p else "violated", says + "; everybody is in every round", taken, p)]
    p, of = drawn(audited, clients, size, sampling["scheme"] == "fixed")
    return [with_test(NAME, min(p, counted), audited.confidence, f"{says}; {of}", float(taken))]


def participations(audited: Audited) -> int:
    """In how many rounds the most frequent client of any seed took part, of those played."""
    rounds = int(audited.claim.main["rounds"])
    return max(int(s.first(rounds).participation.max()) for s in audited.job.schedules)


def drawn(audited: Audited, clients: int, size: int, fixed: bool) -> tuple[float, str]:
    """(p of the cohorts, what was seen)."""
    there = len(audited.job.data.federation.sizes)
    if there != clients:
        return 0.0, f"{there} clients are there, {clients} were accounted"
    rounds = max(2, min(audited.schedule.rounds, 200))
    seeds = [audited.seed + k for k in range(-(-DRAWS // rounds))]
    schedule = audited.schedule
    inside = np.zeros((len(seeds), rounds, clients), bool)
    for k, seed in enumerate(seeds):
        of_seed = replace(schedule, seed=seed)
        for t in range(rounds):
            inside[k, t, of_seed.cohort(t)] = True
    return of_draws(inside, size / clients, fixed)


def of_draws(inside: np.ndarray, rate: float, fixed: bool) -> tuple[float, str]:
    """(p, what was seen) of draws of units.

    inside: (groups, draws, units), whether a unit was drawn; the draws of a group follow each
    other. fixed: each has the same size; else Poisson.
    """
    groups, draws, units = inside.shape
    size = rate * units
    sizes = inside.sum(2).ravel()
    tests = {
        "sizes": exact(float(np.abs(sizes - size).max()), 1e-9)
        if fixed
        else statistics.sizes_p(sizes, units, rate),
        "frequencies": statistics.counts_p(inside.sum((0, 1)), groups * draws, rate, fixed),
        "overlaps": _overlaps_p(inside, rate, fixed),
    }
    worst = min(tests, key=lambda name: tests[name])
    return statistics.joint_p(tests.values()), (
        f"{groups * draws} draws of {size:.4g} of {units}: sizes {sizes.min()} to {sizes.max()}, least p"
        f" {tests[worst]:.2g} of their {worst}"
    )


def _overlaps_p(inside: np.ndarray, rate: float, fixed: bool) -> float:
    """How many units two draws of a group have in common. Given its size, a pair's overlap has the
    hypergeometric law, else the binomial one; both are known in mean and variance.
    """
    units, tests = inside.shape[2], []
    for apart in range(1, min(APART, inside.shape[1] - 1) + 1):
        common: np.ndarray = (inside[:, apart:] & inside[:, :-apart]).sum(2).ravel()
        if fixed:
            variance = units * rate**2 * (1 - rate) ** 2 * units / max(1, units - 1)
        else:
            variance = units * rate**2 * (1 - rate**2)
        linked = _linked(variance, fixed, rate)
        tests.append(statistics.mean_p(common.astype(np.float64), units * rate**2, linked))
    return statistics.joint_p(tests)


def _linked(variance: float, fixed: bool, rate: float) -> float:
    """Overlaps of neighbouring pairs share a draw. Under fixed sizes they are uncorrelated; under
    Poisson their covariance is units rate^3 (1 - rate) each, with two neighbours.
    """
    return variance if fixed else variance * (1 + 2 * rate / (1 + rate))

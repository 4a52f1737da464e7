"""privacy.json: the ledger, eps towards each observer and by each accountant, and what is not
accounted.
"""

from __future__ import annotations

import math
from typing import Any

from dpfl_bench.budget import each_client
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.guarantee import Guarantee
from dpfl_bench.config.settings import Privacy
from dpfl_bench.experiment.job import Job
from dpfl_bench.experiment.report import played


def privacy(job: Job, diverged: dict[str, Any] | None, guarantee: Guarantee) -> dict[str, Any]:
    """privacy.json. diverged: result.json's entry of that name. guarantee: of the rounds that were
    played.
    """
    privacy = job.settings.privacy
    if not job.settings.private:
        nothing: dict[str, Any] = {"releases": [], "views": {}, "accountants": {}}
        return {"private": False, "eps": math.inf, **nothing, "not_accounted": ["everything: eps=inf"]}
    return {
        **guarantee.privacy(),
        "noise": privacy.noise if privacy.mechanism == "gaussian" else None,
        "client_eps": each_client.why_none(job.budget) or each_client.FILE,
        "releases": _releases(job, played(job, diverged)),
        "assumes": _assumptions(job),
        "leaks": list(guarantee.leaks),
        "not_accounted": _not_accounted(guarantee),
    }


def _releases(job: Job, budget: Budget) -> list[dict[str, Any]]:
    """Every kind of release, how often, with which noise."""
    settings, privacy = job.settings, job.settings.privacy
    record, noise = privacy.unit == "record", budget.noise
    privunit = noise.privunit
    of = "each client's message" if privacy.trust == "local" else "the cohort's sum"
    main: dict[str, Any] = {
        "kind": "gradient" if record else "update",
        "of": "each client's lot" if record else of,
        "rounds": budget.rounds,
        "times_of_worst_record" if record else "times_of_worst_client": budget.planned.worst,
        "bound": privacy.bound,
        "clip": privacy.clip,
        "sensitivity": privacy.sensitivity,
        "sensitivity_over_clip": privacy.ratio,  # also where C changes
        "noise_std": noise.std,
        "noise_multiplier": None if privunit else noise.multiplier,
        "pure_eps": privunit.release_eps if privunit else None,
        "epsilons": [privunit.eps0, privunit.eps1, privunit.eps2] if privunit else None,
        "sampling": {
            "scheme": settings.sampling,
            "cohort": settings.sampled_clients,
            "clients": settings.clients,
        },
        "lots": _lots(job) if record else None,
    }
    further: list[dict[str, Any]] = [
        {
            "kind": {"norms": "sum of squared norms", "bits": "number of norms below C"}[companion.name],
            "of": of,
            "rounds": budget.rounds,
            "noise_multiplier": companion.noise_multiplier(noise.multiplier),
        }
        for companion in budget.companions
    ]
    return [{k: v for k, v in release.items() if v is not None} for release in [main, *further]]


def _lots(job: Job) -> dict[str, Any]:
    settings = job.settings
    size = (
        {"batch_size": settings.batch_size}
        if settings.lots == "fixed"
        else {"sample_rate": settings.sample_rate or 1.0}
    )
    return {"scheme": settings.lots, **size, "smallest_client": int(job.data.federation.sizes.min())}


def _assumptions(job: Job) -> list[str]:
    """What eps takes for granted, in sentences."""
    settings, privacy = job.settings, job.settings.privacy
    at_records = privacy.unit == "record"
    sentences = [(_OF_RECORDS if at_records else _OF_CLIENTS)[privacy.trust].format(_colluding(privacy))]
    if job.algorithm.remembers and not at_records:
        sentences.append(_REMEMBERED[privacy.remembered, privacy.trust == "secagg"])
    if privacy.neighbours == "add_remove_one":
        absent = "record counts for nothing" if at_records else "client sends nothing"
        sentences.append(
            f"an absent {absent} while public sizes, divisors and noise stay as they are (zero-out)"
        )
    sentences += _of_the_cohorts(job.budget)
    sentences += [text for key, text in _SAID_TO_BE_PUBLIC.items() if settings.dataset.get(key) == "public"]
    if privacy.calibration != "fixed" and job.budget.observer == "server" and settings.sampling != "full":
        sentences.append(_SOLVED_FOR_THE_COHORTS)
    if job.data.holders.most > 1:
        sentences.append(_ALL_HOLDERS if at_records else _OVERLAP)
    return sentences


def _of_the_cohorts(budget: Budget) -> list[str]:
    if budget.rate < 1:
        return ["which clients take part in a round stays secret from the third party: eps averages over it"]
    return [_COINS] if any(c.rounds for c in budget.seen) else []


def _colluding(privacy: Privacy) -> str:
    return f"{privacy.colluding} of a cohort collude" if privacy.colluding else "none colludes"


def _not_accounted(guarantee: Guarantee) -> list[str]:
    """What eps does not cover."""
    leaks = list(guarantee.leaks)
    if guarantee.accountant == "paper" and guarantee.views:
        leaks.append(f"the valid eps towards a third party is {min(guarantee.views.values()):.6g}")
    return [*leaks, *_NEVER_ACCOUNTED]


_OF_CLIENTS = {
    "local": "nothing about the server: each message is noised before it leaves its client",
    "secagg": "secure aggregation reveals only sums, all sampled clients deliver, {} with the server",
    "central": "the server is trusted and only models leave it",
}
_NOISED_GRADIENTS = (
    "nothing about the server: each gradient is noised at its client, and all that follows is made of noised"
    " gradients"
)
_OF_RECORDS = {
    "local": _NOISED_GRADIENTS,
    "secagg": f"{_NOISED_GRADIENTS}; that only sums are revealed is credited nothing",
}
_OWN_UPDATES = (
    "clients remember their bounded updates without noise: functions of their own data and of what all see"
)
# by what is remembered, and whether the noise is in shares
_REMEMBERED = {
    ("own_update", False): _OWN_UPDATES,
    ("own_update", True): _OWN_UPDATES,
    ("own_message", False): "clients remember their noisy messages, which the server saw",
    ("own_message", True): (
        "clients remember their shares of the noise, which later sums reveal: only a client's own share is"
        " accounted"
    ),
}
_COINS = (
    "eps averages over the coins that decide in how many rounds a client takes part, before they are drawn"
)
_SOLVED_FOR_THE_COHORTS = (
    "the third_party view takes the noise as fixed beforehand; here it was solved for the cohorts that were"
    " drawn"
)
_SAID_TO_BE_PUBLIC = {
    "standardise": (
        "dataset.standardise=public: the numbers that standardise the features were not made of the records"
        " to be protected"
    ),
    "vocabulary_from": (
        "dataset.vocabulary_from=public: the vocabulary was not made of the posts to be protected"
    ),
}
_ALL_HOLDERS = "a record is counted over all clients that hold it"
_OVERLAP = (
    "clients overlap: the unit is a client's copy of its records, and a record that others hold too is in"
    " their messages as well"
)
_NEVER_ACCOUNTED = (
    "metrics.csv: losses, errors, update norms and clipped fractions are computed without noise, for"
    " simulation only",
    "hyper-parameters that were tuned by looking at results of private data",
    "the seed: the noise follows from it, so whoever has both it and the model can subtract the noise",
    "other runs on the same data; eps is of one seed of this run, eps_all_repeats of all its seeds together",
)

"""Every algorithm that we ship against an independent float64 re-implementation, noise injected on
both sides.

20 rounds, clients with 3 to 30 records, chunks of 3; the cohorts and lots come from the product's
schedule, which never looks at data.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.algorithms import ALGORITHMS
from helpers.federations import settings_of
from oracles import reference as ref
from oracles.bridge import Twin, coins, difference, twin

pytestmark = pytest.mark.one_in(10)

TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
STEPS = ("local_steps=4", "lr=0.1")

CASES = {
    # every client, full batches
    "fedavg": ("binary", "algo=fedavg"),
    "scaffnew": ("binary", "algo=scaffnew"),
    "fedavg-secagg": ("binary", "algo=dp_fedavg", "privacy.clip=0.2"),
    "scaffnew-secagg": ("binary", "algo=dp_scaffnew", "privacy.clip=0.1"),
    "normfedavg-secagg": ("binary", "algo=dp_normfedavg", "privacy.clip=0.7"),
    # where the noise is, who remembers it, who is a neighbour
    "fedavg-local": ("softmax", "algo=dp_fedavg", "privacy=local", "privacy.clip=0.3", "sampled_clients=5"),
    "fedavg-central": ("softmax", "algo=dp_fedavg", "privacy=central", "privacy.clip=0.3",
        "sampled_clients=5"),
    "scaffnew-local": ("squared", "algo=dp_scaffnew", "privacy=local", "privacy.clip=0.5",
        "sampled_clients=5"),
    "scaffnew-own-message": ("softmax", "algo=dp_scaffnew", "privacy.memory=own_message",
        "sampled_clients=5"),
    "scaffnew-own-update": ("softmax", "algo=dp_scaffnew", "privacy.memory=own_update", "sampled_clients=5"),
    "scaffnew-central": ("binary", "algo=dp_scaffnew", "privacy=central", "privacy.memory=own_update",
        "sampled_clients=5"),
    "zero-out": ("binary", "algo=dp_fedavg", "privacy.neighbours=add_remove_one", "privacy.clip=0.2"),
    "bound-alone": ("binary", "algo=dp_scaffnew", "eps=inf", "privacy.bound_without_noise=true",
        "privacy.clip=0.2"),
    "open-door": ("softmax", "algo=dp_normfedavg", "eps=inf", "sampled_clients=3"),
    # Poisson cohorts, some of them empty
    "poisson-secagg": ("squared", "algo=dp_fedavg", "sampled_clients=2", "client_sampling=poisson"),
    "poisson-local": ("binary", "algo=dp_normfedavg", "privacy=local", "sampled_clients=2",
        "client_sampling=poisson"),
    "poisson-central": ("binary", "algo=dp_normfedavg", "privacy=central", "sampled_clients=2",
        "client_sampling=poisson",
        "privacy.neighbours=add_remove_one"),
    # lots
    "batch": ("squared", "algo=dp_scaffnew", "batch_size=3", "sampled_clients=5"),
    "batch-poisson": ("binary", "algo=dp_fedavg", "sample_rate=0.3", "sampled_clients=5"),
    "batch-poisson-shifts": ("softmax", "algo=scaffnew", "sample_rate=0.3", "sampled_clients=5"),
    # optimisers
    "momentum": ("binary", "algo=dp_scaffnew", "local_momentum=0.8", "batch_size=3",
        "privacy.bound=normalise", "privacy.clip=0.1"),
    "server": ("squared", "algo=dp_scaffnew", "server_lr=0.7", "server_momentum=0.4", "sampled_clients=5"),
    "decay": ("binary", "algo=dp_scaffnew", "lr_decay=0.93", "weight_decay=0.1", "server_lr=0.5"),
    "everything": ("softmax", "algo=dp_normfedavg", "privacy=central", "sampled_clients=5",
        "sample_rate=0.4", "local_momentum=0.5",
        "server_lr=1.3", "server_momentum=0.3", "lr_decay=0.95", "weight_decay=0.02",
        "privacy.bound=clip"),
    "biases": ("binary", "algo=dp_fedavg", "model.bias=true", "batch_size=3", "local_momentum=0.5"),
    # FedSGD
    "fedsgd": ("softmax", "algo=fedsgd", "sampled_clients=5", "batch_size=3"),
    "fedsgd-secagg": ("binary", "algo=dp_fedsgd", "privacy.clip=0.3"),
    "fedsgd-record": ("softmax", "algo=dp_fedsgd", "privacy=record", "privacy.clip=0.7", "batch_size=3"),
    # SCAFFOLD: at client level over partial cohorts, whoever remembers what; at record level over
    # either kind of lots; warm starts
    "scaffold": ("squared", "algo=scaffold", "sampled_clients=5"),
    "scaffold-secagg": ("softmax", "algo=dp_scaffold", "sampled_clients=3", "privacy.clip=0.3"),
    "scaffold-own-message": ("softmax", "algo=dp_scaffold", "privacy.memory=own_message",
        "sampled_clients=5"),
    "scaffold-local": ("binary", "algo=dp_scaffold", "privacy=local", "sampled_clients=5", "lr_decay=0.95",
        "weight_decay=0.05"),
    "scaffold-central": ("binary", "algo=dp_scaffold", "privacy=central", "privacy.memory=own_update",
        "sampled_clients=5"),
    "scaffold-record": ("softmax", "algo=dp_scaffold", "privacy=record", "privacy.clip=0.7", "batch_size=3",
        "sampled_clients=3"),
    "scaffold-record-poisson": ("softmax", "algo=dp_scaffold", "privacy=record",
        "privacy.neighbours=add_remove_one", "sample_rate=0.3",
        "sampled_clients=3", "server_lr=0.8"),
    "scaffold-warm": ("squared", "algo=scaffold_warm", "algo.warm_rounds=2", "sampled_clients=5",
        "batch_size=3"),
    "scaffold-warm-secagg": ("binary", "algo=dp_scaffold_warm"),
    "scaffold-warm-record": ("softmax", "algo=dp_scaffold_warm", "privacy=record", "batch_size=3",
        "sampled_clients=3",
        "server_momentum=0.3"),
    # FedEXP's step in all its forms, and over SCAFFOLD's local work; server_lr keeps steps of 10
    # and more from amplifying rounding
    "fedexp": ("squared", "algo=fedexp", "sampled_clients=5"),
    "fedexp-debiased": ("binary", "algo=dp_fedexp", "privacy=local", "privacy.clip=0.3", "server_lr=0.1"),
    "fedexp-debiased-poisson": ("softmax", "algo=dp_fedexp", "privacy=local", "client_sampling=poisson",
        "sampled_clients=3"),
    "fedexp-naive": ("softmax", "algo=dp_fedexp", "privacy=local", "algo.naive=true", "sampled_clients=5"),
    "fedexp-central": ("binary", "algo=dp_fedexp", "privacy=central", "privacy.clip=0.3",
        "sampled_clients=5"),
    "fedexp-secagg": ("softmax", "algo=dp_fedexp", "privacy.norm_noise=3", "privacy.clip=0.3",
        "server_lr=0.1"),
    "fedexp-privunit": ("softmax", "algo=dp_fedexp", "privacy=local", "privacy.mechanism=privunit",
        "privacy.noise_multiplier=null",
        "privacy.eps0=3", "privacy.eps1=6", "privacy.eps2=5", "privacy.clip=0.1"),
    "fedexp-record": ("softmax", "algo=dp_fedexp", "privacy=record", "algo.naive=true", "batch_size=3"),
    "fedexp-scaffold": ("softmax", "algo=fedexp_scaffold", "sampled_clients=5"),
    "fedexp-scaffold-local": ("softmax", "algo=dp_fedexp_scaffold", "privacy=local", "sampled_clients=5",
        "privacy.clip=0.3"),
    # PFL: momentum that starts anew in every round, Poisson lots
    "pfl": ("softmax", "algo=pfl", "sample_rate=0.3"),
    "pfl-loosely": ("binary", "algo=pfl", "sample_rate=0.2", "privacy.clip=5", "local_momentum=0.9",
        "sampled_clients=5"),
    "record-full": ("squared", "algo=dp_fedavg", "privacy=record", "privacy.clip=2"),
    "record-shifts": ("softmax", "algo=dp_scaffnew", "privacy=record", "batch_size=2", "sampled_clients=5"),
    "record-bound-alone": ("softmax", "algo=dp_fedavg", "privacy=record", "eps=inf",
        "privacy.bound_without_noise=true"),
    # C that follows the norms
    "median": ("softmax", "algo=dp_fedavg", "privacy.clip=median", "sampled_clients=5"),
    "median-local": ("binary", "algo=dp_scaffnew", "privacy=local", "privacy.clip=median"),
    "median-record": ("softmax", "algo=dp_fedavg", "privacy=record", "privacy.clip=median", "batch_size=2"),
    "quantile": ("softmax", "algo=dp_fedavg", "privacy.quantile=0.5", "privacy.clip=0.2",
        "sampled_clients=5"),
    "quantile-local": ("binary", "algo=dp_scaffold", "privacy=local", "privacy.quantile=0.7",
        "sampled_clients=5"),
    "quantile-central": ("binary", "algo=dp_normfedavg", "privacy=central", "privacy.quantile=0.3",
        "client_sampling=poisson",
        "sampled_clients=4", "privacy.neighbours=add_remove_one"),
    "quantile-fedexp": ("softmax", "algo=dp_fedexp", "privacy=central", "privacy.quantile=0.5",
        "privacy.clip=0.2", "server_lr=0.1"),
    "quantile-fedexp-local": ("softmax", "algo=dp_fedexp", "privacy=local", "privacy.quantile=0.5",
        "privacy.clip=0.2", "server_lr=0.1"),
}  # fmt: skip


def iterates_of(pair: Twin) -> list[np.ndarray]:
    return [state.server.x.double().numpy() for state in pair.played.states()]


def compared(pair: Twin) -> float:
    """The largest difference of iterates and, where there are some, of shifts."""
    states = pair.played.states()
    iterates, shifts = pair.reference()
    found = difference([state.server.x.double().numpy() for state in states], iterates)
    if shifts is None:
        return found
    assert states[-1].memory is not None
    return max(found, difference([states[-1].memory.double().numpy()], [shifts]))


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_same_iterates(case: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = twin(monkeypatch, CASES[case][0], dtype, *STEPS, *CASES[case][1:])
    assert pair.played.schedule.rounds == 20
    assert compared(pair) <= TOLERANCE[dtype]


def test_every_shipped_algorithm_is_compared() -> None:
    compared_ones = {
        override.removeprefix("algo=")
        for case in CASES.values()
        for override in case
        if override.startswith("algo=")
    }
    assert {algo.name for algo in ALGORITHMS if algo.folder is None} <= compared_ones


def test_the_cases_meet_the_rare_branches(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty Poisson cohort; updates on both sides of the clip bound."""
    poisson = twin(monkeypatch, CASES["poisson-central"][0], "float64", *STEPS, *CASES["poisson-central"][1:])
    assert min(len(cohort) for cohort in poisson.setting.cohorts) == 0
    clipped = twin(monkeypatch, CASES["scaffnew-secagg"][0], "float64", *STEPS, *CASES["scaffnew-secagg"][1:])
    state, fractions = clipped.played.start, []
    for k in range(20):
        state, diagnostics = clipped.played.play(state, clipped.played.schedule.round(k))
        fractions.append(diagnostics.clipped_fraction)
    assert 0.05 < np.mean(fractions) < 0.95


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("privacy", [("eps=inf",), ("privacy=local", "privacy.clip=0.3")])
def test_coins_against_the_literal_algorithm(
    privacy: tuple[str, ...], dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One turn per iteration, communication on a head. Steps after the last head are no part of the
    product's schedule.
    """
    drawn = (
        "algo=dp_scaffnew",
        "algo.coins=true",
        "rounds=null",
        "total_steps=90",
        "local_steps=3",
        "lr=0.1",
        "seed=3",
    )
    pair = twin(monkeypatch, "binary", dtype, *drawn, *privacy)
    flips = coins(pair.played.job.settings)
    assert pair.played.schedule.steps == pair.setting.steps
    assert len(set(pair.setting.steps)) > 3
    iterates, shifts, _ = ref.scaffnew_coins(pair.clients, pair.x0, pair.setting, pair.p, flips)
    states = pair.played.states()
    assert len(iterates) == sum(flips) == len(states)
    assert difference([state.server.x.double().numpy() for state in states], iterates) <= TOLERANCE[dtype]
    assert states[-1].memory is not None
    assert difference([states[-1].memory.double().numpy()], [shifts]) <= TOLERANCE[dtype]
    late, _, _ = ref.scaffnew_coins(pair.clients, pair.x0, pair.setting, pair.p, [0, *flips[:-1]])
    assert (
        difference([state.server.x.double().numpy() for state in states][:5], late[:5])
        > 100 * TOLERANCE[dtype]
    )


def wrong_sign(pair: Twin) -> Twin:
    right = pair.setting.message_noise
    assert right is not None
    return pair.with_(
        message_noise=lambda k, i: -right(k, i) if (k, i) == (7, pair.setting.cohorts[7][0]) else right(k, i)
    )


MISTAKES = {
    "p": lambda pair: replace(pair, p=pair.p * 1.01),
    "lr-of-the-next-round": lambda pair: pair.with_(lr=[*pair.setting.lr[1:], pair.setting.lr[-1]]),
    "one-noise-vector-negated": wrong_sign,
    "noise-on-the-sum-alone": lambda pair: pair.with_(
        message_noise=None,
        sum_noise=lambda k: sum(pair.setting.message_noise(k, i) for i in pair.setting.cohorts[k]),
    ),
    "clip": lambda pair: pair.with_(clip=pair.setting.clip * 1.01),
    "normalise": lambda pair: pair.with_(bound="normalise"),
    "divisor": lambda pair: pair.with_(divisor=[8] * 20),
    "weight-decay": lambda pair: pair.with_(weight_decay=pair.setting.weight_decay * 1.01),
    "steps": lambda pair: pair.with_(steps=[*pair.setting.steps[:-1], pair.setting.steps[-1] - 1]),
    "server-momentum": lambda pair: pair.with_(server_momentum=0.0),
    "one-lot": lambda pair: pair.with_(lots=lambda k, i, j: pair.setting.lots(k, i, 0)),
    "a-client-left-out": lambda pair: pair.with_(
        cohorts=[*pair.setting.cohorts[:-1], pair.setting.cohorts[-1][1:]]
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_comparison_sees(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = twin(
        monkeypatch, "softmax", "float64", *STEPS, "algo=dp_scaffnew", "privacy=local", "privacy.clip=0.3",
        "sampled_clients=5",
        "lr_decay=0.93", "weight_decay=0.1", "server_momentum=0.3", "sample_rate=0.6",
    )  # fmt: skip
    ours = iterates_of(pair)
    assert difference(ours, pair.reference()[0]) <= TOLERANCE["float64"]
    # even at the tolerance for float32, and with a factor of 10 to spare
    assert difference(ours, MISTAKES[mistake](pair).reference()[0]) > 10 * TOLERANCE["float32"]


def test_settings_of_the_cases_are_what_they_say() -> None:
    assert settings_of("algo=dp_scaffnew").privacy.remembered == "own_update"
    assert settings_of("algo=dp_scaffnew", "privacy=local").privacy.remembered == "own_message"

"""What a run's budget refuses: what shows only when schedules, releases and noise are known.

What settings alone show is refused in `config/refusals.py`. What no accountant covers, whatever run
it comes from, is refused in `privacy/refusals.py` with a PrivacyError.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dpfl_bench.checks.errors import ConfigError, NotForeseeable
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import warm_rounds
from dpfl_bench.privacy import accounting
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import Observer, view


def check_coins(settings: Settings, seed: int, steps: Sequence[int]) -> None:
    """Refuse a seed whose coins never let the clients communicate. steps: local steps of each
    round.
    """
    if not steps:
        raise ConfigError(
            f"local_steps={settings.local_steps}: the coins of seed {seed} drew no communication in"
            f" {settings.total_steps} steps; lower local_steps or take another seed"
        )


def check_foreseeable(settings: Settings) -> None:
    """Record level: refuse settings from which the holders of a record cannot be foreseen."""
    if settings.dealing is not None and settings.dealing.overlapping:
        if settings.dataset["records"] is None:
            raise NotForeseeable(
                "dataset.records=null: expected to know how many records there are, for overlapping"
                " clients share them"
            )
    elif settings.lots == "fixed" and settings.smallest_client is None:
        raise NotForeseeable(
            f"batch_size={settings.batch_size}: expected to know the records of the smallest client, for"
            " the sampling rate follows; say records=N, or sample_rate in place of batch_size"
        )


def check_observer(settings: Settings, planned: Releases | RecordReleases, observer: Observer) -> None:
    """Refuse an observer that nothing bounds, and an accountant that is not valid for what the
    observer sees of the planned releases.
    """
    seen = view(planned, observer)
    if seen is None:
        raise ConfigError(
            f"privacy.observer={observer}: under privacy.trust={settings.privacy.trust} that observer is"
            " trusted and sees everything; use privacy.observer=third_party or privacy=secagg"
        )
    accounting.candidates(seen, settings.privacy.accountant)


def least_rounds(settings: Settings) -> int:
    """Rounds after which the model has moved once."""
    return max(1, 1 + warm_rounds(settings))


def check_stop(settings: Settings, eps: float, spent: float) -> None:
    """Refuse a `stop_at_eps` after which the model never moves.

    eps: the setting. spent: eps after `least_rounds`.
    """
    if spent <= eps:
        return
    least = least_rounds(settings)
    which = (
        "the first round alone spends"
        if least == 1
        else f"the {least - 1} rounds of the warm start and one more spend"
    )
    raise ConfigError(f"stop_at_eps={eps:g}: {which} {spent:.4g}; raise it, or raise the noise")


def check_grid(settings: Settings, noise_ratio: float, further: Sequence[float]) -> None:
    """Refuse `privacy.noise=discrete` if the noise is too small for sums on its grid to be exact.

    noise_ratio: standard deviation / C of the main release. further: noise multipliers of the
    further sums.
    """
    if not settings.private or settings.privacy.noise != "discrete":
        return
    import torch

    from dpfl_bench.machine import device
    from dpfl_bench.privacy import noise_grid

    if device.wide(device.choose(settings.device)) != torch.float64:
        raise ConfigError(
            f"privacy.noise=discrete: device={settings.device} has no float64, in which its sums are exact;"
            " use device=cpu"
        )
    clients = settings.clients if settings.sampling == "poisson" else settings.sampled_clients
    share = clients**-0.5 if settings.privacy.trust == "secagg" else 1.0
    for noise in (noise_ratio * share, *further):
        if not noise_grid.sums_exactly(clients, noise):
            raise ConfigError(
                f"privacy.noise=discrete: noise of {noise:.3g} C is too small for {clients} updates to be"
                " added up exactly; use privacy.noise=gaussian"
            )


@contextmanager
def privunit_refusals() -> Iterator[None]:
    """PrivUnit refuses dimensions and epsilons with a ValueError. Here it becomes a ConfigError,
    for a setting caused it.
    """
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"privacy.mechanism=privunit: {error}") from None

"""The noise of a run: its multiplier by calibration, formula or as given, and PrivUnit's
budgets.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from dpfl_bench.assembly.dimension import dimension
from dpfl_bench.budget.refusals import privunit_refusals
from dpfl_bench.config.settings import Privacy, Settings
from dpfl_bench.config.targets import naive, uses_norms
from dpfl_bench.privacy import calibration
from dpfl_bench.privacy.privunit import PrivUnit, equal_split
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import Observer


@dataclass(frozen=True)
class Noise:
    """The noise of a run.

    multiplier: standard deviation / sensitivity, of each message under local trust, of the cohort's
    sum under secagg and central, of a lot's sum at record level. PrivUnit: 1 / the pure eps of one
    message. 0: no privacy. Unit and relation are those of the settings.
    """

    settings: Settings
    multiplier: float

    @property
    def std(self) -> float | None:
        """Standard deviation; None where C changes, and where PrivUnit takes the noise's place."""
        sensitivity = self.settings.privacy.sensitivity
        return None if sensitivity is None or self.privunit is not None else self.multiplier * sensitivity

    @property
    def ratio(self) -> float:
        """Standard deviation / C; 0 for PrivUnit."""
        privacy = self.settings.privacy
        return 0.0 if privacy.mechanism == "privunit" else self.multiplier * privacy.ratio

    @property
    def client_ratio(self) -> float:
        """Standard deviation / C of the noise that one client adds: its share under secagg, and
        under central what its share would be.
        """
        if self.settings.privacy.trust == "local":
            return self.ratio
        return self.ratio / math.sqrt(self.settings.sampled_clients)

    @cached_property
    def privunit(self) -> PrivUnit | None:
        """The randomiser for C = 1; None where the mechanism is Gaussian."""
        settings, privacy = self.settings, self.settings.privacy
        if privacy.mechanism != "privunit" or not settings.private or privacy.unit != "client":
            return None
        if privacy.calibration == "fixed":
            randomiser = _given_privunit(settings)
        else:
            count = dimension(settings)
            with privunit_refusals():
                each = equal_split(1 / self.multiplier, count)
                randomiser = PrivUnit(each, each, each, 1.0, count)
        if uses_norms(settings.algo) and not naive(settings.algo):
            with privunit_refusals():
                randomiser.check_norms_recoverable()
        return randomiser


def multiplier(
    settings: Settings,
    planned: Releases | RecordReleases,
    observer: Observer,
    releases_seen: Callable[[], tuple[int, float]],
) -> float:
    """The noise multiplier that the settings of a private run ask for (see `Noise`).

    planned: what one seed releases. observer: whose view the target eps bounds. releases_seen: for
    the papers' formula, how many releases of one client the observer sees, and the sampling rate of
    clients that amplifies.
    """
    privacy = settings.privacy
    if privacy.calibration == "fixed":
        return _given(settings, privacy)
    if privacy.calibration == "formula":
        assert privacy.v is not None
        count, rate = releases_seen()
        std = calibration.formula_noise(privacy.v, 1.0, count, settings.eps, settings.delta, rate)
        return std / privacy.ratio
    return calibration.calibrate(planned, observer, settings.eps, settings.delta, privacy.accountant)


def _given(settings: Settings, privacy: Privacy) -> float:
    if privacy.mechanism == "privunit":
        return 1 / _given_privunit(settings).release_eps
    assert privacy.noise_multiplier is not None
    return privacy.noise_multiplier


def _given_privunit(settings: Settings) -> PrivUnit:
    """Of the three budgets that the settings name."""
    privacy = settings.privacy
    assert privacy.eps0 is not None
    assert privacy.eps1 is not None
    assert privacy.eps2 is not None
    count = dimension(settings)
    with privunit_refusals():
        return PrivUnit(privacy.eps0, privacy.eps1, privacy.eps2, 1.0, count)

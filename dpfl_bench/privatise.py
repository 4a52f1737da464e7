"""The noise of a run and what it costs: settings and schedules in, noise multiplier and epsilons out. No torch, no data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from dpfl_bench.config import target
from dpfl_bench.federation import schedule as schedules
from dpfl_bench.federation.schedule import Prefixes, Schedule
from dpfl_bench.privacy import accounting, calibration
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.privacy.releases import Observer, PrivacyError, Releases, View, view
from dpfl_bench.settings import ConfigError, Settings

LONGEST = 10**5  # rounds that are drawn to answer how many eps allows
OBSERVERS: tuple[Observer, ...] = ("server", "third_party")


def drawn_schedules(settings: Settings) -> list[Schedule]:
    """One schedule for each seed of the run."""
    return [_schedule(settings, seed) for seed in settings.seeds]


def _schedule(settings: Settings, seed: int) -> Schedule:
    if settings.algo.get("coins"):
        steps = schedules.coin_steps(seed, settings.total_steps, settings.local_steps)
        if not steps:
            raise ConfigError(
                f"local_steps={settings.local_steps}: the coins of seed {seed} drew no communication in {settings.total_steps} steps; "
                "lower local_steps or take another seed"
            )
    else:
        steps = schedules.constant_steps(settings.rounds, settings.local_steps)
    return Schedule(
        seed=seed,
        clients=settings.clients,
        cohort_size=settings.sampled_clients,
        sampling=settings.sampling,
        steps=steps,
        p=1 / settings.local_steps,
        lr=settings.lr,
        lr_decay=settings.lr_decay,
    )


@dataclass(frozen=True)
class Budget:
    """A run's releases, its noise, and the epsilon that they mean to each observer. Unit: client."""

    settings: Settings
    planned: Releases

    @staticmethod
    def of(settings: Settings, drawn: Sequence[Schedule]) -> Budget:
        return Budget(settings, _releases(settings, drawn))

    @property
    def observer(self) -> Observer:
        return self.settings.privacy.bounded_observer

    @cached_property
    def noise_multiplier(self) -> float:
        """Standard deviation / sensitivity: of each message under local trust, of the cohort's sum else. 0: no privacy."""
        settings, privacy = self.settings, self.settings.privacy
        if not settings.private:
            return 0.0
        if view(self.planned, self.observer) is None:
            raise ConfigError(
                f"privacy.observer={self.observer}: under privacy.trust={privacy.trust} that observer is trusted and sees everything; "
                "expected third_party (or privacy=secagg)"
            )
        if privacy.calibration == "fixed":
            assert privacy.noise_multiplier is not None
            return privacy.noise_multiplier
        if privacy.calibration == "formula":
            assert privacy.v is not None
            std = calibration.formula_noise(privacy.v, privacy.clip, self.observed, settings.eps, settings.delta, self.rate)
            return std / privacy.sensitivity
        return calibration.calibrate(self.planned, self.observer, settings.eps, settings.delta, privacy.accountant)

    @property
    def noise_std(self) -> float:
        return self.noise_multiplier * self.settings.privacy.sensitivity

    @property
    def observed(self) -> int:
        """Releases that the bounded observer sees of the worst client: all rounds where sampling is to amplify, else its own."""
        return self.planned.rounds if self.rate < 1 else self.planned.worst

    @property
    def rate(self) -> float:
        """Sampling rate of clients where it amplifies towards the bounded observer, else 1."""
        amplified = any(c.mechanism != "gaussian" for c in view(self.planned, self.observer) or ())
        return self.planned.cohort / self.planned.clients if amplified else 1.0

    @property
    def client_noise_std(self) -> float:
        """Of the noise that one client adds (its share under secagg; what its share would be under central)."""
        return self.noise_std if self.settings.privacy.trust == "local" else self.noise_std / math.sqrt(self.planned.cohort)

    def spent(self, ledger: Ledger) -> float:
        """eps towards the bounded observer of what the ledger holds."""
        if not self.settings.private or self.noise_multiplier == 0:
            return math.inf if ledger.rounds or not self.settings.private else 0.0
        return self._eps(ledger.so_far(self.planned), self.observer, self.settings.privacy.accountant)

    @cached_property
    def eps(self) -> float:
        """Of the whole run, towards the bounded observer."""
        return self._eps(self.planned, self.observer, self.settings.privacy.accountant)

    @property
    def accountant(self) -> str:
        """The accountant that `auto` takes."""
        name = self.settings.privacy.accountant
        if name != "auto" or not self.settings.private:
            return name
        return self._best(self.planned, self.observer)[0]

    def views(self) -> dict[str, float]:
        """Observer -> eps of the whole run by the tightest valid accountant; inf where the observer is trusted."""
        return {observer: self._view(observer) for observer in OBSERVERS}

    def accountants(self) -> dict[str, float]:
        """Accountant -> eps towards the bounded observer, for every valid one."""
        if not self.settings.private:
            return {}
        found = view(self.planned, self.observer)
        assert found is not None
        names = [name for name in ("exact", "pld", "rdp") if any(name in accounting.accountants_for(c) for c in found)]
        return {name: self._eps(self.planned, self.observer, name) for name in names}

    def max_rounds(self) -> int | None:
        """The most rounds that eps allows at this noise (of at most LONGEST where cohorts are drawn); None without privacy."""
        if not self.settings.private:
            return None
        prefixes = [Prefixes(s) for s in drawn_schedules(self.settings)]

        def seen(rounds: int) -> View:
            worst, smallest = max(p.worst(rounds) for p in prefixes), min(p.smallest_cohort(rounds) for p in prefixes)
            found = view(replace(self.planned, rounds=rounds, worst=worst, smallest_cohort=smallest), self.observer)
            assert found is not None
            return found

        limit = 10**7 if self.planned.sampling == "full" else LONGEST
        accountant = self.settings.privacy.accountant
        return calibration.max_rounds(self.settings.eps, self.settings.delta, self.noise_multiplier, seen, accountant, limit)

    def _view(self, observer: Observer) -> float:
        try:
            trusted = view(self.planned, observer) is None
        except PrivacyError:
            return math.inf  # no valid bound is known for this observer
        return math.inf if trusted or not self.settings.private else self._best(self.planned, observer)[1]

    def _best(self, releases: Releases, observer: Observer) -> tuple[str, float]:
        composition = view(releases, observer)
        assert composition is not None
        return accounting.best(composition, self.noise_multiplier, self.settings.delta)

    def _eps(self, releases: Releases, observer: Observer, accountant: str) -> float:
        if not self.settings.private:
            return math.inf
        composition = view(releases, observer)
        assert composition is not None
        return accounting.epsilon(composition, self.noise_multiplier, self.settings.delta, accountant)


def _releases(settings: Settings, drawn: Sequence[Schedule]) -> Releases:
    """What the worst seed releases; messages show one by one where clients remember their noise."""
    memory = target(settings.algo).remembers
    sums_only = not (memory and settings.privacy.remembered == "own_message")
    return schedules.releases(drawn, settings.privacy.trust, settings.privacy.neighbours, sums_only, memoryless=not memory)

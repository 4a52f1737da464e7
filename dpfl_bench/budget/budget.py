"""The noise of a run and what it costs: settings and schedules in, noise multiplier and epsilons
out. No torch, no data.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import groupby, zip_longest
from typing import TypeVar

import numpy as np

from dpfl_bench.assembly.dimension import dimension
from dpfl_bench.assembly.holders import Holders
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import naive, remembers, uses_norms, warm_rounds
from dpfl_bench.federation import schedule as schedules
from dpfl_bench.federation.schedule import Prefixes, Schedule
from dpfl_bench.privacy import accounting, calibration
from dpfl_bench.privacy.cache import cached
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.privacy.privunit import PrivUnit, equal_split
from dpfl_bench.privacy.refusals import OutOfReach, PrivacyError
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Companion, Rounds, View
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import Observer, fresh, view

T = TypeVar("T")
LONGEST = 10**5  # rounds that are drawn to answer how many eps allows
OBSERVERS: tuple[Observer, ...] = (
    "server",
    "third_party",
    "third_party_given_cohorts",
)  # the last: where cohorts are drawn
BITS_SENSITIVITY = {"replace_one": 1.0, "add_remove_one": 0.5}  # of a sum of 1[norm <= C] - 1/2


def drawn_schedules(settings: Settings) -> list[Schedule]:
    """One schedule for each seed of the run."""
    return [_schedule(settings, seed) for seed in settings.seeds]


def _schedule(settings: Settings, seed: int) -> Schedule:
    if settings.algo.get("coins"):
        steps = schedules.coin_steps(seed, settings.total_steps, settings.local_steps)
        if not steps:
            raise ConfigError(
                f"local_steps={settings.local_steps}: the coins of seed {seed} drew no communication in"
                f" {settings.total_steps} steps; lower local_steps or take another seed"
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
    """A run's releases, its noise, and the epsilon that they mean to each observer."""

    settings: Settings
    schedules: tuple[Schedule, ...]  # one for each seed, cut where stop_at_eps ends them
    holders: Holders

    @staticmethod
    def of(settings: Settings, drawn: Sequence[Schedule], holders: Holders | None = None) -> Budget:
        whole = Budget(settings, tuple(drawn), holders or Holders.foreseen(settings))
        whole.check()
        return (
            whole
            if settings.stop_at_eps is None or not settings.private
            else whole._stopped(settings.stop_at_eps)
        )

    @cached_property
    def planned(self) -> Releases | RecordReleases:
        """What the worst seed releases."""
        return self._record_releases() if self.settings.privacy.unit == "record" else self._releases()

    @cached_property
    def companions(self) -> tuple[Companion, ...]:
        """The further sums that go out with every round's messages, and their noise."""
        return _companions(self.settings)

    @property
    def observer(self) -> Observer:
        return self.settings.privacy.bounded_observer

    @cached_property
    def noise_multiplier(self) -> float:
        """Standard deviation / sensitivity: of each message under local trust, of the cohort's sum
        else, of a lot's sum at record level.

        PrivUnit: 1 / the pure eps of one message. 0: no privacy.
        """
        settings, privacy = self.settings, self.settings.privacy
        if not settings.private:
            return 0.0
        self.check()
        if privacy.calibration == "fixed":
            if privacy.mechanism == "privunit":
                return (
                    1 / _privunit((privacy.eps0, privacy.eps1, privacy.eps2), dimension(settings)).release_eps
                )
            assert privacy.noise_multiplier is not None
            return privacy.noise_multiplier
        if privacy.calibration == "formula":
            assert privacy.v is not None
            std = calibration.formula_noise(
                privacy.v, 1.0, self.observed, settings.eps, settings.delta, self.rate
            )
            return std / privacy.ratio
        return calibration.calibrate(
            self.planned, self.observer, settings.eps, settings.delta, privacy.accountant
        )

    def check(self) -> None:
        """Refuse an observer that nothing bounds, and an accountant that is not valid for what it
        sees.
        """
        if not self.settings.private:
            return
        seen = view(self.planned, self.observer)
        if seen is None:
            raise ConfigError(
                f"privacy.observer={self.observer}: under privacy.trust={self.settings.privacy.trust} that"
                " observer is trusted and sees everything; expected third_party (or privacy=secagg)"
            )
        accounting.candidates(seen, self.settings.privacy.accountant)

    @property
    def noise_std(self) -> float | None:
        """Of the noise that `noise_multiplier` speaks of; None where C changes or PrivUnit takes
        the noise's place.
        """
        sensitivity = self.settings.privacy.sensitivity
        return (
            None if sensitivity is None or self.privunit is not None else self.noise_multiplier * sensitivity
        )

    @property
    def noise_ratio(self) -> float:
        """Standard deviation / C."""
        return (
            0.0
            if self.settings.privacy.mechanism == "privunit"
            else self.noise_multiplier * self.settings.privacy.ratio
        )

    @cached_property
    def privunit(self) -> PrivUnit | None:
        """For C = 1."""
        privacy = self.settings.privacy
        if privacy.mechanism != "privunit" or not self.settings.private or privacy.unit != "client":
            return None
        count = dimension(self.settings)
        epsilons = (privacy.eps0, privacy.eps1, privacy.eps2)
        if privacy.calibration != "fixed":
            epsilons = (_as_config_error(lambda: equal_split(1 / self.noise_multiplier, count)),) * 3
        made = _privunit(epsilons, count)
        if uses_norms(self.settings.algo) and not naive(self.settings.algo):
            _as_config_error(made.check_norms_recoverable)
        return made

    @cached_property
    def seen(self) -> View:
        """What bounds the bounded observer; empty without privacy."""
        return (view(self.planned, self.observer) or ()) if self.settings.private else ()

    @cached_property
    def fresh(self) -> View:
        """`seen` of a run with cohorts that are yet to be drawn; empty where there is no bound
        before that.
        """
        try:
            return (fresh(self.planned, self.observer) or ()) if self.settings.private else ()
        except PrivacyError:
            return ()

    @property
    def observed(self) -> int:
        """Releases of one client that the bounded observer sees.

        All rounds where sampling amplifies. The expected number where eps averages over the
        cohorts. Else that of the client that was drawn most often.
        """
        if self.rate < 1:
            return self.rounds
        averaged = [math.ceil(c.times * c.share) for c in self.seen if c.rounds]
        return max(averaged, default=self.planned.worst)

    @property
    def rounds(self) -> int:
        """Of the longest seed."""
        return max(s.rounds for s in self.schedules)

    @property
    def rate(self) -> float:
        """Sampling rate of clients where it amplifies towards the bounded observer, else 1."""
        amplified = any(c.mechanism in ("fixed", "poisson") for c in self.seen)
        return self.schedules[0].share if amplified and self.settings.privacy.unit == "client" else 1.0

    @property
    def client_noise_ratio(self) -> float:
        """Standard deviation / C of the noise that one client adds (its share under secagg; what
        its share would be under central).
        """
        return (
            self.noise_ratio
            if self.settings.privacy.trust == "local"
            else self.noise_ratio / math.sqrt(self.settings.sampled_clients)
        )

    def spent(self, ledger: Ledger) -> float:
        """eps towards the bounded observer of what the ledger holds."""
        if not self.settings.private or self.noise_multiplier == 0:
            return math.inf if ledger.rounds or not self.settings.private else 0.0
        return self._eps(
            self.planned.after(ledger.rounds, self.holders.exposure(ledger.taken)), self.observer
        )

    @cached_property
    def eps(self) -> float:
        """Of the whole run, towards the bounded observer."""
        return self._eps(self.planned, self.observer) if self.settings.private else math.inf

    @cached_property
    def eps_all_repeats(self) -> float:
        """Of the models of all seeds together, towards the bounded observer."""
        if len(self.schedules) == 1 or not self.settings.private:
            return self.eps
        return self._eps(self._together(), self.observer)

    def _together(self) -> Releases | RecordReleases:
        """What all seeds release, one after the other."""
        drawn, planned = self.schedules, self.planned
        if isinstance(planned, RecordReleases):
            rounds = tuple(pair for s in drawn for pair in _grouped(s.steps))
            return replace(
                planned,
                rounds=rounds,
                worst=self.holders.exposure(np.sum([s.gradients for s in drawn], axis=0)),
            )
        worst = self.holders.exposure(np.sum([s.participation for s in drawn], axis=0))
        return replace(planned, rounds=sum(s.rounds for s in drawn), worst=worst)

    @property
    def accountant(self) -> str:
        """The accountant that `auto` takes."""
        name = self.settings.privacy.accountant
        if name != "auto" or not self.settings.private:
            return name
        return self._best(self.planned, self.observer)[0]

    @property
    def observers(self) -> tuple[Observer, ...]:
        """Whose eps are told: a third party that knows the cohorts only where there is something to
        know.
        """
        return OBSERVERS if self.settings.sampling != "full" else OBSERVERS[:2]

    def views(self) -> dict[str, float]:
        """Observer -> eps of the whole run by the tightest valid accountant; inf where the observer
        is trusted.
        """
        return {
            observer: min([math.inf, *self._by_accountant(observer).values()]) for observer in self.observers
        }

    def accountants(self, observer: Observer | None = None, *, every: bool = False) -> dict[str, float]:
        """Accountant -> eps towards an observer (by default the bounded one): every valid one that
        `auto` may ask, and the one that was asked for. With `every` also the valid ones that are
        asked by name alone, where they can tell.
        """
        observer = observer or self.observer
        found = self._by_accountant(observer)
        if every and self.settings.private:
            found |= self._by_name_only(observer)
        asked = self.settings.privacy.accountant
        if asked != "auto" and asked not in found and observer == self.observer and self.settings.private:
            found[asked] = self.eps
        return found

    def _by_name_only(self, observer: Observer) -> dict[str, float]:
        try:
            seen = view(self.planned, observer) or ()
        except PrivacyError:
            return {}
        eps: dict[str, float] = {}
        for name in dict.fromkeys(name for c in seen for name in accounting.by_name_only(c)):
            with contextlib.suppress(OutOfReach):
                eps[name] = self._kept_eps(seen, name)
        return eps

    def max_rounds(self) -> int | None:
        """The most rounds that eps allows at this noise (of at most LONGEST where cohorts are
        drawn); None without privacy, and at record level where coins draw the local steps.
        """
        settings = self.settings
        if not settings.private or (settings.privacy.unit == "record" and settings.algo.get("coins")):
            return None
        prefixes = [Prefixes(s, self.holders.exposure) for s in self.schedules]

        def seen(rounds: int) -> View:
            worst = max(p.worst(rounds) for p in prefixes)
            planned = self.planned
            if isinstance(planned, RecordReleases):
                k = settings.local_steps
                planned = replace(planned, rounds=((k, rounds),), worst=worst * k)
            else:
                planned = replace(
                    planned,
                    rounds=rounds,
                    worst=worst,
                    smallest_cohort=min(p.smallest_cohort(rounds) for p in prefixes),
                )
            found = view(planned, self.observer)
            assert found is not None
            return found

        limit = 10**7 if settings.sampling == "full" else LONGEST
        return calibration.max_rounds(
            settings.eps, settings.delta, self.noise_multiplier, seen, settings.privacy.accountant, limit
        )

    def first(self, rounds: int) -> Budget:
        """The same noise, every seed ending after so many rounds."""
        return _Cut(self.settings, tuple(s.first(rounds) for s in self.schedules), self.holders, whole=self)

    def played(self, rounds: Mapping[int, int]) -> Budget:
        """The same noise, and of each seed only so many rounds: of a run that ended early."""
        kept = tuple(s.first(rounds[s.seed]) for s in self.schedules if rounds.get(s.seed))
        return _Cut(self.settings, kept, self.holders, whole=self)

    def _stopped(self, eps: float) -> Budget:
        """Cut before the release that would exceed eps."""
        low, high = 0, self.rounds
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.first(middle).eps <= eps else (low, middle - 1)
        least = max(1, 1 + warm_rounds(self.settings))
        if low < least:
            spent = self.first(min(least, self.rounds)).eps
            which = (
                "the first round alone spends"
                if least == 1
                else f"the {least - 1} rounds of the warm start and one more spend"
            )
            raise ConfigError(f"stop_at_eps={eps:g}: {which} {spent:.4g}; raise it, or raise the noise")
        return self.first(low)

    def _releases(self) -> Releases:
        """Messages show one by one where clients remember their noise, and where the server's step
        looks at each one's norm.
        """
        settings, privacy, drawn = self.settings, self.settings.privacy, self.schedules
        memory = remembers(settings.algo)
        single = (memory and privacy.remembered == "own_message") or (
            uses_norms(settings.algo) and privacy.trust == "local"
        )
        return Releases(
            rounds=self.rounds,
            clients=settings.clients,
            cohort_size=settings.sampled_clients,
            sampling=settings.sampling,
            trust=privacy.trust,
            neighbours=privacy.neighbours,
            worst=max(self.holders.exposure(s.participation) for s in drawn),
            smallest_cohort=min(s.smallest_cohort for s in drawn),
            sums_only=not single,
            memoryless=not memory,
            companions=self.companions,
            colluding=privacy.colluding,
            mechanism="pure" if privacy.mechanism == "privunit" else "gaussian",
        )

    def _record_releases(self) -> RecordReleases:
        settings, drawn = self.settings, self.schedules
        sample, population = settings.batch_size or 1, self.holders.smallest or 1
        lots = "full" if settings.lots == "fixed" and sample >= population else settings.lots
        rate = {"full": 1.0, "fixed": sample / population, "poisson": settings.sample_rate or 1.0}[lots]
        return RecordReleases(
            rounds=_grouped(_at_least([s.steps for s in drawn])),
            share=drawn[0].share,
            worst=max(self.holders.exposure(s.gradients) for s in drawn),
            lots=lots,
            population=population if lots == "fixed" else 0,
            sample=sample if lots == "fixed" else 0,
            rate=rate,
            neighbours=settings.privacy.neighbours,
            cohort_size=settings.sampled_clients,
            holders=self.holders.most,
        )

    def _by_accountant(self, observer: Observer) -> dict[str, float]:
        """Empty where the observer is trusted or where no valid bound is known."""
        if not self.settings.private:
            return {}
        try:
            found = view(self.planned, observer) or ()
        except PrivacyError:
            return {}
        names = dict.fromkeys(name for c in found for name in accounting.accountants_for(c))
        return {name: self._kept_eps(found, name) for name in names}

    def _kept_eps(self, found: View, name: str) -> float:
        """Closed forms are faster computed than read; dp_accounting takes a second to import."""
        asked: dict[str, object] = {"noise_multiplier": self.noise_multiplier, "delta": self.settings.delta}
        asked |= accounting.question(name)

        def answer() -> float:
            return accounting.epsilon(found, self.noise_multiplier, self.settings.delta, name)

        return (
            answer() if name == "exact" else cached({"eps_of": [asdict(c) for c in found], **asked}, answer)
        )

    def _best(self, planned: Releases | RecordReleases, observer: Observer) -> tuple[str, float]:
        composition = view(planned, observer)
        assert composition is not None
        return accounting.best(composition, self.noise_multiplier, self.settings.delta)

    def _eps(self, planned: Releases | RecordReleases, observer: Observer) -> float:
        composition = view(planned, observer)
        assert composition is not None
        return accounting.epsilon(
            composition, self.noise_multiplier, self.settings.delta, self.settings.privacy.accountant
        )


@dataclass(frozen=True)
class _Cut(Budget):
    """A budget that ends early: its noise is that of the whole."""

    whole: Budget

    @cached_property
    def noise_multiplier(self) -> float:
        return self.whole.noise_multiplier


def _grouped(steps: Sequence[int]) -> Rounds:
    return tuple((k, len(list(run))) for k, run in groupby(steps))


def _at_least(each: Sequence[Sequence[int]]) -> Sequence[int]:
    """Local steps round by round of which each seed has no more: where seeds differ (coins), the
    longest rounds come first.
    """
    if len(set(each)) == 1:
        return each[0]
    return [
        max(found) for found in zip_longest(*(sorted(steps, reverse=True) for steps in each), fillvalue=0)
    ]


def _privunit(epsilons: Sequence[float | None], count: int) -> PrivUnit:
    """For C = 1."""
    eps0, eps1, eps2 = epsilons
    assert eps0 is not None
    assert eps1 is not None
    assert eps2 is not None
    return _as_config_error(lambda: PrivUnit(eps0, eps1, eps2, 1.0, count))


def _as_config_error(call: Callable[[], T]) -> T:
    """PrivUnit's own refusals (dimension, epsilons) are settings that cannot be."""
    try:
        return call()
    except ValueError as error:
        raise ConfigError(f"privacy.mechanism=privunit: {error}") from None


def _companions(settings: Settings) -> tuple[Companion, ...]:
    privacy = settings.privacy
    if not settings.private or privacy.unit == "record":
        return ()
    found = []
    if uses_norms(settings.algo) and privacy.trust != "local":
        if privacy.norm_noise is not None:
            found.append(Companion("norms", "times", privacy.norm_noise))
        else:  # `fedexp`: sigma_xi = d sigma^2 / M, for a mean whose terms differ by at most C^2
            found.append(
                Companion(
                    "norms", "squared", dimension(settings) * privacy.ratio**2 / settings.sampled_clients
                )
            )
    if privacy.quantile is not None:
        found.append(Companion("bits", "times", privacy.quantile_noise))
    return tuple(found)

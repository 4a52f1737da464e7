"""The budget of a run: what it releases, its noise, and the epsilon that this means to each
observer. No torch, no data.

Each part is computed in a file of its own: `schedules.py`, `foreseen_holders.py` (without data),
`released.py`, `noise.py`, `spent.py`, `refusals.py`. The record of the result is `guarantee.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dpfl_bench.budget import noise, refusals, released, spent
from dpfl_bench.budget.foreseen_holders import foreseen
from dpfl_bench.budget.noise import Noise
from dpfl_bench.budget.spent import Accounting
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation.holders import Holders
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.privacy.ledger import Ledger
from dpfl_bench.privacy.refusals import PrivacyError
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Companion, View
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import Observer, fresh, view

OBSERVERS: tuple[Observer, ...] = ("server", "third_party")
WITH_COHORTS: tuple[Observer, ...] = (*OBSERVERS, "third_party_given_cohorts")  # where cohorts are drawn


@dataclass(frozen=True)
class Budget:
    """A run's releases, its noise, and the epsilon that they mean to each observer.

    schedules: one for each seed, cut where `stop_at_eps` ends them. holders: who holds which
    record. whole: of a budget that ends early, the one that it was cut from; the noise is that of
    the whole. Unit and neighbouring relation are those of the settings.
    """

    settings: Settings
    schedules: tuple[Schedule, ...]
    holders: Holders
    whole: Budget | None = None

    @staticmethod
    def of(settings: Settings, drawn: Sequence[Schedule], holders: Holders | None = None) -> Budget:
        """The budget of a run, cut where `stop_at_eps` says.

        drawn: one schedule for each seed. holders: as they were dealt; None: foreseen from the
        settings. Raises ConfigError or PrivacyError for what nothing bounds.
        """
        whole = Budget(settings, tuple(drawn), holders or foreseen(settings))
        whole.check()
        if settings.stop_at_eps is None or not settings.private:
            return whole
        return whole._stopped(settings.stop_at_eps)

    def check(self) -> None:
        """Refuse an observer that nothing bounds, and an accountant that is not valid."""
        if self.settings.private:
            refusals.check_observer(self.settings, self.planned, self.observer)

    # what is released, and who sees it

    @cached_property
    def planned(self) -> Releases | RecordReleases:
        """What the worst seed releases."""
        return released.planned(self.settings, self.schedules, self.holders)

    @cached_property
    def companions(self) -> tuple[Companion, ...]:
        """The further sums that go out with every round's messages, and their noise."""
        return released.companions(self.settings)

    @property
    def rounds(self) -> int:
        """Rounds of the longest seed."""
        return max(s.rounds for s in self.schedules)

    @property
    def observer(self) -> Observer:
        """The observer whose view the target eps bounds."""
        return self.settings.privacy.bounded_observer

    @property
    def observers(self) -> tuple[Observer, ...]:
        """All whose eps are reported; a third party that knows the cohorts only where cohorts are
        drawn.
        """
        return WITH_COHORTS if self.settings.sampling != "full" else OBSERVERS

    @cached_property
    def seen(self) -> View:
        """What bounds the bounded observer; empty without privacy."""
        return (view(self.planned, self.observer) or ()) if self.settings.private else ()

    @cached_property
    def fresh(self) -> View:
        """`seen` of a run whose cohorts are yet to be drawn; empty where nothing bounds it before
        that.
        """
        try:
            return (fresh(self.planned, self.observer) or ()) if self.settings.private else ()
        except PrivacyError:
            return ()

    @property
    def rate(self) -> float:
        """Sampling rate of clients where it amplifies towards the bounded observer, else 1."""
        amplified = any(c.mechanism in ("fixed", "poisson") for c in self.seen)
        return self.schedules[0].share if amplified and self.settings.privacy.unit == "client" else 1.0

    @property
    def observed(self) -> int:
        """How many releases of one client the bounded observer sees."""
        return released.seen_of_one_client(self.seen, self.rounds, self.rate, self.planned.worst)

    # its noise

    @cached_property
    def noise(self) -> Noise:
        if self.whole is not None:
            return self.whole.noise
        if not self.settings.private:
            return Noise(self.settings, 0.0)
        self.check()
        multiplier = noise.multiplier(
            self.settings, self.planned, self.observer, lambda: (self.observed, self.rate)
        )
        return Noise(self.settings, multiplier)

    @property
    def noise_multiplier(self) -> float:
        """Standard deviation / sensitivity of the main release (see `Noise`)."""
        return self.noise.multiplier

    # what it spends

    @property
    def _accounting(self) -> Accounting:
        return Accounting(self.noise_multiplier, self.settings.delta, self.settings.privacy.accountant)

    @cached_property
    def eps(self) -> float:
        """eps of one seed of the whole run, towards the bounded observer."""
        return self._accounting.eps(self.planned, self.observer) if self.settings.private else math.inf

    @cached_property
    def eps_all_repeats(self) -> float:
        """eps of the models of all seeds together, towards the bounded observer."""
        if len(self.schedules) == 1 or not self.settings.private:
            return self.eps
        together = released.of_all_seeds(self.planned, self.schedules, self.holders)
        return self._accounting.eps(together, self.observer)

    def spent(self, ledger: Ledger) -> float:
        """eps towards the bounded observer of what one seed's ledger holds."""
        if not self.settings.private or self.noise_multiplier == 0:
            return math.inf if ledger.rounds or not self.settings.private else 0.0
        so_far = self.planned.after(ledger.rounds, self.holders.exposure(ledger.taken))
        return self._accounting.eps(so_far, self.observer)

    @property
    def accountant(self) -> str:
        """The accountant that was asked for; under `auto` the tightest one."""
        name = self.settings.privacy.accountant
        if name != "auto" or not self.settings.private:
            return name
        return self._accounting.tightest(self.planned, self.observer)

    def accountants(self, observer: Observer | None = None, *, every: bool = False) -> dict[str, float]:
        """Accountant -> eps towards an observer (by default the bounded one): every valid one that
        `auto` may ask, and the one that was asked for. With `every` also the valid ones that are
        asked by name alone, where they can tell.
        """
        if not self.settings.private:
            return {}
        observer = observer or self.observer
        eps = self._accounting.by_accountant(self.planned, observer)
        if every:
            eps |= self._accounting.by_name_only(self.planned, observer)
        asked = self.settings.privacy.accountant
        if asked != "auto" and asked not in eps and observer == self.observer:
            eps[asked] = self.eps
        return eps

    def views(self) -> dict[str, float]:
        """Observer -> eps of the whole run by the tightest valid accountant that `auto` may ask;
        inf where the observer is trusted.
        """
        return {observer: self._view(observer) for observer in self.observers}

    def _view(self, observer: Observer) -> float:
        if not self.settings.private:
            return math.inf
        return min(self._accounting.by_accountant(self.planned, observer).values(), default=math.inf)

    def max_rounds(self) -> int | None:
        """The most rounds that eps allows at this noise (of at most `spent.LONGEST` where cohorts
        are drawn); None without privacy, and at record level where coins draw the local steps.
        """
        settings = self.settings
        if not settings.private or (settings.privacy.unit == "record" and settings.algo.get("coins")):
            return None
        first = released.of_first_rounds(
            self.planned, self.schedules, self.holders, settings.local_steps, self.observer
        )
        return spent.max_rounds(settings, self.noise_multiplier, first, self.observer)

    # the same, ending early

    def first(self, rounds: int) -> Budget:
        """The same noise, every seed ending after so many rounds."""
        return self._cut([s.first(rounds) for s in self.schedules])

    def played(self, rounds: Mapping[int, int]) -> Budget:
        """The same noise, of a run that ended early. rounds: seed -> how many were played."""
        return self._cut([s.first(rounds[s.seed]) for s in self.schedules if rounds.get(s.seed)])

    def _cut(self, schedules: Sequence[Schedule]) -> Budget:
        return Budget(self.settings, tuple(schedules), self.holders, whole=self)

    def _stopped(self, eps: float) -> Budget:
        """Cut before the release that would exceed eps."""

        def eps_after(rounds: int) -> float:
            return self.first(rounds).eps

        refusals.check_stop(self.settings, eps, eps_after(refusals.least_rounds(self.settings)))
        return self.first(spent.last_round_within(eps, self.rounds, eps_after))

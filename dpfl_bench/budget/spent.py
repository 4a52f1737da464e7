"""The epsilon that releases spend under a noise: by observer, by accountant, and over rounds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from dpfl_bench.config.settings import Settings
from dpfl_bench.privacy import accounting, calibration
from dpfl_bench.privacy.answers_on_disk import cached
from dpfl_bench.privacy.refusals import OutOfReach, PrivacyError
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import View
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import Observer, view

LONGEST = 10**5  # rounds that are drawn to answer how many eps allows
MOST = 10**7  # rounds that are considered where nothing has to be drawn


@dataclass(frozen=True)
class Accounting:
    """The epsilons of releases at one noise, one delta, by one accountant (`auto`: the tightest).

    Unit and neighbouring relation are those of the releases.
    """

    noise_multiplier: float
    delta: float
    accountant: str

    def eps(self, releases: Releases | RecordReleases, observer: Observer) -> float:
        """eps towards the observer, who must not be a trusted one."""
        seen = _bounded(releases, observer)
        return accounting.epsilon(seen, self.noise_multiplier, self.delta, self.accountant)

    def answer(self, releases: Releases | RecordReleases, observer: Observer) -> tuple[str, float]:
        """The accountant that is asked, under `auto` the tightest, and its eps towards the
        observer.
        """
        return accounting.best(
            _bounded(releases, observer), self.noise_multiplier, self.delta, self.accountant
        )

    def tightest(self, releases: Releases | RecordReleases, observer: Observer) -> str:
        """Name of the accountant with the least eps towards the observer."""
        return accounting.best(_bounded(releases, observer), self.noise_multiplier, self.delta)[0]

    def by_accountant(self, releases: Releases | RecordReleases, observer: Observer) -> dict[str, float]:
        """Accountant -> eps, for every valid accountant that `auto` may ask. Empty where the
        observer is trusted, and where no valid bound is known.
        """
        seen = _known(releases, observer)
        names = dict.fromkeys(name for c in seen for name in accounting.accountants_for(c))
        return {name: self._kept(seen, name) for name in names}

    def by_name_only(self, releases: Releases | RecordReleases, observer: Observer) -> dict[str, float]:
        """The same of the valid accountants that `auto` never asks, as far as they can tell."""
        seen = _known(releases, observer)
        eps: dict[str, float] = {}
        for name in dict.fromkeys(name for c in seen for name in accounting.by_name_only(c)):
            with suppress(OutOfReach):
                eps[name] = self._kept(seen, name)
        return eps

    def _kept(self, seen: View, name: str) -> float:
        """By one accountant, from the cache on disk. Closed forms are computed faster than they are
        read; dp_accounting takes a second to import.
        """
        asked: dict[str, object] = {"noise_multiplier": self.noise_multiplier, "delta": self.delta}
        asked |= accounting.question(name)

        def answer() -> float:
            return accounting.epsilon(seen, self.noise_multiplier, self.delta, name)

        return answer() if name == "exact" else cached({"eps_of": [asdict(c) for c in seen], **asked}, answer)


def _known(releases: Releases | RecordReleases, observer: Observer) -> View:
    """What bounds the observer; empty where it is trusted or where no bound is known."""
    try:
        return view(releases, observer) or ()
    except PrivacyError:
        return ()


def _bounded(releases: Releases | RecordReleases, observer: Observer) -> View:
    seen = view(releases, observer)
    assert seen is not None
    return seen


def max_rounds(
    settings: Settings,
    noise_multiplier: float,
    first_rounds: Callable[[int], Releases | RecordReleases],
    observer: Observer,
) -> int:
    """The most rounds that `eps` allows at this noise; at most LONGEST where cohorts are drawn.

    first_rounds: what the first t rounds release, for any t.
    """
    return calibration.max_rounds(
        settings.eps,
        settings.delta,
        noise_multiplier,
        lambda rounds: _bounded(first_rounds(rounds), observer),
        settings.privacy.accountant,
        MOST if settings.sampling == "full" else LONGEST,
    )


def last_round_within(eps: float, rounds: int, eps_after: Callable[[int], float]) -> int:
    """The largest t <= rounds with eps_after(t) <= eps; 0 if the first round spends more.

    eps_after: the eps that the first t rounds spend, growing with t.
    """
    low, high = 0, rounds
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if eps_after(middle) <= eps else (low, middle - 1)
    return low

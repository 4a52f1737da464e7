"""What a run releases: settings, schedules and holders in, the accountant's input out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import groupby, zip_longest

import numpy as np

from dpfl_bench.assembly.dimension import dimension
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import remembers, uses_norms
from dpfl_bench.federation import lot_size
from dpfl_bench.federation.holders import Holders
from dpfl_bench.federation.schedule import Prefixes, Schedule
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.composition import Companion, Rounds, View
from dpfl_bench.privacy.released.records import RecordReleases
from dpfl_bench.privacy.released.views import Observer

BITS_SENSITIVITY = {"replace_one": 1.0, "add_remove_one": 0.5}  # of a sum of 1[norm <= C] - 1/2


def planned(settings: Settings, schedules: Sequence[Schedule], holders: Holders) -> Releases | RecordReleases:
    """What one seed of the run releases: the worst of all seeds.

    schedules: one for each seed. Returns Releases (unit: one client) or RecordReleases (unit: one
    record), with the neighbouring relation of the settings.
    """
    if settings.privacy.unit == "record":
        return _of_records(settings, schedules, holders)
    return _of_clients(settings, schedules, holders)


def _of_clients(settings: Settings, schedules: Sequence[Schedule], holders: Holders) -> Releases:
    privacy = settings.privacy
    return Releases(
        rounds=max(s.rounds for s in schedules),
        clients=settings.clients,
        cohort_size=settings.sampled_clients,
        sampling=settings.sampling,
        trust=privacy.trust,
        neighbours=privacy.neighbours,
        worst=max(holders.exposure(s.participation) for s in schedules),
        smallest_cohort=min(s.smallest_cohort for s in schedules),
        sums_only=not _single_messages_show(settings),
        memoryless=not remembers(settings.algo),
        companions=companions(settings),
        colluding=privacy.colluding,
        mechanism="pure" if privacy.mechanism == "privunit" else "gaussian",
    )


def _single_messages_show(settings: Settings) -> bool:
    """Where clients remember their noise, and where the server's step looks at each message's
    norm.
    """
    if remembers(settings.algo) and settings.privacy.remembered == "own_message":
        return True
    return uses_norms(settings.algo) and settings.privacy.trust == "local"


def _of_records(settings: Settings, schedules: Sequence[Schedule], holders: Holders) -> RecordReleases:
    smallest = holders.smallest or 1
    rate = lot_size.rate(settings.batch_size, settings.sample_rate, smallest)
    lots = "full" if rate == 1 else settings.lots
    fixed = lots == "fixed"
    return RecordReleases(
        rounds=_grouped(_at_least([s.steps for s in schedules])),
        share=schedules[0].share,
        worst=max(holders.exposure(s.gradients) for s in schedules),
        lots=lots,
        population=smallest if fixed else 0,
        sample=(settings.batch_size or 1) if fixed else 0,
        rate=rate,
        neighbours=settings.privacy.neighbours,
        cohort_size=settings.sampled_clients,
        holders=holders.most,
        client_share=settings.privacy.client_share,
    )


def companions(settings: Settings) -> tuple[Companion, ...]:
    """The further sums that go out with every round's messages, and their noise.

    "norms": the sum of the updates' squared norms, for FedEXP's step. "bits": the number of norms
    below C, for a C that follows a quantile. Both have the unit and relation of the main release.
    """
    privacy = settings.privacy
    if not settings.private or privacy.unit == "record":
        return ()
    sums = []
    if uses_norms(settings.algo) and privacy.trust != "local":
        sums.append(_norms(settings))
    if privacy.quantile is not None:
        sums.append(Companion("bits", "times", privacy.quantile_noise))
    return tuple(sums)


def _norms(settings: Settings) -> Companion:
    privacy = settings.privacy
    if privacy.norm_noise is not None:
        return Companion("norms", "times", privacy.norm_noise)
    # `fedexp`: sigma_xi = d sigma^2 / M, for a mean whose terms differ by at most C^2
    value = dimension(settings) * privacy.ratio**2 / settings.sampled_clients
    return Companion("norms", "squared", value)


def of_all_seeds(
    one: Releases | RecordReleases, schedules: Sequence[Schedule], holders: Holders
) -> Releases | RecordReleases:
    """What all seeds release, one after the other.

    one: what one seed releases. Returns the same kind, unit and relation.
    """
    if isinstance(one, RecordReleases):
        rounds = tuple(pair for s in schedules for pair in _grouped(s.steps))
        taken = np.sum([s.gradients for s in schedules], axis=0)
        return replace(one, rounds=rounds, worst=holders.exposure(taken))
    taken = np.sum([s.participation for s in schedules], axis=0)
    return replace(one, rounds=sum(s.rounds for s in schedules), worst=holders.exposure(taken))


def of_first_rounds(
    one: Releases | RecordReleases,
    schedules: Sequence[Schedule],
    holders: Holders,
    local_steps: int,
    observer: Observer | None = None,
) -> Callable[[int], Releases | RecordReleases]:
    """What the first t rounds release, for any t, beyond the schedules' own end too.

    one: what one whole seed releases. local_steps: of every round. observer: who alone is asked
    about. Returns a function of t.
    """
    prefixes = [Prefixes(s, holders.exposure) for s in schedules]
    # a bound that averages over the cohorts does not ask who was drawn most often
    averaged = isinstance(one, RecordReleases) and one.share < 1 and observer == "third_party"

    def released(rounds: int) -> Releases | RecordReleases:
        worst = 0 if averaged else max(p.worst(rounds) for p in prefixes)
        if isinstance(one, RecordReleases):
            return replace(one, rounds=((local_steps, rounds),), worst=worst * local_steps)
        smallest = min(p.smallest_cohort(rounds) for p in prefixes)
        return replace(one, rounds=rounds, worst=worst, smallest_cohort=smallest)

    return released


def seen_of_one_client(seen: View, rounds: int, rate: float, worst: int) -> int:
    """How many releases of one client the bounded observer sees.

    Under amplification (rate < 1) all `rounds`. Where eps averages over the cohorts, the expected
    number. Else `worst`, the number of the client that was drawn most often.
    """
    if rate < 1:
        return rounds
    averaged = [math.ceil(c.times * c.share) for c in seen if c.rounds]
    return max(averaged, default=worst)


def _grouped(steps: Sequence[int]) -> Rounds:
    """Runs of equal rounds: (local steps, number of rounds)."""
    return tuple((k, len(list(run))) for k, run in groupby(steps))


def _at_least(each: Sequence[Sequence[int]]) -> Sequence[int]:
    """Local steps, round by round, of which no seed has more. each: the local steps of each seed's
    rounds. Where seeds differ (coins), the longest rounds come first.
    """
    if len(set(each)) == 1:
        return each[0]
    longest_first = (sorted(steps, reverse=True) for steps in each)
    return [max(steps) for steps in zip_longest(*longest_first, fillvalue=0)]

"""What each observer gets to see of a run's releases, as compositions that accountants bound.

Unit and neighbouring relation are those of the releases. `view` is for the run whose schedule was
drawn, `fresh` for a run whose cohorts are yet to be drawn.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal

from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.released.clients import Neighbours, Releases, Sampling
from dpfl_bench.privacy.released.composition import Composition, Mechanism, View
from dpfl_bench.privacy.released.records import RecordReleases

Observer = Literal["server", "third_party", "third_party_given_cohorts"]


def view(releases: Releases | RecordReleases, observer: Observer) -> View | None:
    """The compositions that bound what `observer` learns; None if the observer is trusted, so that
    nothing bounds it. Unit (client or record) and relation: those of the releases.

    - server: it chooses the cohorts, so sampling clients never amplifies towards it. It counts the
      drawn schedule: `releases.worst`.
    - third_party: it sees every global model, but neither the cohorts nor, under poisson, their
      sizes. It is no client of the run (a client knows its own noise) unless `colluding` says so.
      Its bound averages over the draw of the cohorts, and never depends on how the coins fell: a
      number that did would reveal a secret.
    - third_party_given_cohorts: the same third party, after it was given the cohorts of this run.
      It counts `releases.worst`, too.
    """
    refusals.check_known(observer=(observer, ("server", "third_party", "third_party_given_cohorts")))
    if isinstance(releases, Releases) and releases.trust == "central" and observer == "server":
        return None
    given = _given_cohorts(releases, observer == "server")
    return (given,) if observer != "third_party" else (_before_the_draw(releases, given),)


def fresh(releases: Releases | RecordReleases, observer: Observer) -> View | None:
    """`view` of a run whose cohorts are yet to be drawn, honestly and independently in every round.
    Towards the server, too, it averages over the draw.
    """
    drawn = view(releases, observer)
    if observer != "server" or drawn is None:
        return drawn
    return (_averaged(releases, drawn[0]),)


def _given_cohorts(releases: Releases | RecordReleases, server: bool) -> Composition:
    """What an observer that knows the cohorts sees of the client that was drawn most often; at
    record level, of the clients that hold the most exposed record.
    """
    if isinstance(releases, RecordReleases):
        mechanism: Mechanism = "gaussian" if releases.lots == "full" or releases.rate == 1 else releases.lots
        sample = releases.population, releases.sample
        return Composition(
            mechanism, releases.worst, releases.rate, *sample, cohort_size=releases.cohort_size
        )
    return Composition(
        releases.mechanism,
        releases.worst,
        population=releases.clients,
        sample=releases.cohort_size,
        scale=_scale(releases, server),
        companions=releases.companions,
    )


def _scale(releases: Releases, server: bool) -> float:
    """The noise that hides a client, divided by the noise that the noise multiplier speaks of."""
    if releases.trust == "central" or releases.mechanism == "pure":
        return 1.0  # pure: no bound on the sum of PrivUnit's messages is known
    if releases.trust == "local":  # a sum of k messages carries sqrt(k) times one message's noise
        return 1.0 if server or not releases.sums_only else math.sqrt(releases.smallest_cohort)
    if releases.sums_only:
        # colluding clients take their shares out of the sum
        return math.sqrt(1 - releases.colluding / releases.smallest_cohort)
    # Shifts sum to zero, so the other clients' later updates reveal the noise of those clients.
    # What surely hides a client is its own share of the noise.
    return 1 / math.sqrt(releases.clients if releases.sampling == "poisson" else releases.cohort_size)


def _before_the_draw(releases: Releases | RecordReleases, given: Composition) -> Composition:
    """A third party's bound. Where the coins stay secret, sampling clients amplifies; else the
    bound averages over coins that are seen.

    At record level sampling clients does not amplify. A client that stays away takes its whole
    update with it, and the noise is sized to hide one record's part of an update only.

    At client level it amplifies under three conditions. A dominating pair is known. The cohort's
    size does not show (a poisson cohort's size does: in the noise of the sum of its messages, and
    an empty cohort as no change at all). Nobody can tell how earlier coins fell: no client
    remembers, and no client colludes.
    """
    if isinstance(releases, RecordReleases) or releases.cohort_size == releases.clients:
        return _averaged(releases, given)
    pair = releases.sampling, releases.neighbours
    secret = releases.memoryless and releases.colluding == 0 and releases.mechanism == "gaussian"
    if releases.trust == "central" and releases.memoryless and pair not in _AMPLIFIED:
        raise refusals.sampling_not_covered(releases.sampling, releases.neighbours)
    shows = not releases.sums_only or (releases.sampling == "poisson" and releases.trust != "central")
    if not secret or shows or pair not in _AMPLIFIED:
        return _averaged(releases, given)
    rate = releases.cohort_size / releases.clients
    return dataclasses.replace(given, mechanism=_AMPLIFIED[pair], times=releases.rounds, rate=rate)


_AMPLIFIED: dict[tuple[Sampling, Neighbours], Mechanism] = {
    ("fixed", "replace_one"): "fixed",
    ("poisson", "add_remove_one"): "poisson",
}


def _averaged(releases: Releases | RecordReleases, given: Composition) -> Composition:
    """The average over coins that the observer sees. In how many rounds a client takes part is not
    known before the coins fall.
    """
    if isinstance(releases, RecordReleases):
        if releases.share == 1 or not releases.rounds:
            return given
        if releases.holders > 1:
            # the coins of several holders are not independent: count every holder in every round
            return dataclasses.replace(given, times=releases.gradients * releases.holders)
        return dataclasses.replace(
            given,
            times=releases.gradients,
            share=releases.share,
            rounds=releases.rounds,
            client_share=releases.client_share,
        )
    if releases.cohort_size == releases.clients or releases.rounds == 0:
        return given
    scale, share = given.scale, releases.cohort_size / releases.clients
    if releases.sampling == "poisson" and releases.sums_only:
        if releases.colluding:
            raise refusals.no_honest_noise(releases.colluding)
        scale = min(scale, 1.0)  # a client may be alone in its cohort
    return dataclasses.replace(
        given, times=releases.rounds, scale=scale, share=share, rounds=((1, releases.rounds),)
    )

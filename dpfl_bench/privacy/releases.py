"""What a run releases, and what each observer gets to see of it: the accountant's only input.

`Releases`: the unit is one client's whole contribution to one cohort's sum, bounded to norm C.
Neighbouring federations differ in one client:

- `replace_one`: its data are replaced by any other data, so a sum moves by at most 2C.
- `add_remove_one` means zero-out: the client is present or contributes a zero update, so a sum
  moves by at most C. The public cohort size, the divisor and the noise (the absent client's share
  included) stay as they are. They must: with shares sized by the number of clients that are really
  there, the noise variance itself would differ between neighbours, and that alone leaks about d/(4
  m^2) nats per release of dimension d.

`RecordReleases`: the unit is one record of one client (of every client that holds it, where
partitions overlap), its gradient bounded to norm C. The same two relations; record counts and
divisors are public and stay as they are.

The noise multiplier is std / sensitivity: sensitivity 2C under replace_one, C under add_remove_one;
for the mean over a lot, 2C/b under replace_one (b records) and C/(rate R) under add_remove_one (R
records of the smallest client). Under local trust std is each client's own noise; under secagg and
central it is the noise on the cohort's sum (a share is 1/sqrt(m) of it, m = the realised cohort);
at record level it is each client's own noise on its gradient. Under mechanism=pure it means
1/eps_0. Cohorts are drawn independently in every round, never from data.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

Mechanism = Literal["gaussian", "poisson", "fixed", "pure"]
Neighbours = Literal["replace_one", "add_remove_one"]
Observer = Literal["server", "third_party", "third_party_given_cohorts"]
Sampling = Literal["full", "fixed", "poisson"]
Trust = Literal["local", "secagg", "central"]
Rounds = tuple[
    tuple[int, int], ...
]  # (noised gradients of one participation, rounds with that many), in order


class PrivacyError(ValueError):
    """A guarantee that was asked for does not hold: the message says what does."""


def _known(**named: tuple[object, tuple[str, ...]]) -> None:
    for key, (value, known) in named.items():
        if value not in known:
            raise PrivacyError(f"{key}={value}: expected one of {', '.join(known)}")


@dataclass(frozen=True)
class Companion:
    """A further Gaussian release that goes with each main one; its noise multiplier is value * z
    ("times") or value * z^2 ("squared").
    """

    name: str
    kind: Literal["times", "squared"]
    value: float

    def __post_init__(self) -> None:
        _known(kind=(self.kind, ("times", "squared")))
        if not 0 < self.value < math.inf:
            raise PrivacyError(
                f"companion {self.name}: value={self.value}: expected a number > 0 (leave it out if it"
                " releases nothing)"
            )

    def noise_multiplier(self, z: float) -> float:
        return self.value * (z if self.kind == "times" else z * z)


@dataclass(frozen=True)
class Releases:
    """Everything about what one run releases that an accountant needs; it never depends on data.
    Unit: one client.

    `sums_only`: whatever follows a release (the server's step, the clients' memories) is a function
    of the cohorts' sums and of each client's own data alone. It is False where clients remember
    their own noise (ScaffNew's shifts, SCAFFOLD's controls made of noisy messages) and for FedEXP's
    mean of squared norms under local trust: single messages then show through later sums, so nobody
    is bounded by what one sum hides. `memoryless`: clients keep nothing between rounds. Otherwise
    what a client does tells in which rounds it took part before, its coins are no longer fresh and
    secret, and sampling clients amplifies nothing. `companions`: further Gaussian releases of every
    round, of the same cohort (see `Composition.joint`). `colluding`: clients that pool what they
    know with the observer (secagg: they take their shares out of the sum). `mechanism`: pure is
    PrivUnit and its like, eps_0-DP for every message in either relation; local trust only.
    """

    rounds: int  # releases of the cohort
    clients: int  # M
    cohort: int  # m: cohort size (expected size under poisson)
    sampling: Sampling  # of clients
    trust: Trust
    neighbours: Neighbours
    worst: int  # rounds in which the most frequent client takes part, in the drawn schedule
    smallest_cohort: int  # smallest non-empty realised cohort
    sums_only: bool = True
    memoryless: bool = True
    companions: tuple[Companion, ...] = ()
    colluding: int = 0
    mechanism: Literal["gaussian", "pure"] = "gaussian"

    def __post_init__(self) -> None:
        _known(
            sampling=(self.sampling, ("full", "fixed", "poisson")),
            trust=(self.trust, ("local", "secagg", "central")),
            neighbours=(self.neighbours, ("replace_one", "add_remove_one")),
            mechanism=(self.mechanism, ("gaussian", "pure")),
        )
        self._check_counts()
        self._check_pure()
        self._check_colluding()

    def after(self, rounds: int, worst: int) -> Releases:
        """The same run cut (or prolonged) to `rounds` rounds, the most frequent client in `worst`
        of them.
        """
        return dataclasses.replace(self, rounds=rounds, worst=worst)

    def _check_counts(self) -> None:
        if not 1 <= self.cohort <= self.clients:
            raise PrivacyError(f"cohort={self.cohort}: expected 1 to clients={self.clients}")
        if not 0 <= self.worst <= self.rounds:
            raise PrivacyError(f"worst={self.worst}: expected 0 to rounds={self.rounds}")
        if not 1 <= self.smallest_cohort <= self.clients:
            raise PrivacyError(
                f"smallest_cohort={self.smallest_cohort}: expected 1 to clients={self.clients}"
            )
        if self.sampling == "full" and (self.cohort != self.clients or self.worst != self.rounds):
            raise PrivacyError(
                f"sampling=full: expected cohort=clients={self.clients} and worst=rounds={self.rounds}, "
                f"got cohort={self.cohort}, worst={self.worst} (use sampling=fixed)"
            )
        if self.sampling != "poisson" and self.smallest_cohort != self.cohort:
            raise PrivacyError(
                f"smallest_cohort={self.smallest_cohort}: expected cohort={self.cohort} under"
                f" sampling={self.sampling}"
            )

    def _check_pure(self) -> None:
        if self.mechanism == "pure" and self.trust != "local":
            raise PrivacyError(
                f"mechanism=pure trust={self.trust}: expected trust=local (or use mechanism=gaussian)"
            )
        if self.mechanism == "pure" and self.companions:
            names = ", ".join(c.name for c in self.companions)
            raise PrivacyError(
                f"mechanism=pure: expected no Gaussian companions, got {names} (count all that a message"
                " holds in eps_0)"
            )

    def _check_colluding(self) -> None:
        if self.colluding == 0:
            return
        if self.trust != "secagg":
            raise PrivacyError(
                f"privacy.colluding={self.colluding}: expected 0 under privacy.trust={self.trust}, where"
                " noise is not shared (use secagg)"
            )
        most = min(self.smallest_cohort, self.cohort) - 1
        if not 0 <= self.colluding <= most:
            raise PrivacyError(
                f"privacy.colluding={self.colluding}: expected 0 to {most}, one less than the smallest"
                " cohort, or no honest noise is left in it; lower it, take larger cohorts, or use"
                " privacy=local"
            )


@dataclass(frozen=True)
class RecordReleases:
    """What one run's noised gradients release; it never depends on data. Unit: one record.

    Every client adds full noise to every gradient, so whom one trusts plays no role; what clients
    send and remember, and what the server makes of it, only processes these gradients. Every
    gradient draws its own lot, which stays the client's secret.
    """

    rounds: Rounds  # of the whole run; of several seeds that differ, at least as many gradients as any
    share: float  # probability that a client takes part in a round
    worst: int  # noised gradients of the clients that hold the most exposed record, in the drawn schedule
    lots: Literal["full", "fixed", "poisson"]
    population: int  # records of the smallest client (fixed)
    sample: int  # lot size (fixed)
    rate: float  # of one record: 1 (full), sample/population (fixed), the Poisson rate
    neighbours: Neighbours
    cohort: int  # clients per round: for the paper's accountant
    holders: int = 1  # clients that hold the most shared record

    def __post_init__(self) -> None:
        _known(
            lots=(self.lots, ("full", "fixed", "poisson")),
            neighbours=(self.neighbours, ("replace_one", "add_remove_one")),
        )
        pair = f"lots={self.lots} neighbours={self.neighbours}: no valid accountant"
        if self.lots == "poisson" and self.neighbours == "replace_one":
            raise PrivacyError(f"{pair} (use neighbours=add_remove_one or batch_size lots)")
        if self.lots == "fixed" and self.neighbours == "add_remove_one":
            raise PrivacyError(f"{pair} (use neighbours=replace_one or sample_rate lots)")
        self._check_lots()
        self._check_rounds()

    def _check_lots(self) -> None:
        if self.lots == "fixed" and not 1 <= self.sample <= self.population:
            raise PrivacyError(
                f"sample={self.sample}: expected 1 to population={self.population}, the records of the"
                " smallest client"
            )
        if not 0 < self.rate <= 1:
            raise PrivacyError(f"rate={self.rate}: expected 0 < rate <= 1")
        expected = self.sample / self.population if self.lots == "fixed" else 1.0
        if self.lots != "poisson" and not math.isclose(self.rate, expected, rel_tol=1e-9):
            raise PrivacyError(f"rate={self.rate}: expected {expected:.6g} under lots={self.lots}")

    def _check_rounds(self) -> None:
        if any(k < 1 or count < 1 for k, count in self.rounds):
            raise PrivacyError(
                f"rounds={self.rounds}: expected pairs (noised gradients >= 1, number of rounds >= 1)"
            )
        if not 0 < self.share <= 1:
            raise PrivacyError(f"share={self.share}: expected 0 < share <= 1")
        most = self.gradients * self.holders
        if not 0 <= self.worst <= most or self.cohort < 1 or self.holders < 1:
            raise PrivacyError(
                f"worst={self.worst}, cohort={self.cohort}, holders={self.holders}: expected 0 to {most}"
                " gradients, and at least 1 client"
            )

    @property
    def gradients(self) -> int:
        """Noised gradients of a client that takes part in every round."""
        return sum(k * count for k, count in self.rounds)

    def after(self, rounds_done: int, worst: int) -> RecordReleases:
        """The first `rounds_done` rounds of the run, with `worst` noised gradients of the most
        exposed record's clients.
        """
        planned = sum(count for _, count in self.rounds)
        if not 0 <= rounds_done <= planned:
            raise PrivacyError(
                f"rounds_done={rounds_done}: expected 0 to {planned}, the rounds planned (plan a longer run"
                " and cut it)"
            )
        kept, left = [], rounds_done
        for k, count in self.rounds:
            kept += [(k, min(count, left))] if left else []
            left -= min(count, left)
        return dataclasses.replace(self, rounds=tuple(kept), worst=worst)


@dataclass(frozen=True)
class Composition:
    """`times` adaptive releases of one mechanism; `scale` multiplies their noise. Unit, relation:
    those of what it is a view of.

    gaussian: no sampling, either neighbouring relation. poisson: sampled at `rate`, add_remove_one.
    fixed: `sample` of `population` without replacement, replace_one. pure: eps_0-DP each, whatever
    the sampling; the noise multiplier is 1/eps_0, `scale` and `companions` do not touch it.

    With `rounds` it is a *participation*: in each round a coin falls with probability `share`,
    independently of all else and seen by the observer; if it does, k releases follow, if not,
    nothing. `times` counts the releases of all rounds.
    """

    mechanism: Mechanism
    times: int
    rate: float = 1.0
    population: int = 1
    sample: int = 1
    scale: float = 1.0
    companions: tuple[Companion, ...] = ()
    share: float = 1.0
    rounds: Rounds = ()
    cohort: int = 1  # clients of one round: for the paper's accountant

    def __post_init__(self) -> None:
        if self.rounds and not 0 < self.share <= 1:
            raise PrivacyError(f"share={self.share}: expected a participation with 0 < share <= 1")
        if self.rounds and self.times != sum(k * count for k, count in self.rounds):
            raise PrivacyError(f"times={self.times}: expected the releases of all rounds={self.rounds}")

    def joint(self, z: float) -> float:
        """The noise multiplier of main release and companions as one Gaussian: 1/joint^2 = 1/z^2 +
        sum of 1/companion(z)^2.

        All of one round speak of the same cohort. Divide each coordinate by its own noise: that is
        one standard Gaussian vector, whose mean a client (or record) of the cohort moves by at most
        1/joint, whoever else is in it. The theorems on sampled Gaussians ask for no more than this
        bound, so they hold for the vector; sampled apart, the parts would need a coin each.
        """
        noises = [z, *(c.noise_multiplier(z) for c in self.companions)]
        if self.mechanism == "pure" or not self.companions or z == math.inf:
            return z
        return 0.0 if min(noises) == 0 else 1 / math.hypot(*(1 / noise for noise in noises))

    def apart(self, joint: float) -> float:
        """The inverse of `joint`: the main release's z, never rounded down."""
        if self.mechanism == "pure" or not self.companions or joint == math.inf:
            return joint
        straight = 1 + sum(1 / c.value**2 for c in self.companions if c.kind == "times")
        squared = sum(1 / c.value**2 for c in self.companions if c.kind == "squared")
        # u = 1/z^2 solves straight u + squared u^2 = 1/joint^2
        return (
            joint * math.sqrt((straight + math.sqrt(straight**2 + 4 * squared / joint**2)) / 2) * (1 + 1e-12)
        )


View = tuple[Composition, ...]  # alternatives: each alone bounds the whole run, so the smallest epsilon holds


def view(releases: Releases | RecordReleases, observer: Observer) -> View | None:
    """What bounds `observer`; None if it is trusted, so that nothing does. Unit: client or record,
    both neighbouring relations.

    `server`: it chooses the cohorts, so sampling clients never amplifies towards it, and `worst`,
    of the drawn schedule, counts. `third_party`: it sees every global model but neither the cohorts
    nor, under poisson, their sizes. It is not a client of the run, who would know its own noise,
    unless `colluding` says so. Its bound averages over the draw of the cohorts and never looks at
    how the coins fell: a number that did would tell of a secret. `third_party_given_cohorts`: the
    same third party, told the cohorts of this run. `worst` counts.
    """
    if observer not in ("server", "third_party", "third_party_given_cohorts"):
        raise PrivacyError(f"observer={observer}: expected server, third_party or third_party_given_cohorts")
    if isinstance(releases, Releases) and releases.trust == "central" and observer == "server":
        return None
    given = _given_cohorts(releases, observer == "server")
    return (given,) if observer != "third_party" else (_before_the_draw(releases, given),)


def fresh(releases: Releases | RecordReleases, observer: Observer) -> View | None:
    """`view` of a run whose cohorts are yet to be drawn, honestly and independently in every round,
    also towards the server.
    """
    found = view(releases, observer)
    if observer != "server" or found is None:
        return found
    return (_averaged(releases, found[0]),)


def _given_cohorts(releases: Releases | RecordReleases, server: bool) -> Composition:
    """What an observer that knows the cohorts sees of the client (or of the record's clients) that
    was drawn most often.
    """
    if isinstance(releases, RecordReleases):
        mechanism: Mechanism = "gaussian" if releases.lots == "full" or releases.rate == 1 else releases.lots
        sample = releases.population, releases.sample
        return Composition(mechanism, releases.worst, releases.rate, *sample, cohort=releases.cohort)
    return Composition(
        releases.mechanism,
        releases.worst,
        population=releases.clients,
        sample=releases.cohort,
        scale=_scale(releases, server),
        companions=releases.companions,
    )


def _scale(releases: Releases, server: bool) -> float:
    """The noise that hides a client, as a factor of the noise that z speaks of."""
    if (
        releases.trust == "central" or releases.mechanism == "pure"
    ):  # of a sum of PrivUnit's messages no bound is known
        return 1.0
    if releases.trust == "local":  # a sum of k messages carries sqrt(k) times one message's noise
        return 1.0 if server or not releases.sums_only else math.sqrt(releases.smallest_cohort)
    if releases.sums_only:
        return math.sqrt(
            1 - releases.colluding / releases.smallest_cohort
        )  # colluding clients take out their shares
    # Shifts that sum to zero make the others' later updates a readout of their noise: only its own
    # share is sure to hide a client.
    return 1 / math.sqrt(releases.clients if releases.sampling == "poisson" else releases.cohort)


def _before_the_draw(releases: Releases | RecordReleases, given: Composition) -> Composition:
    """A third party's bound: sampling amplifies where the coins stay secret; else the average over
    coins that are seen.

    At record level sampling clients does not amplify: a client that stays away takes its whole
    update with it, not one record's part of it, and the noise is not sized to hide that. At client
    level it amplifies where a dominating pair is known, where a cohort's size does not show (a
    poisson cohort's does, in the noise of its messages' sum, and an empty one as no change at all),
    and where nobody can tell how earlier coins fell: neither clients that remember nor clients that
    collude.
    """
    if isinstance(releases, RecordReleases) or releases.cohort == releases.clients:
        return _averaged(releases, given)
    pair = releases.sampling, releases.neighbours
    secret = releases.memoryless and releases.colluding == 0 and releases.mechanism == "gaussian"
    if releases.trust == "central" and releases.memoryless and pair not in _AMPLIFIED:
        nearest = "replace_one" if releases.sampling == "fixed" else "add_remove_one"
        raise PrivacyError(
            f"trust=central sampling={releases.sampling} neighbours={releases.neighbours}: no valid"
            f" accountant (use neighbours={nearest} or"
            f" sampling={'poisson' if releases.sampling == 'fixed' else 'fixed'})"
        )
    shows = not releases.sums_only or (releases.sampling == "poisson" and releases.trust != "central")
    if not secret or shows or pair not in _AMPLIFIED:
        return _averaged(releases, given)
    rate = releases.cohort / releases.clients
    return dataclasses.replace(given, mechanism=_AMPLIFIED[pair], times=releases.rounds, rate=rate)


_AMPLIFIED: dict[tuple[Sampling, Neighbours], Mechanism] = {
    ("fixed", "replace_one"): "fixed",
    ("poisson", "add_remove_one"): "poisson",
}


def _averaged(releases: Releases | RecordReleases, given: Composition) -> Composition:
    """The average over coins that the observer sees: in how many rounds a client takes part is not
    known before they fall.
    """
    if isinstance(releases, RecordReleases):
        if releases.share == 1 or not releases.rounds:
            return given
        if (
            releases.holders > 1
        ):  # the coins of several holders are not independent: as if they all took part in every round
            return dataclasses.replace(given, times=releases.gradients * releases.holders)
        return dataclasses.replace(
            given, times=releases.gradients, share=releases.share, rounds=releases.rounds
        )
    if releases.cohort == releases.clients or releases.rounds == 0:
        return given
    scale, share = given.scale, releases.cohort / releases.clients
    if releases.sampling == "poisson" and releases.sums_only:
        if releases.colluding:
            raise PrivacyError(
                f"privacy.colluding={releases.colluding}: a poisson cohort may hold no honest noise beside"
                " theirs, so there is no bound before the cohorts are drawn (use client_sampling=fixed or"
                " observer=server)"
            )
        scale = min(scale, 1.0)  # a client may be alone in its cohort
    return dataclasses.replace(
        given, times=releases.rounds, scale=scale, share=share, rounds=((1, releases.rounds),)
    )

"""What a run releases, and what each observer gets to see of it: the accountant's only input.

`Releases`: the unit is one client's whole contribution to one cohort's sum, bounded to norm C. Neighbouring federations differ
in one client:

- `replace_one`: its data are replaced by any other data, so a sum moves by at most 2C.
- `add_remove_one` means zero-out: the client is present or contributes a zero update, so a sum moves by at most C. The
  public cohort size, the divisor and the noise (the absent client's share included) stay as they are. They must: with
  shares sized by the number of clients that are really there, the noise variance itself would differ between neighbours,
  and that alone leaks about d/(4 m^2) nats per release of dimension d.

`RecordReleases`: the unit is one record of one client (of every client that holds it, where partitions overlap), its gradient
bounded to norm C. The same two relations; record counts and divisors are public and stay as they are.

The noise multiplier is std / sensitivity: sensitivity 2C under replace_one, C under add_remove_one; for the mean over a lot,
2C/b under replace_one (b records) and C/(rate R) under add_remove_one (R records of the smallest client). Under local trust std
is each client's own noise; under secagg and central it is the noise on the cohort's sum (a share is 1/sqrt(m) of it, m = the
realised cohort); at record level it is each client's own noise on its gradient. Under mechanism=pure it means 1/eps_0.
Cohorts are drawn independently in every round, never from data.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

Mechanism = Literal["gaussian", "poisson", "fixed", "pure"]
Neighbours = Literal["replace_one", "add_remove_one"]
Observer = Literal["server", "third_party"]
Sampling = Literal["full", "fixed", "poisson"]
Trust = Literal["local", "secagg", "central"]
Rounds = tuple[tuple[int, int], ...]  # (noised gradients of one participation, rounds with that many), in order


class PrivacyError(ValueError):
    """A guarantee that was asked for does not hold: the message says what does."""


def _known(**named: tuple[object, tuple[str, ...]]) -> None:
    for key, (value, known) in named.items():
        if value not in known:
            raise PrivacyError(f"{key}={value}: expected one of {', '.join(known)}")


@dataclass(frozen=True)
class Companion:
    """A further Gaussian release that goes with each main one; its noise multiplier is value * z ("times") or value * z^2 ("squared")."""

    name: str
    kind: Literal["times", "squared"]
    value: float

    def __post_init__(self) -> None:
        _known(kind=(self.kind, ("times", "squared")))
        if not 0 < self.value < math.inf:
            raise PrivacyError(f"companion {self.name}: value={self.value}: expected a number > 0 (leave it out if it releases nothing)")

    def noise_multiplier(self, z: float) -> float:
        return self.value * (z if self.kind == "times" else z * z)


@dataclass(frozen=True)
class Releases:
    """Everything about what one run releases that an accountant needs; it never depends on data. Unit: one client.

    `sums_only`: whatever follows a release (the server's step, the clients' memories) is a function of the cohorts' sums
    and of each client's own data alone. It is False where clients remember their own noise (ScaffNew's shifts, SCAFFOLD's
    controls made of noisy messages) and for FedEXP's mean of squared norms under local trust: single messages then show
    through later sums, so nobody is bounded by what one sum hides.
    `memoryless`: clients keep nothing between rounds. Otherwise what a client does tells in which rounds it took part
    before, its coins are no longer fresh and secret, and sampling clients amplifies nothing.
    `companions`: further Gaussian releases of every round, of the same cohort (see `Composition.joint`).
    `colluding`: clients that pool what they know with the observer (secagg: they take their shares out of the sum).
    `mechanism`: pure is PrivUnit and its like, eps_0-DP for every message in either relation; local trust only.
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
        """The same run cut (or prolonged) to `rounds` rounds, the most frequent client in `worst` of them."""
        return dataclasses.replace(self, rounds=rounds, worst=worst)

    def _check_counts(self) -> None:
        if not 1 <= self.cohort <= self.clients:
            raise PrivacyError(f"cohort={self.cohort}: expected 1 to clients={self.clients}")
        if not 0 <= self.worst <= self.rounds:
            raise PrivacyError(f"worst={self.worst}: expected 0 to rounds={self.rounds}")
        if not 1 <= self.smallest_cohort <= self.clients:
            raise PrivacyError(f"smallest_cohort={self.smallest_cohort}: expected 1 to clients={self.clients}")
        if self.sampling == "full" and (self.cohort != self.clients or self.worst != self.rounds):
            raise PrivacyError(
                f"sampling=full: expected cohort=clients={self.clients} and worst=rounds={self.rounds}, "
                f"got cohort={self.cohort}, worst={self.worst} (use sampling=fixed)"
            )
        if self.sampling != "poisson" and self.smallest_cohort != self.cohort:
            raise PrivacyError(f"smallest_cohort={self.smallest_cohort}: expected cohort={self.cohort} under sampling={self.sampling}")

    def _check_pure(self) -> None:
        if self.mechanism == "pure" and self.trust != "local":
            raise PrivacyError(f"mechanism=pure trust={self.trust}: expected trust=local (or use mechanism=gaussian)")
        if self.mechanism == "pure" and self.companions:
            names = ", ".join(c.name for c in self.companions)
            raise PrivacyError(f"mechanism=pure: expected no Gaussian companions, got {names} (count all that a message holds in eps_0)")

    def _check_colluding(self) -> None:
        if self.colluding == 0:
            return
        if self.trust != "secagg":
            raise PrivacyError(f"colluding={self.colluding}: expected 0 under trust={self.trust}, where noise is not shared (use secagg)")
        most = min(self.smallest_cohort, self.cohort) - 1
        if not 0 <= self.colluding <= most:
            raise PrivacyError(f"colluding={self.colluding}: expected 0 to {most}, or a cohort may hold no other honest noise")


@dataclass(frozen=True)
class RecordReleases:
    """What one run's noised gradients release; it never depends on data. Unit: one record.

    Every client adds full noise to every gradient, so whom one trusts plays no role; what clients send and remember, and what the
    server makes of it, only processes these gradients. Every gradient draws its own lot, which stays the client's secret.
    """

    rounds: Rounds  # of the whole run
    share: float  # probability that a client takes part in a round; 1 also where no one probability covers the run
    worst: int  # noised gradients of the clients that hold the most exposed record, in the drawn schedule
    lots: Literal["full", "fixed", "poisson"]
    population: int  # records of the smallest client (fixed)
    sample: int  # lot size (fixed)
    rate: float  # of one record: 1 (full), sample/population (fixed), the Poisson rate
    neighbours: Neighbours
    cohort: int  # clients per round: for the paper's accountant
    overlapping: bool = False  # a record may sit in several clients

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
            raise PrivacyError(f"sample={self.sample}: expected 1 to population={self.population}, the records of the smallest client")
        if not 0 < self.rate <= 1:
            raise PrivacyError(f"rate={self.rate}: expected 0 < rate <= 1")
        expected = self.sample / self.population if self.lots == "fixed" else 1.0
        if self.lots != "poisson" and not math.isclose(self.rate, expected, rel_tol=1e-9):
            raise PrivacyError(f"rate={self.rate}: expected {expected:.6g} under lots={self.lots}")

    def _check_rounds(self) -> None:
        if any(k < 1 or count < 1 for k, count in self.rounds):
            raise PrivacyError(f"rounds={self.rounds}: expected pairs (noised gradients >= 1, number of rounds >= 1)")
        if not 0 < self.share <= 1:
            raise PrivacyError(f"share={self.share}: expected 0 < share <= 1")
        # without a share `worst` alone counts, and several seeds of unlike rounds may stand behind it
        most = math.inf if self.overlapping or self.share == 1 else self.gradients
        if not 0 <= self.worst <= most or self.cohort < 1:
            raise PrivacyError(f"worst={self.worst}, cohort={self.cohort}: expected 0 to {most} gradients, and at least 1 client")

    @property
    def gradients(self) -> int:
        """Noised gradients of a client that takes part in every round."""
        return sum(k * count for k, count in self.rounds)

    def after(self, rounds_done: int, worst: int) -> RecordReleases:
        """The first `rounds_done` rounds of the run, with `worst` noised gradients of the most exposed record's clients."""
        planned = sum(count for _, count in self.rounds)
        if not 0 <= rounds_done <= planned:
            raise PrivacyError(f"rounds_done={rounds_done}: expected 0 to {planned}, the rounds planned (plan a longer run and cut it)")
        kept, left = [], rounds_done
        for k, count in self.rounds:
            kept += [(k, min(count, left))] if left else []
            left -= min(count, left)
        return dataclasses.replace(self, rounds=tuple(kept), worst=worst)


@dataclass(frozen=True)
class Composition:
    """`times` adaptive releases of one mechanism; `scale` multiplies their noise. Unit, relation: those of what it is a view of.

    gaussian: no sampling, either neighbouring relation. poisson: sampled at `rate`, add_remove_one. fixed: `sample` of `population`
    without replacement, replace_one. pure: eps_0-DP each, whatever the sampling; the noise multiplier is 1/eps_0, `scale` and
    `companions` do not touch it.

    With `rounds` it is a *participation*: in each round a coin falls with probability `share`, independently of all else and seen
    by the observer; if it does, k releases follow, if not, nothing. `times` counts the releases of all rounds.
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
        if self.rounds and (self.mechanism == "pure" or not 0 < self.share <= 1):
            raise PrivacyError(f"mechanism={self.mechanism}, share={self.share}: a participation needs a Gaussian and 0 < share <= 1")
        if self.rounds and self.times != sum(k * count for k, count in self.rounds):
            raise PrivacyError(f"times={self.times}: expected the releases of all rounds={self.rounds}")

    def joint(self, z: float) -> float:
        """The noise multiplier of main release and companions as one Gaussian: 1/joint^2 = 1/z^2 + sum of 1/companion(z)^2.

        All of one round speak of the same cohort. Divide each coordinate by its own noise: that is one standard Gaussian vector, whose
        mean a client (or record) of the cohort moves by at most 1/joint, whoever else is in it. The theorems on sampled Gaussians
        ask for no more than this bound, so they hold for the vector; sampled apart, the parts would need a coin each.
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
        return joint * math.sqrt((straight + math.sqrt(straight**2 + 4 * squared / joint**2)) / 2) * (1 + 1e-12)


View = tuple[Composition, ...]  # alternatives: each alone bounds the whole run, so the smallest epsilon holds


def view(releases: Releases | RecordReleases, observer: Observer) -> View | None:
    """What bounds `observer`; None if it is trusted, so that nothing does. Unit: client or record, both neighbouring relations.

    The server chooses the cohorts: sampling clients never amplifies towards it. A third party sees every global model but
    neither the cohorts nor, under poisson, their sizes. It is not a client of the run, who would know its own noise, unless
    `colluding` says so. Even with the cohorts revealed, `worst` releases bound it.
    """
    if observer not in ("server", "third_party"):
        raise PrivacyError(f"observer={observer}: expected server or third_party")
    if isinstance(releases, RecordReleases):
        return _records(releases, observer)
    if releases.trust == "central":
        return None if observer == "server" else _central(releases)
    if observer == "server" or not releases.sums_only:
        return (_seen_by_server(releases),)
    return _outside(releases)


def _records(releases: RecordReleases, observer: Observer) -> View:
    """Every noised gradient of the record's clients, and in which rounds they took part, for either observer. Unit: one record.

    Sampling clients does not amplify: a client that stays away takes its whole update with it, not one record's part of it, and the
    noise is not sized to hide that. So the coin counts as seen, and towards a third party the bound only averages over how often it
    falls (a statement made before the coins are drawn; `known` is the one for the coins that were). Towards the server, who
    chooses the cohorts, and where a record may sit in several clients, whose coins are not independent, there is no such average.
    """
    mechanism: Mechanism = "gaussian" if releases.lots == "full" or releases.rate == 1 else releases.lots
    known = Composition(mechanism, releases.worst, releases.rate, releases.population, releases.sample, cohort=releases.cohort)
    if observer == "server" or releases.share == 1 or releases.overlapping or not releases.rounds:
        return (known,)
    return dataclasses.replace(known, times=releases.gradients, share=releases.share, rounds=releases.rounds), known


def _seen_by_server(releases: Releases) -> Composition:
    """Every release of the most frequent client; a share alone where messages show through later sums."""
    if releases.trust == "local" or releases.sums_only:
        return _known_cohorts(releases, _honest(releases))
    # Shifts that sum to zero make the others' later updates a readout of their noise: only its own share is sure to hide a client.
    largest = releases.clients if releases.sampling == "poisson" else releases.cohort
    return _known_cohorts(releases, 1 / math.sqrt(largest))


def _honest(releases: Releases) -> float:
    """What is left of the sum's noise, as a factor, once colluding clients have taken out their shares."""
    return math.sqrt(1 - releases.colluding / releases.smallest_cohort)


def _known_cohorts(releases: Releases, scale: float = 1.0) -> Composition:
    mechanism: Mechanism = releases.mechanism
    return Composition(
        mechanism, releases.worst, population=releases.clients, sample=releases.cohort, scale=scale, companions=releases.companions
    )


def _sampled(mechanism: Mechanism, releases: Releases, scale: float = 1.0) -> Composition:
    rate = releases.cohort / releases.clients
    return Composition(mechanism, releases.rounds, rate, releases.clients, releases.cohort, scale, releases.companions)


def _without_replacement(releases: Releases, scale: float = 1.0) -> View:
    """Fixed-size cohorts, replace_one: the amplified bound and the one that needs no secrecy of the cohorts."""
    known = _known_cohorts(releases, scale)
    return (known,) if releases.cohort == releases.clients else (_sampled("fixed", releases, scale), known)


def _outside(releases: Releases) -> View:
    """A third party under local or secagg trust: the sums, at most; under pure, single messages, as no bound for their sum is known."""
    if releases.mechanism == "pure":
        return (_known_cohorts(releases),)
    # Under local trust a sum of k messages carries sqrt(k) times one message's noise. A poisson cohort's size shows (an empty
    # one as no change at all), so poisson cohorts count as known; colluding clients know whether they were drawn themselves.
    scale = math.sqrt(releases.smallest_cohort) if releases.trust == "local" else _honest(releases)
    secret = releases.sampling == "fixed" and releases.memoryless and releases.colluding == 0
    if secret and releases.neighbours == "replace_one":
        return _without_replacement(releases, scale)
    return (_known_cohorts(releases, scale),)


def _central(releases: Releases) -> View:
    """A third party under a trusted server, whose noise covers the sum in every round, an empty one included."""
    if releases.sampling == "full" or not releases.memoryless:
        return (_known_cohorts(releases),)
    if releases.sampling == "fixed" and releases.neighbours == "replace_one":
        return _without_replacement(releases)
    if releases.sampling == "poisson" and releases.neighbours == "add_remove_one":
        known = _known_cohorts(releases)
        return (known,) if releases.cohort == releases.clients else (_sampled("poisson", releases), known)
    nearest = "replace_one" if releases.sampling == "fixed" else "add_remove_one"
    raise PrivacyError(
        f"trust=central sampling={releases.sampling} neighbours={releases.neighbours}: no valid accountant "
        f"(use neighbours={nearest} or sampling={'poisson' if releases.sampling == 'fixed' else 'fixed'})"
    )

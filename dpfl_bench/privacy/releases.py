"""What a run releases, and what each observer gets to see of it: the accountant's only input.

Unit: one client's whole contribution to one cohort's sum, bounded to norm C. Neighbouring federations differ in one client:

- `replace_one`: its data are replaced by any other data, so a sum moves by at most 2C.
- `add_remove_one` means zero-out: the client is present or contributes a zero update, so a sum moves by at most C. The
  public cohort size, the divisor and the noise (the absent client's share included) stay as they are. They must: with
  shares sized by the number of clients that are really there, the noise variance itself would differ between neighbours,
  and that alone leaks about d/(4 m^2) nats per release of dimension d.

The noise multiplier is std / sensitivity: sensitivity 2C under replace_one, C under add_remove_one. Under local trust std
is each client's own noise; under secagg and central it is the noise on the cohort's sum (a share is 1/sqrt(m) of it, m = the
realised cohort). Cohorts are drawn independently in every round, never from data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Mechanism = Literal["gaussian", "poisson", "fixed"]
Neighbours = Literal["replace_one", "add_remove_one"]
Observer = Literal["server", "third_party"]
Sampling = Literal["full", "fixed", "poisson"]
Trust = Literal["local", "secagg", "central"]


class PrivacyError(ValueError):
    """A guarantee that was asked for does not hold: the message says what does."""


@dataclass(frozen=True)
class Releases:
    """Everything about what one run releases that an accountant needs; it never depends on data.

    `sums_only`: whatever follows a release (the server's step, the clients' memories) is a function of the cohorts' sums
    and of each client's own data alone. It is False where clients remember their own noise (ScaffNew's shifts, SCAFFOLD's
    controls made of noisy messages) and for FedEXP's mean of squared norms under local trust: single messages then show
    through later sums, so nobody is bounded by what one sum hides.
    `memoryless`: clients keep nothing between rounds. Otherwise what a client does tells in which rounds it took part
    before, its coins are no longer fresh and secret, and sampling clients amplifies nothing.
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

    def __post_init__(self) -> None:
        self._check_names()
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

    def _check_names(self) -> None:
        for key, value, known in (
            ("sampling", self.sampling, ("full", "fixed", "poisson")),
            ("trust", self.trust, ("local", "secagg", "central")),
            ("neighbours", self.neighbours, ("replace_one", "add_remove_one")),
        ):
            if value not in known:
                raise PrivacyError(f"{key}={value}: expected one of {', '.join(known)}")


@dataclass(frozen=True)
class Composition:
    """`times` adaptive releases of one mechanism; `scale` multiplies the noise multiplier. Unit: one client.

    gaussian: no sampling, either neighbouring relation. poisson: sampled at `rate`, add_remove_one. fixed: `sample` of `population`
    without replacement, replace_one.
    """

    mechanism: Mechanism
    times: int
    rate: float = 1.0
    population: int = 1
    sample: int = 1
    scale: float = 1.0


View = tuple[Composition, ...]  # alternatives: each alone bounds the whole run, so the smallest epsilon holds


def view(releases: Releases, observer: Observer) -> View | None:
    """What bounds `observer`; None if it is trusted, so that nothing does. Client level, both neighbouring relations.

    The server chooses the cohorts: sampling clients never amplifies towards it. A third party sees every global model but
    neither the cohorts nor, under poisson, their sizes. It is not a client of the run, who would know its own noise (k of m
    clients colluding leave a sum sqrt(1 - k/m) of its noise). Even with the cohorts revealed, `worst` releases bound it.
    """
    if observer not in ("server", "third_party"):
        raise PrivacyError(f"observer={observer}: expected server or third_party")
    if releases.trust == "central":
        return None if observer == "server" else _central(releases)
    if observer == "server" or not releases.sums_only:
        return (_seen_by_server(releases),)
    return _outside(releases)


def _seen_by_server(releases: Releases) -> Composition:
    """Every release of the most frequent client; a share alone where messages show through later sums."""
    if releases.trust == "local" or releases.sums_only:
        return _known_cohorts(releases)
    # Shifts that sum to zero make the others' later updates a readout of their noise: only its own share is sure to hide a client.
    largest = releases.clients if releases.sampling == "poisson" else releases.cohort
    return _known_cohorts(releases, 1 / math.sqrt(largest))


def _known_cohorts(releases: Releases, scale: float = 1.0) -> Composition:
    return Composition("gaussian", releases.worst, population=releases.clients, sample=releases.cohort, scale=scale)


def _without_replacement(releases: Releases, scale: float = 1.0) -> View:
    """Fixed-size cohorts, replace_one: the amplified bound and the one that needs no secrecy of the cohorts."""
    known = _known_cohorts(releases, scale)
    if releases.cohort == releases.clients:
        return (known,)
    rate, population, sample = releases.cohort / releases.clients, releases.clients, releases.cohort
    return Composition("fixed", releases.rounds, rate, population, sample, scale), known


def _outside(releases: Releases) -> View:
    """A third party under local or secagg trust: the sums, at most."""
    # Under local trust a sum of k messages carries sqrt(k) times one message's noise. A poisson cohort's size shows (an empty
    # one as no change at all), so poisson cohorts count as known.
    scale = math.sqrt(releases.smallest_cohort) if releases.trust == "local" else 1.0
    if releases.sampling == "fixed" and releases.neighbours == "replace_one" and releases.memoryless:
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
        if releases.cohort == releases.clients:
            return (known,)
        rate = releases.cohort / releases.clients
        return Composition("poisson", releases.rounds, rate, releases.clients, releases.cohort), known
    nearest = "replace_one" if releases.sampling == "fixed" else "add_remove_one"
    raise PrivacyError(
        f"trust=central sampling={releases.sampling} neighbours={releases.neighbours}: no valid accountant "
        f"(use neighbours={nearest} or sampling={'poisson' if releases.sampling == 'fixed' else 'fixed'})"
    )

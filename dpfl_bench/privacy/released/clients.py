"""What one run releases about its clients: `Releases`.

The unit is one client's whole contribution to one cohort's sum, bounded to norm C. Neighbouring
federations differ in one client:

- `replace_one`: the client's data are replaced by any other data, so a sum moves by at most 2C.
- `add_remove_one` means zero-out: the client is present, or it contributes a zero update, so a sum
  moves by at most C. The public cohort size, the divisor and the noise (the absent client's share
  included) stay as they are, and they must. If shares were sized by the number of clients that are
  really there, the noise variance itself would differ between neighbours, and that alone leaks
  about d/(4 m^2) nats per release of dimension d.

The noise multiplier is std / sensitivity. The sensitivity of a sum is 2C under replace_one and C
under add_remove_one. The sensitivity of a mean over a lot is 2C/b under replace_one (b records) and
C/(rate R) under add_remove_one (R records of the smallest client). What std is the standard
deviation of:

- local trust: each client's own noise on its message;
- secagg and central trust: the noise on the cohort's sum (under secagg a client's share is
  1/sqrt(m) of it, m being the realised cohort size);
- record level: each client's own noise on its gradient.

Under mechanism=pure the noise multiplier means 1/eps_0. Cohorts are drawn independently in every
round, never from data.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.released.composition import Companion

Neighbours = Literal["replace_one", "add_remove_one"]
Sampling = Literal["full", "fixed", "poisson"]
Trust = Literal["local", "secagg", "central"]


@dataclass(frozen=True)
class Releases:
    """Everything about what one run releases that an accountant needs; it never depends on data.
    Unit: one client.

    sums_only: whatever follows a release (the server's step, the clients' memories) is a function
    of the cohorts' sums and of each client's own data alone. It is False where clients remember
    their own noise (ScaffNew's shifts, SCAFFOLD's controls made of noisy messages), and for
    FedEXP's mean of squared norms under local trust. Single messages then show through later sums,
    so the noise of a whole sum hides nobody.

    memoryless: clients keep nothing between rounds. A client that remembers shows by what it does
    in which rounds it took part before. Its coins are then no longer fresh and secret, and sampling
    clients amplifies nothing.

    companions: further Gaussian releases of every round, of the same cohort (`Composition.joint`).

    colluding: clients that pool what they know with the observer. Under secagg they take their
    shares of the noise out of the sum.

    mechanism: `pure` is PrivUnit and its like, eps_0-DP for every message in either relation; local
    trust only.
    """

    rounds: int  # releases of the cohort
    clients: int  # M
    cohort_size: int  # m: clients of one round (the expected number under poisson)
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
        refusals.check_known(
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
        if not 1 <= self.cohort_size <= self.clients:
            raise refusals.count_out_of_range("cohort_size", self.cohort_size, f"1 to clients={self.clients}")
        if not 0 <= self.worst <= self.rounds:
            raise refusals.count_out_of_range("worst", self.worst, f"0 to rounds={self.rounds}")
        if not 1 <= self.smallest_cohort <= self.clients:
            raise refusals.count_out_of_range(
                "smallest_cohort", self.smallest_cohort, f"1 to clients={self.clients}"
            )
        if self.sampling == "full" and (self.cohort_size != self.clients or self.worst != self.rounds):
            raise refusals.not_everybody(self.clients, self.rounds, self.cohort_size, self.worst)
        if self.sampling != "poisson" and self.smallest_cohort != self.cohort_size:
            raise refusals.count_out_of_range(
                "smallest_cohort",
                self.smallest_cohort,
                f"cohort_size={self.cohort_size} under sampling={self.sampling}",
            )

    def _check_pure(self) -> None:
        if self.mechanism == "pure" and self.trust != "local":
            raise refusals.pure_without_local_trust(self.trust)
        if self.mechanism == "pure" and self.companions:
            raise refusals.pure_with_companions(c.name for c in self.companions)

    def _check_colluding(self) -> None:
        if self.colluding == 0:
            return
        if self.trust != "secagg":
            raise refusals.colluding_without_shares(self.colluding, self.trust)
        most = min(self.smallest_cohort, self.cohort_size) - 1
        if not 0 <= self.colluding <= most:
            raise refusals.too_many_colluding(self.colluding, most)

"""What one run releases about its records: `RecordReleases`.

The unit is one record, its gradient bounded to norm C. Where partitions overlap, it is one record
of every client that holds it. Neighbours are replace_one (the record is another one, so a sum of
bounded gradients moves by at most 2C) or add_remove_one (its gradient is there or is zero: C).
Record counts and divisors are public and the same between neighbours. The noise multiplier is
defined in `clients.py`.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal

from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.released.clients import Neighbours
from dpfl_bench.privacy.released.composition import Rounds


@dataclass(frozen=True)
class RecordReleases:
    """What one run's noised gradients release; it never depends on data. Unit: one record.

    Every client adds full noise to every gradient, so it does not matter whom one trusts. What
    clients send and remember, and what the server computes from that, is post-processing of these
    gradients. Every gradient draws its own lot, and the lot stays the client's secret.
    """

    rounds: Rounds  # of the whole run; where seeds differ, at least as many gradients as any seed has
    share: float  # probability that a client takes part in a round
    worst: int  # noised gradients of the most exposed record's clients, in the drawn schedule
    lots: Literal["full", "fixed", "poisson"]
    population: int  # records of the smallest client (fixed)
    sample: int  # lot size (fixed)
    rate: float  # of one record: 1 (full), sample/population (fixed), the Poisson rate
    neighbours: Neighbours
    cohort_size: int  # clients per round: for the paper's accountant
    holders: int = 1  # clients that hold the most shared record
    client_share: float | None = None  # l, for the paper's accountant alone, where it is not `share`

    def __post_init__(self) -> None:
        refusals.check_known(
            lots=(self.lots, ("full", "fixed", "poisson")),
            neighbours=(self.neighbours, ("replace_one", "add_remove_one")),
        )
        if (self.lots, self.neighbours) in (("poisson", "replace_one"), ("fixed", "add_remove_one")):
            raise refusals.lots_not_covered(self.lots, self.neighbours)
        self._check_lots()
        self._check_rounds()

    def _check_lots(self) -> None:
        if self.lots == "fixed" and not 1 <= self.sample <= self.population:
            raise refusals.count_out_of_range(
                "sample",
                self.sample,
                f"1 to population={self.population}, the records of the smallest client",
            )
        if not 0 < self.rate <= 1:
            raise refusals.count_out_of_range("rate", self.rate, "0 < rate <= 1")
        expected = self.sample / self.population if self.lots == "fixed" else 1.0
        if self.lots != "poisson" and not math.isclose(self.rate, expected, rel_tol=1e-9):
            raise refusals.count_out_of_range("rate", self.rate, f"{expected:.6g} under lots={self.lots}")

    def _check_rounds(self) -> None:
        if any(k < 1 or count < 1 for k, count in self.rounds):
            raise refusals.PrivacyError(
                f"rounds={self.rounds}: expected pairs (noised gradients >= 1, number of rounds >= 1)"
            )
        if not 0 < self.share <= 1:
            raise refusals.count_out_of_range("share", self.share, "0 < share <= 1")
        most = self.gradients * self.holders
        if not 0 <= self.worst <= most or self.cohort_size < 1 or self.holders < 1:
            raise refusals.record_counts_out_of_range(self.worst, self.cohort_size, self.holders, most)

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
            raise refusals.count_out_of_range(
                "rounds_done",
                rounds_done,
                f"0 to {planned}, the rounds planned (plan a longer run and cut it)",
            )
        kept, left = [], rounds_done
        for k, count in self.rounds:
            kept += [(k, min(count, left))] if left else []
            left -= min(count, left)
        return dataclasses.replace(self, rounds=tuple(kept), worst=worst)

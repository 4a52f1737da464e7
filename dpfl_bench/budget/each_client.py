"""What each client's own releases spend towards the bounded observer: `client_eps.csv`.

Unit and neighbouring relation are those of the settings: a client, or each record of a client. The
noise is that of the run. Only for an observer that knows the cohorts: whoever does not know them is
told nothing of a single client, and its eps is the same for all.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection
from dataclasses import replace

import numpy as np

from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.spent import Accounting
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.privacy.refusals import OutOfReach
from dpfl_bench.privacy.released.clients import Releases
from dpfl_bench.privacy.released.records import RecordReleases

FILE = "client_eps.csv"
COLUMNS = ("seed", "client", "releases", "eps", "accountant")
Answers = dict[int, tuple[float, str]]


def why_none(budget: Budget) -> str | None:
    """Why no client has an eps of its own; None where each has one."""
    if not budget.settings.private:
        return "without privacy nothing bounds what a client's releases tell"
    if budget.observer != "server" and budget.settings.sampling != "full":
        return (
            "the third party does not know the cohorts: its eps averages over their draw and is the same for"
            " all clients; a number for each would tell who took part"
        )
    return None


def text(budget: Budget) -> str | None:
    """client_eps.csv of the rounds of a budget: a row for each seed and client. None where no
    client has an eps of its own.
    """
    if why_none(budget):
        return None
    counts = {s.seed: _counts(budget, s) for s in budget.schedules}
    answers = _answers(budget, {int(n) for each in counts.values() for n in np.unique(each)})
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n")
    table.writerow(COLUMNS)
    for seed, each in counts.items():
        table.writerows((seed, client, n, *answers[n]) for client, n in enumerate(each.tolist()))
    return lines.getvalue()


def _counts(budget: Budget, schedule: Schedule) -> np.ndarray:
    """Releases of each client, (clients,); at record level, of its most exposed record."""
    if budget.settings.privacy.unit == "client":
        return schedule.participation
    return budget.holders.exposure_of_each(schedule.gradients)


def _answers(budget: Budget, counts: Collection[int]) -> Answers:
    """Number of releases -> eps and its accountant.

    From the largest number to the smallest: more releases never tell less. So where an accountant
    cannot tell, or rounds up, the eps of the next larger number holds.
    """
    asked = budget.settings.privacy.accountant
    accounting = Accounting(budget.noise_multiplier, budget.settings.delta, asked)
    answers: Answers = {}
    least = math.inf, asked
    for count in sorted(counts, reverse=True):
        try:
            name, eps = accounting.answer(_released(budget, count), budget.observer)
        except OutOfReach:
            name, eps = least[1], math.inf
        least = min(least, (eps, name), key=lambda answer: answer[0])
        answers[count] = least
    return answers


def _released(budget: Budget, count: int) -> Releases | RecordReleases:
    """The run's releases, so many of them of this client. Where everybody is in every round, seeds
    of drawn lengths (coins) differ in their rounds, too.
    """
    planned = budget.planned
    if isinstance(planned, Releases) and planned.sampling == "full":
        return planned.after(count, count)
    return replace(planned, worst=count)

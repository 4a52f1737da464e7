"""What an eps means, in one sentence: who sees what, how much likelier one client's data can make
it, and how often the best test notices them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpfl_bench.budget.budget import Budget
from dpfl_bench.privacy import accounting
from dpfl_bench.privacy.divergences.distinguishing import power_at_most, power_of_gaussian
from dpfl_bench.privacy.divergences.gaussian import mu_for
from dpfl_bench.privacy.released.composition import Composition

ALARMS = (0.05, 0.01)  # false alarms of the tests that are spoken of
NEIGHBOURS = {
    ("client", "replace_one"): ("one client's data", "with any other data in their place"),
    ("client", "add_remove_one"): ("one client's update", "without it"),
    ("record", "replace_one"): ("one record", "with any other record in its place"),
    ("record", "add_remove_one"): ("one record", "without it"),
}


@dataclass(frozen=True)
class Meaning:
    """Unit and relation: as `what` and `other` say them."""

    eps: float
    delta: float
    sees: str  # who sees what
    what: str  # what the neighbours differ in
    other: str
    power: Mapping[float, float]  # false alarms -> power of the best test, at most
    exact: bool  # whether a test attains these, where the data are the worst ones

    @property
    def ratio(self) -> float:
        return math.exp(self.eps) if self.eps < 700 else math.inf

    @property
    def sentence(self) -> str:
        alarms = " or ".join(f"{100 * each:g} %" for each in self.power)
        powers = " or ".join(_percent(each) for each in self.power.values())
        return (
            f"{self.sees} is at most e^{self.eps:.4g} = {self.ratio:.3g} times as likely with {self.what} as"
            f" {self.other}, but for a chance of {self.delta:g}; the best test that knows all the rest and"
            f" gives {alarms} false alarms notices the difference in at most {powers} of the cases"
        )

    def json(self) -> dict[str, Any]:
        return {
            "says": self.sentence,
            "likelihood_ratio": self.ratio,
            "power": {f"{alarms:g}": power for alarms, power in self.power.items()},
            "power_is": "exact for the worst data" if self.exact else "a bound by eps and delta alone",
        }


def of(budget: Budget) -> Meaning | None:
    """Of the eps that holds towards the bounded observer; None where none does."""
    settings, observer = budget.settings, budget.observer
    if not settings.private:
        return None
    paper = settings.privacy.accountant == "paper"  # no guarantee: by valid accountants
    eps = budget.views()[observer] if paper else budget.eps
    if eps == math.inf:
        return None
    what, other = NEIGHBOURS[settings.privacy.unit, settings.privacy.neighbours]
    exact = [mu for c in budget.seen if (mu := _mu(c, budget.noise_multiplier)) is not None]
    power = {
        alarms: min(
            power_of_gaussian(min(exact), alarms) if exact else 1, power_at_most(eps, settings.delta, alarms)
        )
        for alarms in ALARMS
    }
    return Meaning(eps, settings.delta, _sees(budget), what, other, power, bool(exact))


def of_gaussian(eps: float, delta: float) -> Meaning:
    """Of Gaussian noise that spends this eps, of whatever run. Either unit."""
    mu = mu_for(eps, delta)
    power = {alarms: power_of_gaussian(mu, alarms) for alarms in ALARMS}
    what, other = "the data of one client (or one record)", "with any other in their place"
    return Meaning(eps, delta, "What the observer sees of a run", what, other, power, True)


def _mu(composition: Composition, multiplier: float) -> float | None:
    """sqrt(T) / noise where the releases are Gaussian and none is drawn; None elsewhere."""
    if composition.mechanism != "gaussian" or composition.rounds:
        return None
    noise = accounting.noise_of(composition, multiplier)
    return math.inf if noise == 0 else math.sqrt(composition.times) / noise


def _sees(budget: Budget) -> str:
    privacy, rounds = budget.settings.privacy, budget.rounds
    many = f"{rounds} round{'s' if rounds > 1 else ''}"
    if budget.observer == "third_party":
        return f"What a third party sees (the global models of {many})"
    if privacy.unit == "record":
        return f"What the server sees (updates of noised gradients, {many})"
    if privacy.trust == "local":
        return f"What the server sees (each client's noised message, {many})"
    return f"What the server sees (the sums of updates of {many})"


def _percent(share: float) -> str:
    """99.99 %, and not 100 % where something is left."""
    return f"{100 * share:.3g} %" if share < 0.995 else f"{100 * share:.6g} %"

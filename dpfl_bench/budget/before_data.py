"""What is refused of a run before its data are loaded, by the code that a run and `plan` ask too. A
sweep asks it of every job before the first one starts.
"""

from __future__ import annotations

from dpfl_bench.budget import refusals, stop
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.foreseen_holders import foreseen
from dpfl_bench.budget.noise import Noise
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.checks.errors import NotForeseeable
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import only_ours
from dpfl_bench.federation.holders import Holders
from dpfl_bench.federation.schedule import Schedule
from dpfl_bench.privacy import calibration


def check(settings: Settings) -> None:
    """Raise ConfigError or PrivacyError for settings that a run would refuse without its data.

    No user's code is called. Where only the budget asks for a noise, it is asked whether there is
    one, not which; the run solves for it.
    """
    drawn = drawn_schedules(settings)
    if not settings.private:
        return
    with only_ours("it is not called before a run"):
        try:
            budget = Budget(settings, tuple(drawn), foreseen(settings))
            budget.check()
            _check_noise(budget)
        except NotForeseeable:
            if settings.privacy.unit == "record":
                check_accountant(settings, drawn)
        stop.check(settings)


def check_accountant(settings: Settings, drawn: list[Schedule]) -> None:
    """Record level: whether the accountant is valid depends on how lots are drawn, not on how many
    records a client holds. Twice the lot stands in for that number.
    """
    Budget(settings, tuple(drawn), Holders(2 * (settings.batch_size or 1))).check()


def _check_noise(budget: Budget) -> None:
    """Whether there is a noise for the budget, and what the noise alone shows to be impossible."""
    settings, privacy = budget.settings, budget.settings.privacy
    needed = privacy.mechanism == "privunit" or privacy.noise == "discrete"
    if privacy.calibration == "exact" and not needed:
        calibration.check_reach(
            budget.planned, budget.observer, settings.eps, settings.delta, privacy.accountant
        )
        return
    check_calibrated(budget)


def check_calibrated(budget: Budget) -> None:
    """Solve for the noise, and refuse what cannot be had."""
    noise: Noise = budget.noise
    _ = noise.privunit
    further = [c.noise_multiplier(noise.multiplier) for c in budget.companions]
    refusals.check_grid(budget.settings, noise.ratio, further)

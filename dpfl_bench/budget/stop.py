"""`stop_at_eps` before a sweep starts: one after which the model never moves is refused."""

from __future__ import annotations

from dpfl_bench.budget import refusals
from dpfl_bench.budget.budget import Budget
from dpfl_bench.budget.foreseen_holders import foreseen
from dpfl_bench.budget.schedules import drawn_schedules
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.targets import only_ours
from dpfl_bench.privacy.refusals import PrivacyError


def check(settings: Settings) -> None:
    """Raise ConfigError where the settings alone show that `stop_at_eps` ends the run before the
    model moves. A run asks again, when it knows who holds which record.
    """
    if settings.stop_at_eps is None or not settings.private:
        return
    try:
        with only_ours("it is not called before a run"):
            whole = Budget(settings, tuple(drawn_schedules(settings)), foreseen(settings))
            spent = whole.first(refusals.least_rounds(settings)).eps
    except (ConfigError, PrivacyError):  # not foreseeable, or refused for another reason: the run says so
        return
    refusals.check_stop(settings, settings.stop_at_eps, spent)

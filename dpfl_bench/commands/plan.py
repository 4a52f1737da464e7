"""`dpfl-bench plan`: what a run would spend, as text or JSON. `experiment/plan.py` computes it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.commands import arguments
from dpfl_bench.machine.colour import PLAN

if TYPE_CHECKING:
    from dpfl_bench.config.compose import Composed, Composer

EXAMPLES = (
    "plan algo=dp_scaffnew eps=.5,1,2",
    "plan algo=dp_fedavg privacy=central sampled_clients=9 --views",
    "plan dataset=femnist model=cnn records=200 --json",
)
READ = (
    "docs/privacy.md (what every number means). A view is what one observer sees: privacy.observer\n"
    "chooses whose view eps bounds, and `views` are the eps of all. The line `implied` has the constants\n"
    "v and q with which two papers' formulas give this noise; `theory` has the v of one client's share of\n"
    "it, for Theorem 1 speaks of that share."
)


def command(words: list[str]) -> int:
    flags = _parser().parse_intermixed_args(words)
    from dpfl_bench.config import compose
    from dpfl_bench.experiment import plan_text
    from dpfl_bench.privacy.refusals import PrivacyError

    asks = (flags.overrides, flags.config_dir, flags.config_name)
    divides = any(override.startswith("local_steps=divisors") for override in flags.overrides)
    if not (flags.multirun or divides or compose.sweeps(flags.overrides)):
        planned = _planned(compose.composed(*asks), flags.json or flags.views, flags.views)
        arguments.answer(planned, flags.json, plan_text.text, PLAN)
        return 0
    composer, plans = compose.composer(*asks[1:]), []
    for job in _jobs(composer, flags.overrides):
        try:
            planned = _planned(composer.job(job), flags.views, flags.views)
        except (ConfigError, PrivacyError) as error:
            raise ConfigError(_of_job(job, str(error))) from None
        plans.append({"overrides": [*job], **planned})
    arguments.answer(plans, flags.json, plan_text.table)
    return 0


def _of_job(job: Sequence[str], refusal: str) -> str:
    """A refusal that names all overrides of its job, each once."""
    words = " ".join(job)
    return refusal if refusal.startswith(f"{words}:") else f"{words}: {refusal}"


def _planned(composed: Composed, detailed: bool, every: bool) -> dict[str, Any]:
    from dpfl_bench.budget.notes import notes
    from dpfl_bench.config.validate import settings
    from dpfl_bench.experiment.plan import plan

    run = settings(composed)
    planned = plan(run, detailed=detailed, every=every)
    for note in notes(run):
        arguments.complain(note)
    return planned


def _jobs(composer: Composer, overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """As `run -m` makes them."""
    from dpfl_bench.sweep import points
    from dpfl_bench.sweep.applied import applied

    jobs, told = applied(composer, composer.sweep(overrides).jobs)
    for line in told:
        arguments.complain(line)
    return [each for job in jobs for each in points.with_divisors(composer, job)]


def _parser() -> argparse.ArgumentParser:
    does = "Without training or data: the noise, eps in every view, the rounds that eps allows, theory."
    parser = arguments.parser("plan", does, EXAMPLES, READ)
    arguments.add_settings(parser, "key=value or group=choice; key=value,value: a table, a line for each")
    arguments.add_json(parser)
    views = "every observer by every accountant, and eps over the rounds"
    parser.add_argument("--views", action="store_true", help=views)
    parser.add_argument("--multirun", "-m", action="store_true", help="as in run -m: a table of its jobs")
    return parser

"""`dpfl-bench audit`: what a run leaks at least, as text or JSON. The package audit/ finds it."""

from __future__ import annotations

from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.commands import arguments
from dpfl_bench.machine.colour import VERDICTS
from dpfl_bench.machine.imports import preload

EXAMPLES = (
    "audit outputs/runs/ID",
    "audit algo=dp_scaffnew eps=4 --canaries 20000",
    "audit outputs/runs/ID --confidence .99 --json",
)
DOES = (
    "Empirical lower bounds on eps, and tests of what the accountant assumes, on a run's own code path:\n"
    "its doors, cohorts, workers and generators. The expectations are those of its privacy.json alone.\n"
    "Exit code 1 where the claim is violated."
)
LEAST_CANARIES, MOST_CANARIES = 40, 10**6


def command(words: list[str]) -> int:
    parser = arguments.parser("audit", DOES, EXAMPLES, "docs/privacy.md#audit")
    arguments.add_settings(parser, "a run folder, or key=value and group=choice of a run")
    add = parser.add_argument
    add("--confidence", type=float, default=0.95, help="of the lower bounds (default: %(default)s)")
    add("--canaries", type=int, default=2000, help="how many at least (default: %(default)s)")
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    _check(flags.confidence, flags.canaries)
    preload("dpfl_bench.experiment.job")
    from dpfl_bench.audit.audited_run import asked
    from dpfl_bench.audit.whole_audit import audit
    from dpfl_bench.results.json_numbers import clean

    question = asked(flags.overrides, flags.config_dir, flags.config_name)
    found = audit(question, flags.confidence, flags.canaries)
    arguments.answer(clean(found) if flags.json else found, flags.json, text, VERDICTS)
    return 1 if found["verdict"] == "violated" else 0


def _check(confidence: float, canaries: int) -> None:
    if not 0.5 <= confidence < 1:
        raise ConfigError(f"--confidence {confidence:g}: expected a number from 0.5 to below 1, such as 0.95")
    if not LEAST_CANARIES <= canaries <= MOST_CANARIES:
        raise ConfigError(
            f"--canaries {canaries}: expected {LEAST_CANARIES} to {MOST_CANARIES}; fewer prove nothing"
        )


def text(found: dict[str, Any]) -> str:
    """The audit for a person."""
    width = max(len(part["part"]) for part in found["parts"])
    lines = []
    for part in found["parts"]:
        p = "" if part["p"] is None else f"p {part['p']:.2g}"
        lower = "" if part["lower"] is None else f"eps >= {part['lower']:.4g}"
        lines.append(f"  {part['part']:<{width}}  {part['verdict']:<12}  {p:<9}  {lower:<13}  {part['says']}")
    lines.append(
        f"{found['verdict']}: eps {found['eps']:.6g} is claimed, at least {found['lower']:.6g} is proved"
        f" (confidence {found['confidence']:g})"
    )
    return "\n".join(lines) + "\n"

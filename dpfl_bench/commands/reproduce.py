"""`dpfl-bench reproduce`: the tables and figures of papers."""

from __future__ import annotations

import shlex
from typing import Any

from dpfl_bench.checks import nearest
from dpfl_bench.commands import arguments

EXAMPLES = (
    "reproduce normalized/fig2 scale=cpu --check",
    "reproduce balancing scale=full reading=exact --dry-run",
    "reproduce all scale=smoke hydra/launcher=cores",
)
KEYS = {"scale": "scale", "reading": "reading", "outputs": "outputs", "figure.width": "width"}


def command(words: list[str]) -> int:
    does = "Runs what is missing of a paper's artefact, draws it, and says which claims hold."
    parser = arguments.parser("reproduce", does, EXAMPLES, "docs/artefacts.md")
    add = parser.add_argument
    add("which", metavar="all|PAPER|PAPER/ARTEFACT", help="dpfl-bench list papers has them")
    more = (
        "scale=smoke|cpu|full, reading=paper|exact|both, outputs=DIR, figure.width=VENUE, hydra/launcher=..."
    )
    add("overrides", nargs="*", metavar="KEY=VALUE", help=more)
    arguments.add_folder(parser)
    add("--plot-only", action="store_true", help="run nothing; draw and judge what is there")
    add("--dry-run", action="store_true", help="the jobs of each artefact, and how long they may take")
    add("--force", action="store_true", help="compute anew what other code or data made")
    add("--accept", action="store_true", help="take what other code or data made")
    check = "compare with the committed numbers; --check=DIR: with those in DIR"
    add("--check", nargs="?", metavar="DIR", help=check)
    flags = parser.parse_intermixed_args(["--check=" if word == "--check" else word for word in words])
    given: dict[str, Any] = {}
    launcher = []
    for override in flags.overrides:
        key, _, value = override.partition("=")
        if key in KEYS:
            given[KEYS[key]] = value
        elif key.startswith("hydra"):
            launcher.append(override)
        else:
            expected = ", ".join((*KEYS, "hydra/launcher"))
            near = nearest.choice(key, (*KEYS, "hydra/launcher"))
            meant = nearest.did_you_mean(near and f"{near}={value}")
            arguments.complain(
                f"{override}: expected one of {expected}{meant} (an artefact's file has the rest)"
            )
            return 2
    from dpfl_bench.machine.imports import preload

    preload("dpfl_bench.papers.reproduce")
    from dpfl_bench.papers.reproduce import Asked, reproduce
    from dpfl_bench.results.provenance import Answer
    from dpfl_bench.sweep.whole_sweep import Ways

    own = {"config_dir": flags.config_dir, "plot_only": flags.plot_only, "check": flags.check}
    asked = Asked(flags.which, **given, launcher=launcher, **own)
    again = shlex.join(
        ["dpfl-bench", "reproduce", *(word for word in words if word not in ("--force", "--accept"))]
    )
    ways = Ways(again, flags.dry_run, answer=Answer(flags.force, flags.accept), tell_folders=False)
    return reproduce(asked, ways)

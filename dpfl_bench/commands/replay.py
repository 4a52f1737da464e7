"""`dpfl-bench replay`: a run folder's question again, and whether every number is the same."""

from __future__ import annotations

from dpfl_bench.commands import arguments
from dpfl_bench.machine.imports import preload

EXAMPLES = (
    "replay outputs/runs/ID",
    "replay outputs/runs/ID --check",
    "replay /elsewhere/runs/ID --check --to outputs/again",
)
DOES = (
    "Runs a run folder's question again, from its .hydra/config.yaml alone, into other outputs. The\n"
    "folder is only read. Relative paths are those of the working directory that it was run in,\n"
    "where that is still there."
)


def command(words: list[str]) -> int:
    parser = arguments.parser("replay", DOES, EXAMPLES, "docs/reproduce.md")
    add = parser.add_argument
    add("folder", metavar="RUN_FOLDER", help="outputs/runs/ID, or wherever it was moved to")
    add("--check", action="store_true", help="compare every number; exit code 1 if one differs")
    to = "where it is written (default: %(default)s)"
    add("--to", metavar="OUTPUTS", default="outputs/replays", help=to)
    flags = parser.parse_intermixed_args(words)
    preload("dpfl_bench.sweep.replay")
    from dpfl_bench.sweep.replay import replay

    return replay(flags.folder, flags.check, flags.to)

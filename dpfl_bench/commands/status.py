"""`dpfl-bench status`: what became of the runs of a folder."""

from __future__ import annotations

from dpfl_bench.commands import arguments
from dpfl_bench.machine.colour import STATES

EXAMPLES = ("status", "status outputs/demo", "status outputs/runs/ID --json")


def command(words: list[str]) -> int:
    does = "What is done, running, failed or missing, and the command that finishes the rest."
    parser = arguments.parser("status", does, EXAMPLES, "docs/sweeps.md")
    parser.add_argument(
        "folder", nargs="?", default="outputs", help="outputs, outputs/runs, or the folder of a sweep or run"
    )
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    from dpfl_bench.sweep import status

    arguments.answer(status.survey(flags.folder), flags.json, status.text, STATES)
    return 0

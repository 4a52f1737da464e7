"""`dpfl-bench list`: what there is to choose from."""

from __future__ import annotations

from dpfl_bench.commands import arguments

EXAMPLES = ("list", "list -cd DIR", "list --json")


def command(words: list[str]) -> int:
    does = "Algorithms, data sets, models, partitions, privacy models and experiments, a line for each."
    parser = arguments.parser("list", does, EXAMPLES, "docs/settings.md")
    arguments.add_folder(parser)
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    from dpfl_bench.config import catalogue

    arguments.answer(catalogue.entries(flags.config_dir), flags.json, catalogue.text)
    return 0

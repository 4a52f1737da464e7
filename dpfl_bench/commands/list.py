"""`dpfl-bench list`: what there is to choose from; `list papers`: what can be reproduced."""

from __future__ import annotations

from dpfl_bench.commands import arguments
from dpfl_bench.machine.colour import HEADINGS

EXAMPLES = ("list", "list -cd DIR --json", "list papers")


def command(words: list[str]) -> int:
    does = "Algorithms, data sets, models, partitions, privacy models and experiments, a line for each."
    parser = arguments.parser("list", does, EXAMPLES, "docs/settings.md, docs/artefacts.md")
    papers = "the tables and figures of papers, their cost, and what came of them"
    parser.add_argument("what", nargs="?", choices=["papers"], help=papers)
    parser.add_argument("outputs", nargs="?", default="outputs", help="of list papers: where they were made")
    arguments.add_folder(parser)
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    if flags.what:
        from dpfl_bench.papers import overview

        arguments.answer(overview.entries(flags.outputs, flags.config_dir), flags.json, overview.text)
        return 0
    from dpfl_bench.config import catalogue

    arguments.answer(catalogue.entries(flags.config_dir), flags.json, catalogue.text, HEADINGS)
    return 0

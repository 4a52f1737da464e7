"""`dpfl-bench data`: which data sets are here, their files, and who gets what."""

from __future__ import annotations

import sys
from contextlib import nullcontext, redirect_stdout

from dpfl_bench.checks import nearest
from dpfl_bench.commands import arguments

OVERVIEW = """\
usage: dpfl-bench data list|fetch|verify|show ...     dpfl-bench data list --help

  list      which data sets are on this machine
  fetch     get a data set's files
  verify    check a data set's files: are they whole, are their bytes the published ones
  show      deal the records to the clients: who gets what, as a table and a picture

examples:
  dpfl-bench data list
  dpfl-bench data fetch mnist dataset.root=DIR
  dpfl-bench data show dataset=mnist partition=dirichlet clients=20

read on: docs/privacy-data.md
"""
READ = "docs/privacy-data.md (what of the data a run uses), docs/settings.md"


def command(words: list[str]) -> int:
    verb, *others = words or [""]
    if verb in ("--help", "-h"):
        sys.stdout.write(OVERVIEW)
        return 0
    if verb == "list":
        return _list(others)
    if verb in ("fetch", "verify"):
        return _files(verb, others)
    if verb == "show":
        return _show(others)
    given = " ".join(["data", *words[:1]])
    near = nearest.choice(verb, ("list", "fetch", "verify", "show"))
    meant = nearest.did_you_mean(near and f"data {near}")
    arguments.complain(f"{given}: expected data list, fetch, verify or show{meant} (dpfl-bench data --help)")
    return 2


def _list(words: list[str]) -> int:
    examples = ("data list", "data list -cd DIR --own-code", "data list --json")
    parser = arguments.parser("data list", "Which data sets are on this machine.", examples, READ)
    arguments.add_folder(parser)
    own = "import the loaders that YAML files of your own name, to ask which of their files are here"
    parser.add_argument("--own-code", action="store_true", help=own)
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    from dpfl_bench.data import overview

    arguments.answer(overview.entries(flags.config_dir, flags.own_code), flags.json, overview.text)
    return 0


def _files(verb: str, words: list[str]) -> int:
    does = {"fetch": "Gets a data set's files.", "verify": "Checks a data set's files."}[verb]
    examples = (f"data {verb} mnist", f"data {verb} a9a dataset.root=DIR", f"data {verb} femnist --json")
    parser = arguments.parser(f"data {verb}", does, examples, READ)
    arguments.add_settings(parser, "the name of a data set first, then key=value")
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    name, *overrides = flags.overrides or [""]
    if not name or "=" in name:
        given = " ".join(["data", verb, *flags.overrides[:1]])
        arguments.complain(f"{given}: expected the name of a data set first (dpfl-bench data list)")
        return 2
    from dpfl_bench.config import compose
    from dpfl_bench.config.call import call
    from dpfl_bench.config.validate import settings

    composed = compose.composed([f"dataset={name}", *overrides], flags.config_dir, flags.config_name)
    dataset = settings(composed, used=("dataset",)).dataset
    from dpfl_bench.data import verify

    way = {"fetch": verify.fetched, "verify": verify.verified}[verb]
    with redirect_stdout(sys.stderr):  # torchvision may print while it downloads
        report = way(name, dataset, lambda node: call(node, "dataset"))
    arguments.answer(report, flags.json, verify.text)
    if "error" in report:
        arguments.complain(report["error"])
    return int(report["code"])


def _show(words: list[str]) -> int:
    does = "Deals the records to the clients, as a run would: a table, and a picture."
    examples = (
        "data show",
        "data show dataset=mnist partition=dirichlet clients=20",
        "data show -cd DIR dataset=mine --own-code --to mine.png",
    )
    parser = arguments.parser("data show", does, examples, READ)
    arguments.add_settings(parser)
    to = "the picture (default: OUTPUTS/data/DATASET_PARTITION.png)"
    parser.add_argument("--to", metavar="FILE.png", help=to)
    own = "call the loader or partition that a YAML file of your own names"
    parser.add_argument("--own-code", action="store_true", help=own)
    arguments.add_json(parser)
    flags = parser.parse_intermixed_args(words)
    from dpfl_bench.config import compose
    from dpfl_bench.config.validate import settings

    composed = compose.composed(flags.overrides, flags.config_dir, flags.config_name)
    chosen = settings(composed, used=("dataset", "partition"))
    from dpfl_bench.assembly.algorithm import DESCRIBING
    from dpfl_bench.assembly.data import load_data
    from dpfl_bench.config import targets
    from dpfl_bench.data import show
    from dpfl_bench.results import plots

    names = {"dataset": chosen.dataset["name"], "partition": chosen.partition["name"]}
    picture, table = show.targets(flags.to, chosen.outputs, "_".join(names.values()))
    refusal = "data show calls no code of your own unless you say --own-code"
    with nullcontext() if flags.own_code else targets.only_ours(refusal):
        loaded = load_data(chosen)
    ways = {key: value for key, value in chosen.partition.items() if key not in DESCRIBING}
    files = {"hash": loaded.partition_hash, "picture": str(picture), "table": str(table)}
    shown = show.summary(loaded.records, loaded.parts, loaded.test_sizes, {**names, "ways": ways, **files})
    show.save(table, loaded.partition_csv())
    plots.partition(table, picture, show.title(shown))
    arguments.answer(shown, flags.json, show.text)
    return 0

"""What the verbs' arguments have in common: the parser with its help, Hydra's flags, and the answer
as text or as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from dpfl_bench.checks import nearest
from dpfl_bench.machine.colour import HELP, REFUSAL, Rules, painted
from dpfl_bench.machine.place import place


class _Parser(argparse.ArgumentParser):
    """Refuses in one line, as settings are refused."""

    def print_help(self, file: Any = None) -> None:
        stream = file or sys.stdout
        stream.write(painted(self.format_help(), stream, HELP))

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()
        if message.startswith("unrecognized") and unknown:
            flag = unknown[0].partition("=")[0]
            meant = nearest.did_you_mean(nearest.choice(flag, self._option_string_actions))
            message = f"{flag}: unknown flag{meant}"
        complain(f"{message} ({self.prog} --help)")
        sys.exit(2)


def parser(verb: str, does: str, examples: Sequence[str], read: str) -> argparse.ArgumentParser:
    """A verb's parser. Its --help says what the verb does, the arguments, examples, and where to
    read on.
    """
    lines = ["examples:", *(f"  dpfl-bench {example}" for example in examples), "", f"read on: {read}"]
    return _Parser(
        prog=f"dpfl-bench {verb}",
        description=does,
        epilog="\n".join(lines),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_json(parser: argparse.ArgumentParser, words: str = "the answer as JSON, for machines") -> None:
    parser.add_argument("--json", action="store_true", help=words)


def add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config-dir", "-cd", metavar="DIR", help="a folder with YAML files of your own")


def add_settings(parser: argparse.ArgumentParser, words: str = "key=value or group=choice") -> None:
    """The settings of a run, and Hydra's flags for them under Hydra's names."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=words)
    add_folder(parser)
    parser.add_argument(
        "--config-name", "-cn", metavar="NAME", default="config", help="the primary config (default: config)"
    )


def answer(record: Any, as_json: bool, text: Callable[[Any], str], rules: Rules = ()) -> None:
    """On stdout: the record for a person, coloured by the rules, or as JSON."""
    as_text = json.dumps(record, indent=2) + "\n" if as_json else painted(text(record), sys.stdout, rules)
    sys.stdout.write(as_text)


def refuse_ranks(what: str) -> int:
    """What torchrun or srun cannot start in several processes. One of them says so."""
    here = place()
    if here.rank == 0:
        complain(
            f"{what}: expected a single run where {here.starter} starts {here.ranks} processes for it"
            f" (dpfl-bench run KEY=VALUE ...); give this command without {here.starter}"
        )
    return 2


def complain(line: str) -> None:
    """On stderr."""
    sys.stderr.write(painted(f"dpfl-bench: {line}\n", sys.stderr, REFUSAL))

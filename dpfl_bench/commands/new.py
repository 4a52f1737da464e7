"""`dpfl-bench new`: the files of an algorithm, a data set or a model of one's own."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec
from pathlib import Path

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.commands import arguments, new_files
from dpfl_bench.machine import imports

EXAMPLES = ("new algorithm fedprox", "new dataset clouds --to mine", "new model small_network")
DOES = "Writes a module, its YAML file and a test, which work as they are. Then make them yours."
GROUPS = {"algorithm": "algo", "dataset": "dataset", "model": "model"}
TEXTS = {
    "algorithm": (new_files.ALGORITHM, new_files.ALGORITHM_YAML, new_files.ALGORITHM_TEST),
    "dataset": (new_files.DATASET, new_files.DATASET_YAML, new_files.TEST),
    "model": (new_files.MODEL, new_files.MODEL_YAML, new_files.TEST),
}
NAME = re.compile(r"[a-z][a-z0-9_]*")


def command(words: list[str]) -> int:
    parser = arguments.parser("new", DOES, EXAMPLES, "docs/extend.md")
    parser.add_argument("kind", choices=[*GROUPS], help="what is to be written")
    parser.add_argument(
        "name", metavar="NAME", help="small letters, digits and _: the name of all three files"
    )
    parser.add_argument("--to", metavar="DIR", default="own", help="the folder for -cd (default: own)")
    flags = parser.parse_intermixed_args(words)
    files = written(flags.kind, flags.name, Path(flags.to))
    group = GROUPS[flags.kind]
    sys.stdout.write("".join(f"{file}\n" for file in files))
    arguments.complain(f"next: dpfl-bench run -cd {flags.to} {group}={flags.name}; pytest {files[-1]}")
    return 0


def written(kind: str, name: str, folder: Path) -> list[Path]:
    """The module, the YAML file and the test. Nothing is replaced."""
    group = GROUPS[kind]
    _check_name(name, group)
    files = [folder / f"{name}.py", folder / group / f"{name}.yaml", folder / f"test_{name}.py"]
    if there := [file for file in files if file.exists()]:
        raise ConfigError(f"{there[0]}: it is there already; expected a new name, or say --to DIR")
    words = {"name": name, "Name": "".join(part.capitalize() for part in name.split("_")), "group": group}
    for file, text in zip(files, TEXTS[kind], strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.format(**words))
    return files


def _check_name(name: str, group: str) -> None:
    from dpfl_bench.config import catalogue

    if not NAME.fullmatch(name):
        raise ConfigError(f"{name}: expected a name of small letters, digits and _, the first a letter")
    if name in {file.stem for file in catalogue.named(group, None)}:
        raise ConfigError(f"{name}: {group}={name} is there already; expected another name")
    if name in sys.stdlib_module_names or _installed(name):
        raise ConfigError(f"{name}: Python has a module of that name; expected another one")


def _installed(name: str) -> bool:
    """Whether Python finds a module of that name outside of the folders of `-cd`."""
    spec = find_spec(name)
    where = Path(spec.origin) if spec is not None and spec.origin else None
    own = where is not None and any(where.is_relative_to(folder) for folder in imports.OWN)
    return spec is not None and not own

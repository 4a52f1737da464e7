"""What made a set of runs: commits, versions, and the kind of machine, which decides the last
bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpfl_bench.results.environment import environment
from dpfl_bench.results.folder import BROKEN, RunFolder
from dpfl_bench.results.select.sources import Run, Source

OF_CODE = ("dpfl_bench", "results_version", "commit", "dirty", "python", "versions")
MACHINE = ("system", "cpu", "family", "simd", "device", "threads", "products")
DECIDE = ("torch", "numpy", "scipy", "dp-accounting")  # libraries that compute numbers

Made = dict[str, Any]


def of_runs(folders: Iterable[Path]) -> list[Made]:
    """What their env.json tell, each once. One that cannot be read is left out."""
    known: list[Made] = []
    for folder in folders:
        try:
            made = of_environment(RunFolder(folder).read("env.json") or {})
        except (OSError, *BROKEN):
            continue
        if made not in known:
            known.append(made)
    return known


def of_sources(sources: Sequence[Source]) -> list[Made]:
    """What made the runs; of plans, this process."""
    known = of_runs(source.path for source in sources if isinstance(source, Run))
    if all(isinstance(source, Run) for source in sources):
        return known
    now = of_environment({**environment("cpu"), "threads": None, "device": None})  # a plan has none
    return [*known, *(each for each in [now] if each not in known)]


def of_environment(told: Mapping[str, Any]) -> Made:
    """Of the content of an env.json what may be published: nobody's folders and names."""
    system = re.sub(r"-.*-with-", " ", told["platform"])  # without the kernel's version
    machine = {"system": system, **{key: told.get(key) for key in MACHINE[1:]}}
    return {**{key: told.get(key) for key in OF_CODE}, "machine": machine}


def told(known: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """For a reader: commits, versions and machines, each once."""
    said: dict[str, dict[str, None]] = {"commit": {}, "versions": {}, "machine": {}}
    for made in known:
        packages = (f"{name} {version}" for name, version in made["versions"].items() if version)
        own = f"dpfl-bench {made['dpfl_bench']}, results {made['results_version']}"
        said["commit"][f"{made['commit'] or 'unknown'}{' with changes' if made['dirty'] else ''}"] = None
        said["versions"][", ".join([own, f"Python {made['python']}", *packages])] = None
        said["machine"][", ".join(f"{key} {value}" for key, value in made["machine"].items() if value)] = None
    return {key: list(each) for key, each in said.items()}


def differing(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> list[str]:
    """What decides bits and is not one and the same in both. What nobody knows is not compared."""
    lines = []
    kinds = [[_kind(made) for made in known] for known in (first, second)]
    for key in (*MACHINE, *DECIDE):
        was, now = (list(dict.fromkeys(kind[key] for kind in known if kind[key])) for known in kinds)
        if was and now and (was != now or len(was) > 1):
            lines.append(f"{key}: {' and '.join(map(str, was))}, here {' and '.join(map(str, now))}")
    return lines if all(kinds) else [*lines, "not told by which machine"]


def _kind(made: Mapping[str, Any]) -> dict[str, Any]:
    libraries = {name: made["versions"].get(name) for name in DECIDE}
    return {**{key: made["machine"].get(key) for key in MACHINE}, **libraries}

"""outputs/sweeps/<id>/sweep.json: the command of a sweep and its runs, so that what is missing can
be told and finished.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpfl_bench.results.folder import BROKEN, plain_text


@dataclass(frozen=True)
class Sweep:
    path: Path
    command: str  # that began it, and that finishes it
    cwd: str  # where
    runs: Mapping[Path, tuple[str, ...]]  # run folder -> overrides


def record(outputs: str, command: str, runs: Mapping[Path, Sequence[str]]) -> Sweep:
    """The same runs are the same sweep."""
    name = hashlib.sha256("\n".join(sorted(map(str, runs))).encode()).hexdigest()[:10]
    path = Path(outputs) / "sweeps" / name
    path.mkdir(parents=True, exist_ok=True)
    points = [
        {"run": os.path.relpath(run, path), "overrides": list(overrides)} for run, overrides in runs.items()
    ]
    part = path / f"sweep.{os.getpid()}.part"
    part.write_text(
        json.dumps({"command": command, "cwd": str(Path.cwd()), "points": points}, indent=1) + "\n"
    )
    part.replace(path / "sweep.json")
    return read(path)


def read(path: Path) -> Sweep:
    """Runs are told relative to the sweep's folder, so that outputs can be moved."""
    description = json.loads(plain_text(path / "sweep.json"))
    runs = {
        Path(os.path.normpath(path / point["run"])): tuple(point["overrides"])
        for point in description["points"]
    }
    return Sweep(path, description["command"], description["cwd"], runs)


def below(folder: Path) -> tuple[list[Sweep], int]:
    """The sweep of a folder, or those of `outputs`, which may be given as outputs/runs or
    outputs/sweeps; and how many cannot be read.
    """
    if (folder / "sweep.json").exists():
        paths = [folder]
    else:
        outputs = folder.parent if folder.name in ("runs", "sweeps") else folder
        paths = [path.parent for path in sorted((outputs / "sweeps").glob("*/sweep.json"))]
    sweeps = []
    for path in paths:
        with suppress(OSError, *BROKEN):
            sweeps.append(read(path))
    return sweeps, len(paths) - len(sweeps)

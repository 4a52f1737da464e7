"""Seconds and memory of one round of every model on its data set, at both privacy units, as a
Markdown table.

    DPFL_DATA_DIR=... .venv/bin/python scripts/bench_models.py [MODEL-DATASET ...]

Every measurement has a process of its own, and the table the median of three. Real data is looked
for in DPFL_DATA_DIR, of which scripts/model_rounds.py takes samples; what is not there is left out.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from model_rounds import CASES, Case, lacking, sample

UNITS = {"client": ("algo=dp_fedavg",), "record": ("algo=dp_fedavg", "privacy=record")}
REPEATS = 3


def measure(case: Case, unit: str) -> dict[str, float]:
    """One round of one local step, the second of two; memory is the process's peak, its data
    included.
    """
    from dpfl_bench.config import compose, validate
    from dpfl_bench.experiment import job
    from dpfl_bench.experiment.build_player import build_player
    from dpfl_bench.federation.alone import Alone

    overrides = (
        *case.arguments,
        *UNITS[unit],
        f"batch_size={case.lot}",
        "rounds=2",
        "local_steps=1",
        "device=cpu",
        "eps=8",
    )
    settings = validate.settings(compose.composed(overrides))
    prepared = job.prepare(settings)
    player = build_player(settings, prepared.budget, prepared.problem, prepared.data, 0)
    state = player.start(job.initial(prepared, 0))
    for index in range(2):
        started = time.perf_counter()
        state, _ = player.play(state, prepared.schedules[0].round(index), Alone(player))
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"parameters": prepared.problem.dimension, "seconds": seconds, "peak": peak / 1024}


def measured(name: str, unit: str, root: Path) -> dict[str, float]:
    """The medians over processes that find their data in `root`."""
    environment = os.environ | {"DPFL_DATA_DIR": str(root)}
    command = [sys.executable, __file__, "--one", name, unit]
    runs = [
        subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment).stdout
        for _ in range(REPEATS)
    ]
    measurements: list[dict[str, Any]] = [json.loads(run) for run in runs]
    return {key: statistics.median(run[key] for run in measurements) for key in measurements[0]}


def row(case: Case, root: Path) -> str:
    units = [measured(case.name, unit, root) for unit in UNITS]
    cells = [f"{unit['seconds']:.3f}, {unit['peak']:.0f}" for unit in units]
    return (
        f"| `{case.model}` | {case.dataset} | {case.clients} | {units[0]['parameters']:,} | {case.lot} |"
        f" {' | '.join(cells)} |"
    )


def main(names: list[str], samples: Path) -> None:
    print(
        "| model | data set | clients | parameters | lot | client level: s, MB | record level: s, MB |\n|"
        + "---|" * 7
    )
    real = Path(os.environ.get("DPFL_DATA_DIR", ""))
    for case in (CASES[name] for name in names or CASES):
        missing = lacking(case.dataset, real)
        if missing:
            print(f"{case.name}: left out: DPFL_DATA_DIR lacks {missing}", file=sys.stderr)
        else:
            print(row(case, sample(case.dataset, real, samples)), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(CASES[sys.argv[2]], sys.argv[3])))
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(sys.argv[1:], Path(folder))

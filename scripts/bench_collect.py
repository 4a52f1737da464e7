#!/usr/bin/env python
"""Seconds and memory of `dpfl-bench collect` over many run folders, made from one real run: eps x
clip x lr x seed x local steps.

    scripts/bench_collect.py [--runs 10000] [--tuning-eps]

One folder in fifty was cut off. Prints one line of JSON; exit code 1 where it takes more than 60 s
or 1 GB.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

BINARY = Path(sys.executable).with_name("dpfl-bench")
EPS, CLIPS, RATES, SEEDS = ("inf", 8.0, 2.0, 0.5), (0.1, 0.3, 1.0, 3.0), (0.5, 1.0, 2.0, 4.0, 8.0), range(5)


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--runs", type=int, default=10_000)
    flags.add_argument("--tuning-eps", action="store_true")
    asked = flags.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench_collect") as folder:
        runs = made(Path(folder), asked.runs)
        command = [
            BINARY,
            "collect",
            runs,
            "--to",
            Path(folder) / "out",
            *(["--tuning-eps"] if asked.tuning_eps else []),
        ]
        begun = time.perf_counter()
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        seconds = time.perf_counter() - begun
        memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
        lines = (Path(folder) / "out" / "results.csv").read_text().count("\n")
    told = {
        "runs": asked.runs,
        "rows": lines - 1,
        "seconds": round(seconds, 2),
        "GB": round(memory, 3),
        "last line": said.splitlines()[-1],
    }
    print(json.dumps(told))
    return int(seconds > 60 or memory > 1)


def made(folder: Path, count: int) -> Path:
    """Copies of one run, each with settings, numbers and ids of its own."""
    command = [BINARY, "run", "algo=dp_fedavg", "plot=false", "device=cpu", f"outputs={folder / 'one'}"]
    one = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
    result = json.loads((one / "result.json").read_text())
    config = (one / ".hydra" / "config.yaml").read_text()
    points = product(range(1, count), EPS, CLIPS, RATES, SEEDS)
    for number, (steps, eps, clip, lr, seed) in zip(range(count), points, strict=False):
        path = folder / "runs" / f"{number:010x}"
        shutil.copytree(one, path)
        if number % 50 == 49:
            (path / "result.json").unlink()
            continue
        told = {
            "run_id": path.name,
            "point_id": f"{number // len(SEEDS):010x}",
            "local_steps": steps,
            "lr": lr,
            "clip": clip,
            "seeds": [seed],
        }
        told |= {
            "eps_target": float(eps),
            "eps": float(eps),
            "test_error_mean": 0.1 + steps / 1000 / float(eps) + seed / 3000 + lr / 70,
        }
        (path / "result.json").write_text(json.dumps({**result, **told}, indent=2))
        swept = {"eps": ".inf" if eps == "inf" else eps, "local_steps": steps, "lr": lr, "seed": seed}
        text = config.replace("  clip: 0.3", f"  clip: {clip}", 1)
        for key, value in swept.items():
            before = next(line for line in text.splitlines() if line.startswith(f"{key}: "))
            text = text.replace(before, f"{key}: {value}", 1)
        (path / ".hydra" / "config.yaml").write_text(text)
        overrides = [f"- {key}={value}" for key, value in {**swept, "eps": eps, "privacy.clip": clip}.items()]
        (path / ".hydra" / "overrides.yaml").write_text("\n".join(overrides) + "\n")
    return folder / "runs"


if __name__ == "__main__":
    sys.exit(main())

"""Seconds and memory of one round of every model on its data set, at both privacy units, as a Markdown table.

    .venv/bin/python scripts/bench_models.py [NAME ...]

Every measurement has a process of its own. Files are looked for in DPFL_DATA_DIR; what is not there is left out.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time

CIFAR = ("dataset=cifar100", "dataset.verify=false", "dataset.download=false", "clients=3", "partition=iid")
LEAF = ("dataset=femnist", "clients=6")
CASES = {
    "logreg": LEAF,
    "mlp": LEAF,
    "dnn_200": ("dataset=digits", "clients=20"),
    "cnn": LEAF,
    "fedexp_cdp": LEAF,
    "fedexp_ldp": LEAF,
    "pfl_cnn_mnist": LEAF,
    "pfl_cnn_cifar": CIFAR,
    "balancing_cnn": CIFAR,
    "vgg11_light": CIFAR,
    "lstm": ("dataset=reddit", "dataset.fraction=0.02", "clients=3", "dataset.clients=3"),
    "unet3d": ("dataset=ixi", "dataset.owners=3", "clients=3"),
}
UNITS = {"client": ("algo=dp_fedavg",), "record": ("algo=dp_fedavg", "privacy=record")}
BATCH = {"unet3d": 2}  # records of a lot: 16 else


def measure(name: str, unit: str) -> dict[str, float | str]:
    """One round of one local step on lots of 16 records, the second of two; memory is the process's peak beyond its data and model."""
    from dpfl_bench import build, compose, config, job

    size = f"batch_size={BATCH.get(name, 16)}"
    overrides = (*CASES[name], f"model={name}", *UNITS[unit], size, "rounds=2", "local_steps=1", "device=cpu", "eps=8")
    settings = config.settings(compose.composed(overrides))
    made = job.prepare(settings)
    cohort = build.cohort(settings, made.budget, made.problem, made.data, 0)
    state = cohort.start(job.initial(made, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for index in range(2):
        started = time.perf_counter()
        state, _ = cohort.play(state, made.schedules[0].round(index))
        seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"parameters": made.problem.dimension, "seconds": seconds, "more": (peak - before) / 1024, "peak": peak / 1024, "lot": size}


def main(names: list[str]) -> None:
    print("| model | data set | clients | parameters | lot | client level: s, MB | record level: s, MB |\n|" + "---|" * 7)
    for name in names or CASES:
        found = {}
        for unit in UNITS:
            done = subprocess.run([sys.executable, __file__, "--one", name, unit], capture_output=True, text=True, check=False)
            found[unit] = json.loads(done.stdout) if done.returncode == 0 else None
        if not all(found.values()):
            print(f"{name}: left out: {done.stderr.splitlines()[-1]}", file=sys.stderr)
            continue
        dataset, clients = (next(o.split("=")[1] for o in CASES[name] if o.startswith(f"{key}=")) for key in ("dataset", "clients"))
        cells = [f"{f['seconds']:.3f}, {f['peak']:.0f}" for f in found.values()]
        lot = found["client"]["lot"].removeprefix("batch_size=")
        print(f"| `{name}` | {dataset} | {clients} | {found['client']['parameters']:,} | {lot} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], sys.argv[3])))
    else:
        main(sys.argv[1:])

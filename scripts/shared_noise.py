"""Table 1 of `dpscaffold` with the defect of its published code: clients of one size draw the same
lots and the same noise, since the code seeds by round and step and not by client.

    .venv/bin/python scripts/shared_noise.py [NOISE MULTIPLIER ...]

Plays the runs of `reproduce dpscaffold/table1 scale=cpu` as they are and with the defect, and
prints both next to the printed accuracies. Its runs are no results: their folder is removed.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dpfl_bench import rng
from dpfl_bench.papers import overlays
from dpfl_bench.papers.artefact import artefacts, load
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.select.expressions import parse
from dpfl_bench.results.select.sources import Run

ARTEFACT = "dpscaffold/table1"
SHARED = ("gradient-noise", "lot")  # the purposes that the published code does not draw for each client


def main(words: list[str]) -> int:
    artefact = load(artefacts()[ARTEFACT])
    printed = next(each for each in artefact.printed if each.id == "accuracy")
    jobs = overlays.recipes(artefact.sweeps, "cpu", "paper")["main"].jobs()
    asked = [float(word) for word in words] or [10.0]
    print("| noise | K | printed | with the defect | each client its own |\n|---|---|---|---|---|")
    for job in jobs:
        values = dict(word.split("=", 1) for word in job)
        noise, steps = float(values["privacy.noise_multiplier"]), int(values["local_steps"])
        if noise in asked:
            cell = printed.cells[int(noise)][steps]
            print(f"| {noise:g} | {steps} | {cell} | {_told(job, shared=True)} | {_told(job)} |", flush=True)
    return 0


def _told(job: tuple[str, ...], shared: bool = False) -> str:
    accuracies = [100 * value for value in _accuracies(job, shared)]
    return f"{np.mean(accuracies):.1f} ± {np.std(accuracies, ddof=1):.1f}"


def _accuracies(job: tuple[str, ...], shared: bool) -> list[float]:
    """Of each seed: the mean test accuracy of the last tenth of the rounds."""
    from dpfl_bench.commands.run import command

    with tempfile.TemporaryDirectory() as folder, _for_all_clients(shared):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
            code = command([*job, "engine.workers=1", f"outputs={folder}"])
        if code:
            raise SystemExit(said.getvalue())
        (path,) = Path(folder, "runs").iterdir()
        run = Run("", path, RunFolder(path).read("result.json"))
        return list(run.by_seed(parse("test_metric"), "10%").values())


@contextlib.contextmanager
def _for_all_clients(shared: bool) -> Any:
    """Inside, the streams of a round are the same for all clients."""
    own: Callable[..., np.random.Generator] = rng.generator

    def without_client(seed: int, purpose: str, *ids: int) -> np.random.Generator:
        return own(seed, purpose, *(ids[:1] if purpose in SHARED else ids))

    rng.generator = without_client if shared else own
    try:
        yield
    finally:
        rng.generator = own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Run folders as runs leave them, for the tests of `collect`; and what a collected folder holds."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path
from typing import Any

from dpfl_bench import RESULTS_VERSION
from dpfl_bench.results.folder import RunFolder

BASE: dict[str, Any] = {
    **{
        "status": "done",
        "algo": "dp_fedavg",
        "dataset": "digits",
        "model": "logreg",
        "eps_target": 2.0,
        "eps": 1.999,
        "delta": 1e-5,
    },
    **{
        "clients": 9,
        "sampled_clients": 9,
        "unit": "client",
        "trust": "secagg",
        "neighbours": "replace_one",
        "observer": "server",
    },
    **{
        "local_steps": 5,
        "rounds": 20,
        "total_steps": 100,
        "clip": 1.0,
        "lr": 0.1,
        "test_error_mean": 0.2,
        "test_error_std": 0.0,
    },
    **{
        "seeds": [0],
        "theory": None,
        "results_version": RESULTS_VERSION,
        "accountant": "exact",
        "fully_accounted": True,
        "seconds": 1.5,
    },
}
CONFIG = (
    "eps: {eps}\nlr: {lr}\nseed: 0\nprivacy:\n  clip: {clip}\n  name: secagg\nalgo:\n  _target_: a.b\n  name:"
    " {algo}\n"
)


def finish(
    name: str, where: str = "runs", *, overrides: str = "", config: str | None = None, **more: Any
) -> Path:
    """A run that ended. `config`: its YAML, by default one of few keys."""
    result = {"run_id": name, **BASE, **more}
    folder = RunFolder(Path(where) / name)
    folder.write("status.json", {"status": result["status"]})
    folder.write("result.json", result)
    if config is None:
        eps = ".inf" if result["eps_target"] == float("inf") else result["eps_target"]
        config = CONFIG.format(**{**result, "eps": eps})
    folder.write(".hydra/config.yaml", config)
    folder.write(".hydra/overrides.yaml", overrides)
    return folder.path


def unfinished(name: str, status: str, where: str = "runs") -> Path:
    RunFolder(Path(where) / name).write("status.json", {"status": status})
    return Path(where) / name


def free(name: str, **more: Any) -> Path:
    """Without privacy."""
    return finish(name, **{"eps_target": float("inf"), "eps": float("inf"), "clip": None, **more})


def table_of(path: Path | str) -> list[dict[str, str]]:
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def parsed(text: str) -> Any:
    return json.loads(text)


def png_size(path: Path) -> tuple[int, int]:
    header = path.read_bytes()[:24]
    assert header[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", header[16:24])
    return width, height

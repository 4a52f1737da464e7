"""The typed settings of a run: what the composed YAML means once it has passed validation."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any, Literal

from dpfl_bench import RESULTS_VERSION


class ConfigError(ValueError):
    """A setting that cannot be: one line that names key, value and remedy."""


@dataclass(frozen=True)
class Privacy:
    name: str
    unit: Literal["client"]
    neighbours: Literal["replace_one", "add_remove_one"]
    trust: Literal["local", "secagg", "central"]
    observer: Literal["server", "third_party"] | None
    bound: Literal["clip", "normalise"]
    clip: float
    bound_without_noise: bool
    memory: Literal["own_message", "own_update"] | None
    mechanism: Literal["gaussian"]
    calibration: Literal["exact", "formula", "fixed"]
    v: float | None
    noise_multiplier: float | None
    accountant: Literal["auto", "exact", "pld", "rdp"]

    @property
    def sensitivity(self) -> float:
        """How far one client moves the sum: 2C if it is replaced, C if it falls silent."""
        return self.clip * (2 if self.neighbours == "replace_one" else 1)

    @property
    def remembered(self) -> str:
        """What a client with control variates remembers of a round: its message with the noise in it, or its update without."""
        return self.memory or ("own_message" if self.trust == "local" else "own_update")

    @property
    def bounded_observer(self) -> Literal["server", "third_party"]:
        return self.observer or ("third_party" if self.trust == "central" else "server")


@dataclass(frozen=True)
class Engine:
    chunk: int | None


@dataclass(frozen=True)
class Theory:
    psi0: float | None
    L: float | None


@dataclass(frozen=True)
class Settings:
    """A whole run. The four dicts are the chosen groups: `_target_`, `name` and the target's own parameters."""

    eps: float
    delta: float
    rounds: int
    local_steps: int
    total_steps: int
    clients: int
    sampled_clients: int
    client_sampling: Literal["fixed", "poisson"]
    batch_size: int | None
    sample_rate: float | None
    records: int | None
    lr: float
    lr_decay: float
    local_momentum: float
    weight_decay: float
    server_lr: float
    server_momentum: float
    seed: int
    repeats: int
    device: str
    dtype: Literal["float32", "float64"]
    eval_every: int
    checkpoint_every: int
    outputs: str
    plot: bool
    engine: Engine
    theory: Theory
    privacy: Privacy
    algo: dict[str, Any]
    dataset: dict[str, Any]
    model: dict[str, Any]
    partition: dict[str, Any]

    @property
    def private(self) -> bool:
        return self.eps != float("inf")

    @property
    def sampling(self) -> Literal["full", "fixed", "poisson"]:
        """Of clients: full | fixed | poisson."""
        return "full" if self.sampled_clients == self.clients else self.client_sampling

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.repeats)

    @property
    def run_id(self) -> str:
        """10 hex of everything that can change a number, and the version of the code's results."""
        told = {f.name: _plain(getattr(self, f.name)) for f in fields(self) if f.name not in _UNTOLD}
        told["dataset"] = {k: v for k, v in self.dataset.items() if k not in _UNTOLD_OF_DATASET}
        if not self.private and not self.privacy.bound_without_noise:  # both doors are open: nothing of these is used
            told["privacy"] = told["delta"] = None
        text = json.dumps([RESULTS_VERSION, told], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]


# Changes of these move no number (beyond float rounding): where and how a run works, what only `plan` reads
_UNTOLD = {"device", "checkpoint_every", "outputs", "plot", "engine", "theory", "records"}
_UNTOLD_OF_DATASET = {"lr", "root", "download", "url", "records", "gram", "max_row_norm"}


def _plain(value: Any) -> Any:
    return {f.name: _plain(getattr(value, f.name)) for f in fields(value)} if isinstance(value, Privacy) else value

"""What `dpfl-bench new` writes: for each kind, a module, its YAML file and a test of both. `{name}`
and `{Name}` are filled in.
"""

from __future__ import annotations

ALGORITHM = '''\
"""DP-FedAvg whose clients are pulled back to the server's model (FedProx). Change it to yours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from dpfl_bench.algorithms.base import Local, Round, Sent, Server


@dataclass(frozen=True)
class {Name}:
    mu: float  # how strong the pull is; every field is a key of the YAML file
    remembers: ClassVar[bool] = False  # True: each client keeps a vector, which `remember` updates

    def start(self, x: Tensor) -> Server:
        return Server(x)

    def client(self, server: Server, memory: Tensor, local: Local) -> Tensor:
        y = server.x.expand_as(memory)  # c clients at once: (c, d)
        for _ in range(local.steps):
            y = local.step(y, local.gradient(y) + self.mu * (y - server.x))
        return y - server.x  # bounded and noised before anybody else sees it

    def server(self, server: Server, sent: Sent, round: Round) -> Server:
        return Server(server.x + sent.mean)

    def remember(self, server: Server, memory: Tensor, sent: Sent, round: Round) -> Tensor:
        return memory
'''
ALGORITHM_YAML = """\
# @package _global_
# {Name}: what `dpfl-bench list` says of it
algo:
  _target_: {name}.{Name}
  name: {name}
  private: true
  mu: 0.1
"""
ALGORITHM_TEST = '''\
"""{Name} trains at both privacy units, and is DP-FedAvg where nothing pulls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dpfl_bench

OWN = str(Path(__file__).parent)
SMALL = {{"rounds": 2, "local_steps": 3, "plot": False, "engine.workers": 1}}


def trained(tmp_path: Path, **settings: Any) -> list[float]:
    asked = {{"outputs": tmp_path, **SMALL, **settings}}
    return list(dpfl_bench.run(asked, config_dir=OWN).metrics["train_loss"])


def test_it_trains_at_both_units(tmp_path: Path) -> None:
    for privacy in ("secagg", "record"):
        assert len(trained(tmp_path, algo="{name}", privacy=privacy)) == 3


def test_without_a_pull_it_is_fedavg(tmp_path: Path) -> None:
    fedavg = trained(tmp_path, algo="dp_fedavg")
    assert trained(tmp_path, algo="{name}", **{{"algo.mu": 0}}) == fedavg
    assert trained(tmp_path, algo="{name}", **{{"algo.mu": 1}}) != fedavg
'''

DATASET = '''\
"""Two clouds of points, from numpy arrays. Change it to your data."""

from __future__ import annotations

import numpy as np

from dpfl_bench.data.records import Records


def load(points: int, seed: int) -> Records:
    """Parameters are keys of the YAML file. Features are float32, labels int64 from 0."""
    draw = np.random.default_rng(seed)
    y = np.arange(points) % 2
    x = draw.normal(size=(points, 2)) + np.where(y, 1.5, -1.5)[:, None]
    x, y = x.astype(np.float32), y.astype(np.int64)
    none = slice(0, 0)  # no test records: test_fraction splits them off
    return Records(x, y, x[none], y[none], owners=None, classes=2, source="{name}", expected=points)
'''
DATASET_YAML = """\
# {Name}: what `dpfl-bench list` says of it
_target_: {name}.load
shape: [2]
classes: 2
points: 500
records: 400  # that train
test_fraction: 0.2
clients: 10
lr: 1.0
"""
MODEL = '''\
"""A small network. Change it to yours."""

from __future__ import annotations

import math

from torch import Tensor, nn


class {Name}(nn.Module):
    """No running statistics, and nothing that looks at the batch as a whole."""

    def __init__(self, inputs: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, hidden), nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x.flatten(1)).tanh())


def build(shape: list[int], classes: int, hidden: int) -> nn.Module:
    """shape, classes: of the records. Further parameters are keys of the YAML file."""
    return {Name}(math.prod(shape), hidden, classes)
'''
MODEL_YAML = """\
# {Name}: what `dpfl-bench list` says of it
_target_: {name}.build
name: {name}
hidden: 16
needs: {{tokens: false, tasks: [classify]}}
"""
TEST = '''\
"""{Name} trains, and learns where there is no noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dpfl_bench

OWN = str(Path(__file__).parent)
SMALL = {{"{group}": "{name}", "local_steps": 5, "plot": False, "engine.workers": 1}}


def trained(tmp_path: Path, **settings: Any) -> dpfl_bench.Run:
    return dpfl_bench.run({{"outputs": tmp_path, **SMALL, **settings}}, config_dir=OWN)


def test_it_trains_at_both_units(tmp_path: Path) -> None:
    for privacy in ("secagg", "record"):
        run = trained(tmp_path, algo="dp_fedavg", rounds=2, privacy=privacy)
        assert run.result["status"] == "done"


def test_it_learns(tmp_path: Path) -> None:
    loss = trained(tmp_path, algo="fedavg", rounds=10, eps=float("inf")).metrics["train_loss"]
    assert loss.iloc[-1] < 0.8 * loss.iloc[0]
'''

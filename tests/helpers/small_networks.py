"""A small CNN and a small LSTM, each with records of ten clients."""

from __future__ import annotations

import numpy as np

from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from helpers.federations import Played, player_on


def images(settings: Settings) -> Played:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 1, 6, 6)).astype(np.float32), draw.integers(0, 3, 120)
    return player_on(
        settings,
        Records(x[:80], y[:80], x[80:], y[80:], None, 3, "random", None),
        list(np.arange(80).reshape(10, 8)),
    )


def sentences(settings: Settings) -> Played:
    tokens = np.random.default_rng(0).integers(0, 5, (120, 8))
    x, y = tokens[:, :-1].astype(np.int16), tokens[:, 1:].astype(np.int16)
    records = Records(x[:80], y[:80], x[80:], y[80:], None, 5, "random", None, task="next_token")
    return player_on(settings, records, list(np.arange(80).reshape(10, 8)))


CNN = {
    "_target_": "dpfl_bench.problems.models.cnn.cnn",
    "name": "cnn",
    "channels": [4, 8],
    "kernel": 3,
    "norm": "group",
}


LSTM = {
    "_target_": "dpfl_bench.problems.models.lstm.lstm",
    "name": "lstm",
    "embedding": 3,
    "hidden": 4,
    "layers": 2,
}


LSTM |= {"every_position": None, "vocabulary": None}
WORDS = {"task": "next_token", "unknown": 1}

"""One federation after the other on the CPU and on the device that is not there (`twin.py`): what
the rounds leave behind, and what crosses between the two.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.experiment import train
from dpfl_bench.federation import dissimilarity
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.diagnostics import Diagnostics
from dpfl_bench.federation.evaluation import evaluate
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.problems.module import ModuleProblem
from helpers import twin
from helpers.algorithms import Algo
from helpers.federations import TINY, Played, player_of, player_on, settings_of
from helpers.small_networks import CNN, LSTM, WORDS, images, sentences

ROUNDING = 1e-6  # of kernels that sum in another order
Build = Callable[[Settings], Played]


def on(where: str, settings: Settings, build: Build = player_of) -> Played:
    """The same chunks and backend wherever it runs."""
    engine = dataclasses.replace(settings.engine, chunk=4, workers=1)
    if engine.backend == "auto" and "linear" not in settings.model["_target_"]:
        engine = dataclasses.replace(engine, backend="flat")
    return build(dataclasses.replace(settings, device=where, engine=engine, rounds=2))


def rounds(played: Played) -> Iterator[tuple[int, TrainingState, Diagnostics, twin.Seen]]:
    """Each round, with what crossed between the devices in it."""
    ends = train.rounds(played.player, played.schedule, played.start, 0)
    for _ in range(played.schedule.rounds):
        with twin.watched() as seen:
            end = next(ends)
        yield (*end, seen)


def numbers(played: Played) -> tuple[dict[str, np.ndarray], twin.Seen]:
    """Everything that the rounds leave behind, and the evaluation of the last model; what crossed
    between the devices in the last round.
    """
    found: dict[str, np.ndarray] = {}
    seen = twin.Seen()
    where = played.job.data.federation.features.device
    for done, state, facts, crossed in rounds(played):
        seen = crossed
        parts = {**state.server._asdict(), "velocity": state.velocity, "memory": state.memory}
        for name, tensor in {**parts, "output": state.output}.items():
            if tensor is not None:
                assert tensor.device == where, name
                found[f"{name} {done}"] = tensor.cpu().double().numpy()
        told = [getattr(facts, f.name) for f in dataclasses.fields(facts) if f.name != "passage"]
        told += [state.clip, *facts.signal_and_noise(), facts.norm_of(0)]
        found[f"facts {done}"] = np.array(told, dtype=float)
        found[f"taken {done}"] = state.ledger.taken.copy()
    x, problem, federation = state.output, played.job.problem, played.job.data.federation
    found["scores"] = np.array(dataclasses.astuple(evaluate(problem, federation, x)))
    if not isinstance(problem, ModuleProblem):  # a network's gradients are those of its rounds
        between = dissimilarity.dissimilarity(Alone(played.player).gradients(x), federation.clients)
        found["dissimilarity"] = np.array(between)
    return found, seen


def assert_same(settings: Settings, build: Build = player_of, rounding: float = 0.0) -> twin.Seen:
    """On both devices. Returns what crossed in the last round."""
    (there, seen), (here, _) = (numbers(on(where, settings, build)) for where in (twin.NAME, "cpu"))
    assert there.keys() == here.keys()
    for name, expected in here.items():
        np.testing.assert_allclose(there[name], expected, rounding, rounding, err_msg=name)
    return seen


# what a round waits for, and what it sends to the device


CHUNKS = 2  # of each round here
# how much more often than once a round waits
FURTHER_WAITS = {
    # PrivUnit's caps are drawn on the CPU, in float64: a chunk's updates come in one piece
    "privunit": CHUNKS,
    # C is the median of the cohort's norms, and the noise of this same round is drawn for that C
    "median": 1,
}


def assert_crossings(seen: twin.Seen, settings: Settings, door: str = "") -> None:
    """The numbers of a round come in one transfer; a chunk's noise goes to the device in one piece,
    and nothing goes there at every step.
    """
    assert sum(seen.waits.values()) == 1 + FURTHER_WAITS.get(door, 0), seen.waits
    assert [place for _, place in seen.waits if place.startswith("federation/diagnostics.py")]
    sent: Counter[str] = Counter()
    for (_, place), often in seen.uploads.items():
        assert often <= 2 * CHUNKS, place  # a chunk's lots are two tensors
        sent[place.partition(":")[0].removeprefix("federation/")] += often
    noise = {file: often for file, often in sent.items() if file.startswith("doors/")}
    assert noise == noise_of(settings, door)


def noise_of(settings: Settings, door: str) -> dict[str, int]:
    """How often noise goes to the device in a round, by the file that sends it."""
    if not settings.private:
        return {}
    if settings.privacy.unit == "record":
        return {"doors/gradient.py": CHUNKS}
    if door == "privunit":
        return {"doors/send_passage.py": CHUNKS}  # messages, noise and all
    return {"doors/send_noise.py": 1 if settings.privacy.trust == "central" else CHUNKS}


# algorithms and doors


LOTS = {"batch_size": 4, "sampled_clients": 6, "server_momentum": 0.5, "average_last": 2}
OWN_UPDATE = {"memory": "own_update"}
DOORS: dict[str, dict[str, Any]] = {
    "local": {"trust": "local"},
    "secagg": {"trust": "secagg", **OWN_UPDATE},
    "central": {"trust": "central", **OWN_UPDATE},
    "discrete": {"trust": "secagg", "noise": "discrete", **OWN_UPDATE},
    "discrete, central": {"trust": "central", "noise": "discrete", **OWN_UPDATE},
    "normalise": {"bound": "normalise"},
    "quantile": {"trust": "central", "quantile": 0.5, **OWN_UPDATE},
    "median": {"clip": "median"},
    "privunit": {"trust": "local", "mechanism": "privunit", "eps0": 2.0, "eps1": 2.0, "eps2": 2.0},
}
RECORD_DOORS: dict[str, dict[str, Any]] = {
    "fixed lots": {"batch_size": 4},
    "full lots": {"batch_size": None},
    "poisson lots": {"batch_size": None, "sample_rate": 0.4},
    "median of a lot": {"privacy": {"clip": "median"}},
}


def doors_of(algo: Algo) -> list[str]:
    settings = algo.settings()
    if not settings.private:
        return ["open"]
    return [*(RECORD_DOORS if settings.privacy.unit == "record" else DOORS), "open"]


# models and backends


def of_shape(shape: tuple[int, ...], classes: int, **more: Any) -> Build:
    """Ten clients with eight records each."""

    def build(settings: Settings) -> Played:
        draw = np.random.default_rng(0)
        x = draw.normal(size=(100, *shape)).astype(np.float32)
        y = draw.integers(0, max(classes, 2), (100, *(shape[1:] if more.get("task") == "segment" else ())))
        if more.get("task") == "segment":
            y = y.astype(np.uint8)
        if classes == 0:
            y = y.astype(np.float32)
        owners = {"owners": np.repeat(np.arange(10), 8), "test_owners": np.arange(20) % 10}
        records = Records(x[:80], y[:80], x[80:], y[80:], None, classes, "random", None, **more)
        records = dataclasses.replace(records, **owners)
        return player_on(settings, records, list(np.arange(80).reshape(10, 8)))

    return build


def model(name: str, **arguments: Any) -> dict[str, Any]:
    return {"_target_": f"dpfl_bench.problems.models.{name}.{name}", "name": name, **arguments}


MLP = model("mlp", hidden=[4])
PLAIN = model(
    "cnn", channels=[4, 3], kernel=3, stride=2, norm="none", pool=1, activation="tempered", hidden=[5]
)
VGG = model("vgg", channels=[3, 4, 4], pool=[2, 1, 1], pooled=2, hidden=[5], norm="group")
UNET = model("unet3d", channels=2, blocks=2)
ONE_CLASS = {**LSTM, "every_position": False}
LEAST_SQUARES = {
    "_target_": "dpfl_bench.problems.linear.linreg",
    "name": "linreg",
    "l2": 0.1,
    "bias": True,
    "init": "near_optimum",
    "init_scale": 1.0,
}
SEGMENTS = {"task": "segment"}
# name -> (model, dataset's settings, its records); the model's family, as in conf/model
MODELS: dict[str, tuple[dict[str, Any] | None, dict[str, Any], Build]] = {
    "two classes": (None, {}, of_shape((5,), 2)),
    "least squares": (LEAST_SQUARES, {}, of_shape((5,), 0)),
    "mlp": (MLP, {}, of_shape((5,), 3)),
    "cnn": (CNN, {}, images),
    "plain cnn": (PLAIN, {}, of_shape((2, 7, 7), 3)),
    "vgg": (VGG, {}, of_shape((1, 6, 6), 3)),
    "unet3d": (UNET, SEGMENTS, of_shape((1, 4, 4, 4), 1, task="segment")),
    "lstm": (LSTM, WORDS, sentences),
}
UNITS = {"client": ("algo=dp_scaffold",), "record": ("algo=dp_scaffold", "privacy=record", "batch_size=3")}
BACKENDS = {"client": ["flat", "vmap", "loop"], "record": ["flat", "vmap", "loop", "opacus"]}
CLOSED = {"two classes", "least squares"}


def backends_of(name: str, unit: str) -> list[str]:
    if name in CLOSED:
        return ["auto"]
    # recurrent layers: vmap refuses them, Opacus has none
    return [each for each in BACKENDS[unit] if name != "lstm" or each in ("flat", "loop")]


def played_by(name: str, unit: str, backend: str) -> tuple[Settings, Build]:
    node, dataset, build = MODELS[name]
    settings = settings_of(*UNITS[unit], *TINY)
    engine = dataclasses.replace(settings.engine, backend=backend)
    settings = dataclasses.replace(
        settings,
        model=settings.model if node is None else node,
        dataset={**settings.dataset, **dataset},
        engine=engine,
        local_steps=2,
        sampled_clients=5,
    )
    return settings, build

"""engine.backend=opacus: the same gradients and runs as `loop`, without traces in the modules; what
it refuses, and when.
"""

from __future__ import annotations

import copy
import dataclasses
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib import util
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command import call
from helpers.federations import TINY, Played, player_on, settings_of
from helpers.mixing_networks import Centred, Detached
from torch import Tensor, nn

from dpfl_bench.assembly.model import build_problem, gradient_backend
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.settings import Settings
from dpfl_bench.data.records import Records
from dpfl_bench.experiment import job, train
from dpfl_bench.federation.workers import Workers
from dpfl_bench.problems.backends import loop
from dpfl_bench.problems.backends.opacus import Opacus, check_opacus
from dpfl_bench.problems.bookkeeping import supported
from dpfl_bench.problems.models.cnn import cnn
from dpfl_bench.problems.models.lstm import lstm
from dpfl_bench.problems.models.mlp import mlp
from dpfl_bench.problems.models.unet3d import unet3d
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.problems.problem import Batch
from dpfl_bench.problems.tasks import Task, classify, segment

# without importing it here: that takes a second of each worker that collects
pytestmark = pytest.mark.skipif(util.find_spec("opacus") is None, reason="Opacus is not installed")
CLIENTS, LOT = 3, 6
DTYPES = {torch.float32: 1e-6, torch.float64: 1e-10}
RECORD = ("engine.backend=opacus", "privacy=record", "privacy.neighbours=replace_one")


class Waves(nn.Module):
    """A layer of a user's own, which book-keeping has no rule for."""

    def __init__(self, units: int) -> None:
        super().__init__()
        self.tanh, self.sine = nn.Parameter(torch.ones(units)), nn.Parameter(torch.full((units,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.tanh * x.tanh() + self.sine * x.sin()


def waves(shape: list[int] | None = None, classes: int = 3, task: str = "classify") -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), Waves(5), nn.Linear(5, classes))


def normed() -> nn.Module:
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(36, 5))
    return nn.Sequential(nn.Flatten(), layer, nn.ELU(), nn.Linear(5, 3))


class Twice(nn.Module):
    """One layer, used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(36, 36)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.layer(x.flatten(1)).tanh())


MODULES: dict[str, Callable[[], nn.Module]] = {
    "mlp": partial(mlp, [1, 6, 6], 3, [7, 5]),
    "cnn": partial(cnn, [1, 6, 6], 3, [4, 8], 3, "none"),
    "groupnorm": partial(cnn, [1, 6, 6], 3, [4, 8], 3, "group"),
    "own layer": waves,
    "weight norm": normed,
    "shared layer": Twice,
}


def problem(make: Callable[[], nn.Module], backend: str, task: Task | None = None) -> ModuleProblem:
    return ModuleProblem(make, 3, 0.3, task or classify(), backend)


def batch_of(dtype: torch.dtype, seed: int = 0) -> Batch:
    """Three lots of 6, 4 and 0 records, with uneven weights."""
    draw = np.random.default_rng(seed)
    features, targets = draw.normal(size=(CLIENTS, LOT, 1, 6, 6)), draw.integers(0, 3, (CLIENTS, LOT))
    weights = draw.uniform(0.1, 1, (CLIENTS, LOT))
    weights[1, 4:], weights[2] = 0, 0
    x, y, w = (torch.from_numpy(values) for values in (features, targets, weights))
    return Batch(x.to(dtype), y, w.to(dtype))


def rows(one: ModuleProblem, dtype: torch.dtype) -> Tensor:
    """Each client at a model of its own."""
    far = torch.from_numpy(np.random.default_rng(1).normal(size=(CLIENTS, one.dimension)))
    return (one.start(3, torch.empty(0)).double() + 0.1 * far).to(dtype)


def halving(norms: Tensor, weights: Tensor) -> Tensor:
    """Clips the longer half, or so, of all gradients."""
    bound = norms[weights > 0].median()
    return bound / norms.clamp(min=bound)


def apart(one: Tensor, other: Tensor) -> float:
    """The largest relative distance of two clients' vectors."""
    lengths = other.norm(dim=1).clamp(min=1e-30)
    return ((one.double() - other.double()).norm(dim=1) / lengths).max().item()


# the same numbers


@pytest.mark.one_in(8)
@pytest.mark.parametrize("held", [True, False], ids=["kept", "computed again"])
@pytest.mark.parametrize("records", [1, 4, 100])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_the_gradients_of_loop(
    name: str, dtype: torch.dtype, records: int, held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (problem(MODULES[name], backend) for backend in ("loop", "opacus"))
    y, batch = rows(ours, dtype), batch_of(dtype)
    expected, lengths = ours.clipped_gradient(y, batch, halving)
    monkeypatch.setattr(loop, "CHUNK_NUMBERS", records * ours.dimension)
    monkeypatch.setattr(loop, "HELD_NUMBERS", 2**26 if held else 0)
    gradient, norms = theirs.clipped_gradient(y, batch, halving)
    assert gradient.dtype == norms.dtype == dtype
    assert apart(gradient, expected) < DTYPES[dtype]
    assert apart(norms, lengths) < DTYPES[dtype]
    assert not norms[batch.weights == 0].any()
    assert (lengths > 1.01 * lengths[batch.weights > 0].median()).any()  # something was clipped
    assert torch.equal(theirs.gradient(y, batch), ours.gradient(y, batch))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_gradients_of_loop_in_three_dimensions(dtype: torch.dtype) -> None:
    draw, make = np.random.default_rng(0), partial(unet3d, [1, 5, 6, 4], 1, 2, 2)
    features = torch.from_numpy(draw.normal(size=(1, 3, 1, 5, 6, 4))).to(dtype)
    targets = torch.from_numpy(draw.integers(0, 2, (1, 3, 5, 6, 4)))
    batch = Batch(features, targets, torch.ones(1, 3, dtype=dtype))
    ours, theirs = (problem(make, backend, segment()) for backend in ("loop", "opacus"))
    y = rows(ours, dtype)[:1]
    expected, lengths = ours.clipped_gradient(y, batch, halving)
    gradient, norms = theirs.clipped_gradient(y, batch, halving)
    assert apart(gradient, expected) < 5 * DTYPES[dtype]  # sums of more positions
    assert apart(norms, lengths) < 5 * DTYPES[dtype]


def test_book_keeping_has_no_rule_for_the_own_layer() -> None:
    assert not supported(waves())
    assert supported(MODULES["mlp"]())


def test_a_record_that_is_not_finite_adds_nothing() -> None:
    ours = problem(MODULES["cnn"], "opacus")
    y, batch = rows(ours, torch.float64), batch_of(torch.float64)
    broken = batch.features.clone()
    broken[0, 2] = torch.inf
    gradient, norms = ours.clipped_gradient(
        y, dataclasses.replace(batch, features=broken), lambda norms, _: norms.isfinite().to(norms)
    )
    assert (~norms.isfinite()).nonzero().tolist() == [[0, 2]]
    weights = batch.weights.clone()
    weights[0, 2] = 0
    without = dataclasses.replace(batch, weights=weights)
    expected, _ = ours.clipped_gradient(y, without, lambda norms, _: torch.ones_like(norms))
    assert apart(gradient, expected) < 1e-12


# no traces


@pytest.mark.parametrize("name", MODULES)
def test_nothing_is_left_in_the_module(name: str) -> None:
    """Neither gradients nor inputs nor graphs; asked again, the same bits."""
    one = problem(MODULES[name], "opacus")
    y, batch = rows(one, torch.float32), batch_of(torch.float32)
    first = one.clipped_gradient(y, batch, halving)[0]
    one.clipped_gradient(2 * y, batch_of(torch.float32, 1), halving)
    assert torch.equal(one.clipped_gradient(y, batch, halving)[0], first)
    backend: Any = one._backend
    (hooked,) = backend._by_kind.values()
    for p in hooked.module.parameters():
        assert p.grad is p.grad_sample is None
        assert p._forward_counter == 0
        assert not hasattr(p, "_current_grad_sample")
    assert not any(getattr(layer, "activations", []) for layer in hooked.module.modules())
    assert not any(layer._forward_hooks or layer._backward_hooks for layer in one.network.module.modules())


def test_an_error_in_the_middle_leaves_nothing() -> None:
    """A forward pass without its backward pass would leave inputs in Opacus' hooks."""
    one = problem(MODULES["cnn"], "opacus")
    y, batch = rows(one, torch.float64), batch_of(torch.float64)
    expected = one.clipped_gradient(y, batch, halving)[0]
    wrong = dataclasses.replace(batch, targets=torch.full_like(batch.targets, 7))  # of three classes
    with pytest.raises((IndexError, RuntimeError)):
        one.clipped_gradient(y, wrong, halving)
    assert torch.equal(one.clipped_gradient(y, batch, halving)[0], expected)


def test_a_copy_is_its_own() -> None:
    one = problem(MODULES["mlp"], "opacus")
    y, batch = rows(one, torch.float64), batch_of(torch.float64)
    expected = one.clipped_gradient(y, batch, halving)[0]
    other = copy.deepcopy(problem(MODULES["mlp"], "opacus"))
    other.clipped_gradient(3 * y, batch, halving)
    assert torch.equal(one.clipped_gradient(y, batch, halving)[0], expected)


def test_the_caller_hears_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    one = problem(MODULES["groupnorm"], "opacus")
    one.clipped_gradient(rows(one, torch.float32), batch_of(torch.float32), halving)
    assert not [str(w.message) for w in recwarn]


# whole runs


def played(backend: str, *overrides: str, **model: Any) -> Played:
    settings = settings_of(*TINY, "algo=dp_scaffold", *RECORD, "sampled_clients=9", *overrides)
    engine = dataclasses.replace(settings.engine, backend=backend, chunk=2)  # type: ignore[arg-type]
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(120, 1, 6, 6)).astype(np.float32), draw.integers(0, 3, 120)
    records = Records(x[:80], y[:80], x[80:], y[80:], None, 3, "random", None)
    settings = dataclasses.replace(settings, model=model, engine=engine)
    return player_on(settings, records, list(np.arange(80).reshape(10, 8)))


CNN = {"_target_": "dpfl_bench.problems.models.cnn.cnn", "name": "cnn", "channels": [4], "kernel": 3}
LOTS = {
    "fixed": ("batch_size=4",),
    "full": (),
    "poisson": ("sample_rate=0.2", "privacy.neighbours=add_remove_one"),
    "without noise": ("batch_size=4", "eps=inf", "privacy.bound_without_noise=true", "privacy.clip=0.1"),
    "open door": ("batch_size=4", "eps=inf", "privacy.calibration=exact", "privacy.noise_multiplier=null"),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("lots", LOTS)
def test_a_private_run_is_that_of_loop(lots: str) -> None:
    """The same lots, cohorts and noise; C is such that it clips."""
    ends = {
        name: played(name, *LOTS[lots], "dtype=float64", **CNN, norm="group").states()[-1]
        for name in ("loop", "opacus")
    }
    one, other = ends["opacus"], ends["loop"]
    assert apart(one.server.x[None], other.server.x[None]) < 1e-10
    assert apart(one.memory, other.memory) < 1e-9  # differences of almost equal numbers
    assert np.array_equal(one.ledger.taken, other.ledger.taken)
    assert one.ledger.taken.any() == ("eps=inf" not in LOTS[lots])


@pytest.mark.slow
def test_workers_compute_the_same_bits() -> None:
    def ends(workers: int) -> list[bytes]:
        game = played("opacus", "batch_size=4", **CNN, norm="group")
        if not workers:
            return [state.server.x.numpy().tobytes() for state in game.states()]
        with Workers(game.player, game.start, workers) as crew:
            states = train.rounds(game.player, game.schedule, game.start, 0, crew)
            return [state.server.x.numpy().tobytes() for _, state, _ in states]

    alone = ends(0)
    assert ends(2) == ends(3) == alone
    assert len(set(alone)) == len(alone)


def test_a_users_own_layer_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    piece = Opacus.piece
    monkeypatch.setattr(Opacus, "piece", lambda *given: calls.append(1) or piece(*given))
    model = {"_target_": f"{__name__}.waves", "name": "waves"}
    one, other = (played(name, "batch_size=4", "dtype=float64", **model).x() for name in ("opacus", "flat"))
    assert apart(one[None], other[None]) < 1e-10
    assert calls


@pytest.mark.slow
def test_the_command_runs_it(tmp_path: Any) -> None:
    model = ("dataset=digits", "model=mlp", "model.hidden=[4]")
    small = ("clients=4", "rounds=1", "local_steps=2", "batch_size=4", "device=cpu", "plot=false")
    said = call("run", *model, *small, "algo=dp_fedavg", *RECORD, f"outputs={tmp_path}")
    assert said.code == 0, said.err
    assert "Warning" not in said.err


# which one, and what is refused


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["cnn", "own layer"])
def test_auto_never_takes_it(name: str, device: str) -> None:
    settings = settings_of(*TINY, "algo=dp_fedavg", "privacy=record", "privacy.neighbours=replace_one")
    with torch.device("meta"):
        module = MODULES[name]()
    assert gradient_backend(settings, module, torch.device(device)) in ("flat", "vmap")


def refused(monkeypatch: pytest.MonkeyPatch, *overrides: str) -> str:
    """The one line with which a run ends before data load."""

    def loaded(*_: Any) -> None:
        raise AssertionError("data")

    monkeypatch.setattr(job, "load_data", loaded)
    said = call("run", "eps=2", "device=cpu", *overrides)
    assert said.code == 2
    return said.err.strip().splitlines()[-1].removeprefix("dpfl-bench: ")


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec
    monkeypatch.setattr(
        "dpfl_bench.config.refusals.find_spec", lambda name: None if name == "opacus" else find(name)
    )
    line = (
        "engine.backend=opacus: expected the package opacus, there is none; pip install 'dpfl-bench[opacus]'"
    )
    assert refused(monkeypatch, "dataset=digits", "model=mlp", "algo=dp_fedavg", *RECORD) == line
    settings_of("dataset=digits", "model=mlp", "algo=dp_fedavg", *RECORD[1:])  # others need no Opacus


@pytest.mark.slow
def test_it_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys, torch\nfrom dpfl_bench.problems.module import ModuleProblem\n"
        "ModuleProblem(lambda: torch.nn.Linear(2, 2), 2, backend='flat').dimension\n"
        "assert 'opacus' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


AT_CLIENTS = ("dataset=digits", "model=mlp", "algo=dp_fedavg", "engine.backend=opacus")
REFUSED = {
    "client level": (AT_CLIENTS, "expected privacy.unit=record, where single records' gradients are clipped"),
    "no privacy": ((*AT_CLIENTS, "algo=fedavg"), "expected privacy.unit=record"),
    "recurrent": (
        ("dataset=shakespeare", "clients=3", "records=10", "algo=dp_fedavg", *RECORD),
        "model=lstm: Opacus has no gradients for LSTM; use engine.backend=auto",
    ),
    "linear": (("dataset=digits", "model=logreg", "algo=dp_fedavg", *RECORD),
        "model=logreg has closed forms"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_refused_in_one_line_before_data_loads(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    overrides, why = REFUSED[what]
    line = refused(monkeypatch, *overrides)
    assert line.startswith("engine.backend=opacus: ")
    assert why in line


class Borrowed(nn.Module):
    """A layer's parameter is used outside of the layer, where no hook sees it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(self.layer(x).tanh(), self.layer.weight)


def tokens(**settings: Any) -> nn.Module:
    return nn.Sequential(nn.Embedding(5, 3, **settings), nn.Flatten(), nn.Linear(18, 3))


UNFIT: dict[str, tuple[Callable[[], nn.Module], list[int], str]] = {
    "lstm": (partial(lstm, [6], 5, 3, 4, 2, True, None), [6], "Opacus has no gradients for LSTM"),
    "gru": (lambda: nn.Sequential(nn.GRU(4, 3)), [5, 4], "Opacus has no gradients for GRU"),
    "batch norm": (partial(cnn, [1, 6, 6], 3, [4], 3, "batch"), [1, 6, 6], "BatchNorm2d mixes the records"),
    "centred": (Centred, [4], "it mixes the records"),
    "detached": (Detached, [4], "it mixes the records"),
    "borrowed": (Borrowed, [4], "do not add up to torch's"),
    "in place": (lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True)), [4], "Opacus refuses it"),
    "padded tokens": (partial(tokens, padding_idx=0), [6], "takes no heed of Embedding's padding_idx"),
    "shrunk tokens": (partial(tokens, max_norm=1.0), [6], "takes no heed of Embedding's max_norm"),
    "counted tokens": (partial(tokens, scale_grad_by_freq=True), [6], "Embedding's scale_grad_by_freq"),
}  # fmt: skip


@pytest.mark.parametrize("what", UNFIT)
def test_modules_that_opacus_computes_otherwise(what: str) -> None:
    make, shape, why = UNFIT[what]
    with pytest.raises(ValueError, match=why) as error:
        check_opacus(make, shape, 5 if shape == [6] else 0)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", MODULES)
def test_modules_that_are_not_refused(name: str) -> None:
    check_opacus(MODULES[name], [1, 6, 6], 0)


def test_dropout_and_plain_tokens_are_not_refused() -> None:
    check_opacus(tokens, [6], 5)
    check_opacus(lambda: nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3)), [4], 0)


def test_a_model_that_is_refused_names_it() -> None:
    settings: Settings = settings_of("dataset=digits", "model=mlp", "algo=dp_fedavg", *RECORD)
    model = {"_target_": f"{__name__}.mixing", "name": "mixing"}
    line = "engine.backend=opacus: model=mixing: it mixes the records of a batch; use engine.backend=auto"
    with pytest.raises(ConfigError) as error:
        build_problem(dataclasses.replace(settings, model=model), [4], 3)
    assert str(error.value) == line


def mixing(shape: list[int], classes: int, task: str) -> nn.Module:
    return Centred()

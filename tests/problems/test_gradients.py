"""Gradients of many clients at once against a batch-of-one loop through autograd; losses and scores
by hand; optima by scipy.
"""

from __future__ import annotations

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers.federations import settings_of
from oracles import reference as ref
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn import functional

from dpfl_bench.assembly.model import build_problem
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.data.records import Records
from dpfl_bench.federation.clients import Federation
from dpfl_bench.federation.evaluation import evaluate
from dpfl_bench.federation.sampling import LotRule
from dpfl_bench.problems import optimum
from dpfl_bench.problems.linear import linreg, logreg
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.models.cnn import cnn
from dpfl_bench.problems.models.mlp import mlp
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.problems.problem import Batch, Problem

CLIENTS, LOT, CLASSES = 3, 5, 4
KINDS = {"binary": 2, "softmax": CLASSES, "squared": 0}


def batch_of(shape: tuple[int, ...], classes: int) -> Batch:
    """Uneven weights; the second client's last two rows are padding (weight 0, its first record
    again), the third's lot is empty.
    """
    draw = np.random.default_rng(0)
    features = torch.from_numpy(draw.normal(size=(CLIENTS, LOT, *shape)))
    targets = torch.from_numpy(
        draw.integers(0, classes, (CLIENTS, LOT)) if classes else draw.normal(size=(CLIENTS, LOT))
    )
    weights = torch.from_numpy(draw.random((CLIENTS, LOT)))
    features[1, 3:], targets[1, 3:], weights[1, 3:] = features[1, 0], targets[1, 0], 0
    weights[2] = 0
    return Batch(features, targets, weights)


def one_by_one(forward, y: Tensor, batch: Batch, classes: int, l2: float) -> Tensor:
    """Each record alone through autograd. forward: (parameters, one record) -> outputs."""
    rows = []
    for i in range(len(y)):
        total = l2 * y[i]
        for record, target, weight in zip(batch.features[i], batch.targets[i], batch.weights[i], strict=True):
            leaf = y[i].clone().requires_grad_()
            loss(forward(leaf, record), target, classes).backward()
            total = total + weight * leaf.grad
        rows.append(total)
    return torch.stack(rows)


def loss(outputs: Tensor, target: Tensor, classes: int) -> Tensor:
    if classes == 0:
        return (outputs[0] - target) ** 2 / 2
    if len(outputs) == 1:  # one logit
        return -functional.logsigmoid(outputs[0] if target == 1 else -outputs[0])
    return -functional.log_softmax(outputs, 0)[target]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("kind", KINDS)
def test_linear_gradients(kind: str, bias: bool, l2: float) -> None:
    classes = KINDS[kind]
    problem = LinearProblem(6, classes, bias, l2)
    batch = batch_of((2, 3), classes)
    y = torch.from_numpy(np.random.default_rng(1).normal(size=(CLIENTS, problem.dimension)))
    outputs = CLASSES if kind == "softmax" else 1
    assert problem.dimension == outputs * (6 + bias)

    def forward(flat: Tensor, record: Tensor) -> Tensor:
        scores = flat[: 6 * outputs].reshape(outputs, 6) @ record.flatten()
        return scores + flat[6 * outputs :] if bias else scores

    expected = one_by_one(forward, y, batch, classes, l2)
    torch.testing.assert_close(problem.gradient(y, batch), expected, rtol=1e-12, atol=1e-14)
    assert torch.equal(problem.gradient(y, batch)[2], l2 * y[2])  # an empty lot


NETWORKS = {
    "mlp": partial(mlp, [1, 8, 8], CLASSES, [7, 5]),
    "cnn": partial(cnn, [1, 8, 8], CLASSES, [4, 8], 3, "none"),
    "cnn-group": partial(cnn, [1, 8, 8], CLASSES, [4, 8], 3, "group"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_padding_counts_nothing_whatever_it_holds(kind: str) -> None:
    """It is the client's first record, which a Poisson lot need not have drawn: nothing of it may
    come in, not even an overflow.
    """
    problem = LinearProblem(3, KINDS[kind], True, 0.0)
    batch = batch_of((3,), KINDS[kind])
    wild = Batch(batch.features.clone(), batch.targets, batch.weights, batch.sizes)
    wild.features[1, 3:] = 1e308
    y = torch.full((CLIENTS, problem.dimension), 10.0, dtype=torch.float64)
    y[:, ::2] = -20.0

    def found(batch: Batch) -> list[Tensor]:
        return [
            problem.gradient(y, batch),
            *problem.clipped_gradient(y, batch, lambda norms, weights: 0.1 / norms.clamp(min=0.1)),
        ]

    for one, other in zip(found(batch), found(wild), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("network", NETWORKS)
def test_module_gradients(network: str, l2: float) -> None:
    make = NETWORKS[network]
    problem = ModuleProblem(make, CLASSES, l2)
    batch = batch_of((1, 8, 8), CLASSES)
    start = problem.start(3, torch.empty(0, dtype=torch.float64))
    y = start + 0.1 * torch.from_numpy(np.random.default_rng(1).normal(size=(CLIENTS, len(start))))
    expected = torch.stack([_of_module(make().double(), y[i], batch, i) for i in range(CLIENTS)]) + l2 * y
    torch.testing.assert_close(problem.gradient(y, batch), expected, rtol=1e-9, atol=1e-12)


def _of_module(module: nn.Module, flat: Tensor, batch: Batch, i: int) -> Tensor:
    """Through an ordinary module whose parameters are set, one record after the other."""
    nn.utils.vector_to_parameters(flat, module.parameters())
    for record, target, weight in zip(batch.features[i], batch.targets[i], batch.weights[i], strict=True):
        (weight * loss(module(record[None])[0], target, CLASSES)).backward()
    return torch.cat([p.grad.flatten() for p in module.parameters()])  # type: ignore[union-attr]


def test_start_is_torchs_own_initialisation_from_the_seed() -> None:
    problem = ModuleProblem(NETWORKS["cnn"], CLASSES)
    one, again, other = (problem.start(seed, torch.empty(0)) for seed in (3, 3, 4))
    assert one.shape == (problem.dimension,)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert 0 < one.abs().max() <= 1 / 3  # kaiming_uniform with a=sqrt(5): 1 / sqrt(fan_in), at least 9
    assert torch.equal(logreg([6], 2, 0.1, None).start(3, torch.empty(0)), torch.zeros(6))


# losses and scores by hand


def test_losses_and_hits_by_hand() -> None:
    rows = torch.tensor([[1.0, 2.0], [-3.0, 0.5]])
    found, hits, _ = logreg([2], 2, 0.5, None).losses(
        torch.tensor([np.log(3.0), 0.0]).float(), rows, torch.tensor([1, 1])
    )
    torch.testing.assert_close(
        found, torch.tensor([np.log(4 / 3), np.log(28.0)]).float()
    )  # logits ln 3 and -3 ln 3; l2 is not in it
    assert hits.tolist() == [1, 0]
    x = torch.tensor(
        [0.0, np.log(2.0), 0.0, 0.0, 0.0, 0.0, 0.0, np.log(3.0), 0.0]
    ).float()  # three classes, two features, three biases
    found, hits, _ = logreg([2], 3, 0.0, None).losses(x, torch.tensor([[5.0, 1.0]]), torch.tensor([1]))
    torch.testing.assert_close(found, torch.tensor([np.log(2.0)]).float())  # probabilities (2, 3, 1) / 6
    assert hits.tolist() == [1]
    problem = linreg([2], 0, 0.0, True, "zeros", 1.0)
    found, squares, _ = problem.losses(torch.tensor([1.0, -1.0, 0.5]), rows, torch.tensor([0.5, 1.0]))
    torch.testing.assert_close(found, torch.tensor([0.5, 8.0]))  # predictions -.5 and -3
    torch.testing.assert_close(squares, 2 * found)


def federation(
    x: np.ndarray,
    y: np.ndarray,
    sizes: list[int],
    classes: int,
    tests: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Federation:
    parts = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    train = slice(0, len(x) - tests)
    records = Records(
        x[train], y[train], x[len(x) - tests :], y[len(x) - tests :], None, classes, "test", None
    )
    return Federation(records, parts, LotRule(), torch.device("cpu"), dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_train_loss_is_the_mean_over_clients(kind: str) -> None:
    """Not over records: the sizes are 1, 4 and 10."""
    classes, draw = KINDS[kind], np.random.default_rng(2)
    x = draw.normal(size=(20, 3)).astype(np.float32)
    y = draw.integers(0, classes, 20) if classes else draw.normal(size=20).astype(np.float32)
    problem = LinearProblem(3, classes, True, 0.2)
    flat = draw.normal(size=problem.dimension)
    scores = evaluate(problem, federation(x, y, [1, 4, 10], classes, tests=5), torch.from_numpy(flat))
    clients = [(x[a:b].astype(float), y[a:b]) for a, b in ((0, 1), (1, 5), (5, 15))]
    losses = [ref.loss(kind, flat, X, t, 0.2, classes, True) for X, t in clients]
    assert scores.train_loss == pytest.approx(np.mean(losses), rel=1e-12)
    assert scores.test_loss == pytest.approx(
        ref.loss(kind, flat, x[15:].astype(float), y[15:], 0.0, classes, True), rel=1e-12
    )


def test_r_squared() -> None:
    x = np.array([[0.0], [1.0], [2.0], [3.0]], dtype=np.float32)
    y = np.array([1.0, 0.0, 2.0, 5.0], dtype=np.float32)
    problem = linreg([1], 0, 0.0, False, "zeros", 1.0)
    ones = torch.ones(1, dtype=torch.float64)
    scores = evaluate(problem, federation(x, y, [2, 2], 0), ones)  # errors 1, -1, 0, -2
    assert scores.train_metric == pytest.approx(1 - 6 / 14)
    assert scores.train_loss == pytest.approx(6 / 8)
    assert np.isnan([scores.test_metric, scores.test_error, scores.test_loss]).all(), "there is no test set"
    tested = evaluate(problem, federation(x, y, [1, 1], 0, tests=2), ones)  # errors 0, -2 of 2, 5
    assert tested.test_error == pytest.approx(4 / 4.5)
    assert tested.test_loss == pytest.approx(1)
    mean = evaluate(
        linreg([1], 0, 0.0, True, "zeros", 1.0),
        federation(x, y, [2, 2], 0),
        torch.tensor([0.0, 2.0]).double(),
    )
    assert mean.train_metric == pytest.approx(0)


def test_images_stay_bytes_until_their_batch() -> None:
    draw = np.random.default_rng(4)
    x, y = draw.integers(0, 256, (9, 1, 4, 4)).astype(np.uint8), draw.integers(0, 3, 9)
    bytes_, floats = (
        federation(v, y, [4, 2], 3, 3, torch.float32) for v in (x, (x / 255).astype(np.float32))
    )
    assert bytes_.features.dtype == torch.uint8
    problem: Problem = logreg([1, 4, 4], 3, 0.1, None)
    flat = torch.from_numpy(draw.normal(size=(2, problem.dimension))).float()
    pairs = [next(f.batches(0, 0, np.arange(2), 1)) for f in (bytes_, floats)]
    assert pairs[0].features.dtype == torch.float32
    assert 0.9 < pairs[0].features.max() <= 1
    torch.testing.assert_close(*(problem.gradient(flat, batch) for batch in pairs))
    scores = [evaluate(problem, f, flat[0]) for f in (bytes_, floats)]
    assert scores[0].train_loss == pytest.approx(scores[1].train_loss, rel=1e-6)
    assert scores[0].test_loss == pytest.approx(scores[1].test_loss, rel=1e-6)
    torch.testing.assert_close(
        *(next(f.whole_in_float64(np.arange(1))).features for f in (bytes_, floats)), rtol=1e-6, atol=0
    )


def test_tokens_stay_integers_all_the_way() -> None:
    """Only bytes are images."""
    draw = np.random.default_rng(5)
    x, y = draw.integers(0, 300, (9, 5)), draw.integers(0, CLASSES, 9)
    made = federation(x, y, [4, 2], CLASSES, 3, torch.float32)
    problem = ModuleProblem(
        lambda: nn.Sequential(nn.Embedding(300, 2), nn.Flatten(), nn.Linear(10, CLASSES)), CLASSES
    )
    flat = torch.stack([problem.start(seed, torch.empty(0)) for seed in (3, 4)])
    batch = next(made.batches(0, 0, np.arange(2), 1))
    assert batch.features.dtype == torch.int64
    assert batch.features[0].tolist() == x[:4].tolist()
    expected = torch.stack([_of_module(problem.make(), row, batch, i) for i, row in enumerate(flat)])
    torch.testing.assert_close(problem.gradient(flat, batch), expected)
    torch.testing.assert_close(
        problem.clipped_gradient(flat, batch, lambda norms, weights: torch.ones_like(norms))[0], expected
    )
    assert np.isfinite(evaluate(problem, made, flat[0]).test_loss)


# what the YAML files say


def test_batch_norm_is_refused_when_private() -> None:
    images = ("dataset=mnist", "model=cnn", "model.norm=batch")
    private = dataclasses.replace(
        settings_of(*images, "eps=inf"), eps=2.0
    )  # composed with eps=2 it is refused from the YAML alone
    with pytest.raises(ConfigError, match=r"BatchNorm.*GroupNorm"):
        build_problem(private, [1, 28, 28], 10)
    assert build_problem(settings_of(*images, "eps=inf"), [1, 28, 28], 10).dimension == 28_938 + 2 * (16 + 32)
    assert build_problem(
        settings_of(*images[:2], "model.norm=group"), [1, 28, 28], 10
    ).dimension == 28_938 + 2 * (16 + 32)


# optima and constants


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_optimum_and_smoothness(kind: str, bias: bool) -> None:
    classes, draw, sizes, decay = KINDS[kind], np.random.default_rng(6), [3, 20, 7], 0.05
    x = (draw.normal(size=(30, 4)) + 1).astype(np.float32)
    y = draw.integers(0, classes, 30) if classes else draw.normal(size=30).astype(np.float32)
    made, problem = federation(x, y, sizes, classes), LinearProblem(4, classes, bias, decay)
    clients = [(x[a:b].astype(float), y[a:b]) for a, b in ((0, 3), (3, 23), (23, 30))]

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        values = [ref.loss(kind, flat, X, t, decay, classes, bias) for X, t in clients]
        return float(np.mean(values)), np.mean(
            [ref.gradient(kind, flat, X, t, decay, classes, bias) for X, t in clients], axis=0
        )

    best = minimize(objective, np.zeros(problem.dimension), jac=True, method="BFGS", options={"gtol": 1e-9})
    found = optimum.solve(problem, made.features, made.targets, made.record_weights, decay)
    assert found is not None
    assert np.linalg.norm(objective(found.x.numpy())[1]) < 1e-12
    np.testing.assert_allclose(found.x.numpy(), best.x, atol=1e-6)
    assert found.value == pytest.approx(best.fun, rel=1e-10)
    factor = {"binary": 1 / 4, "softmax": 1 / 2, "squared": 1}[kind]
    rows = [np.hstack([X, np.ones((len(X), 1))]) if bias else X for X, _ in clients]
    largest = max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X in rows)
    assert optimum.smoothness(problem, made.features, made.offsets.tolist(), decay) == pytest.approx(
        factor * largest + decay, rel=1e-12
    )
    if classes:
        assert (
            optimum.solve(problem, made.features, made.targets, made.record_weights, 0.0) is None
        )  # may lie at infinity


def test_natural_clients_are_scored_on_their_own_test_records() -> None:
    """dpscaffold's accuracy: the mean over users, whatever their number of test records; of no use
    where clients are dealt.
    """
    x = np.array([[1.0], [1.0], [-1.0], [1.0], [1.0], [-1.0], [1.0]], dtype=np.float32)
    y = np.array([1, 1, 0])
    test_y = np.array([1, 1, 1, 0])  # the last client's: a hit, a hit, a miss; the first one's: a miss
    owners, test_owners = np.array([0, 1, 2]), np.array([2, 2, 2, 0])
    made = Records(x[:3], y, x[[3, 4, 5, 6]], test_y, owners, 2, "test", None, test_owners=test_owners)
    parts = [np.array([i]) for i in range(3)]
    problem = LinearProblem(1, 2, False, 0.0)
    for dealt, expected in ((parts, (2 / 3 + 0) / 2), (parts[::-1], math.nan)):
        federation = Federation(made, dealt, LotRule(), torch.device("cpu"), torch.float64)
        found = evaluate(problem, federation, torch.ones(1, dtype=torch.float64))
        assert found.test_metric == 0.5
        assert found.client_metric == pytest.approx(expected, nan_ok=True)

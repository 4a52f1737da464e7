"""The reference's losses, gradients and bounds, against derivatives and numbers worked out by
hand.
"""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracles import reference as ref
from oracles.small_problems import KINDS, jacobian, points, problem


def test_it_imports_nothing_but_numpy():
    files = sorted(Path(ref.__file__).parent.glob("*.py"))
    assert len(files) == 5
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    modules -= {f"oracles.reference.{file.stem}" for file in files}
    assert modules == {"collections.abc", "dataclasses", "numpy", "numpy.typing"}


# losses


@pytest.mark.parametrize(("kind", "classes"), KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_is_the_derivative_of_the_loss(kind, classes, bias, weighted):
    rng = np.random.default_rng(1)
    X, y = problem(kind, classes)[3]
    weights = rng.random(len(y)) if weighted else None
    x = rng.normal(size=ref.parameters(kind, X.shape[1], classes, bias))
    differences = jacobian(
        lambda z: np.array([ref.loss(kind, z, X, y, 0.3, classes, bias, weights)]), x, 1e-5
    )[0]
    np.testing.assert_allclose(
        ref.gradient(kind, x, X, y, 0.3, classes, bias, weights), differences, rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("bias", [False, True])
def test_squared_gradient_is_the_normal_equations(bias):
    X, y = problem()[1]
    x = np.arange(1.0, X.shape[1] + 1 + bias)
    Z = np.hstack([X, np.ones((len(X), 1))]) if bias else X
    expected = Z.T @ (Z @ x - y) / len(y) + 0.2 * x
    np.testing.assert_allclose(ref.gradient("squared", x, X, y, 0.2, bias=bias), expected, rtol=1e-12)


def test_binary_by_hand():
    X, y = np.array([[1.0, 2.0], [-3.0, 0.5]]), np.array([1, 0])
    assert ref.loss("binary", np.zeros(3), X, y, bias=True) == pytest.approx(np.log(2))
    # at zero every residual is 1/2 - label: ((-1/2)(1, 2, 1) + (1/2)(-3, .5, 1)) / 2
    np.testing.assert_allclose(ref.gradient("binary", np.zeros(3), X, y, bias=True), [-1.0, -0.375, 0.0])
    # logit log 3, probability 3/4, label 1
    x = np.array([np.log(3.0), 0.0])
    assert ref.loss("binary", x, X[:1], y[:1]) == pytest.approx(np.log(4 / 3))
    np.testing.assert_allclose(ref.gradient("binary", x, X[:1], y[:1]), [-0.25, -0.5])


def test_softmax_layout_by_hand():
    """Row-major weights, then biases: scores (log 2, log 3, 0), probabilities (2, 3, 1) / 6, label
    1.
    """
    x = np.array([0.0, np.log(2.0), 0.0, 0.0, 0.0, 0.0, 0.0, np.log(3.0), 0.0])
    X, y = np.array([[5.0, 1.0]]), np.array([1])
    assert ref.loss("softmax", x, X, y, classes=3, bias=True) == pytest.approx(np.log(2))
    residual = np.array([1 / 3, -1 / 2, 1 / 6])
    expected = np.concatenate([np.outer(residual, [5.0, 1.0]).ravel(), residual])
    np.testing.assert_allclose(ref.gradient("softmax", x, X, y, classes=3, bias=True), expected, rtol=1e-12)


def test_two_class_softmax_is_the_one_logit_model():
    X, y = problem("binary")[3]
    W = np.random.default_rng(2).normal(size=(2, X.shape[1]))
    one = W[1] - W[0]
    assert ref.loss("softmax", W.ravel(), X, y) == pytest.approx(ref.loss("binary", one, X, y), rel=1e-12)
    g = ref.gradient("binary", one, X, y)
    np.testing.assert_allclose(ref.gradient("softmax", W.ravel(), X, y), np.concatenate([-g, g]), rtol=1e-10)


@pytest.mark.parametrize(("kind", "x"), [("binary", [900.0]), ("softmax", [-450.0, 450.0])])
def test_large_logits_do_not_overflow(kind, x):
    """Margins of 900: two records right, the last one wrong."""
    X, y = np.array([[1.0], [-1.0], [1.0]]), np.array([1, 0, 0])
    with np.errstate(over="raise", invalid="raise"):
        assert ref.loss(kind, np.array(x), X, y) == pytest.approx(300.0)
        np.testing.assert_allclose(ref.gradient(kind, np.array(x), X, y)[-1], 1 / 3)


@pytest.mark.parametrize(("kind", "classes"), KINDS)
def test_record_weights(kind, classes):
    X, y = problem(kind, classes)[2]
    x = np.random.default_rng(3).normal(size=ref.parameters(kind, 3, classes, True))
    mean = ref.gradient(kind, x, X, y, 0.1, classes, True)
    one_by_one = [ref.gradient(kind, x, X[[r]], y[[r]], 0.0, classes, True) for r in range(len(y))]
    np.testing.assert_allclose(mean, np.mean(one_by_one, axis=0) + 0.1 * x, rtol=1e-12)
    weights = np.linspace(0.0, 2.0, len(y))
    weighted = sum(w * g for w, g in zip(weights, one_by_one, strict=True)) + 0.1 * x
    np.testing.assert_allclose(ref.gradient(kind, x, X, y, 0.1, classes, True, weights), weighted, rtol=1e-12)
    # an empty Poisson lot leaves the regulariser
    np.testing.assert_allclose(ref.gradient(kind, x, X[:0], y[:0], 0.1, classes, True, np.zeros(0)), 0.1 * x)


def test_bad_input_is_refused():
    X, y = problem()[0]
    with pytest.raises(ValueError, match="unknown kind"):
        ref.gradient("hinge", np.zeros(3), X, y)
    with pytest.raises(ValueError, match="shape"):
        ref.gradient("squared", np.zeros(4), X, y)
    for wrong in ({"bound": "clip"}, {"clip": 1.0}, {"bound": "clap", "clip": 1.0}, {"lr": [0.1]}):
        good = {
            "kind": "squared",
            "lr": [0.1] * 2,
            "steps": [1] * 2,
            "cohorts": [[0]] * 2,
            "divisor": [1] * 2,
        }
        with pytest.raises(ValueError, match=r"bound|entry"):
            ref.Setting(**(good | wrong))
    with pytest.raises(ValueError, match="twice"):
        ref.Setting(kind="squared", lr=[0.1], steps=[1], cohorts=[[0, 0]], divisor=[2])
    plain = ref.Setting(kind="squared", lr=[0.1], steps=[1], cohorts=[[0]], divisor=[1])

    def noise(k, i):
        return None

    for wrong in (
        {"clip_median": True},
        {"clip_median": True, "bound": "clip", "clip": 1.0},
        {"quantile": 0.5, "bound": "clip", "clip": 1.0},
        {"quantile": 0.5, "quantile_lr": 0.2},
        {"quantile": 0.5, "quantile_lr": 0.2, "bound": "clip", "clip_median": True},
        {"record_median": True, "record_clip": 1.0},
        {"randomiser": lambda k, i, v: v, "message_noise": noise},
    ):
        with pytest.raises(ValueError, match=r"bound|clip|quantile|randomiser"):
            replace(plain, **wrong)
    clients, x0 = points(0), np.zeros(1)
    with pytest.raises(ValueError, match="local momentum"):
        ref.fedsgd(clients, x0, replace(plain, local_momentum=0.5))
    with pytest.raises(ValueError, match="memory"):
        ref.scaffold(clients, x0, plain, memory="mine")
    adaptive = replace(plain, bound="clip", clip_median=True)
    for setting, kwargs in (
        (plain, {"kind": "eager"}),
        (plain, {"kind": "debiased"}),
        (plain, {"kind": "naive", "sigma": 1.0}),
        (plain, {"kind": "privunit"}),
        (adaptive, {"kind": "privunit", "constants": ref.norm_constants(2.0, 1.0, 1.0)}),
        (plain, {"kind": "plain", "norm_noise": lambda k: 0.0}),
        (plain, {"kind": "plain", "inner": "fedprox"}),
        (plain, {"kind": "plain", "inner": "scaffnew"}),
        (plain, {"kind": "plain", "inner": "fedavg", "p": 0.5}),
        (replace(plain, message_noise=noise), {"kind": "plain"}),
        (replace(plain, sum_noise=lambda k: None), {"kind": "plain"}),
    ):
        with pytest.raises(ValueError, match=r"kind|needs|belongs|without noise|one C|inner"):
            ref.fedexp(clients, x0, setting, **kwargs)
    with pytest.raises(ValueError, match="constant C"):
        ref.scaffnew_coins(clients, x0, adaptive, 0.5, [1])


# bounds


def test_bounds_by_hand():
    v = np.array([3.0, 4.0])
    np.testing.assert_allclose(ref.clip(v, 2.5), [1.5, 2.0])
    np.testing.assert_array_equal(ref.clip(v, 5.0), v)
    np.testing.assert_array_equal(ref.clip(v, 10.0), v)
    np.testing.assert_array_equal(ref.clip(np.zeros(4), 2.0), np.zeros(4))
    np.testing.assert_allclose(ref.normalise(v, 2.5), [1.5, 2.0])
    np.testing.assert_allclose(ref.normalise(v, 10.0), [6.0, 8.0])
    np.testing.assert_allclose(ref.normalise(np.zeros(4), 2.0), [1.0, 1.0, 1.0, 1.0])

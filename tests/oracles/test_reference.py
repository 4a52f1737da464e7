"""The reference itself, against closed forms and numbers worked out by hand."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracles import reference as ref

ALGORITHMS = ["fedavg", "fedsgd", "normfedavg", "scaffnew", "scaffold"]
KINDS = [("binary", 2), ("softmax", 3), ("squared", 2)]


def full(clients, rounds, lr, steps, **kwargs):
    """A setting in which every client takes part in every round."""
    everyone = list(range(len(clients)))
    return ref.Setting(
        lr=[lr] * rounds,
        steps=[steps] * rounds,
        cohorts=[everyone] * rounds,
        divisor=[len(clients)] * rounds,
        **kwargs,
    )


def points(*targets):
    """One-record squared clients f_i(w) = (w - target)^2 / 2 in one dimension: easy to follow by
    hand.
    """
    return [(np.array([[1.0]]), np.array([float(target)])) for target in targets]


def problem(kind="squared", classes=2, M=4, n=12, d=3, seed=0):
    """Heterogeneous clients: each has its own scale and offset of the features, and its own labels."""
    rng = np.random.default_rng(seed)
    clients = []
    for i in range(M):
        X = rng.normal(size=(n, d)) * (0.5 + 0.5 * i) + 0.3 * i
        y = (
            rng.normal(size=n) + 2.0 * i
            if kind == "squared"
            else rng.integers(0, classes, n) * (rng.random(n) < i / M)
        )
        clients.append((X, y))
    return clients


def orthogonal(*lengths):
    """One-record squared clients whose gradients at zero are -length times different unit vectors."""
    rows = np.eye(len(lengths))
    return [(rows[[i]], np.array([float(length)])) for i, length in enumerate(lengths)]


def first(setting, rounds):
    """The same setting, stopped after some rounds."""
    return replace(
        setting, **{key: getattr(setting, key)[:rounds] for key in ("lr", "steps", "cohorts", "divisor")}
    )


def run(algorithm, clients, x0, setting):
    """The iterates of any algorithm."""
    if algorithm in ("scaffnew", "scaffold"):
        return getattr(ref, algorithm)(clients, x0, setting, *([1 / 3] if algorithm == "scaffnew" else []))[0]
    return getattr(ref, algorithm)(clients, x0, setting)


def poisson_lots(k, i, step):
    """Expected size 4 of 12; now and then empty."""
    rows = np.flatnonzero(np.random.default_rng([8, k, i, step]).random(12) < 1 / 3)
    return rows, np.full(len(rows), 1 / 4)


def pooled_gradient(kind, clients, x, l2, classes, bias):
    return sum(ref.gradient(kind, x, X, y, l2, classes, bias) for X, y in clients) / len(clients)


def jacobian(function, x, h=1e-6):
    columns = [(function(x + h * e) - function(x - h * e)) / (2 * h) for e in np.eye(x.size)]
    return np.array(columns).T


def pooled_optimum(kind, clients, l2, classes, bias):
    """Newton on the mean of the clients' losses, Hessian by differences."""
    x = np.zeros(ref.parameters(kind, clients[0][0].shape[1], classes, bias))
    for _ in range(30):
        g = pooled_gradient(kind, clients, x, l2, classes, bias)
        x = x - np.linalg.solve(
            jacobian(lambda z: pooled_gradient(kind, clients, z, l2, classes, bias), x), g
        )
    assert np.linalg.norm(pooled_gradient(kind, clients, x, l2, classes, bias)) < 1e-13
    return x


def smoothness(kind, clients, l2, classes, bias):
    """Upper bound on the largest curvature of any client: 1/4, 1/2 and 1 times the data's, for the
    three kinds.
    """
    factor = {"binary": 0.25, "softmax": 0.5, "squared": 1.0}[kind]
    largest = 0.0
    for X, _ in clients:
        Z = np.hstack([X, np.ones((len(X), 1))]) if bias else X
        largest = max(largest, factor * np.linalg.eigvalsh(Z.T @ Z / len(Z))[-1])
    return largest + l2


def test_it_imports_nothing_but_numpy():
    tree = ast.parse(Path(ref.__file__).read_text())
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    modules |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
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


# one step, fixed points


@pytest.mark.parametrize(("kind", "classes"), KINDS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_step_is_gradient_descent(kind, classes, algorithm):
    """Equal shares, one local step: gradient descent on the mean loss; in ScaffNew whatever the
    shifts, if they sum to zero; in SCAFFOLD whatever the controls, if c is their mean.
    """
    clients = problem(kind, classes)
    x = np.random.default_rng(4).normal(size=ref.parameters(kind, 3, classes, True))
    setting = full(clients, 5, 0.05, 1, kind=kind, classes=classes, bias=True, l2=0.1)
    for iterate in run(algorithm, clients, x, setting):
        x = x - 0.05 * pooled_gradient(kind, clients, x, 0.1, classes, True)
        np.testing.assert_allclose(iterate, x, rtol=1e-11, atol=1e-13)


def quadratic(client, l2):
    """Curvature and minimiser of a client's ridge regression."""
    X, y = client
    A = X.T @ X / len(y) + l2 * np.eye(X.shape[1])
    return A, np.linalg.solve(A, X.T @ y / len(y))


def test_local_steps_on_least_squares_contract_by_a_known_matrix():
    """One client, K steps a round: x_t - x* = (I - lr A)^(K t) (x_0 - x*), and the limit is the
    ridge solution.
    """
    clients = problem(M=1)
    A, best = quadratic(clients[0], 0.1)
    x0 = np.array([1.0, -2.0, 3.0])
    iterates = ref.fedavg(clients, x0, full(clients, 400, 0.3, 7, kind="squared", l2=0.1))
    for t in (0, 1, 5):
        expected = best + np.linalg.matrix_power(np.eye(3) - 0.3 * A, 7 * (t + 1)) @ (x0 - best)
        np.testing.assert_allclose(iterates[t], expected, rtol=1e-10)
    np.testing.assert_allclose(iterates[-1], best, rtol=1e-12)


def fedavg_fixed_point(clients, l2, lr, K):
    """sum_i (I - (I - lr A_i)^K)(x - x_i*) = 0."""
    left, right = 0.0, 0.0
    for client in clients:
        A, best = quadratic(client, l2)
        pull = np.eye(len(A)) - np.linalg.matrix_power(np.eye(len(A)) - lr * A, K)
        left, right = left + pull, right + pull @ best
    return np.linalg.solve(left, right)


def test_fedavg_stops_at_its_own_fixed_point():
    clients = problem()
    lr = 1.0 / smoothness("squared", clients, 0.1, 2, False)
    last = ref.fedavg(clients, np.zeros(3), full(clients, 800, lr, 6, kind="squared", l2=0.1))[-1]
    np.testing.assert_allclose(last, fedavg_fixed_point(clients, 0.1, lr, 6), rtol=1e-10)
    assert np.linalg.norm(last - pooled_optimum("squared", clients, 0.1, 2, False)) > 0.05


@pytest.mark.parametrize(("kind", "classes"), KINDS)
@pytest.mark.parametrize("random_steps", [False, True])
def test_scaffnew_reaches_the_pooled_optimum_and_fedavg_does_not(kind, classes, random_steps):
    clients = problem(kind, classes)
    l2, K = 0.5, 4
    optimum = pooled_optimum(kind, clients, l2, classes, True)
    lr, rounds = 1.0 / smoothness(kind, clients, l2, classes, True), 2000
    setting = full(clients, rounds, lr, K, kind=kind, classes=classes, bias=True, l2=l2)
    if random_steps:
        steps = np.random.default_rng(5).geometric(1 / K, rounds).tolist()
        setting = ref.Setting(**(vars(setting) | {"steps": steps}))
    x0 = np.full(optimum.size, 0.7)
    iterates, shifts = ref.scaffnew(clients, x0, setting, 1 / K)
    np.testing.assert_allclose(iterates[-1], optimum, rtol=0, atol=1e-9)
    gradients = [ref.gradient(kind, optimum, X, y, l2, classes, True) for X, y in clients]
    np.testing.assert_allclose(shifts, gradients, rtol=0, atol=1e-8)
    assert max(np.linalg.norm(g) for g in gradients) > 0.1, "the clients must disagree at the optimum"
    assert np.linalg.norm(ref.fedavg(clients, x0, setting)[-1] - optimum) > 1e-2


# rounds by hand


def test_fedavg_round_by_hand():
    """Targets 0 and 8, x = 2, lr 1/2, 2 steps: local points 1/2 and 13/2, updates -3/2 and 9/2."""
    clients = points(0, 8)
    x0 = np.array([2.0])
    assert ref.fedavg(clients, x0, full(clients, 1, 0.5, 2, kind="squared"))[0] == pytest.approx([3.5])
    clipped = full(clients, 1, 0.5, 2, kind="squared", bound="clip", clip=2.0)
    assert ref.fedavg(clients, x0, clipped)[0] == pytest.approx([2.25])  # (-3/2 + 2) / 2
    normed = full(clients, 1, 0.5, 2, kind="squared", bound="normalise", clip=3.0)
    assert ref.fedavg(clients, x0, normed)[0] == pytest.approx([2.0])  # -3 + 3
    np.testing.assert_array_equal(x0, [2.0])


def test_local_momentum_by_hand_and_at_rest_in_every_round():
    """Target 0, x = 8, lr 1/2, m = 1/2: v = 8, y = 4; v = 8, y = 0; v = 4, y = -2. The next round
    starts at rest.
    """
    clients = points(0)
    setting = full(clients, 2, 0.5, 3, kind="squared", local_momentum=0.5)
    np.testing.assert_allclose(np.ravel(ref.fedavg(clients, np.array([8.0]), setting)), [-2.0, 0.5])


def test_server_step_by_hand():
    """One client, target 0, one step of 1/2: mean = -x/2. Server lr 2 and momentum 1/4 from x = 8:
    velocity -4, x 0; then mean 0, velocity -1, x -2; then mean 1, velocity 3/4, x -1/2.
    """
    clients = points(0)
    setting = full(clients, 3, 0.5, 1, kind="squared", server_lr=2.0, server_momentum=0.25)
    for iterates in (
        ref.fedavg(clients, np.array([8.0]), setting),
        ref.normfedavg(clients, np.array([8.0]), setting),
        ref.scaffnew(clients, np.array([8.0]), setting, 0.5)[0],
    ):
        np.testing.assert_allclose(np.ravel(iterates), [0.0, -2.0, -0.5], atol=1e-15)


def test_normfedavg_round_by_hand():
    """Targets 0 and 8, x = 2, lr 1/2, 2 steps: u = 3 and -9. Normalised to C = 4: 4 and -4, plus
    noise 1 on the first client and 2 on the sum: mean 3/2, so x - beta mean with beta = 1/2 of lr.
    """
    clients = points(0, 8)
    setting = full(
        clients,
        1,
        0.5,
        2,
        kind="squared",
        bound="normalise",
        clip=4.0,
        server_lr=0.5,
        message_noise=lambda k, i: np.array([1.0]) if i == 0 else None,
        sum_noise=lambda k: np.array([2.0]),
    )
    assert ref.normfedavg(clients, np.array([2.0]), setting)[0] == pytest.approx([2.0 - 0.25 * 1.5])
    # a client that is already at its target offers zero: + C / sqrt(1)
    alone = full(clients[:1], 1, 0.5, 2, kind="squared", bound="normalise", clip=4.0)
    assert ref.normfedavg(clients[:1], np.array([0.0]), alone)[0] == pytest.approx([-2.0])
    assert ref.fedavg(clients[:1], np.array([0.0]), alone)[0] == pytest.approx([4.0])


def test_scaffnew_rounds_by_hand():
    """Targets 0 and 8, lr 1/2, p 1/2 (so p/lr = 1), C = 2, noise 1 on client 0 in round 0. Round 0,
    x = 2, 2 steps: updates -3/2 and 9/2, messages -1/2 and 2, mean 3/4, x = 11/4, h = (5/4, -5/4).
    Round 1, 1 step of 1/2: gradients 11/4 and -21/4 less the shifts 3/2 and -4: updates -3/4 and 2,
    mean 5/8, x = 27/8, h = (5/4 + 11/8, -5/4 - 11/8).
    """
    clients = points(0, 8)
    setting = ref.Setting(
        kind="squared",
        lr=[0.5, 0.5],
        steps=[2, 1],
        cohorts=[[0, 1]] * 2,
        divisor=[2, 2],
        bound="clip",
        clip=2.0,
        message_noise=lambda k, i: np.array([1.0]) if (k, i) == (0, 0) else None,
    )
    iterates, shifts = ref.scaffnew(clients, np.array([2.0]), setting, 0.5)
    np.testing.assert_allclose(np.ravel(iterates), [2.75, 3.375])
    np.testing.assert_allclose(shifts, [[2.625], [-2.625]])


def test_scaffnew_local_momentum_acts_on_the_corrected_gradient():
    """Target 0, x = 8, h = 4, lr 1/2, m = 1/2: v = 4, y = 6; v = 2 + 2 = 4, y = 4. Mean -4; the
    shift sees mean - message = 0. With momentum on the gradient alone y would be 3.
    """
    clients = points(0)
    setting = full(clients, 1, 0.5, 2, kind="squared", local_momentum=0.5)
    iterates, shifts = ref.scaffnew(clients, np.array([8.0]), setting, 0.5, h0=np.array([[4.0]]))
    assert iterates[0] == pytest.approx([4.0])
    np.testing.assert_allclose(shifts, [[4.0]])


def test_scaffnew_partial_cohorts_keep_the_absent_shifts():
    clients = problem()
    setting = ref.Setting(
        kind="squared", lr=[0.05] * 3, steps=[3] * 3, cohorts=[[0, 2], [1, 2, 3], [0, 1]], divisor=[2, 3, 2]
    )
    histories = [
        ref.scaffnew(clients, np.zeros(3), ref.Setting(**(vars(setting) | short)), 1 / 3)[1]
        for t in (1, 2, 3)
        for short in [{key: getattr(setting, key)[:t] for key in ("lr", "steps", "cohorts", "divisor")}]
    ]
    np.testing.assert_array_equal(histories[0][[1, 3]], 0.0)
    np.testing.assert_array_equal(histories[1][0], histories[0][0])
    np.testing.assert_array_equal(histories[2][[2, 3]], histories[1][[2, 3]])
    for shifts in histories:
        np.testing.assert_allclose(shifts.sum(axis=0), 0.0, atol=1e-12)
        assert np.abs(shifts[0]).min() > 1e-3


def test_only_client_noise_keeps_the_shifts_summing_to_zero():
    """The pitfall: noise on the sum is missing from the own messages, and the sum of the shifts
    walks by p/lr times the noise every round; noise in the messages cancels.
    """
    clients = problem()
    noise = np.random.default_rng(6).normal(size=(10, 4, 3))
    local = full(clients, 10, 0.05, 3, kind="squared", message_noise=lambda k, i: noise[k, i])
    central = full(clients, 10, 0.05, 3, kind="squared", sum_noise=lambda k: noise[k].sum(axis=0))
    np.testing.assert_allclose(
        ref.scaffnew(clients, np.zeros(3), local, 1 / 3)[1].sum(axis=0), 0.0, atol=1e-10
    )
    walk = ref.scaffnew(clients, np.zeros(3), central, 1 / 3)[1].sum(axis=0)
    np.testing.assert_allclose(walk, (1 / 3) / 0.05 * noise.sum(axis=(0, 1)), rtol=1e-10)
    # the first model of both is the same: the mean sees the same noise
    both = [ref.scaffnew(clients, np.zeros(3), setting, 1 / 3)[0][0] for setting in (local, central)]
    np.testing.assert_allclose(*both, rtol=1e-12)


def test_scaffnew_rounds_are_the_gaps_between_heads():
    """The per-round form equals the paper's per-iteration Algorithm 2, with clipping, noise and
    Poisson lots.
    """
    clients, d = problem("softmax", 3), ref.parameters("softmax", 3, 3, True)
    coins = (np.random.default_rng(7).random(60) < 0.3).astype(int)
    heads = np.flatnonzero(coins)
    gaps = np.diff(np.concatenate([[-1], heads])).tolist()
    assert max(gaps) > 3
    assert min(gaps) == 1

    def lots(k, i, step):
        rows = np.flatnonzero(np.random.default_rng([8, k, i, step]).random(12) < 0.4)
        return rows, np.full(len(rows), 1 / 4.8)

    for clip, bound in ((None, None), (0.3, "clip"), (0.3, "normalise")):
        setting = ref.Setting(
            kind="softmax",
            classes=3,
            bias=True,
            l2=0.05,
            weight_decay=0.01,
            lr=[0.2] * len(gaps),
            steps=gaps,
            cohorts=[range(4)] * len(gaps),
            divisor=[4] * len(gaps),
            bound=bound,
            clip=clip,
            lots=lots,
            message_noise=lambda k, i: 0.02 * np.random.default_rng([9, k, i]).normal(size=d),
        )
        rounds, shifts = ref.scaffnew(clients, np.zeros(d), setting, 0.3)
        literal, literal_shifts, local = ref.scaffnew_coins(clients, np.zeros(d), setting, 0.3, coins)
        np.testing.assert_allclose(rounds, literal, rtol=0, atol=1e-12)
        np.testing.assert_allclose(shifts, literal_shifts, rtol=0, atol=1e-12)
        tails = len(coins) - 1 - heads[-1]
        assert (np.ptp(local, axis=0).max() == 0.0) == (tails == 0)
    with pytest.raises(ValueError, match="literal"):
        ref.scaffnew_coins(
            clients, np.zeros(d), full(clients, 1, 0.2, 1, kind="softmax", server_momentum=0.9), 0.3, [1]
        )


# relations between algorithms and settings


def test_zero_shifts_make_scaffnew_fedavg():
    """p = 0 never moves the shifts."""
    clients = problem()
    setting = full(
        clients, 6, 0.05, 3, kind="squared", bound="clip", clip=0.3, local_momentum=0.5, server_momentum=0.8
    )
    iterates, shifts = ref.scaffnew(clients, np.ones(3), setting, 0.0)
    np.testing.assert_array_equal(iterates, ref.fedavg(clients, np.ones(3), setting))
    np.testing.assert_array_equal(shifts, 0.0)


@pytest.mark.parametrize("bound", ["clip", "normalise"])
def test_normfedavg_is_fedavg_with_the_bound_times_lr(bound):
    """clip(u, C) lr = clip(lr u, lr C), as long as no update is exactly zero."""
    clients = problem("binary")
    common = {"kind": "binary", "bias": True, "bound": bound, "server_lr": 0.5, "server_momentum": 0.8}
    noise = np.random.default_rng(10).normal(size=(8, 4, 4))
    u = full(clients, 8, 0.25, 5, clip=2.0, message_noise=lambda k, i: noise[k, i], **common)
    y = full(clients, 8, 0.25, 5, clip=0.5, message_noise=lambda k, i: -0.25 * noise[k, i], **common)
    np.testing.assert_allclose(
        ref.normfedavg(clients, np.ones(4), u), ref.fedavg(clients, np.ones(4), y), rtol=0, atol=1e-12
    )


def test_weight_decay_is_l2():
    clients = problem("softmax", 3)
    x0 = np.random.default_rng(11).normal(size=12)
    runs = [
        ref.fedavg(clients, x0, full(clients, 4, 0.1, 3, kind="softmax", classes=3, bias=True, **{name: 0.2}))
        for name in ("l2", "weight_decay")
    ]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-12)


def test_full_lots_are_full_gradients():
    clients = problem("binary")
    whole = full(clients, 4, 0.1, 3, kind="binary")
    lots = full(
        clients, 4, 0.1, 3, kind="binary", lots=lambda k, i, step: (np.arange(12), np.full(12, 1 / 12))
    )
    np.testing.assert_array_equal(
        ref.fedavg(clients, np.ones(3), whole), ref.fedavg(clients, np.ones(3), lots)
    )


def test_lots_are_asked_for_the_cohort_in_order():
    clients, asked = problem(M=3), []

    def lots(k, i, step):
        asked.append((k, i, step))
        return np.array([0]), np.array([1.0])

    setting = ref.Setting(
        kind="squared", lr=[0.1] * 2, steps=[2, 1], cohorts=[[2, 0], [1]], divisor=[2, 1], lots=lots
    )
    ref.fedavg(clients, np.zeros(3), setting)
    assert asked == [(0, 2, 0), (0, 2, 1), (0, 0, 0), (0, 0, 1), (1, 1, 0)]


def test_lr_schedule_and_poisson_divisor():
    """Targets 0 and 8, x = 2, one step, expected cohort 4: round 0 (lr 1/2) has client 1 alone,
    mean 3/4; round 1 (lr 1/4), x = 11/4, both: updates -11/16 and 21/16, mean 5/32.
    """
    setting = ref.Setting(kind="squared", lr=[0.5, 0.25], steps=[1, 1], cohorts=[[1], [0, 1]], divisor=[4, 4])
    expected = [2.75, 2.75 + 5 / 32]
    for iterates in (
        ref.fedavg(points(0, 8), np.array([2.0]), setting),
        ref.normfedavg(points(0, 8), np.array([2.0]), setting),
    ):
        np.testing.assert_allclose(np.ravel(iterates), expected)
    # ScaffNew: after round 0 the shift of client 1 is p / lr (mean - message) = (1/4)/(1/2) (3/4 -
    # 3) = -9/8; round 1: client 1 moves -lr (-21/4 + 9/8) = 33/32, client 0 -11/16, mean 11/128
    iterates, shifts = ref.scaffnew(points(0, 8), np.array([2.0]), setting, 0.25)
    np.testing.assert_allclose(np.ravel(iterates), [2.75, 2.75 + 11 / 128])
    # p / lr is now 1: each shift gains mean - message
    np.testing.assert_allclose(np.ravel(shifts), [11 / 128 + 11 / 16, -9 / 8 + 11 / 128 - 33 / 32])


def test_empty_cohorts():
    clients, h0 = points(0, 8), np.array([[1.0], [-1.0]])
    quiet = ref.Setting(
        kind="squared", lr=[0.5] * 2, steps=[1] * 2, cohorts=[[0], []], divisor=[1, 0], server_momentum=0.5
    )
    # x = 8: mean -4, x = 4; then nothing but the momentum, -2. ScaffNew's h0 = 1: -3.5, x = 4.5,
    # then -1.75
    np.testing.assert_allclose(np.ravel(ref.fedavg(clients, np.array([8.0]), quiet)), [4.0, 2.0])
    np.testing.assert_allclose(np.ravel(ref.normfedavg(clients, np.array([8.0]), quiet)), [4.0, 2.0])
    iterates, shifts = ref.scaffnew(clients, np.array([8.0]), quiet, 0.5, h0)
    np.testing.assert_allclose(np.ravel(iterates), [4.5, 2.75])
    np.testing.assert_array_equal(shifts, h0)
    noisy = ref.Setting(
        kind="squared", lr=[0.5], steps=[1], cohorts=[[]], divisor=[4], sum_noise=lambda k: np.array([2.0])
    )
    assert ref.fedavg(clients, np.array([8.0]), noisy)[0] == pytest.approx([8.5])
    assert ref.normfedavg(clients, np.array([8.0]), noisy)[0] == pytest.approx([7.75])
    assert ref.scaffnew(clients, np.array([8.0]), noisy, 0.5)[0][0] == pytest.approx([8.5])


# records


def test_record_clip_by_hand():
    """Records 0 and 10, x = 4: gradients 4 and -6, clipped to 5: 4 and -5; their mean -1/2, noise
    1/4, then l2 x = 2 and weight decay 1, neither clipped nor noised: 11/4, times lr 1/2.
    """
    clients = [(np.ones((2, 1)), np.array([0.0, 10.0]))]
    setting = full(
        clients, 1, 0.5, 1, kind="squared", record_clip=5.0, record_noise=lambda k, i, step: np.array([0.25])
    )
    x0 = np.array([4.0])
    assert ref.fedavg(clients, x0, setting)[0] == pytest.approx([4.125])
    assert ref.fedavg(clients, x0, replace(setting, l2=0.5, weight_decay=0.25))[0] == pytest.approx([2.625])
    # a Poisson lot with the second record alone, expected size 4: -5/4 + 1/4, the noise is not
    # divided again
    lot = replace(setting, lots=lambda k, i, step: (np.array([1]), np.array([0.25])))
    assert ref.fedavg(clients, x0, lot)[0] == pytest.approx([4.5])
    # noise needs no clip
    assert ref.fedavg(clients, x0, replace(setting, record_clip=None))[0] == pytest.approx([4.375])


def test_record_median_by_hand():
    """At zero a record with label -n has the gradient n. Norms 1, 20, 3, 5: C = 4, mean (1 + 4 + 3
    + 4) / 4; noise 2 C. Without the 5: C = 3, mean 7/3, noise 6.
    """
    clients = [(np.ones((4, 1)), -np.array([1.0, 20.0, 3.0, 5.0]))]
    setting = full(
        clients,
        1,
        1.0,
        1,
        kind="squared",
        record_median=True,
        record_noise=lambda k, i, step: np.array([2.0]),
    )
    assert ref.fedavg(clients, np.zeros(1), setting)[0] == pytest.approx([-11.0])
    odd = replace(setting, lots=lambda k, i, step: (np.array([0, 1, 2]), np.full(3, 1 / 3)))
    assert ref.fedavg(clients, np.zeros(1), odd)[0] == pytest.approx([-(7 / 3 + 6)])
    empty = replace(setting, lots=lambda k, i, step: (np.zeros(0), np.zeros(0)))
    np.testing.assert_array_equal(ref.fedavg(clients, np.ones(1), empty)[0], [1.0])
    # every lot has its own C: 20, then 4 (at y = -25 the gradient of the first record is -24)
    each = replace(
        setting, steps=[2], lots=lambda k, i, step: (np.array([1 - step]), np.ones(1)), record_noise=None
    )
    assert ref.fedavg(clients, np.zeros(1), each)[0] == pytest.approx([-20.0 - (-20.0 + 1.0)])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_huge_record_clip_is_no_clip_and_a_small_one_is_seen(algorithm):
    clients = problem("softmax", 3)
    setting = full(
        clients, 3, 0.1, 3, kind="softmax", classes=3, bias=True, l2=0.1, weight_decay=0.05, lots=poisson_lots
    )
    x0 = np.random.default_rng(12).normal(size=12)
    free = run(algorithm, clients, x0, setting)
    np.testing.assert_allclose(
        run(algorithm, clients, x0, replace(setting, record_clip=1e9)), free, rtol=1e-11
    )
    zero = replace(setting, record_noise=lambda k, i, step: None)
    np.testing.assert_allclose(run(algorithm, clients, x0, zero), free, rtol=1e-11)
    for change in (
        {"record_clip": 0.3},
        {"record_median": True},
        {"record_noise": lambda k, i, step: 0.01 * np.ones(12)},
    ):
        assert np.abs(run(algorithm, clients, x0, replace(setting, **change))[0] - free[0]).max() > 1e-4, (
            change
        )


def test_one_record_moves_a_lot_by_at_most_its_clip():
    """Replacing one record moves the clipped gradient by at most 2 C w_r, and gets close to it;
    adding one, by C w_r.
    """
    rng, C = np.random.default_rng(13), 0.7
    X, y = problem("softmax", 3)[3]
    largest = 0.0
    for trial in range(200):
        x, moved = 10.0 * rng.normal(size=12), X.copy()
        moved[4] = 10.0 * rng.normal(size=3)
        labels = y.copy()
        labels[4] = rng.integers(0, 3)
        setting = full([(X, y)], 1, 1.0, 1, kind="softmax", classes=3, bias=True, record_clip=C)
        ours, theirs = (ref.fedavg([client], x, setting)[0] for client in ((X, y), (moved, labels)))
        largest = max(largest, np.linalg.norm(ours - theirs) * len(y))
        if trial == 0:
            fewer = replace(
                setting, lots=lambda k, i, step: (np.delete(np.arange(12), 4), np.full(11, 1 / 12))
            )
            assert np.linalg.norm(ref.fedavg([(X, y)], x, fewer)[0] - ours) * len(y) <= C * (1 + 1e-9)
    assert 1.5 * C < largest <= 2 * C * (1 + 1e-9)


def test_record_noise_is_asked_for_every_lot():
    clients, asked = problem(M=3), []
    setting = ref.Setting(
        kind="squared",
        lr=[0.1] * 2,
        steps=[2, 1],
        cohorts=[[2, 0], [1]],
        divisor=[2, 1],
        record_clip=1.0,
        record_noise=lambda k, i, step: asked.append((k, i, step)),
    )
    expected = [(0, 2, 0), (0, 2, 1), (0, 0, 0), (0, 0, 1), (1, 1, 0)]
    for algorithm in ALGORITHMS:
        asked.clear()
        run(algorithm, clients, np.zeros(3), setting)
        assert asked == expected, algorithm


# fedsgd


def test_fedsgd_by_hand():
    """Records 0 and 10 of one client, 0 of the other, x = 2; lots of one record: gradients 2, -8,
    mean -3, and 2. Bounded by 1 on the scale of a gradient, noise 3 on the first: 2 and 1; noise 1
    on the sum: mean 2, times lr 1/4.
    """
    clients = [(np.ones((2, 1)), np.array([0.0, 10.0])), (np.ones((2, 1)), np.zeros(2))]
    setting = full(
        clients, 1, 0.25, 2, kind="squared", lots=lambda k, i, step: (np.array([step]), np.ones(1))
    )
    assert ref.fedsgd(clients, np.array([2.0]), setting)[0] == pytest.approx([2.125])
    noisy = replace(
        setting,
        bound="clip",
        clip=1.0,
        message_noise=lambda k, i: np.array([3.0]) if i == 0 else None,
        sum_noise=lambda k: np.array([1.0]),
    )
    assert ref.fedsgd(clients, np.array([2.0]), noisy)[0] == pytest.approx([1.5])
    # FedAvg moves between the lots: 2, 3/2, 3/2 + 17/8; and 2, 3/2, 9/8
    assert ref.fedavg(clients, np.array([2.0]), setting)[0] == pytest.approx([(29 / 8 + 9 / 8) / 2])


@pytest.mark.parametrize("K", [1, 3])
def test_fedsgd_is_fedavg_with_one_step_over_the_same_lots(K):
    """K lots of weight w are one lot with all of them of weight w / K."""
    clients = problem("binary")
    common = {
        "kind": "binary",
        "bias": True,
        "l2": 0.1,
        "server_lr": 0.7,
        "server_momentum": 0.4,
        "record_clip": 0.5,
    }
    many = full(clients, 6, 0.2, K, lots=poisson_lots, **common)

    def merged(k, i, step):
        rows, weights = zip(*(poisson_lots(k, i, lot) for lot in range(K)), strict=True)
        return np.concatenate(rows), np.concatenate(weights) / K

    one = full(clients, 6, 0.2, 1, lots=merged, **common)
    np.testing.assert_allclose(
        ref.fedsgd(clients, np.ones(4), many), ref.fedavg(clients, np.ones(4), one), rtol=0, atol=1e-12
    )
    moving = ref.fedavg(clients, np.ones(4), many)[0] - ref.fedsgd(clients, np.ones(4), many)[0]
    assert (np.abs(moving).max() > 1e-3) == (K > 1)


# scaffold


def test_scaffold_rounds_by_hand():
    """Targets 0 and 8, x = 2. Round 0 (lr 1/2, 2 steps): updates -3/2 and 9/2, x = 7/2; K lr = 1,
    so the controls are 3/2 and -9/2, the means of the gradients (2, 1) and (-6, -3), and c = -3/2.
    Round 1 (lr 1/4, 1 step), client 0 alone: 7/2 - 3/2 - 3/2 = 1/2, update -1/8, x = 27/8; its
    control is the gradient 7/2, c = (7/2 - 9/2) / 2.
    """
    setting = ref.Setting(kind="squared", lr=[0.5, 0.25], steps=[2, 1], cohorts=[[0, 1], [0]], divisor=[2, 1])
    iterates, own, server = ref.scaffold(points(0, 8), np.array([2.0]), setting)
    np.testing.assert_allclose(np.ravel(iterates), [3.5, 3.375])
    np.testing.assert_allclose(np.ravel(own), [3.5, -4.5])
    np.testing.assert_allclose(np.ravel(server), [-1.5, -0.5])


def test_scaffold_memories_by_hand():
    """Targets 0 and 8, x = 2, one step of 1/2: updates -1 and 3, clipped to 2: -1 and 2; noise 1/2
    on client 0, 1 on the sum. Sent -1/2 and 2, mean 5/4, so c = -5/2; the controls are 2 times
    minus what is remembered.
    """
    setting = full(
        points(0, 8),
        1,
        0.5,
        1,
        kind="squared",
        bound="clip",
        clip=2.0,
        message_noise=lambda k, i: np.array([0.5]) if i == 0 else None,
        sum_noise=lambda k: np.array([1.0]),
    )
    for memory, expected in (("own_message", [1.0, -4.0]), ("own_update", [2.0, -4.0])):
        iterates, own, server = ref.scaffold(points(0, 8), np.array([2.0]), setting, memory=memory)
        assert iterates[0] == pytest.approx([3.25])
        np.testing.assert_allclose(np.ravel(own), expected)
        assert server[0] == pytest.approx([-2.5])
    # with 8 clients in all, c sees a quarter of the change: the absent ones have controls of zero
    assert ref.scaffold(points(0, 8), np.array([2.0]), setting, total_clients=8)[2][0] == pytest.approx(
        [-0.625]
    )
    # a cohort of one where two are expected: the mean is 1, and still c is the mean of the controls
    poisson = ref.Setting(kind="squared", lr=[0.5, 0.5], steps=[1, 1], cohorts=[[0, 1], [1]], divisor=[2, 2])
    iterates, own, server = ref.scaffold(points(0, 8), np.array([2.0]), poisson)
    # round 0: x = 3, controls 2 and -6, c = -2. Round 1: -5 + 6 - 2 = -1, update 1/2, mean 1/4;
    # control -5
    np.testing.assert_allclose(np.ravel(iterates), [3.0, 3.25])
    np.testing.assert_allclose(np.ravel(own), [2.0, -5.0])
    np.testing.assert_allclose(np.ravel(server), [-2.0, -1.5])


@pytest.mark.parametrize("where", ["message_noise", "sum_noise", None])
def test_scaffold_with_everybody_is_scaffnew(where):
    """Constant K, p = 1/K: h_i = c_i - c, and the models are the same, with the bound, both noises
    and a schedule of lr.
    """
    clients, rounds = problem("softmax", 3), 8
    noise = 0.1 * np.random.default_rng(14).normal(size=(rounds, 4, 12))
    setting = full(
        clients,
        rounds,
        0.1,
        3,
        kind="softmax",
        classes=3,
        bias=True,
        l2=0.05,
        bound="clip",
        clip=0.3,
        lots=poisson_lots,
        local_momentum=0.3,
        server_lr=0.8,
        server_momentum=0.4,
        **(
            {}
            if where is None
            else {where: (lambda k, i: noise[k, i]) if where == "message_noise" else (lambda k: noise[k, 0])}
        ),
    )
    setting = replace(setting, lr=[0.2 * 0.9**k for k in range(rounds)])
    x0 = np.random.default_rng(15).normal(size=12)
    iterates, own, server = ref.scaffold(clients, x0, setting)
    expected, shifts = ref.scaffnew(clients, x0, setting, 1 / 3)
    np.testing.assert_allclose(iterates, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(own - server[-1], shifts, rtol=0, atol=1e-11)
    # the shifts see different things where K is not 1/p, and where somebody is absent
    other = replace(setting, steps=[3, 2] * 4)
    assert (
        np.abs(ref.scaffold(clients, x0, other)[0][-1] - ref.scaffnew(clients, x0, other, 1 / 3)[0][-1]).max()
        > 1e-4
    )
    partial = replace(setting, cohorts=[[0, 1], [2, 3]] * 4, divisor=[2] * rounds)
    assert (
        np.abs(
            ref.scaffold(clients, x0, partial)[0][-1] - ref.scaffnew(clients, x0, partial, 1 / 3)[0][-1]
        ).max()
        > 1e-4
    )


def test_scaffold_is_fedavg_until_the_controls_move():
    clients = problem("binary")
    setting = full(clients, 2, 0.1, 4, kind="binary", bound="clip", clip=0.4, lots=poisson_lots)
    ours, theirs = ref.scaffold(clients, np.ones(3), setting)[0], ref.fedavg(clients, np.ones(3), setting)
    np.testing.assert_array_equal(ours[0], theirs[0])
    assert np.abs(ours[1] - theirs[1]).max() > 1e-3
    # records that are the same everywhere have nothing to correct
    same = [clients[3]] * 4
    quiet = full(same, 5, 0.1, 4, kind="binary")
    np.testing.assert_allclose(
        ref.scaffold(same, np.ones(3), quiet)[0], ref.fedavg(same, np.ones(3), quiet), rtol=1e-12
    )


def test_scaffold_conserves_the_mean_of_the_controls():
    """c = mean c_i after every round, over partial cohorts, Poisson divisors, an empty cohort,
    noise and bounds; whoever is absent keeps its control. Noise on the sum, or own updates
    remembered, break the conservation.
    """
    clients = problem("binary")
    noise = 0.1 * np.random.default_rng(16).normal(size=(6, 4, 3))
    setting = ref.Setting(
        kind="binary",
        lr=[0.1 * 0.9**k for k in range(6)],
        steps=[3, 2, 4, 3, 1, 2],
        cohorts=[[0, 2], [1, 2, 3], [], [3], [0, 1, 2, 3], [2, 0]],
        divisor=[2, 2.5, 2, 1, 4, 3],
        bound="clip",
        clip=0.2,
        lots=poisson_lots,
        message_noise=lambda k, i: noise[k, i],
    )
    before = np.zeros((4, 3))
    for rounds in range(1, 7):
        _, own, server = ref.scaffold(clients, np.ones(3), first(setting, rounds))
        np.testing.assert_allclose(server[-1], own.mean(axis=0), rtol=0, atol=1e-12)
        absent = [i for i in range(4) if i not in setting.cohorts[rounds - 1]]
        np.testing.assert_array_equal(own[absent], before[absent])
        for i in setting.cohorts[rounds - 1]:
            assert np.abs(own[i] - before[i]).min() > 1e-4
        before = own
    _, own, server = ref.scaffold(clients, np.ones(3), setting, memory="own_update")
    assert np.abs(server[-1] - own.mean(axis=0)).max() > 1e-2
    central = replace(setting, message_noise=None, sum_noise=lambda k: noise[k].sum(axis=0))
    _, own, server = ref.scaffold(clients, np.ones(3), central)
    assert np.abs(server[-1] - own.mean(axis=0)).max() > 1e-2


def test_scaffold_controls_are_means_of_noised_gradients():
    """Equation 1: without a bound on the update, c_i' = the mean over the steps of H(y_k), clipped
    records, noise and all.
    """
    clients = problem("softmax", 3)
    noise = 0.3 * np.random.default_rng(17).normal(size=(3, 4, 3, 12))
    setting = full(
        clients,
        3,
        0.1,
        3,
        kind="softmax",
        classes=3,
        bias=True,
        record_clip=0.5,
        lots=poisson_lots,
        record_noise=lambda k, i, step: noise[k, i, step],
    )
    setting = replace(setting, cohorts=[[0, 1, 2, 3], [0, 2], [0, 1]], divisor=[4, 2, 2])
    x0 = np.random.default_rng(18).normal(size=12)
    iterates, before, server = ref.scaffold(clients, x0, first(setting, 2))
    _, after, _ = ref.scaffold(clients, x0, setting)
    for i in (0, 1):
        y, total = iterates[-1], 0.0
        for step in range(3):
            rows, weights = poisson_lots(2, i, step)
            H = noise[2, i, step]
            for row, w in zip(rows, weights, strict=True):
                H = H + w * ref.clip(
                    ref.gradient("softmax", y, *(z[[row]] for z in clients[i]), classes=3, bias=True), 0.5
                )
            y, total = y - 0.1 * (H - before[i] + server[-1]), total + H
        np.testing.assert_allclose(after[i], total / 3, rtol=0, atol=1e-12)


def test_scaffold_reaches_the_pooled_optimum_over_partial_cohorts():
    """Its controls survive absence; FedAvg over the same cohorts stays away."""
    clients = problem("binary")
    optimum = pooled_optimum("binary", clients, 0.5, 2, True)
    lr, rounds = 0.2 / smoothness("binary", clients, 0.5, 2, True), 1200
    cohorts = [
        sorted(np.random.default_rng([19, k]).choice(4, 2, replace=False).tolist()) for k in range(rounds)
    ]
    setting = ref.Setting(
        kind="binary",
        lr=[lr] * rounds,
        steps=[3] * rounds,
        cohorts=cohorts,
        divisor=[2] * rounds,
        bias=True,
        l2=0.5,
        server_lr=0.5,
    )
    iterates, own, server = ref.scaffold(clients, np.full(4, 0.7), setting)
    np.testing.assert_allclose(iterates[-1], optimum, rtol=0, atol=1e-9)
    np.testing.assert_allclose(
        own, [ref.gradient("binary", optimum, X, y, 0.5, 2, True) for X, y in clients], rtol=0, atol=1e-8
    )
    np.testing.assert_allclose(server[-1], 0.0, atol=1e-8)
    assert np.linalg.norm(ref.fedavg(clients, np.full(4, 0.7), setting)[-1] - optimum) > 1e-2


def test_scaffold_warm_start():
    """Once everybody was drawn, the controls are the means of the noised lot gradients at x0 and c
    is their mean, also for a client drawn twice; the model, its momentum included, has not moved.
    Then it starts from these controls.
    """
    clients = problem("binary")
    noise = 0.3 * np.random.default_rng(20).normal(size=(5, 4, 2, 4))
    setting = ref.Setting(
        kind="binary",
        lr=[0.3, 0.2, 0.2, 0.1, 0.1],
        steps=[2] * 5,
        cohorts=[[0, 1], [2, 3], [1, 3], [0, 1], [2, 3]],
        divisor=[2] * 5,
        bias=True,
        l2=0.1,
        server_momentum=0.7,
        lots=poisson_lots,
        record_clip=0.4,
        record_noise=lambda k, i, step: noise[k, i, step],
    )
    x0 = np.random.default_rng(21).normal(size=4)
    iterates, own, server = ref.scaffold(clients, x0, first(setting, 3), warm_rounds=3)
    np.testing.assert_array_equal(iterates, [x0] * 3)
    for i, k in enumerate([0, 2, 1, 2]):
        total = 2 * 0.1 * x0
        for step in range(2):
            total = total + noise[k, i, step]
            for row, w in zip(*poisson_lots(k, i, step), strict=True):
                total = total + w * ref.clip(
                    ref.gradient("binary", x0, *(z[[row]] for z in clients[i]), bias=True), 0.4
                )
        np.testing.assert_allclose(own[i], total / 2, rtol=0, atol=1e-12)
    np.testing.assert_allclose(server[-1], own.mean(axis=0), rtol=0, atol=1e-12)
    warm, cold = (ref.scaffold(clients, x0, setting, warm_rounds=rounds)[0] for rounds in (3, 0))
    np.testing.assert_array_equal(warm[:3], [x0] * 3)
    assert np.abs(warm[3] - x0).max() > 1e-3
    assert np.abs(cold[0] - x0).max() > 1e-3
    # the fourth round by hand, from these controls
    updates = []
    for i in (0, 1):
        y = x0
        for step in range(2):
            H = noise[3, i, step] + 0.1 * y
            for row, w in zip(*poisson_lots(3, i, step), strict=True):
                H = H + w * ref.clip(
                    ref.gradient("binary", y, *(z[[row]] for z in clients[i]), bias=True), 0.4
                )
            y = y - 0.1 * (H - own[i] + server[-1])
        updates.append(y - x0)
    np.testing.assert_allclose(warm[3], x0 + np.mean(updates, axis=0), rtol=0, atol=1e-12)


# fedexp


def test_fedexp_steps_by_hand():
    """Targets 0 and 8, x = 2, one step of 1/2: updates -1 and 3, mean 1, mean square 5."""
    clients, x0 = points(0, 8), np.array([2.0])
    quiet = full(clients, 1, 0.5, 1, kind="squared")
    local = replace(
        quiet, message_noise=lambda k, i: np.array([1.0]) if i == 0 else None
    )  # sent 0 and 3: 3/2 and 9/2
    central = replace(quiet, sum_noise=lambda k: np.array([2.0]))  # mean 2
    for setting, kind, kwargs, eta, mean in (
        (quiet, "plain", {}, 5.0, 1.0),
        (local, "naive", {}, 2.0, 1.5),
        (local, "debiased", {"sigma": 1.0}, 3.5 / 2.25, 1.5),
        (local, "debiased", {"sigma": 2.0}, 1.0, 1.5),  # (9/2 - 4) / (9/4)
        (central, "central", {"norm_noise": lambda k: 1.0}, 1.5, 2.0),
        (central, "central", {"norm_noise": lambda k: -3.0}, 1.0, 2.0),
        (central, "central", {}, 1.25, 2.0),  # equation 5
        (local, "central", {}, 5.0 / 2.25, 1.5),  # the squares are of the updates, not of what is sent
    ):
        iterates, steps = ref.fedexp(clients, x0, setting, kind, **kwargs)
        np.testing.assert_allclose(steps, [eta])
        np.testing.assert_allclose(iterates[0], [2.0 + eta * mean])
    iterates, steps = ref.fedexp(clients, x0, replace(quiet, server_lr=0.5), "plain")
    assert (iterates[0], steps) == (pytest.approx([4.5]), pytest.approx([5.0]))
    # momentum 1/2 on the extrapolated direction 5; at x = 7 the updates are -7/2 and 1/2, mean
    # -3/2, step 25/9
    twice = full(clients, 2, 0.5, 1, kind="squared", server_momentum=0.5)
    np.testing.assert_allclose(ref.fedexp(clients, x0, twice, "plain")[0][1], [7.0 + 2.5 - 1.5 * 25 / 9])
    # a cohort of one where two are expected: mean 3/2, sum of squares 9/2 (less one sigma^2 / 2): 2
    poisson = replace(quiet, cohorts=[[1]])
    np.testing.assert_allclose(ref.fedexp(clients, x0, poisson, "naive")[1], [2.0])
    np.testing.assert_allclose(ref.fedexp(clients, x0, poisson, "debiased", sigma=1.0)[1], [4.0 / 2.25])


def test_fedexp_of_orthogonal_updates_is_their_number():
    """The mean of M orthogonal updates is too short by M: one round of full steps solves the
    problem.
    """
    clients = orthogonal(1.0, -2.0, 5.0)
    iterates, steps = ref.fedexp(clients, np.zeros(3), full(clients, 1, 1.0, 1, kind="squared"), "plain")
    np.testing.assert_allclose(steps, [3.0])
    np.testing.assert_allclose(iterates[0], [1.0, -2.0, 5.0])
    same = [clients[2]] * 4
    np.testing.assert_allclose(
        ref.fedexp(same, np.zeros(3), full(same, 1, 1.0, 1, kind="squared"), "plain")[1], [1.0]
    )


def test_debiasing_takes_off_what_the_noise_adds():
    """Noise of squared length d sigma^2, orthogonal to each update: equation 6 has the numerator of
    equation 5, equation 3 has d sigma^2 more.
    """
    lengths, sigma = np.array([1.0, -2.0, 5.0]), 0.4
    clients = orthogonal(*lengths)
    noise = {i: np.sqrt(3) * sigma * np.eye(3)[(i + 1) % 3] for i in range(3)}
    setting = full(clients, 1, 1.0, 1, kind="squared", message_noise=lambda k, i: noise[i])
    mean = (lengths + np.sqrt(3) * sigma) / 3
    target = (lengths @ lengths) / 3 / (mean @ mean)
    debiased = ref.fedexp(clients, np.zeros(3), setting, "debiased", sigma=sigma)[1]
    np.testing.assert_allclose(debiased, [target])
    np.testing.assert_allclose(ref.fedexp(clients, np.zeros(3), setting, "central")[1], [target])
    naive = ref.fedexp(clients, np.zeros(3), setting, "naive")[1]
    np.testing.assert_allclose(naive, [target + 3 * sigma**2 / (mean @ mean)])


def test_fedexp_of_a_zero_mean_is_one():
    """Nothing to do, opposite updates, nobody there."""
    for clients, cohort in ((points(2, 2), [0, 1]), (points(0, 4), [0, 1]), (points(0, 8), [])):
        setting = ref.Setting(kind="squared", lr=[0.5], steps=[1], cohorts=[cohort], divisor=[2])
        for kind, kwargs in (
            ("plain", {}),
            ("naive", {}),
            ("central", {"norm_noise": lambda k: 3.0}),
            ("debiased", {"sigma": 1.0}),
        ):
            iterates, steps = ref.fedexp(clients, np.array([2.0]), setting, kind, **kwargs)
            np.testing.assert_array_equal(np.ravel(iterates), [2.0])
            assert steps == [1.0]


@pytest.mark.parametrize("inner", ALGORITHMS)
def test_fedexp_multiplies_what_the_inner_algorithm_proposes(inner):
    clients = problem("binary")
    kwargs = {"inner": inner} | ({"p": 1 / 3} if inner == "scaffnew" else {})
    setting = full(clients, 4, 0.1, 3, kind="binary", bound="clip", clip=0.4, lots=poisson_lots)
    x0 = np.ones(3)
    iterates, steps = ref.fedexp(clients, x0, setting, "plain", **kwargs)
    assert min(steps) > 1.0
    np.testing.assert_allclose(
        iterates[0] - x0, steps[0] * (run(inner, clients, x0, setting)[0] - x0), rtol=1e-12
    )
    # a single client has a step of 1: the inner algorithm itself
    alone = replace(setting, cohorts=[[2]] * 4, divisor=[1] * 4)
    np.testing.assert_allclose(
        ref.fedexp(clients, x0, alone, "plain", **kwargs)[0], run(inner, clients, x0, alone), rtol=1e-12
    )
    # later rounds are the inner algorithm's with these steps, controls and shifts included
    rule = {"step": lambda k, sent: steps[k]}
    arguments = (clients, x0, setting, *([1 / 3] if inner == "scaffnew" else []))
    replayed = getattr(ref, inner)(*arguments, **rule)
    np.testing.assert_array_equal(iterates, replayed[0] if inner in ("scaffnew", "scaffold") else replayed)
    if inner in ("scaffnew", "scaffold"):
        assert np.abs(iterates[1] - ref.fedexp(clients, x0, setting, "plain")[0][1]).max() > 1e-4


def test_fedexp_around_scaffold_hands_on_its_arguments():
    clients = problem("binary")
    noise = 0.1 * np.random.default_rng(22).normal(size=(4, 4, 3))
    setting = full(clients, 4, 0.1, 3, kind="binary", message_noise=lambda k, i: noise[k, i])
    usual = ref.fedexp(clients, np.ones(3), setting, "naive", inner="scaffold")[0]
    for change in ({"memory": "own_update"}, {"total_clients": 9}, {"warm_rounds": 1}):
        assert (
            np.abs(
                ref.fedexp(clients, np.ones(3), setting, "naive", inner="scaffold", **change)[0][-1]
                - usual[-1]
            ).max()
            > 1e-4
        )
    iterates, steps = ref.fedexp(clients, np.ones(3), setting, "naive", inner="scaffold", warm_rounds=2)
    np.testing.assert_array_equal(iterates[:2], np.ones((2, 3)))
    assert steps[:2] == [1.0, 1.0]
    assert steps[2] > 1.0


def scalar_dp(r, C, eps2, constants):
    """The values of ScalarDP(r) and their probabilities, from Algorithm 4."""
    k, e = constants.k, np.exp(eps2)
    rounded = np.zeros(k + 1)
    low = int(np.floor(k * r / C))
    rounded[low] = 1.0 - (k * r / C - low)
    if low < k:
        rounded[low + 1] = k * r / C - low
    flip = np.full((k + 1, k + 1), 1.0 / (e + k))
    np.fill_diagonal(flip, e / (e + k))
    return constants.a * (np.arange(k + 1) - constants.b), rounded @ flip


def test_norm_constants_of_privunit():
    """eps2 = 2: the values recomputed from the paper (PAPERS.md), and what they are for: ScalarDP
    is unbiased, and the estimate of the squared norm is never above it on average (Lemma D.3),
    exactly it halfway between two levels.
    """
    C, m = 3.0, 0.1
    got = ref.norm_constants(2.0, C, m)
    assert [ref.norm_constants(eps2, C, m).k for eps2 in (2.0, 3.5)] == [2, 4]
    np.testing.assert_allclose([got.a / C, got.b], [0.734776, 0.319521], atol=1e-6)
    np.testing.assert_allclose(
        [got.c1, got.c2 / C, got.c3 / C**2], [0.469553, -0.469553, 0.324241], atol=1e-6
    )
    u = np.array([0.6, 0.0, -0.8])
    for eps2 in (1.0, 2.0, 3.5):
        constants = ref.norm_constants(eps2, C, m)
        for r in np.linspace(0.0, C, 13):
            values, chances = scalar_dp(r, C, eps2, constants)
            assert chances.sum() == pytest.approx(1.0)
            assert chances @ values == pytest.approx(r)
            estimates = np.array([ref.squared_norm(value * u / m, constants) for value in values])
            literal = (values**2 - constants.c2 * values - constants.c3) / (1 + constants.c1)
            np.testing.assert_allclose(estimates, literal, rtol=1e-9)
            assert chances @ estimates <= r**2 + 1e-9
        middle = C / 2 / constants.k
        values, chances = scalar_dp(middle, C, eps2, constants)
        assert chances @ [ref.squared_norm(value * u / m, constants) for value in values] == pytest.approx(
            middle**2
        )


def test_fedexp_with_privunit_by_hand():
    """Messages r z with |z| = 1/m and r the lowest or the highest value of ScalarDP, along the two
    axes.
    """
    C, m = 2.0, 0.5
    constants = ref.norm_constants(2.0, C, m)
    r = [-0.234776 * C, 1.234776 * C]
    clients = orthogonal(1.0, 1.0)
    setting = full(
        clients,
        1,
        1.0,
        1,
        kind="squared",
        bound="clip",
        clip=C,
        randomiser=lambda k, i, bounded: r[i] / m * bounded,
    )
    above = sum((v**2 + 0.469553 * C * v - 0.324241 * C**2) / 1.469553 for v in r) / 2
    below = (r[0] ** 2 + r[1] ** 2) / m**2 / 4
    assert above / below < 1.0
    iterates, steps = ref.fedexp(clients, np.zeros(2), setting, "privunit", constants=constants)
    assert steps == [1.0]
    np.testing.assert_allclose(iterates[0], np.array(r) / m / 2)
    # nearly opposite messages of length r / m: a short mean, a long step
    sent = {0: np.array([-0.9, 0.19**0.5]) * r[1] / m, 1: np.array([1.0, 0.0]) * r[1] / m}
    close = replace(setting, randomiser=lambda k, i, bounded: sent[i])
    one = (r[1] ** 2 + 0.469553 * C * r[1] - 0.324241 * C**2) / 1.469553
    mean = r[1] / m / 2 * np.array([0.1, 0.19**0.5])
    iterates, steps = ref.fedexp(clients, np.zeros(2), close, "privunit", constants=constants)
    np.testing.assert_allclose(steps, [one / (mean @ mean)], rtol=1e-5)
    assert steps[0] > 1.0
    np.testing.assert_allclose(iterates[0], steps[0] * mean, rtol=1e-5)


def test_average_of_the_last_iterates_by_hand():
    iterates, x0 = [np.array([2.0]), np.array([6.0]), np.array([-2.0])], np.array([0.0])
    np.testing.assert_allclose(np.ravel(ref.average_last(iterates, x0, 2)), [1.0, 4.0, 2.0])
    np.testing.assert_allclose(np.ravel(ref.average_last(iterates, x0, 3)), [1.0, 8 / 3, 2.0])
    np.testing.assert_allclose(np.ravel(ref.average_last(iterates, x0, 1)), [2.0, 6.0, -2.0])


# pfl


def test_pfl_is_fedavg_with_record_noise():
    """Poisson lots, noise of the sum over the expected lot, momentum from rest in every round: the
    same models.
    """
    clients = problem("softmax", 3)
    noise = 0.5 * np.random.default_rng(23).normal(size=(4, 4, 5, 12))
    x0, steps = np.random.default_rng(24).normal(size=12), [5, 3, 1, 4]
    literal = {
        "lr": 0.3,
        "C": 0.8,
        "L": 4.0,
        "lots": lambda k, i, t: poisson_lots(k, i, t)[0],
        "noise": lambda k, i, t: noise[k, i, t],
    }
    models = ref.pfl(clients, x0, "softmax", steps, momentum=0.5, classes=3, bias=True, **literal)
    setting = full(
        clients,
        4,
        0.3,
        1,
        kind="softmax",
        classes=3,
        bias=True,
        local_momentum=0.5,
        lots=poisson_lots,
        record_clip=0.8,
        record_noise=lambda k, i, t: noise[k, i, t] / 4,
    )
    setting = replace(setting, steps=steps)
    np.testing.assert_allclose(models, ref.fedavg(clients, x0, setting), rtol=0, atol=1e-12)
    for change in (
        {"record_noise": lambda k, i, t: noise[k, i, t]},
        {"local_momentum": 0.0},
        {"record_clip": 0.9},
        {"steps": [5, 3, 1, 3]},
    ):
        assert np.abs(models[-1] - ref.fedavg(clients, x0, replace(setting, **change))[-1]).max() > 1e-4, (
            change
        )


def test_pfl_by_hand():
    """Target 0 twice, x = 8, L = 4, C = 6, lr 1, m = 1/2: sum 12, noise 4, gradient 4, x = 4; sum
    8, gradient 3, buffer 5, x = -1. The next round starts at rest: sum -2, gradient 1/2, x = -3/2.
    """
    clients = [(np.ones((2, 1)), np.zeros(2))]
    models = ref.pfl(
        clients,
        np.array([8.0]),
        "squared",
        [2, 1],
        1.0,
        6.0,
        4.0,
        lambda r, i, t: [0, 1],
        lambda r, i, t: np.array([4.0]),
        0.5,
    )
    np.testing.assert_allclose(np.ravel(models), [-1.0, -1.5])


# a clip that moves


def test_quantile_clip_by_hand():
    """Updates far beyond C: b = 0 and C grows by exp(lr q) a round; the model moves by C, noise by
    C times its own.
    """
    clients = points(1e9, 1e9, 1e9)
    setting = full(clients, 3, 0.5, 1, kind="squared", bound="clip", clip=2.0, quantile=0.6, quantile_lr=0.5)
    clips = 2.0 * np.exp(0.3 * np.arange(3))
    np.testing.assert_allclose(np.ravel(ref.fedavg(clients, np.zeros(1), setting)), np.cumsum(clips))
    noisy = replace(
        setting, message_noise=lambda k, i: np.array([0.3 * i]), sum_noise=lambda k: np.array([0.6])
    )
    np.testing.assert_allclose(
        np.ravel(ref.fedavg(clients, np.zeros(1), noisy)), np.cumsum(clips * (1 + 0.3 + 0.2))
    )
    # updates of zero are within C: b = 1; the shift by 1/2 counts where the divisor is not the
    # number of bits
    still = replace(setting, sum_noise=lambda k: np.array([3.0]), lr=[1e-12] * 3)
    np.testing.assert_allclose(
        np.diff(np.ravel(ref.fedavg(points(0, 0, 0), np.zeros(1), still))),
        2 * np.exp([-0.2, -0.4]),
        rtol=1e-9,
    )
    fewer = replace(still, divisor=[5, 3, 3])  # b = 1/2 + (3/2) / 5
    x = np.ravel(ref.fedavg(points(0, 0, 0), np.zeros(1), fewer))
    np.testing.assert_allclose(x[1] - x[0], 2 * np.exp(-0.5 * 0.2), rtol=1e-9)
    # noise on the bits, over the divisor; an empty cohort counts as 1/2
    bits = replace(setting, bit_noise=lambda k: -1.5 if k == 0 else None)
    x = np.ravel(ref.fedavg(clients, np.zeros(1), bits))
    np.testing.assert_allclose(np.diff(x), 2 * np.exp([0.55, 0.85]))
    nobody = replace(setting, cohorts=[[], [0, 1, 2], []], divisor=[0, 3, 3], steps=[1] * 3)
    np.testing.assert_allclose(ref.fedavg(clients, np.zeros(1), nobody)[1], [2 * np.exp(0.05)])


@pytest.mark.parametrize("quantile", [0.25, 0.5, 0.75])
def test_quantile_clip_finds_the_quantile(quantile):
    """Eight constant norms 1, ..., 8: C ends between the two around the quantile, whatever it began
    with.
    """
    clients, seen = orthogonal(*range(1, 9)), []

    def recorded(k, i, bounded):
        if i == 7:
            seen.append(np.linalg.norm(bounded))
        return bounded

    setting = full(
        clients,
        400,
        1.0,
        1,
        kind="squared",
        bound="normalise",
        clip=40.0,
        quantile=quantile,
        quantile_lr=0.05,
    )
    ref.fedavg(clients, np.zeros(8), replace(setting, server_lr=0.0, randomiser=recorded))
    assert seen[0] == pytest.approx(40.0)
    np.testing.assert_allclose(seen[-50:], 8 * quantile + 0.5, atol=0.8)


def test_a_quantile_that_does_not_move_is_a_fixed_clip():
    clients = problem("binary")
    noise = np.random.default_rng(25).normal(size=(4, 4, 3))
    still = full(
        clients,
        4,
        0.2,
        3,
        kind="binary",
        bound="clip",
        clip=0.25,
        message_noise=lambda k, i: 0.25 * noise[k, i],
    )
    moving = replace(still, quantile=0.3, quantile_lr=0.0, message_noise=lambda k, i: noise[k, i])
    for algorithm in ALGORITHMS:
        np.testing.assert_array_equal(
            run(algorithm, clients, np.ones(3), moving), run(algorithm, clients, np.ones(3), still)
        )
    ours, theirs = (
        ref.fedexp(clients, np.ones(3), setting, "debiased", sigma=sigma)[1]
        for setting, sigma in ((moving, 1.0), (still, 0.25))
    )
    assert ours == theirs
    central = replace(still, message_noise=None, sum_noise=lambda k: 0.25 * noise[k, 0])
    moving = replace(moving, message_noise=None, sum_noise=lambda k: noise[k, 0])
    ours = ref.fedexp(clients, np.ones(3), moving, "central", lambda k: 0.5)[1]
    assert ours == ref.fedexp(clients, np.ones(3), central, "central", lambda k: 0.5 / 16)[1]


def test_median_clip_by_hand():
    """Updates of norm 1, 20, 3, 5: C = 4; with three of them, 3; noise is scaled by it, and nobody
    has a median of 0.
    """
    clients, x0 = points(1, 20, 3, -5), np.zeros(1)
    setting = ref.Setting(
        kind="squared",
        lr=[1.0],
        steps=[1],
        cohorts=[[0, 1, 2, 3]],
        divisor=[4],
        bound="clip",
        clip_median=True,
        message_noise=lambda k, i: np.array([0.5]) if i == 1 else None,
        sum_noise=lambda k: np.array([1.0]),
    )
    assert ref.fedavg(clients, x0, setting)[0] == pytest.approx([(1 + 4 + 2 + 3 - 4 + 4) / 4])
    odd = replace(setting, cohorts=[[0, 1, 2]])
    assert ref.fedavg(clients, x0, odd)[0] == pytest.approx([(1 + 3 + 1.5 + 3 + 3) / 4])
    normed = replace(setting, bound="normalise", message_noise=None)
    assert ref.fedavg(clients, x0, normed)[0] == pytest.approx([(4 + 4 + 4 - 4 + 4) / 4])
    np.testing.assert_array_equal(ref.fedavg(clients, np.ones(1), replace(setting, cohorts=[[]]))[0], [1.0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_new_switch_changes_something(algorithm):
    """Negative controls: in the second round at the latest."""
    clients = problem("binary")
    plain = full(clients, 2, 0.2, 3, kind="binary", bound="clip", clip=0.5, lots=poisson_lots)
    median = {"clip": None, "clip_median": True}
    quantile = {"quantile": 0.2, "quantile_lr": 0.5}
    ones = np.ones(3)
    for before, after in (
        ({}, {"record_clip": 0.3}),
        ({}, {"record_median": True}),
        ({}, {"record_noise": lambda k, i, step: 0.1 * (i + 1) * ones}),
        ({"record_clip": 0.3}, {"record_clip": 0.31}),
        (
            {"record_noise": lambda k, i, step: 0.1 * ones},
            {"record_noise": lambda k, i, step: 0.1 * ones, "record_median": True},
        ),
        ({}, median),
        ({}, quantile),
        (quantile, quantile | {"quantile": 0.9}),
        (quantile, quantile | {"quantile_lr": 0.1}),
        (quantile, quantile | {"bit_noise": lambda k: 1.0}),
        ({}, {"randomiser": lambda k, i, v: (1.0 + 0.1 * i) * v}),
    ):
        ours, theirs = (
            run(algorithm, clients, np.ones(3), replace(plain, **change)) for change in (before, after)
        )
        assert np.abs(ours[-1] - theirs[-1]).max() > 1e-4, after

"""The reference's rounds at client level: fixed points, rounds worked out by hand, and relations
between the algorithms.
"""

import numpy as np
import pytest

from oracles import reference as ref
from oracles.small_problems import (
    ALGORITHMS,
    KINDS,
    full,
    points,
    pooled_gradient,
    pooled_optimum,
    problem,
    run,
    smoothness,
)

pytestmark = pytest.mark.one_in(3)

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


@pytest.mark.slow
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


def test_average_of_the_last_iterates_by_hand():
    iterates, x0 = [np.array([2.0]), np.array([6.0]), np.array([-2.0])], np.array([0.0])
    np.testing.assert_allclose(np.ravel(ref.average_last(iterates, x0, 2)), [1.0, 4.0, 2.0])
    np.testing.assert_allclose(np.ravel(ref.average_last(iterates, x0, 3)), [1.0, 8 / 3, 2.0])
    np.testing.assert_allclose(np.ravel(ref.average_last(iterates, x0, 1)), [2.0, 6.0, -2.0])

"""The reference's FedEXP and PrivUnit's constants, against closed forms and numbers worked out by
hand.
"""

from dataclasses import replace

import numpy as np
import pytest

from oracles import reference as ref
from oracles.small_problems import ALGORITHMS, full, orthogonal, points, poisson_lots, problem, run


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
    """eps2 = 2: the values recomputed from the paper (docs/papers.md), and what they are for:
    ScalarDP is unbiased, and the estimate of the squared norm is never above it on average (Lemma
    D.3), exactly it halfway between two levels.
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

"""The reference's clips that move from round to round, by quantile and by median."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import reference as ref
from oracles.small_problems import ALGORITHMS, full, orthogonal, points, poisson_lots, problem, run


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

"""The reference at record level: clipped and noised lots, FedSGD and pfl."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import reference as ref
from oracles.small_problems import ALGORITHMS, full, poisson_lots, problem, run

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

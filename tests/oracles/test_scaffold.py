"""The reference's SCAFFOLD, against numbers worked out by hand, ScaffNew and the pooled optimum."""

from dataclasses import replace

import numpy as np
import pytest

from oracles import reference as ref
from oracles.small_problems import first, full, points, poisson_lots, pooled_optimum, problem, smoothness


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

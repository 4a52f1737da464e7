"""`balancing`, Theorem 1 and Corollary 1: the check values of docs/papers.md, the recursion, and
psi_0 of real logistic regressions.
"""

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from dpfl_bench.problems.theory import bound, contraction, optimal_steps, p_star, prior_psi0, utility_bound

MU, L = 0.01, 2.596214
REST = {"delta": 1e-5, "mu": MU, "L": L, "v": 8.0, "clip": 0.1, "clients": 10, "dimension": 112}


@pytest.mark.parametrize(
    ("eps", "steps", "brute"),
    [(3.3, 2153.92, 2154), (2, 1894.40, 1894), (1, 1535.18, 1535), (0.5, 1175.96, 1176)],
)
def test_optimal_steps(eps: float, steps: float, brute: int) -> None:
    assert optimal_steps(1e8, eps, **REST) == pytest.approx(steps, abs=0.005)
    assert min(range(1, 5000), key=lambda t: bound(t, 1e8, eps, **REST)) == brute


def test_a_budget_that_buys_nothing() -> None:
    assert optimal_steps(1e4, 0.5, **REST) == 0
    assert optimal_steps(0.0, 0.5, **REST) == 0
    assert all(bound(t, 1e4, 0.5, **REST) > bound(0, 1e4, 0.5, **REST) for t in (1, 10, 1000))


def test_p_star_minimises_the_bound() -> None:
    """Theorem 1 with the budget's noise, sigma^2 = p v C^2 T ln(1/delta) / eps^2, summed to
    infinity as the paper does.
    """
    best = p_star(MU, L)
    assert best == pytest.approx(math.sqrt(MU / L))

    def full_bound(p: float) -> float:
        rho = contraction(MU, L, 1 / L, p)
        noise = 8 * 0.1**2 * 10 * 112 * 1500 * math.log(1e5)
        return rho**1500 * 1e8 + p**2 / (1 - rho) * noise

    assert all(full_bound(best) < full_bound(best * factor) for factor in (0.3, 0.7, 0.95, 1.05, 1.5, 3))
    assert full_bound(best) == pytest.approx(bound(1500, 1e8, 1.0, **REST), rel=1e-9)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.99, 1.0])
def test_utility_bound_is_the_recursion(rho: float) -> None:
    psi = 7.0
    for _ in range(30):
        psi = rho * psi + 0.2 * 5 * 3 * 0.4**2
    assert utility_bound(30, 7.0, rho, 0.2, 5, 3, 0.4) == pytest.approx(psi)
    assert utility_bound(0, 7.0, rho, 0.2, 5, 3, 0.4) == 7.0


@pytest.mark.parametrize(("call", "words"), [((MU, 2.0, 0.6, 0.1), "lr=0.6"), ((MU, 2.0, 0.5, 0.0), "p=0.0")])
def test_conditions_of_the_theorem(call: tuple[float, float, float, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        contraction(*call)
    with pytest.raises(ValueError, match="0 < mu < L"):
        p_star(0.0, 1.0)
    with pytest.raises(ValueError, match=r"rho=1\.5"):
        utility_bound(1, 1.0, 1.5, 0.1, 1, 1, 1.0)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("mu", [0.003, 0.05, 1.0])
def test_prior_psi0_holds(classes: int, mu: float) -> None:
    """psi_0 computed at the numerical optimum of very different clients (each has one class
    alone).
    """
    draw = np.random.Generator(np.random.Philox(key=3))
    clients, records, width, outputs = 4, 30, 5, 1 if classes == 2 else classes
    rows = draw.normal(size=(clients, records, width))
    labels = np.broadcast_to(np.arange(clients)[:, None] % classes, (clients, records))
    one_hot = (labels == 1)[..., None] if classes == 2 else np.eye(classes)[labels]

    def gradients(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = rows @ x.reshape(width, outputs)
        if classes == 2:
            losses, chance = np.logaddexp(0, scores) - one_hot * scores, 1 / (1 + np.exp(-scores))
        else:
            top = np.log(np.exp(scores).sum(-1, keepdims=True))
            losses, chance = (top - (one_hot * scores).sum(-1, keepdims=True)), np.exp(scores - top)
        each = np.einsum("nrw,nro->nwo", rows, chance - one_hot).reshape(clients, -1) / records
        return losses.mean((1, 2)) + mu / 2 * x @ x, each + mu * x

    def mean_loss(x: np.ndarray) -> tuple[float, np.ndarray]:
        losses, each = gradients(x)
        return float(losses.mean()), each.mean(0)

    best = minimize(mean_loss, np.zeros(width * outputs), jac=True, tol=1e-10).x
    norm = float(np.linalg.norm(rows, axis=-1).max())
    smooth = (0.25 if classes == 2 else 0.5) * norm**2 + mu
    p = p_star(mu, smooth)
    psi0 = clients * best @ best + (gradients(best)[1] ** 2).sum() / (smooth * p) ** 2
    assert psi0 <= prior_psi0(mu, smooth, p, clients, classes, norm)

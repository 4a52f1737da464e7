"""`balancing` (Balancing Privacy and Performance for Private Federated Learning Algorithms):
Theorem 1 and Corollary 1, corrected.

Symbols: N clients, d dimension, mu strong convexity and L smoothness of every client's loss, C
clip, v the constant of Lemma 1, psi_t = sum_i |x_t^i - x*|^2 + (lr/p)^2 sum_i |h_t^i - grad
f_i(x*)|^2, T local steps in all, of which pT communicate.

Deviations from the paper:
- B.1's last display has "+ 2 p sigma^2"; the derivation gives p N d sigma^2, which the paper uses
  afterwards.
- B.1 sums the noise to infinity, p N d sigma^2 / (1 - rho); `utility_bound` keeps the exact
  geometric sum.
- B.2's "(1 - theta)^T <= (1 - mu/L)^T" is reversed (theta <= mu/L). p* = sqrt(mu/L) still minimises
  the bound: a smaller p contracts less at the same noise, a larger one adds noise at the same
  contraction.
- T* may come out negative: then it is 0, "the budget buys nothing", and the starting point is the
  best the bound knows.
- v is not free. With full participation an exact accountant fixes it
  (`privacy.calibration.implied`), for the realised number of communications; pT is only their
  expectation.
- mu and L must hold for every client, not for the mean loss.
"""

from __future__ import annotations

import math


def p_star(mu: float, L: float) -> float:
    """Corollary 1's probability of communicating, sqrt(mu/L): 1/p local steps a round in
    expectation.
    """
    _check_curvature(mu, L)
    return math.sqrt(mu / L)


def optimal_steps(
    psi0: float,
    eps: float,
    delta: float,
    mu: float,
    L: float,
    v: float,
    clip: float,
    clients: int,
    dimension: int,
) -> float:
    """Corollary 1's T*: the real-valued minimiser of `bound` over the total number of local steps,
    at least 0.
    """
    _check_curvature(mu, L)
    rate = -math.log1p(-mu / L)
    gain = psi0 * rate / _noise_per_step(eps, delta, v, clip, clients, dimension)
    return max(0.0, math.log(gain) / rate) if gain > 0 else 0.0


def bound(
    T: float,
    psi0: float,
    eps: float,
    delta: float,
    mu: float,
    L: float,
    v: float,
    clip: float,
    clients: int,
    dimension: int,
) -> float:
    """B(T) = (1 - mu/L)^T psi_0 + v C^2 N d T ln(1/delta) / eps^2: Theorem 1's bound at lr = 1/L, p
    = p*.
    """
    _check_curvature(mu, L)
    contracted = math.exp(T * math.log1p(-mu / L)) * psi0
    return contracted + T * _noise_per_step(eps, delta, v, clip, clients, dimension)


def _noise_per_step(eps: float, delta: float, v: float, clip: float, clients: int, dimension: int) -> float:
    return v * clip**2 * clients * dimension * math.log(1 / delta) / eps**2


def contraction(mu: float, L: float, lr: float, p: float) -> float:
    """Theorem 1's factor per local step, max(1 - mu lr, 1 - p^2), for 0 < lr <= 1/L."""
    if not (lr > 0 and lr * L <= 1 + 1e-9):
        raise ValueError(f"lr={lr}: expected 0 < lr <= 1/L = {1 / L:.6g} (the theorem's condition)")
    if not 0 < p <= 1:
        raise ValueError(f"p={p}: expected 0 < p <= 1")
    return max(1 - mu * lr, 1 - p**2)


def utility_bound(
    t: int, psi0: float, rho: float, p: float, clients: int, dimension: int, noise_std: float
) -> float:
    """Theorem 1 before the noise is set by a budget: E psi_t <= rho^t psi_0 + p N d sigma^2 (1 -
    rho^t) / (1 - rho).

    `noise_std` is the standard deviation of each client's own noise, per coordinate (under secagg:
    of its share).
    """
    if not 0 <= rho <= 1:
        raise ValueError(f"rho={rho}: expected 0 <= rho <= 1")
    power = rho**t
    steps = float(t) if rho == 1 else (1 - power) / (1 - rho)
    return power * psi0 + p * clients * dimension * noise_std**2 * steps


def prior_psi0(mu: float, L: float, p: float, clients: int, classes: int, max_row_norm: float) -> float:
    """An upper bound of psi_0 that looks at no label: l2-regularised logistic regression, x_0 = 0,
    h_0 = 0, lr = 1/L.

    f_i(x) = mean over records of the cross-entropy + (mu/2) |x|^2; every row (with its constant 1
    if there is a bias, which is then regularised too) has norm <= `max_row_norm` = R; two classes
    have one logit, K > 2 classes a softmax; the target is the mean of the f_i over N clients.
    1. The loss is >= 0 and equals ln K at 0, so (mu/2) |x*|^2 <= f(x*) <= f(0) = ln K, that is
       |x*|^2 <= 2 ln(K) / mu.
    2. A record's gradient is (s - y) row with |s - y| <= 1 for one logit, and the outer product (s
       - e_y) row' of norm |s - e_y| |row| for a softmax; |s - e_y|^2 = (1 - s_y)^2 + sum of the
       other s^2 <= 2 (1 - s_y)^2 <= 2. So |grad f_i(x*)| <= a R + mu |x*| with a = 1 or sqrt(2).
    3. psi_0 = N |x*|^2 + 1/(L p)^2 sum_i |grad f_i(x*)|^2.
    """
    _check_curvature(mu, L)
    if classes < 2:
        raise ValueError(f"classes={classes}: expected at least 2")
    radius_squared = 2 * math.log(classes) / mu
    gradient = (1.0 if classes == 2 else math.sqrt(2)) * max_row_norm + mu * math.sqrt(radius_squared)
    return clients * (radius_squared + (gradient / (L * p)) ** 2)


def _check_curvature(mu: float, L: float) -> None:
    if not 0 < mu < L:
        raise ValueError(f"mu={mu}, L={L}: expected 0 < mu < L (add l2 regularisation for mu > 0)")


def curvature(classes: int) -> float:
    """The largest second derivative of a record's loss by its outputs: 1/4 for one logit, 1/2 for
    softmax, 1 for squares (classes = 0).
    """
    return {0: 1.0, 2: 0.25}.get(classes, 0.5)

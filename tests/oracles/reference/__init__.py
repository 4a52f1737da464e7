"""An independent float64 reference of every algorithm of the five papers, written from the papers
alone.

It exists to check the product, so it imports nothing from it: numpy, one client after the other,
one local step after the other. Sources: `balancing` (Algorithms 1 and 2), `normalized` (Algorithm 1
options i and ii, Algorithm 2), `dpscaffold` (Algorithms 1 and 2, the warm start of section 3.3, the
median clip of D.1), `fedexp` (equations 2, 3, 6, 7, 8, Algorithms 1, 2 and 5), `pfl` (Algorithm 1),
and Andrew et al. 2021 for the clip that follows a quantile.

Nothing here draws a random number. Cohorts, numbers of local steps, lots and noise are inputs
(`Setting`), so the same values can be handed to the product and to the reference.

Conventions where the papers are silent:
- clip(0) = 0. norm(0) is undefined in `normalized`; here norm(0) = C e with e = (1, ..., 1) /
  sqrt(d), d the number of parameters. The vector offered is y_K - x in `fedavg`, `scaffnew` and
  `scaffold` (so a zero update moves the model by +C e), u = (x - y_K) / lr in `normfedavg` and the
  gradient in `fedsgd` (so a zero update moves it by -lr C e).
- An empty cohort is still a round: its mean is sum_noise / divisor (zero without noise) and the
  server momentum acts.
- The server step sees only the model that the paper's own update proposes: direction = proposed -
  x, velocity = server_momentum velocity + direction, x += server_lr velocity. The paper's update is
  server_lr = 1 and server_momentum = 0; `normalized`'s beta is server_lr times the round's lr.
  FedEXP's step is part of what is proposed.
- With a list of learning rates, the shift update of ScaffNew and the controls of SCAFFOLD divide by
  the learning rate of their own round. With local momentum they keep that formula, so a control is
  then no mean of gradients.
- l2 and weight_decay act on every parameter, biases included, and are never multiplied by the
  record weights, never clipped with the records, and get no noise.
- SCAFFOLD's server counts the messages: c += (1/M) sum over the cohort of (c_i' - c_i), whatever
  the divisor, with the noise on the sum in the place of a message's own: l times the mean of
  Algorithm 1, with l = divisor / M.
- FedEXP: a mean that is exactly zero has step 1; max(1, .) stands in equations 2 and 3 too; sums
  over the cohort are divided by the divisor, and d sigma^2 is subtracted once per message that
  came.
- A median of nothing (an empty lot, an empty cohort) is 0, and noise that is scaled by it is 0.
- Andrew et al.: a round with nothing to count has the share 1/2.
"""

from oracles.reference.algorithms import (
    average_last,
    fedavg,
    fedsgd,
    normfedavg,
    pfl,
    scaffnew,
    scaffnew_coins,
    scaffold,
    unit_step,
)
from oracles.reference.fedexp import NormConstants, fedexp, norm_constants, squared_norm
from oracles.reference.losses import Client, Vector, gradient, loss, parameters
from oracles.reference.sending import Sent, Setting, StepRule, clip, normalise

__all__ = [
    "Client",
    "NormConstants",
    "Sent",
    "Setting",
    "StepRule",
    "Vector",
    "average_last",
    "clip",
    "fedavg",
    "fedexp",
    "fedsgd",
    "gradient",
    "loss",
    "norm_constants",
    "normalise",
    "normfedavg",
    "parameters",
    "pfl",
    "scaffnew",
    "scaffnew_coins",
    "scaffold",
    "squared_norm",
    "unit_step",
]

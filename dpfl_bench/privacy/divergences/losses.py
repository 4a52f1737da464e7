"""The epsilon of a discrete distribution of privacy losses."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def eps_of_losses(losses: Any, probabilities: Any, infinite: float, delta: float) -> float:
    """The smallest eps >= 0 with delta(eps) = infinite + sum of probability (1 - e^(eps - loss))_+
    <= delta; inf where infinite > delta.

    losses: (n,), ascending. probabilities: (n,). infinite: the probability of an infinite loss.
    """
    if infinite > delta:
        return math.inf
    losses, probabilities = losses[losses > 0][::-1], np.maximum(probabilities[losses > 0], 0)[::-1]
    upper = infinite + np.cumsum(probabilities)
    if not len(upper) or upper[-1] <= delta:
        return 0.0
    reference = losses[np.argmax(upper > delta)]  # eps is below, and not by much
    lower = np.cumsum(probabilities * np.exp(np.minimum(reference - losses, 700)))
    following = np.append(losses[1:], 0)
    beyond = upper - lower * np.exp(np.clip(following - reference, -700, 700)) > delta
    if not beyond.any():
        return 0.0
    i = int(np.argmax(beyond))
    return float(reference + math.log((upper[i] - delta) / lower[i]))

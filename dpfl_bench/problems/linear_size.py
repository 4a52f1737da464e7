"""How many numbers a linear model has. Without torch."""

from __future__ import annotations


def outputs(classes: int) -> int:
    """One for two classes and for regression (0 classes), else one for each class."""
    return 1 if classes <= 2 else classes


def parameters(features: int, classes: int, bias: bool) -> int:
    """Weights of each output, and its bias if there is one."""
    return outputs(classes) * (features + bias)

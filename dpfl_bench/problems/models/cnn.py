"""Small convolutional networks."""

from __future__ import annotations

from torch import nn

NORMS = ("none", "group", "batch")


def cnn(shape: list[int], classes: int, channels: list[int], kernel: int, norm: str) -> nn.Module:
    """Two (or more) convolutions, each with ReLU and 2x2 max pooling, then one linear layer.

    norm=batch normalises by the batch at hand (no running statistics) and is for eps=inf only.
    """
    if len(shape) != 3:
        raise ValueError(f"model=cnn: expected images of shape [channels, height, width], got {list(shape)} (use model=mlp or logreg)")
    if norm not in NORMS:
        raise ValueError(f"model.norm={norm}: expected one of {', '.join(NORMS)}")
    inputs, height, width = shape
    layers: list[nn.Module] = []
    for outputs in channels:
        layers += [
            nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2),
            *_norm(norm, outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
        inputs, height, width = outputs, height // 2, width // 2
    if height * width == 0:
        raise ValueError(f"model.channels={list(channels)}: pooled {shape[1]}x{shape[2]} images down to nothing; use fewer layers")
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * height * width, classes))


def _norm(kind: str, channels: int) -> list[nn.Module]:
    if kind == "batch":
        return [nn.BatchNorm2d(channels, track_running_stats=False)]
    if kind == "group":
        return [nn.GroupNorm(next(g for g in (8, 4, 2, 1) if channels % g == 0), channels)]
    return []

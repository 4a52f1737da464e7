"""Recurrent networks for sequences of tokens. What a dry run reads of them is here, so torch is
imported where they are built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from dpfl_bench.checks.ranges import COUNT

if TYPE_CHECKING:
    from torch import nn

Count = Annotated[int, COUNT]


def lstm(
    shape: list[int],
    classes: int,
    embedding: Count,
    hidden: Count,
    layers: Count,
    every_position: bool | None,
    vocabulary: Annotated[int | None, COUNT],
    task: str = "next_token",
) -> nn.Module:
    """Tokens (n, length) to logits: (n, length, classes) if every_position, for the next token at
    each; else (n, classes), from the last.

    every_position=None: what the data set's task asks for. vocabulary: how many tokens may come in;
    None: as many as classes.
    """
    from dpfl_bench.problems.models.recurrent import Recurrent

    if len(shape) != 1:
        raise ValueError(
            f"dataset.shape={list(shape)}: expected sequences of tokens, shape [length], for model=lstm (use"
            " model=cnn for images)"
        )
    for name, value in {
        "embedding": embedding,
        "hidden": hidden,
        "layers": layers,
        "vocabulary": vocabulary,
    }.items():
        if value is not None and value < 1:
            raise ValueError(f"model.{name}={value}: expected at least 1")
    if every_position is None:
        every_position = task == "next_token"
    return Recurrent(vocabulary or classes, classes, embedding, hidden, layers, every_position)

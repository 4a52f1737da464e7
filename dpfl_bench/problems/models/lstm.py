"""Recurrent networks for sequences of tokens."""

from __future__ import annotations

from torch import Tensor, nn


def lstm(
    shape: list[int],
    classes: int,
    embedding: int,
    hidden: int,
    layers: int,
    every_position: bool | None,
    vocabulary: int | None,
    task: str = "next_token",
) -> nn.Module:
    """Tokens (n, length) to logits: (n, length, classes) if every_position, for the next token at
    each; else (n, classes), from the last.

    every_position=None: what the data set's task asks for. vocabulary: how many tokens may come in;
    None: as many as classes.
    """
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


class Recurrent(nn.Module):
    def __init__(
        self, vocabulary: int, classes: int, embedding: int, hidden: int, layers: int, every_position: bool
    ):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.recurrent = nn.LSTM(embedding, hidden, layers, batch_first=True)
        self.out = nn.Linear(hidden, classes)
        self.every_position = every_position

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.is_floating_point():
            raise ValueError(
                "model=lstm: expected tokens, got a data set of numbers (use model=mlp or logreg)"
            )
        states = self.recurrent(self.embedding(tokens))[0]
        logits: Tensor = self.out(states if self.every_position else states[:, -1])
        return logits

"""The recurrent network that `lstm` builds."""

from __future__ import annotations

from torch import Tensor, nn


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
                "model=lstm: expected tokens, got a data set of numbers (use model=mlp or model=logreg)"
            )
        states = self.recurrent(self.embedding(tokens))[0]
        logits: Tensor = self.out(states if self.every_position else states[:, -1])
        return logits

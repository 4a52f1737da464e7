"""Linear models without autograd: logistic regression (one logit for two classes, softmax for more)
and least squares.

The flat vector is the weight matrix (outputs, features), row after row, then the biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from dpfl_bench.machine import device
from dpfl_bench.problems.linear_size import outputs, parameters
from dpfl_bench.problems.problem import LONGEST, Batch, Factors, Scored, lengths
from dpfl_bench.problems.products import bmm


@dataclass(frozen=True)
class LinearProblem:
    features: int
    classes: int  # 0: least squares
    bias: bool
    l2: float
    init: str = "zeros"  # or near_optimum: the optimum + init_scale * U(0, 1)^d
    init_scale: float = 1.0

    @property
    def outputs(self) -> int:
        return outputs(self.classes)

    @property
    def dimension(self) -> int:
        return parameters(self.features, self.classes, self.bias)

    def start(self, seed: int, like: Tensor) -> Tensor:
        return like.new_zeros(self.dimension)

    def gradient(self, y: Tensor, batch: Batch) -> Tensor:
        rows = batch.features.flatten(2)  # (c, b, f)
        residuals = self._residuals(self._outputs(y, rows), batch.targets).mul_(
            batch.weights.unsqueeze(1)
        )  # (c, k, b)
        return self._sum(y, rows, residuals if batch.rectangular else _without_padding(residuals, batch))

    def clipped_gradient(self, y: Tensor, batch: Batch, factors: Factors) -> tuple[Tensor, Tensor]:
        """A record's gradient is residual (x, 1)', of norm |residual| |(x, 1)|. No record's
        gradient is ever formed.
        """
        rows = batch.features.flatten(2)
        residuals = self._residuals(self._outputs(y, rows), batch.targets)
        inputs = (lengths(rows).square() + float(self.bias)).sqrt()
        real = batch.weights > 0
        norms = (lengths(residuals.transpose(1, 2)) * inputs).to(y)
        if device.apart(inputs) or inputs.max().item() > LONGEST[y.dtype]:
            norms = norms.where(inputs <= LONGEST[y.dtype], math.nan)
        norms = norms.where(real, 0)
        factor = factors(norms, batch.weights)
        scales = (batch.weights * factor).where(real, 0)
        if device.apart(factor) or not factor.min().item() > 0:
            left_out = ~norms.isfinite()
            residuals.masked_fill_(left_out.unsqueeze(1), 0)
            rows, scales = rows.masked_fill(left_out.unsqueeze(2), 0), scales.masked_fill(left_out, 0)
        residuals.mul_(scales.unsqueeze(1))
        return self._sum(
            y, rows, residuals if batch.rectangular else _without_padding(residuals, batch)
        ), norms

    @property
    def metric(self) -> str:
        return "accuracy" if self.classes else "r2"

    def losses(self, x: Tensor, features: Tensor, targets: Tensor) -> Scored:
        losses, scores = self._scored(x, features, targets)
        return Scored(losses, scores, torch.ones_like(scores))

    def _scored(self, x: Tensor, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self._outputs(x.unsqueeze(0), features.flatten(1).unsqueeze(0))[0]  # (k, n)
        if self.classes == 0:
            squares = (outputs[0] - targets).square()
            return squares / 2, squares
        if self.classes == 2:
            losses = functional.binary_cross_entropy_with_logits(
                outputs[0], targets.to(outputs), reduction="none"
            )
            return losses, ((outputs[0] > 0) == (targets == 1)).to(outputs)
        return functional.cross_entropy(outputs.T, targets, reduction="none"), (
            outputs.argmax(0) == targets
        ).to(outputs)

    def _sum(self, y: Tensor, rows: Tensor, residuals: Tensor) -> Tensor:
        """sum_r residual_r (x_r, 1)' + l2 y for each client: (c, d)."""
        gradient = y.new_empty(len(y), self.dimension)
        bmm(residuals, rows, out=self._weight(gradient))
        if self.bias:
            torch.sum(residuals, 2, out=self._bias(gradient))
        return gradient.add_(y, alpha=self.l2) if self.l2 else gradient

    def _outputs(self, y: Tensor, rows: Tensor) -> Tensor:
        """Each record's k outputs: (c, d), (c, b, f) -> (c, k, b). With the records last, softmax
        and both products are fastest.
        """
        outputs = bmm(self._weight(y), rows.transpose(1, 2))
        return outputs.add_(self._bias(y).unsqueeze(2)) if self.bias else outputs

    def _weight(self, y: Tensor) -> Tensor:
        """The weight matrices, a view of y: (c, k, f)."""
        return y[:, : self.outputs * self.features].view(len(y), self.outputs, self.features)

    def _bias(self, y: Tensor) -> Tensor:
        """The biases, a view of y: (c, k)."""
        return y[:, self.outputs * self.features :]

    def _residuals(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Derivative of each record's loss by its outputs: (c, k, b)."""
        if self.classes == 0:
            return outputs - targets.unsqueeze(1)
        if self.classes == 2:
            return outputs.sigmoid() - targets.unsqueeze(1)
        return outputs.softmax(1).scatter_(1, targets.unsqueeze(1), -1.0, reduce="add")


def _without_padding(residuals: Tensor, batch: Batch) -> Tensor:
    """The residuals, 0 for padded records, also where a padded record's own is not finite."""
    return residuals.masked_fill_((batch.weights == 0).unsqueeze(1), 0)

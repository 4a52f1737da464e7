"""The networks of conf/model, each on the records it is for, with its size by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from model_rounds import keys_of, tried
from torch import Tensor, nn

from dpfl_bench.config.call import call
from dpfl_bench.problems.module import ModuleProblem
from helpers.federations import CONF, settings_of


def conv(inputs: int, outputs: int, size: int, bias: bool = True) -> int:
    """size: of the kernel, height times width (times depth)."""
    return inputs * outputs * size + bias * outputs


def fc(*sizes: int) -> int:
    return sum((a + 1) * b for a, b in itertools.pairwise(sizes))


LSTM_LAYERS = 2 * (4 * 256 * (256 + 256) + 2 * 4 * 256)
VGG_WIDTHS = [3, 64, 128, 256, 256, 512, 512, 512, 512]
VGG = sum(conv(a, b, 9) for a, b in itertools.pairwise(VGG_WIDTHS))
# convolutions without bias, one with; a scale and a shift for each channel that is normalised; ten
# slopes of PReLU
UNET_WIDTHS = [(8, 16), (16, 16), (16, 32), (32, 32), (32, 64), (96, 32), (32, 32), (48, 16), (16, 16)]
UNET = conv(1, 8, 27) + sum(conv(a, b, 27, False) + 2 * b for a, b in UNET_WIDTHS) + 10 + conv(16, 1, 1)
MNIST, CIFAR, FEMNIST, MESSIDOR, IXI = [1, 28, 28], [3, 32, 32], [1, 28, 28], [3, 224, 224], [1, 48, 60, 48]


@dataclass(frozen=True)
class Case:
    """A file of conf/model on the records it is for."""

    name: str
    shape: list[int]
    classes: int
    count: int  # by hand
    small: tuple[list[int], tuple[str, ...]] | None = (
        None  # shape and overrides with which it can be run in a test
    )
    overrides: tuple[str, ...] = ()
    dataset: str | None = None  # whose tokens and task the model takes; None: by the model's name

    @property
    def id(self) -> str:
        return f"{self.name}-{'x'.join(map(str, self.shape))}"

    @property
    def smaller(self) -> Case:
        """The same network, on smaller records or with a smaller head."""
        if self.small is None:
            return self
        shape, more = self.small
        return Case(self.name, shape, self.classes, 0, None, (*self.overrides, *more), self.dataset)

    @property
    def of(self) -> str:
        """The data set whose settings go with the model."""
        return self.dataset or {"lstm": "reddit", "unet3d": "ixi"}.get(self.name, "mnist")

    def node(self) -> dict[str, Any]:
        shape = json.dumps(self.shape).replace(" ", "")
        settings = settings_of(
            "eps=inf",
            f"dataset={self.of}",
            f"dataset.shape={shape}",
            f"dataset.classes={self.classes}",
            f"model={self.name}",
            *self.overrides,
        )
        return settings.model

    def make(self) -> Callable[[], nn.Module]:
        return partial(call, self.node(), "model", shape=self.shape, classes=self.classes)

    def on_meta(self) -> nn.Module:
        with torch.device("meta"):
            return self.make()()

    @property
    def tokens(self) -> bool:
        return bool(keys_of(self.of)["holds"]["tokens"])

    def records(self, n: int, dtype: torch.dtype = torch.float64) -> Tensor:
        draw = np.random.default_rng(0)
        if self.tokens:
            return torch.from_numpy(draw.integers(0, self.classes, (n, *self.shape)))
        return torch.from_numpy(draw.normal(size=(n, *self.shape))).to(dtype)


BY_HAND = [
    Case("cnn", MNIST, 10, conv(1, 16, 25) + conv(16, 32, 25) + fc(32 * 7 * 7, 10)),
    Case("mlp", MNIST, 10, fc(784, 200, 10)),
    Case("dnn_200", [60], 10, fc(60, 200, 10)),
    Case("balancing_cnn", CIFAR, 10, conv(3, 32, 25) + conv(32, 64, 25) + fc(64 * 8 * 8, 512, 10)),
    Case("balancing_cnn", FEMNIST, 62, conv(1, 32, 25) + conv(32, 64, 25) + fc(64 * 7 * 7, 512, 62)),
    Case("fedexp_cdp", MNIST, 10, 68 + 520 + 4128 + 330),  # the paper's d = 5046
    Case("fedexp_ldp", MNIST, 10, 34 + 33 + 170),  # d = 237
    Case("pfl_cnn_mnist", MNIST, 10, conv(1, 16, 64) + conv(16, 32, 16) + fc(32 * 4 * 4, 32, 10)),
    Case(
        "pfl_cnn_cifar",
        CIFAR,
        10,
        sum(conv(a, b, 9) for a, b in ((3, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)))
        + fc(128 * 4 * 4, 128, 10),
    ),
    Case("pfl_sn_linear", [81, 7, 7], 10, fc(81 * 7 * 7, 10)),
    Case("pfl_sn_linear", [243, 8, 8], 10, fc(243 * 8 * 8, 10)),
    Case("pfl_sn_cnn_mnist", [81, 7, 7], 10, conv(81, 16, 9) + conv(16, 32, 9) + fc(32 * 4 * 4, 32, 10)),
    Case("pfl_sn_cnn_cifar", [243, 8, 8], 10, conv(243, 64, 9) + conv(64, 64, 9) + fc(64 * 4 * 4, 10)),
    Case(
        "vgg11",
        MESSIDOR,
        2,
        VGG + fc(512 * 7 * 7, 4096, 4096, 2),
        ([3, 40, 32], ("model.pooled=2", "model.hidden=[9,7]")),
    ),
    Case("vgg11_light", CIFAR, 10, VGG + fc(512, 10)),
    Case("vgg11_light", MESSIDOR, 2, VGG + fc(512, 2), ([3, 40, 32], ())),
    Case("unet3d", IXI, 1, UNET, ([1, 9, 11, 6], ())),  # sizes that cannot be halved
    Case("lstm", [10], 10_000, 10_000 * 256 + LSTM_LAYERS + fc(256, 10_000), ([4], ())),
    Case("lstm", [80], 80, 80 * 256 + LSTM_LAYERS + fc(256, 80), ([5], ()), ("model.every_position=false",)),
]


def others(folder: Path, known: Collection[str]) -> list[Case]:
    """The networks in this folder that are not known, on what their files' heads say.

    Their size is by the builder alone. The first comment of the file has to say it.
    """
    cases = []
    for case in tried(folder):
        text = (folder / f"{case.model}.yaml").read_text()
        if case.model not in known and "problems.linear" not in text:
            dataset = settings_of(*case.arguments, "eps=inf").dataset
            sized = Case(case.model, dataset["shape"], dataset["classes"], 0, dataset=case.dataset)
            count = sum(p.numel() for p in sized.on_meta().parameters())
            cases.append(replace(sized, count=count))
    return cases


CASES = [*BY_HAND, *others(CONF / "model", {case.name for case in BY_HAND})]


def started(case: Case) -> nn.Module:
    module = case.make()()
    start = ModuleProblem(case.make(), case.classes).start(5, torch.empty(0))
    nn.utils.vector_to_parameters(start, module.parameters())
    return module

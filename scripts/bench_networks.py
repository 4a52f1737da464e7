"""The product's gradients of an LSTM and a 3D-UNet against Opacus and a bare loop: interleaved, one
thread, a JSON line for each.

    .venv/bin/python scripts/bench_networks.py [--case lstm] [--repeat 5]

lstm, lstm_words: the clipped sum of 64 records' gradients, by book-keeping and by Opacus' DPLSTM,
on 80 characters of an alphabet of 80, or 10 words of 2,000 (Opacus keeps a gradient of the whole
embedding for each record). unet3d: four steps of SGD on lots of two volumes of 48x60x48, in the
product's flat buffers, by torch.optim as torch lays volumes out, and channels-last. `ratio` is
theirs / ours.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from dpfl_bench.problems.models.lstm import lstm
from dpfl_bench.problems.models.unet3d import unet3d
from dpfl_bench.problems.module import ModuleProblem
from dpfl_bench.problems.problem import Batch
from dpfl_bench.problems.tasks import next_token, segment

RECORDS, CLIP, RATE, STEPS = 64, 1.0, 0.1, 4
Case = dict[str, Callable[[], Any]]


def words(length: int, vocabulary: int) -> Case:
    from opacus import GradSampleModule
    from opacus.layers import DPLSTM

    draw = np.random.default_rng(0)
    tokens, targets = (torch.from_numpy(draw.integers(1, vocabulary, (RECORDS, length))) for _ in range(2))
    problem = ModuleProblem(
        lambda: lstm([length], vocabulary, 256, 256, 2, True, None), vocabulary, task=next_token(0)
    )
    y = problem.start(0, torch.empty(0))
    batch = Batch(tokens[None], targets[None], torch.ones(1, RECORDS))

    def ours() -> Tensor:
        return problem.clipped_gradient(y[None], batch, lambda norms, weights: CLIP / norms.clamp(min=CLIP))[
            0
        ][0]

    private: Any = lstm([length], vocabulary, 256, 256, 2, True, None)
    private.recurrent = DPLSTM(256, 256, 2, batch_first=True)
    plain = lstm([length], vocabulary, 256, 256, 2, True, None)
    nn.utils.vector_to_parameters(y, plain.parameters())
    for (
        name,
        layer,
    ) in plain.named_children():  # nn.LSTM's names are understood; the parameters come in another order
        getattr(private, name).load_state_dict(layer.state_dict())
    hooked = GradSampleModule(private, loss_reduction="sum")

    def opacus() -> Tensor:
        hooked.zero_grad(set_to_none=True)
        losses = functional.cross_entropy(hooked(tokens).transpose(1, 2), targets, reduction="none").mean(1)
        losses.sum().backward()
        gradients = [p.grad_sample.flatten(1) for p in hooked.parameters()]
        norms = torch.stack([g.norm(dim=1) for g in gradients]).norm(dim=0)
        factors = CLIP / norms.clamp(min=CLIP)
        return torch.cat([factors @ g for g in gradients])

    one, other = ours(), opacus()
    assert abs(float(one.norm() / other.norm()) - 1) < 1e-4, "not the same sum"
    return {"ours": ours, "opacus": opacus}


def volumes() -> Case:
    draw = np.random.default_rng(0)
    images = torch.from_numpy(draw.normal(size=(STEPS, 2, 1, 48, 60, 48))).float()
    masks = torch.from_numpy(draw.integers(0, 2, (STEPS, 2, 48, 60, 48))).to(torch.uint8)
    problem = ModuleProblem(lambda: unet3d([1, 48, 60, 48], 1, 8, 3), 1, task=segment())
    start = problem.start(0, torch.empty(0))

    def ours() -> Tensor:
        y = start[None]
        for x, t in zip(images, masks, strict=True):
            y = y - RATE * problem.gradient(y, Batch(x[None], t[None], torch.full((1, 2), 0.5)))
        return y[0]

    def bare(layout: torch.memory_format) -> Tensor:
        network: Any = unet3d([1, 48, 60, 48], 1, 8, 3).to(memory_format=layout)
        nn.utils.vector_to_parameters(start, network.parameters())
        optimiser = torch.optim.SGD(network.parameters(), lr=RATE)
        for x, t in zip(images, masks, strict=True):
            optimiser.zero_grad()
            problem.task.losses(network(x.to(memory_format=layout)), t).mean().backward()
            optimiser.step()
        return nn.utils.parameters_to_vector(network.parameters()).detach()

    def plain() -> Tensor:
        return bare(torch.contiguous_format)

    one, other = ours(), plain()
    assert float((one - other).norm() / other.norm()) < 1e-4, "not the same model"
    return {"ours": ours, "bare": plain, "bare channels-last": lambda: bare(torch.channels_last_3d)}


CASES: dict[str, Callable[[], Case]] = {
    "lstm": lambda: words(80, 80),
    "lstm_words": lambda: words(10, 2000),
    "unet3d": volumes,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case",
        dest="cases",
        action="append",
        choices=list(CASES),
        help="one of them, and again for another",
    )
    parser.add_argument("--repeat", type=int, default=5)
    flags = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in flags.cases or CASES:
        ways = CASES[name]()  # each has run once by now, or runs once more below
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        for repeat in range(flags.repeat + 1):
            for way, compute in ways.items():
                started = time.perf_counter()
                compute()
                if repeat:  # the first is a warm-up
                    seconds[way].append(time.perf_counter() - started)
        medians = {way: statistics.median(found) for way, found in seconds.items()}
        ratios = {way: round(medians[way] / medians["ours"], 3) for way in ways if way != "ours"}
        print(
            json.dumps(
                {
                    "case": name,
                    "seconds": {way: round(value, 4) for way, value in medians.items()},
                    "ratio": ratios,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()

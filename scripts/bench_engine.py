"""Seconds per round of the engine on a fixed workload: the very objects that `dpfl-bench run`
builds. Prints one JSON line.

    .venv/bin/python scripts/bench_engine.py --workload W1 --threads 1 --rounds 3 --repeat 3
    .venv/bin/python scripts/bench_engine.py --workload W2 --check
    .venv/bin/python scripts/bench_engine.py --workload W1 --overheads
    .venv/bin/python scripts/bench_engine.py --workload W3 --privacy --repeat 15
    .venv/bin/python scripts/bench_engine.py --workload W1 --ranks 2 --repeat 15

--check compares the iterates with those of one plain loop per client and record. --overheads says
what evaluation, logging and checkpoints cost in a whole run, --privacy what a round costs with
privacy against the same round without. --ranks plays rounds alone and by so many ranks, in turn. It
prints the median of the ratios of their times, and of their CPU times (alone, over the busiest
rank's). The ratio of times needs as many idle cores as ranks.

W1: logistic regression at client level, W2: a CNN (26,010 parameters) at client level, W3: that CNN
at record level, W3L: logistic regression at record level. The data are random numbers that depend
on the sizes alone. `--overrides` changes any setting.

What is measured is the processor: a pin of OpenBLAS' kernels (OPENBLAS_CORETYPE), which binds
numpy's products and none that the peers call, is put aside unless --pinned. `products` says whose
were used, `pin` which pin held.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

CLIENT = ("privacy=central", "privacy.neighbours=add_remove_one")
RECORD = ("privacy=record", "privacy.neighbours=replace_one")
LOGREG = ("model=logreg", "model.l2=0")
CNN = ("model=pfl_cnn_mnist", "model.activation=relu")
PIN = "OPENBLAS_CORETYPE"
WARM_UP_SECONDS, WARM_UP_ROUNDS = (
    0.1,
    20,
)  # until the one or the other is over: the first rounds take up to a fifth longer


@dataclass(frozen=True)
class Workload:
    clients: int
    records: int  # of each
    batch: int
    steps: int
    overrides: tuple[str, ...]

    @property
    def noise(self) -> float:
        """Standard deviation / C is 1 everywhere; the multiplier is relative to the sensitivity, C
        or 2C.
        """
        return 0.5 if "privacy=record" in self.overrides else 1.0


WORKLOADS = {
    "W1": Workload(100, 200, 20, 10, (*LOGREG, *CLIENT)),
    "W2": Workload(50, 200, 20, 10, (*CNN, *CLIENT)),
    "W3": Workload(10, 1000, 64, 16, (*CNN, *RECORD)),
    "W3L": Workload(10, 1000, 64, 16, (*LOGREG, *RECORD)),
}


def job(work: Workload, rounds: int, more: list[str]) -> Any:
    """What `dpfl-bench run` builds, on random records in place of a data set's."""
    from dpfl_bench.machine.imports import preload

    preload("dpfl_bench.experiment.run")
    import numpy as np

    from dpfl_bench.assembly.algorithm import build_algorithm
    from dpfl_bench.assembly.data import Data
    from dpfl_bench.assembly.model import build_problem
    from dpfl_bench.budget.budget import Budget
    from dpfl_bench.budget.schedules import drawn_schedules
    from dpfl_bench.config import compose, validate
    from dpfl_bench.experiment.job import Job
    from dpfl_bench.federation.clients import Federation
    from dpfl_bench.federation.holders import Holders
    from dpfl_bench.federation.sampling import LotRule
    from dpfl_bench.machine import device

    settings = validate.settings(compose.composed(_overrides(work, rounds, more)))
    records = _records(settings.clients, work.records)
    parts = list(np.arange(len(records.train_y)).reshape(settings.clients, -1))
    holders = Holders.of(parts, len(records.train_y))
    budget = Budget.of(settings, drawn_schedules(settings), holders)
    problem = build_problem(settings, list(records.train_x.shape[1:]), records.classes)
    where, numbers = device.choose(settings.device), device.dtype(settings.dtype)
    device.for_small_tensors(where)
    federation = Federation(
        records, parts, LotRule(settings.batch_size, settings.sample_rate), where, numbers
    )
    data = Data(federation, records, parts, holders)
    return Job(settings, list(budget.schedules), budget, problem, data, None, build_algorithm(settings))


def _overrides(work: Workload, rounds: int, more: list[str]) -> list[str]:
    return [
        *(
            "algo=dp_fedavg",
            "dataset=mnist",
            "partition=iid",
            f"clients={work.clients}",
            "lr=0.1",
            f"records={work.records}",
        ),
        *(
            f"batch_size={work.batch}",
            f"local_steps={work.steps}",
            f"rounds={rounds}",
            *work.overrides,
            "privacy.clip=1.0",
        ),
        *("privacy.calibration=fixed", f"privacy.noise_multiplier={work.noise}", "device=cpu", *more),
    ]


def _records(clients: int, each: int) -> Any:
    """The bytes of ../shared/bench/common.py's `data`, and a small test set."""
    import numpy as np

    from dpfl_bench.data.records import Records

    draw = np.random.default_rng(0)
    x = draw.standard_normal((clients, each, 784), dtype=np.float32).reshape(-1, 1, 28, 28)
    y = draw.integers(0, 10, (clients, each), dtype=np.int64).ravel()
    test = draw.standard_normal((200, 1, 28, 28), dtype=np.float32), draw.integers(0, 10, 200, dtype=np.int64)
    return Records(x, y, *test, owners=None, classes=10, source="random numbers", expected=None)


def seconds_per_round(made: Any, rounds: int, repeat: int) -> Iterator[float]:
    """After some rounds that are not counted."""
    from dpfl_bench.experiment import engine, job, train
    from dpfl_bench.experiment.build_player import build_player

    schedule = made.schedules[0]
    player = build_player(made.settings, made.budget, made.problem, made.data, schedule.seed)
    state = player.start(job.initial(made, schedule.seed))
    with engine.crew(made.settings, player, state) as crew:
        played = train.rounds(player, schedule, state, 0, crew)
        begun = time.perf_counter()
        for _ in range(WARM_UP_ROUNDS):
            next(played)
            if time.perf_counter() - begun > WARM_UP_SECONDS:
                break
        for _ in range(repeat):
            started = time.perf_counter()
            for _ in range(rounds):
                next(played)
            yield (time.perf_counter() - started) / rounds


def overheads(work: Workload, rounds: int, repeat: int, more: list[str]) -> Iterator[dict[str, float]]:
    """Seconds of whole runs with evaluation and checkpoints as they are by default, and with one
    evaluation at the end; interleaved.
    """
    from dpfl_bench.experiment import run

    ways = {"default": [], "off": [f"eval_every={rounds}", "checkpoint_every=1000000"]}
    for _ in range(repeat):
        seconds = {}
        for way, overrides in ways.items():
            with tempfile.TemporaryDirectory() as outputs:
                made = job(work, rounds, [f"outputs={outputs}", "plot=false", *overrides, *more])
                run.prepare = lambda settings, made=made: made  # instead of loading a data set
                started = time.perf_counter()
                run.run(made.settings, [], "")
                seconds[way] = time.perf_counter() - started
        yield seconds


def privacy(work: Workload, repeat: int, more: list[str]) -> dict[str, Any]:
    """Seconds of a round with and without privacy, in turn, and the median of their ratios."""
    ways = {
        "private": [],
        "non_private": ["eps=inf", "privacy.calibration=exact", "privacy.noise_multiplier=null"],
    }
    played = [
        seconds_per_round(job(work, WARM_UP_ROUNDS + repeat, [*overrides, *more]), 1, repeat)
        for overrides in ways.values()
    ]
    seconds = dict(zip(ways, zip(*zip(*played, strict=True), strict=True), strict=True))
    ratio = statistics.median(a / b for a, b in zip(*seconds.values(), strict=True))
    return {
        **_products(),
        **{name: statistics.median(rounds) for name, rounds in seconds.items()},
        "ratio": ratio,
    }


def by_ranks(work: Workload, count: int, rounds: int, repeat: int, more: list[str]) -> dict[str, Any]:
    """How many times faster so many ranks are than one process: medians over pairs of rounds, and
    whether both ended at the same bits.
    """
    made = job(work, rounds * (WARM_UP_ROUNDS // 5 + repeat), ["engine.workers=1", *more])
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(count):
            if not (pid := os.fork()):
                code = 1
                try:
                    found = _in_rank(made, rank, count, rounds, repeat, folder)
                    if rank == 0:
                        Path(folder, "found").write_text(json.dumps(found))
                    code = 0
                finally:
                    os._exit(code)
            pids.append(pid)
        codes = [os.waitpid(pid, 0)[1] for pid in pids]
        if any(codes):
            sys.exit(f"ranks ended with {codes}")
        return {"ranks": count, **_products(), **json.loads(Path(folder, "found").read_text())}


def _in_rank(made: Any, rank: int, count: int, rounds: int, repeat: int, folder: str) -> dict[str, Any]:
    """Rank 0 plays alone while the others wait, then all play, and so on."""
    import torch
    import torch.distributed as dist

    from dpfl_bench.experiment import engine, job, train
    from dpfl_bench.experiment.build_player import build_player
    from dpfl_bench.federation.alone import Alone
    from dpfl_bench.federation.ranks import with_share
    from dpfl_bench.machine import ranks
    from dpfl_bench.machine.place import Place

    group = ranks.join(Place(rank, count, rank), dist.FileStore(f"{folder}/store", count))
    schedule = made.schedules[0]
    whole = build_player(made.settings, made.budget, made.problem, made.data, schedule.seed)
    part, x = with_share(whole, schedule, group), job.initial(made, schedule.seed)
    state = part.start(x)
    alone = train.rounds(whole, schedule, whole.start(x), 0, Alone(whole))
    shared = train.rounds(part, schedule, state, 0, engine.crew(made.settings, part, state))
    times, busy, ends = [], [], [x, x]
    for turn in range(WARM_UP_ROUNDS // 5 + repeat):
        seconds, cpu = [], []
        for way, played in enumerate((alone, shared)):
            group.gathered(b"")  # all begin now
            started = time.perf_counter(), time.process_time()
            for _ in range(rounds if way or rank == 0 else 0):
                ends[way] = next(played)[1].server.x
            cpu.append(time.process_time() - started[1])
            group.gathered(b"")
            seconds.append(time.perf_counter() - started[0])
        used = group.counts([int(each * 1e9) for each in cpu])
        if turn >= WARM_UP_ROUNDS // 5:
            times.append(seconds[0] / seconds[1])
            busy.append(float(used[0, 0] / used[:, 1].max()))
    return {
        "faster": statistics.median(times),
        "faster_by_cpu_time": statistics.median(busy),
        "same_bits": torch.equal(*ends) if rank == 0 else None,
        "load1": os.getloadavg()[0],
    }


def _products() -> dict[str, str | None]:
    """Whose they are, on this processor and in this environment."""
    from dpfl_bench.machine import device

    return {"products": "numpy" if device.numpy_multiplies() else "torch", "pin": os.environ.get(PIN)}


def checked(work: Workload, rounds: int, more: list[str]) -> dict[str, float]:
    """How far the iterates are from those of plain loops, relative to their length: the largest
    over the rounds.

    One round in float32, whose rounding decides on which side of a ReLU's kink a record is: sooner
    or later the two are different runs.
    """
    return {
        "float32": max(_differences(job(work, 1, more))),
        "float64": max(_differences(job(work, rounds, ["dtype=float64", *more]))),
    }


def _differences(made: Any) -> Iterator[float]:
    from dpfl_bench.experiment import job, train
    from dpfl_bench.experiment.build_player import build_player

    schedule = made.schedules[0]
    player = build_player(made.settings, made.budget, made.problem, made.data, schedule.seed)
    x = job.initial(made, schedule.seed)
    for done, state, _ in train.rounds(player, schedule, player.start(x), 0):
        expected = naive(made, schedule.round(done - 1), x)
        yield float((state.server.x - expected).norm() / expected.norm())
        x = state.server.x


def naive(made: Any, round: Any, x: Any) -> Any:
    """x after one round of torch.nn and torch.optim: one client, one step and (at record level) one
    record after the other.

    The same draws and noise, in the same number format.
    """
    import numpy as np
    import torch
    from torch.nn import functional

    from dpfl_bench.federation.sampling import LotRule
    from dpfl_bench.privacy import noise_draws

    settings, federation = made.settings, made.data.federation
    at_records = settings.privacy.unit == "record"
    network = _network(made, settings).to(x)
    lots = LotRule(settings.batch_size, settings.sample_rate)
    total = torch.zeros_like(x)
    for client in round.cohort.tolist():
        torch.nn.utils.vector_to_parameters(x.clone(), network.parameters())
        optimiser = torch.optim.SGD(network.parameters(), lr=settings.lr)
        stream = noise_draws.RecordGaussian(settings.seed, round.index, [client])
        for picks in lots.draw(
            settings.seed, round.index, client, int(federation.sizes[client]), round.steps
        ):
            lot = torch.from_numpy(picks + federation.offsets[client])
            features, targets = federation.features[lot], federation.targets[lot]
            optimiser.zero_grad()
            if at_records:
                summed = sum(
                    _clipped(network, f, t) for f, t in zip(features.split(1), targets.split(1), strict=True)
                )
                noised = (summed + torch.from_numpy(stream.draw(len(x), np.float32)[0]).to(x)) / len(lot)
                for p, part in zip(
                    network.parameters(), noised.split([p.numel() for p in network.parameters()]), strict=True
                ):
                    p.grad = part.view(p.shape)
            else:
                functional.cross_entropy(network(features), targets).backward()
            optimiser.step()
        update = torch.nn.utils.parameters_to_vector(network.parameters()).detach() - x
        total += update if at_records else update * min(1.0, 1.0 / float(update.norm()))
    if not at_records:
        total += torch.from_numpy(
            noise_draws.server_gaussian(settings.seed, round.index, len(x), 1.0, np.float32)
        ).to(x)
    return x + total / len(round.cohort)


def _network(made: Any, settings: Any) -> Any:
    from torch import nn

    if settings.model["name"] == "logreg":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    return made.problem.make()


def _clipped(network: Any, record: Any, target: Any) -> Any:
    """A record's gradient, at most 1 long; leaves gradients for the caller to overwrite."""
    import torch
    from torch.nn import functional

    network.zero_grad()
    functional.cross_entropy(network(record), target).backward()
    gradient = torch.cat([p.grad.flatten() for p in network.parameters()])
    return gradient * min(1.0, 1.0 / float(gradient.norm()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default="W1", choices=list(WORKLOADS))
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="cores; as many worker processes use them unless --workers says otherwise",
    )
    parser.add_argument("--workers", type=int, default=None)
    for name in ("clients", "records", "steps"):
        parser.add_argument(f"--{name}", type=int, help="instead of the workload's")
    parser.add_argument("--rounds", type=int, help="of each repetition (default: 3; 100 with --overheads)")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument(
        "--check", action="store_true", help="compare the iterates of --rounds rounds with plain loops"
    )
    parser.add_argument(
        "--overheads",
        action="store_true",
        help="what evaluation, logging and checkpoints cost in runs of --rounds rounds",
    )
    parser.add_argument(
        "--privacy",
        action="store_true",
        help="what privacy costs: --repeat rounds with it and without, in turn",
    )
    parser.add_argument("--ranks", type=int, help="how much faster so many ranks are, in turn with one")
    parser.add_argument("--pinned", action="store_true", help=f"leave {PIN} as it is")
    parser.add_argument(
        "--overrides", nargs="*", default=[], help="further settings, as dpfl-bench run takes them"
    )
    flags = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(flags.threads)
    if not flags.pinned:
        os.environ.pop(PIN, None)  # before numpy is imported
    sizes = {
        name: getattr(flags, name)
        for name in ("clients", "records", "steps")
        if getattr(flags, name) is not None
    }
    work = replace(WORKLOADS[flags.workload], **sizes)
    flags.rounds = flags.rounds or (100 if flags.overheads else 3)
    if flags.check:
        errors = checked(work, flags.rounds, flags.overrides)
        print(json.dumps({"workload": flags.workload, "rounds": flags.rounds, "relative_error": errors}))
        sys.exit(0 if max(errors.values()) < 1e-5 else 1)
    if flags.ranks:
        found = by_ranks(work, flags.ranks, flags.rounds, flags.repeat, flags.overrides)
        print(json.dumps({"workload": flags.workload, **found}))
        return
    workers = [f"engine.workers={flags.workers or flags.threads}"]
    if flags.overheads:
        seconds = list(overheads(work, flags.rounds, flags.repeat, [*workers, *flags.overrides]))
        ratios = [one["default"] / one["off"] - 1 for one in seconds]
        facts = {"workload": flags.workload, **_products(), "rounds": flags.rounds}
        print(json.dumps(facts | {"seconds": seconds, "overhead": statistics.median(ratios)}))
        return
    if flags.privacy:
        print(
            json.dumps(
                {"workload": flags.workload, **privacy(work, flags.repeat, [*workers, *flags.overrides])}
            )
        )
        return
    made = job(work, WARM_UP_ROUNDS + flags.rounds * flags.repeat, [*workers, *flags.overrides])
    before = time.process_time()
    seconds = list(seconds_per_round(made, flags.rounds, flags.repeat))
    facts = {
        "peer": "dpfl-bench",
        "workload": flags.workload,
        "M": made.settings.clients,
        "threads": flags.threads,
        **_products(),
    }
    facts |= {
        "workers": made.settings.engine.workers,
        "rounds": flags.rounds,
        "repeat": flags.repeat,
        "params": made.problem.dimension,
    }
    facts |= {
        "sec_per_round": seconds,
        "sec_per_round_median": statistics.median(seconds),
        "load1": os.getloadavg()[0],
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(facts | {"cpu_s": time.process_time() - before, "peak_mb": peak}))


if __name__ == "__main__":
    main()

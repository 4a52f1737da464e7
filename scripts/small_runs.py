"""The runs of scripts/same_numbers: every algorithm, unit, trust, mechanism, backend, partition.

Each run is one `dpfl-bench` command, with the words that a user types. It takes some tenths of a
second, and downloads nothing.
"""

from __future__ import annotations

import itertools
import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path

MADE = "made"  # the folder of `make_data`, beside the one where the commands run
UNTRAINED = "plan "  # what the commands that train nothing begin with
CUT = "--cut"  # before a command: it is interrupted once, and then resumed
FEDAVG = "run algo=dp_fedavg"
ADD = "privacy.neighbours=add_remove_one"
POISSON = f"client_sampling=poisson sampled_clients=4 {ADD}"  # of clients
BASE = "device=cpu plot=false eval_every=1"
TINY = (
    "dataset=synthetic_logistic dataset.dimension=5 dataset.classes=3 dataset.records_per_client=15 "
    "dataset.beta=1 dataset.clients=10 clients=10 rounds=4 local_steps=3"
)
FIXED = "privacy.calibration=fixed privacy.noise_multiplier=.5"
RECORD = "privacy=record lr=.3"
PRIVUNIT = "privacy=local privacy.mechanism=privunit"
NETWORK = f"dataset.root=../{MADE} partition=iid clients=4 rounds=2 local_steps=2 lr=.1"
IMAGES = f"dataset=mnist dataset.verify=false dataset.download=false {NETWORK}"
CNN = f"{IMAGES} model=cnn model.channels=[3,4] model.kernel=3"
LSTM = f"dataset=shakespeare model.embedding=4 model.hidden=5 {NETWORK}"
FEW = "dataset.fraction=.02 partition=iid clients=3"
SMALL_LSTM = "model.embedding=8 model.hidden=8 model.layers=1"
LINEAR = "dataset=synthetic_linear dataset.clients=20 dataset.dimension=8 clients=20 rounds=4"
QUADRATICS = "dataset=quadratics dataset.clients=8 dataset.dimension=12 dataset.rank=5 clients=8 rounds=4"
CANCER = "dataset=breast_cancer clients=12 rounds=4 local_steps=3"
DIGITS = "dataset=digits clients=12 rounds=3 local_steps=2"
BOUNDS = ("privacy.bound=clip", "privacy.bound=normalise")
NOISES = ("privacy.noise=gaussian", "privacy.noise=discrete")


def commands(conf: Path, data: Path | None) -> list[str]:
    """The commands without their `outputs=`, each once.

    conf: the folder of YAML files, whose algo/*.yaml are the algorithms.
    data: a folder of real data as in CONTRIBUTING.md, or None.
    """
    algos = {file.stem: file.read_text() for file in sorted((conf / "algo").glob("*.yaml"))}
    parts = (_doors(), _sampling(), _training(), _models(), _data_sets(), _sweeps(), _plans(), _real(data))
    lines = (f"{line} {BASE}" for part in (_algorithms(algos), *parts) for line in part)
    return list(dict.fromkeys(" ".join(line.split()) for line in lines))


def make_data(root: Path) -> None:
    """A few images of noise in the place of MNIST, a few lines of noise in that of Shakespeare."""
    draw = random.Random(0)
    folders = [root / name for name in ("MNIST/raw", "shakespeare/data/train", "shakespeare/data/test")]
    for folder in folders:
        folder.mkdir(parents=True)
    for part, count in (("train", 80), ("t10k", 20)):
        images, labels = draw.randbytes(count * 28 * 28), bytes(draw.randrange(10) for _ in range(count))
        header = struct.pack(">4i", 2051, count, 28, 28)
        (folders[0] / f"{part}-images-idx3-ubyte").write_bytes(header + images)
        (folders[0] / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 2049, count) + labels)
    for folder in folders[1:]:
        lines = ["".join(draw.choices("to be or not", k=81)) for _ in range(30)]
        spoken = {"x": [line[:80] for line in lines], "y": [line[80] for line in lines]}
        content = {"users": ["HAMLET"], "num_samples": [30], "user_data": {"HAMLET": spoken}}
        (folder / "all.json").write_text(json.dumps(content))


def _algorithms(algos: dict[str, str]) -> Iterator[str]:
    """Every algorithm at each unit and under each trust; those without privacy once."""
    for algo, text in algos.items():
        rounds = "rounds=12" if "warm_rounds: null" in text else ""  # of which some are warm
        if "private: true" not in text:
            yield f"run algo={algo} {TINY} repeats=2"
            yield f"run algo={algo} {TINY} {rounds} sampled_clients=4 batch_size=5 seed=5"
            continue
        lots = "sample_rate=.3" if "sample_rate" in text else ""
        naive = "algo.naive=true" if "naive" in text else ""
        for trust in ("local", "secagg", "central"):
            memory = "privacy.memory=own_update" if trust == "central" else ""
            yield f"run algo={algo} privacy={trust} {memory} {TINY} {FIXED} {lots}"
        if "bound: normalise" not in text:
            yield f"run algo={algo} {RECORD} {TINY} {FIXED} {lots} {naive}"
        yield f"run algo={algo} {TINY} {lots} eps=inf"
        yield f"run algo={algo} {TINY} {lots} {rounds} eps=3 seed=2 repeats=2 sampled_clients=6"


def _doors() -> Iterator[str]:
    """What bounds, noises and accounts."""
    for trust in ("local", "secagg", "central"):
        for bound, noise in itertools.product(BOUNDS, NOISES):
            yield f"{FEDAVG} privacy={trust} {bound} {noise} {TINY} eps=2 seed=1"
        yield f"{FEDAVG} privacy={trust} privacy.quantile=.5 {TINY} eps=20"
        yield f"run algo=dp_fedexp privacy={trust} privacy.quantile=.4 {TINY} eps=20 lr=.2"
    for memory in ("own_message", "own_update"):
        yield f"run algo=dp_scaffnew privacy.memory={memory} {TINY} eps=8"
        yield f"run algo=dp_scaffold privacy=local privacy.memory={memory} {TINY} eps=8"
    for algo in ("dp_fedavg", "dp_scaffnew", "dp_fedexp"):
        yield f"run algo={algo} {PRIVUNIT} {TINY} eps=30"
    parts = "privacy.calibration=fixed privacy.eps0=2 privacy.eps1=3 privacy.eps2=2"
    yield f"{FEDAVG} {PRIVUNIT} {parts} {TINY}"
    yield f"{FEDAVG} privacy.colluding=3 {TINY}"
    yield f"{FEDAVG} {ADD} {TINY}"
    yield f"{FEDAVG} privacy.noise=discrete {POISSON} {TINY}"
    yield f"{FEDAVG} privacy.calibration=formula privacy.v=8 {TINY}"
    yield f"{FEDAVG} privacy.clip=median {TINY}"
    yield f"{FEDAVG} {RECORD} privacy.clip=median batch_size=4 {TINY}"
    yield f"{FEDAVG} privacy.bound_without_noise=true {TINY} eps=inf"
    yield f"run algo=dp_fedexp privacy.norm_noise=3 {TINY} eps=8"
    yield f"run algo=dp_fedexp privacy=local algo.naive=true {TINY} eps=8"
    yield f"{FEDAVG} stop_at_eps=1.5 {TINY} {FIXED} privacy.noise_multiplier=3 rounds=9"
    yield f"{FEDAVG} {PRIVUNIT} privacy.accountant=basic {TINY} eps=30"
    for accountant in ("pld", "rdp"):
        yield f"{FEDAVG} privacy.accountant={accountant} {TINY} eps=5"


def _sampling() -> Iterator[str]:
    """Cohorts and lots."""
    for seed in (0, 1, 2):
        yield f"{FEDAVG} sampled_clients=3 {TINY} seed={seed}"
    yield f"{FEDAVG} {POISSON} {TINY}"
    yield f"run algo=dp_scaffold {RECORD} batch_size=4 sampled_clients=5 {TINY} eps=8"
    yield f"run algo=dp_scaffold {RECORD} sample_rate=.3 {ADD} {TINY} eps=8"
    yield f"{FEDAVG} {RECORD} batch_size=4 {TINY} eps=8 repeats=2"
    yield f"{FEDAVG} {RECORD} {ADD} {TINY} eps=8"
    yield f"{FEDAVG} sample_rate=.3 {TINY} eps=8"
    yield f"run algo=dp_scaffold_warm sampled_clients=5 {TINY} rounds=12 eps=8"
    yield f"run algo=dp_scaffold_warm algo.warm_rounds=2 {RECORD} {TINY} eps=8"
    yield f"run algo=dp_scaffnew algo.coins=true {TINY} rounds=null total_steps=30 eps=8"


def _training() -> Iterator[str]:
    """Steps, formats and processes."""
    for algo in ("dp_fedavg", "dp_scaffnew", "dp_normfedavg"):
        yield f"run algo={algo} dtype=float64 {TINY}"
        yield f"run algo={algo} server_momentum=.5 lr_decay=.9 server_lr=.7 average_last=2 {TINY}"
        yield f"run algo={algo} engine.workers=2 {TINY}"
    yield f"{FEDAVG} server_momentum=.5 server_momentum_of=direction lr_decay=.9 weight_decay=.01 {TINY}"
    yield f"{FEDAVG} local_momentum=.5 {RECORD} dtype=float64 {TINY}"
    yield f"run algo=dp_scaffold {RECORD} engine.workers=2 engine.chunk=3 {TINY}"
    yield f"run algo=fedavg lr=1e30 {TINY}"  # it diverges
    yield f"run algo=pfl {TINY} local_steps=null local_epochs=1 sample_rate=.25 eps=8"
    yield f"{CUT} run algo=dp_scaffnew {CANCER} rounds=500 repeats=2"


def _models() -> Iterator[str]:
    """Every way to compute gradients, at both units."""
    for unit in ("privacy=secagg", "privacy=record batch_size=6"):
        for backend in ("auto", "flat", "vmap", "loop"):
            yield f"{FEDAVG} {unit} {CNN} engine.backend={backend} eps=8"
        for backend in ("auto", "loop"):
            yield f"{FEDAVG} {unit} {LSTM} engine.backend={backend} eps=8"
        yield f"run algo=dp_scaffnew {unit} {TINY} engine.backend=closed_form eps=8"
        yield f"{FEDAVG} {unit} {CNN} model.norm=group eps=8"
        yield f"{FEDAVG} {unit} {IMAGES} model=pfl_cnn_mnist eps=8"
        yield f"run algo=dp_scaffold {unit} {DIGITS} model=mlp model.hidden=[9] batch_size=20 eps=8 lr=.1"
        yield f"{FEDAVG} {unit} {CNN} engine.workers=2 dtype=float64 eps=8"
    yield f"run algo=fedavg {CNN} model.norm=batch"


def _data_sets() -> Iterator[str]:
    """Every partition, and the data that need no file."""
    for partition in ("iid", "shards", "similarity", "dirichlet", "overlap"):
        yield f"run algo=dp_scaffnew {CANCER} partition={partition}"
    yield f"{FEDAVG} {RECORD} {CANCER} partition=overlap partition.percent=20"
    yield f"{FEDAVG} {DIGITS} partition=dirichlet partition.alpha=1 dataset.seed=3 partition.seed=4"
    yield f"{FEDAVG} {DIGITS} dataset.transform=pca dataset.dimensions=6 dataset.standardise=data"
    yield f"{FEDAVG} {DIGITS} dataset.split=client"
    for algo in ("dp_fedexp", "dp_fedavg"):
        yield f"run algo={algo} {LINEAR}"
        yield f"run algo={algo} {QUADRATICS} model.init=near_optimum"
    yield f"run algo=dp_normfedavg {QUADRATICS} model.l2=.1 model.bias=true"


def _sweeps() -> Iterator[str]:
    steps = "rounds=null total_steps=12 local_steps=2,3"
    for launcher in ("", "hydra/launcher=joblib hydra.launcher.n_jobs=2"):
        yield f"run -m {launcher} algo=dp_fedavg,dp_scaffnew eps=2,8 {TINY} {steps}"


def _plans() -> Iterator[str]:
    """What `plan` says without training."""
    sampled = "algo=dp_fedavg privacy=local sampled_clients=9"
    for words in ("algo=dp_scaffnew eps=2", sampled, "algo=dp_fedexp privacy=central"):
        yield f"plan --views --json {words} {CANCER}"
    yield f"plan --views --json algo=dp_scaffold privacy=record batch_size=5 {CANCER}"


def _real(data: Path | None) -> Iterator[str]:
    """A round on real data, of those sets that are there."""
    commands = {
        "MNIST": "dp_fedavg dataset=mnist dataset.download=false model=fedexp_cdp batch_size=8",
        "femnist": "dp_scaffold dataset=femnist partition=iid clients=6 batch_size=4",
        "shakespeare": f"dp_fedavg dataset=shakespeare {FEW} {SMALL_LSTM} batch_size=4",
        "libsvm": "dp_scaffnew dataset=mushrooms clients=10 batch_size=50",
        "IXI": "dp_fedavg dataset=ixi dataset.owners=3 model.channels=2 model.blocks=2 batch_size=1",
    }
    for name, command in commands.items():
        if data and (data / name).is_dir():
            for unit in ("privacy=secagg", RECORD):
                yield f"run algo={command} {unit} eps=8 rounds=1 local_steps=2"

"""What the YAML files alone know to be wrong is refused when a sweep is validated, and nothing else
is: the records agree.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.command import call
from helpers.federations import CONF, settings_of
from helpers.imported import loaded_by
from torch import nn

from dpfl_bench import rng
from dpfl_bench.assembly.data import load_data
from dpfl_bench.assembly.model import build_problem
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose, fits, validate
from dpfl_bench.config.settings import Settings
from dpfl_bench.federation import partition
from dpfl_bench.machine import device
from dpfl_bench.problems.linear_problem import LinearProblem
from dpfl_bench.problems.module import ModuleProblem

pytestmark = pytest.mark.one_in(10)

OF_A_FILE = ("csv", "libsvm", "npz")  # the user's own
# overrides | the whole line, as a regular expression
REFUSED = r"""
dataset.test_fraction=2                | dataset.test_fraction=2: expected 0 <= test_fraction < 1
dataset.test_fraction=1                | dataset.test_fraction=1: expected 0 <= test_fraction < 1
dataset.test_fraction=-.1              | dataset.test_fraction=-0.1: expected 0 <= test_fraction < 1
dataset.split=client dataset.test_fraction=2 | dataset.test_fraction=2: expected 0 <= test_fraction < 1
dataset.split=client dataset.test_fraction=0 | dataset.split=client: expected dataset.test_fraction > 0, .*
dataset.split=each                     | dataset.split=each: expected global or client
dataset=reddit dataset.standardise=data
    | dataset.standardise, dataset.unit_norm: dataset=reddit holds tokens, not numbers; .*
dataset=shakespeare dataset.unit_norm=true
    | dataset.standardise, dataset.unit_norm: dataset=shakespeare holds tokens, .*
dataset=reddit dataset.task=nosuch     | dataset.task=nosuch: expected classify, next_token or segment
dataset=reddit dataset.fraction=0
    | dataset.fraction=0: expected 0 < fraction <= 1 \(1 keeps every record\)
dataset=femnist dataset.fraction=1.5   | dataset.fraction=1.5: expected 0 < fraction <= 1 .*
dataset=shakespeare dataset.fraction=-1 | dataset.fraction=-1: expected 0 < fraction <= 1 .*
dataset=reddit dataset.clients=0 clients=3 | dataset.clients=0: expected at least 1
dataset=ixi dataset.owners=0           | dataset.owners=0: expected at least 1
dataset=messidor dataset.owners=-1     | dataset.owners=-1: expected at least 1
dataset=quadratics dataset.rank=0      | dataset.rank=0: expected at least 1
dataset=synthetic_logistic dataset.flip=2 | dataset.flip=2: expected a number >= 0 and <= 1
partition.shards_per_client=0          | partition.shards_per_client=0: expected at least 1
partition=dirichlet partition.alpha=-1
    | partition.alpha=-1: expected a finite alpha > 0 \(use partition=iid for equal clients\)
partition=dirichlet partition.alpha=inf | partition.alpha=inf: expected a finite alpha > 0 .*
partition=similarity partition.percent=110 | partition.percent=110: expected 0 <= percent <= 100
partition=overlap partition.percent=0  | partition.percent=0: expected 0 < percent <= 100
partition=overlap partition.percent=.1
    | partition.percent=0.1: expected 0 < percent <= 100 with at least one of the 456 records
partition=overlap dataset.split=client
    | dataset.split=client, partition=overlap: one client's test records may train another; .*
partition=natural
    | partition=natural: this data set has no natural clients: use partition=iid or partition=dirichlet
dataset=mnist partition=natural        | partition=natural: this data set has no natural clients: .*
dataset=libsvm partition=natural       | partition=natural: this data set has no natural clients: .*
dataset=ixi dataset.owners=2           | clients=3: this data set has 2 natural clients: set clients=2 .*
dataset=quadratics clients=3 dataset.clients=4
    | clients=3: this data set has 4 natural clients: set clients=4 \(or dataset.clients=3 .*
dataset=quadratics clients=3 dataset.clients=100
    | clients=3: this data set has 100 natural clients: set clients=100 \(or dataset.clients=3 .*
dataset=quadratics partition=shards
    | partition=shards sorts by class but the targets are no classes: use partition=iid or partition=natural
dataset=reddit partition=dirichlet     | partition=dirichlet sorts by class but the targets are no classes: .*
clients=100000
    | clients=100000 with 2 shards, none empty each: there are 456 training records: use fewer clients
clients=300
    | clients=300 with 2 shards, none empty each: there are 456 training records: .*
clients=457 partition=iid
    | clients=457 with at least one record each: there are 456 training records: .*
dataset=mnist clients=60001 partition=similarity
    | clients=60001 with at least one record each: there are 60000 .*
batch_size=5
    | batch_size=5: expected at most the smallest client's records, 4; lower it, or use fewer clients
batch_size=6 partition=iid             | batch_size=6: expected at most the smallest client's records, 5; .*
model=cnn
    | model=cnn: expected .*\[channels, height, width\], .*dataset.shape=\[30\]; use model=mlp or model=logreg
model=vgg11
    | model=vgg11: expected records with shape \[channels, height, width\], .*
dataset=mnist dataset.transform=pca model=cnn
    | model=cnn: expected .* dataset.shape=\[60\]; use model=mlp or model=logreg
dataset=mnist model=lstm
    | model=lstm: expected records of tokens, dataset=mnist holds numbers; use model=mlp or model=logreg
model=lstm
    | model=lstm: expected records of tokens, dataset=breast_cancer holds numbers; .*
dataset=mnist model=unet3d
    | model=unet3d: expected a data set for segment, dataset=mnist is for classify; use model=logreg
dataset=reddit model=mlp
    | model=mlp: expected a data set for classify, dataset=reddit is for next_token; use model=lstm
dataset=shakespeare model=logreg
    | model=logreg: expected records of numbers, dataset=shakespeare holds tokens; use model=lstm
dataset=shakespeare model=cnn          | model=cnn: expected records with .*; use model=lstm
dataset=quadratics model=mlp
    | model=mlp: expected a data set for classify, dataset=quadratics is for regress; use model=linreg
model=linreg
    | model=linreg: expected a data set for regress, dataset=breast_cancer is for classify; .*
model=mlp model.hidden=[0]
    | model.hidden=\[0\]: expected whole numbers >= 1 \(\[\] for no hidden layer\)
dataset=mnist model=fedexp_cdp model.hidden=[3,.5] | model.hidden=\[3, 0.5\]: expected whole numbers >= 1 .*
dataset=mnist model=vgg11_light
    | dataset.shape=\[1, 28, 28\]: nothing is left of 28x28 after the convolutions and pools of .*
dataset=mnist model=pfl_sn_linear
    | model.input_groups=27: expected 0 or what divides the 1 channels of dataset.shape
dataset=mnist model=pfl_cnn_mnist model.kernel=[3]
    | model.kernel=\[3\]: expected a whole number >= 1 or a list of 2, .*
dataset=mnist model=vgg11 model.pooled=0
    | model.pooled=0: expected at least 1 \(null: as large as the maps are\)
dataset=mnist model=cnn model.norm=layer | model.norm=layer: expected one of none, group, batch
dataset=mnist model=cnn model.norm=batch
    | model.norm=batch: no clipping bounds BatchNorm's batch statistics, and eps=2 is finite; .*
dataset=mnist model=fedexp_cdp model.activation=elu
    | model.activation=elu: expected one of relu, tanh, tempered; did you mean model.activation=relu\?
dataset=reddit model.layers=0          | model.layers=0: expected at least 1
dataset=ixi model.blocks=0             | model.blocks=0: expected at least 1
device=foo
    | device=foo: expected auto or cpu, cuda, cuda:1, mps or another device of torch
device=cuda:x                          | device=cuda:x: expected auto or cpu, .*
"""


def lines(text: str) -> list[pytest.param]:
    """A row a line; an indented line goes on with the row above it."""
    rows = [line.split("|", 1) for line in re.sub(r"\n +", " ", text.strip()).splitlines()]
    return [
        pytest.param(overrides.split(), message.strip(), id=" ".join(overrides.split()))
        for overrides, message in rows
    ]


def complaint(*overrides: str, config_dir: str | None = None) -> str:
    """Why these settings are refused without data; empty if they are not."""
    try:
        settings_of(*overrides, config_dir=config_dir)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("overrides", "message"), lines(REFUSED))
def test_refused_in_one_line(overrides: list[str], message: str) -> None:
    assert re.fullmatch(message, complaint(*overrides)), complaint(*overrides)


@pytest.mark.parametrize("arguments", [("run",), ("run", "-m"), ("run", "-m", "--dry-run"), ("plan",)])
def test_every_verb_refuses_before_it_looks_for_data(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPFL_DATA_DIR", "/nonexistent")
    said = call(*arguments, "dataset=mnist", "dataset.download=false", "dataset.test_fraction=2")
    assert said.code == 2
    assert said.err.endswith("dataset.test_fraction=2: expected 0 <= test_fraction < 1\n")
    assert said.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_the_last_job_s_mistake_shows_before_the_first_one_starts(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    alphas = ",".join([*(str(k) for k in range(1, 37)), "-1"])
    said = call("run", "-m", *flags, "partition=dirichlet", f"partition.alpha={alphas}")
    assert said.code == 2
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith(
        "dpfl-bench: job 37 of 37 (partition=dirichlet partition.alpha=-1): partition.alpha=-1: expected a"
        " finite alpha"
    )
    assert not list(tmp_path.iterdir())


# --- what is known early is what shows late ---


def names(group: str) -> list[str]:
    return sorted(file.stem for file in (CONF / group).glob("[!_]*.yaml"))


def late(made: Settings) -> str:
    """Why the model cannot be built for records of the data set's shape, or its outputs not be held
    to their targets; empty if they can.
    """
    dataset = made.dataset
    tokens, asked = dataset["holds"]["tokens"], dataset.get("task", "classify")
    try:
        problem = build_problem(made, dataset["shape"], dataset["classes"])
        if isinstance(problem, LinearProblem):
            return "tokens" if tokens else ""
        assert isinstance(problem, ModuleProblem)
        x = torch.empty(2, *dataset["shape"], dtype=torch.int64 if tokens else torch.float32, device="meta")
        found = tuple(problem.network.module(x).shape)
    except (ValueError, RuntimeError) as error:
        return str(error)
    if tokens != problem.network.has(nn.Embedding):  # shapes alone do not tell
        return "tokens"
    expected = {
        "next_token": (2, *dataset["shape"], dataset["classes"]),
        "segment": (2, *dataset["shape"][1:]),
    }.get(asked, (2, dataset["classes"]))
    return "" if found == expected else f"outputs of shape {found}"


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [name for name in names("dataset") if name not in OF_A_FILE])
def test_models_are_refused_early_where_they_would_be_late(
    dataset: str, models: list[dict[str, Any]]
) -> None:
    """Every data set with every model: what passes can be trained, and what does not could not
    be.
    """
    passed = set()
    for model in models:
        made = dataclasses.replace(settings_of(f"dataset={dataset}"), model=model)
        try:
            fits.check(made, ["model"])
            early = ""
        except ConfigError as error:
            early = str(error)
        reason = late(made)
        assert bool(early) == bool(reason), f"{model['name']}: early {early!r}, late {reason!r}"
        passed |= set() if early else {model["name"]}
    assert passed
    assert len(passed) < len(models)


@pytest.fixture(scope="module")
def models() -> list[dict[str, Any]]:
    """The node of every file in conf/model."""
    return [compose.composed([f"model={name}"]).config["model"] for name in names("model")]


@pytest.mark.parametrize(
    ("dataset", "kind"),
    [*itertools.product(["digits", "quadratics", "synthetic_logistic"], names("partition"))],
)
def test_partitions_are_refused_early_where_they_would_be_late(dataset: str, kind: str) -> None:
    own = () if dataset == "digits" else ("dataset.clients=4", "clients=4")
    own = (*own, "dataset.records_per_client=20") if dataset == "synthetic_logistic" else own
    asked = [f"dataset={dataset}", f"partition={kind}", *own]
    found = validate.settings(compose.composed(asked), used=("dataset",))
    try:
        reason = "" if load_data(found) else "nothing"
    except ConfigError as error:
        reason = str(error)
    assert complaint(*asked) == reason


CASES = [
    ("iid", {}, 457),
    ("shards", {"shards_per_client": 0}, 5),
    ("shards", {"shards_per_client": 2}, 229),
    ("similarity", {"percent": -1.0}, 5),
    ("similarity", {"percent": 5.0}, 457),
    ("dirichlet", {"alpha": 0.0}, 5),
    ("overlap", {"percent": 0.1}, 5),
    ("natural", {}, 5),
]


@pytest.mark.parametrize(("kind", "own", "clients"), CASES)
def test_both_say_the_same(kind: str, own: dict[str, Any], clients: int) -> None:
    """The partition that is called with records, and the settings that know how many there are."""
    early = complaint(
        f"partition={kind}", f"clients={clients}", *(f"partition.{key}={value}" for key, value in own.items())
    )
    with pytest.raises(ValueError, match=r"^\w") as refused:
        getattr(partition, kind)(np.arange(456) % 2, None, clients, rng.generator(0, "partition"), **own)
    assert str(refused.value) == early


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("records", "clients", "shards"), [(456, 90, 2), (7, 2, 2), (1003, 20, 5), (60, 20, 3)]
)
def test_the_smallest_client_by_shards(records: int, clients: int, shards: int, seed: int) -> None:
    parts = partition.shards(np.arange(records) % 3, None, clients, rng.generator(seed, "partition"), shards)
    told = partition.smallest_by_shards(records, clients, rng.generator(seed, "partition"), shards)
    assert told == min(len(part) for part in parts)


def test_a_lot_that_chance_leaves_room_for_is_not_refused() -> None:
    """7 records in 4 shards for 2 clients: the smaller has 3 of them, though two of the smaller
    shards would have been 2.
    """
    few = ("clients=2", "dataset.records=7", "dataset.test_fraction=.9")
    assert complaint(*few, "batch_size=3") == ""
    assert "smallest client's records, 3" in complaint(*few, "batch_size=4")


@pytest.mark.parametrize("dataset", ["synthetic_linear", "synthetic_logistic", "quadratics", "reddit"])
def test_clients_of_a_generated_federation_are_said_once(dataset: str) -> None:
    once = settings_of(f"dataset={dataset}", "clients=12")
    assert once.dataset["clients"] == 12
    for twice in (["clients=12", "dataset.clients=12"], ["dataset.clients=12"]):
        assert settings_of(f"dataset={dataset}", *twice) == once
    assert once.dataset["records"] == (12 if dataset == "synthetic_linear" else None)
    dealt = settings_of("dataset=synthetic_linear", "clients=12", "partition=iid")
    assert dealt.dataset["clients"] == dealt.dataset["records"] == 1000  # dealt anew, so all are there


@pytest.mark.parametrize("name", ["auto", "cpu", "cuda", "cuda:0", "cuda:11", "mps", "xpu"])
def test_devices(name: str) -> None:
    assert settings_of(f"device={name}").device == name


def test_device_types_are_torch_s() -> None:
    with pytest.raises(RuntimeError, match="Expected one of") as refused:
        torch.device("foo")
    told = re.search(r"Expected one of (.*) device type", str(refused.value))
    assert told is not None
    assert set(told[1].split(", ")) <= {*device.TYPES}
    for name in ("cuda:", "cuda:x", "cuda:01", "cuda:1:2", "CUDA", "", "cpu ", "meta", "meta:0"):
        assert not device.is_name(name)


# --- files of a user's own ---

OWN = {
    "dataset/mine": (
        "_target_: mine.load\nname: mine\nshape: [30]\nclasses: 3\nrecords: null\nclients: 2\nlr:"
        " 1.0\ntest_fraction: 0.0\nstandardise: none\nunit_norm: false\nseed: 0\nmax_row_norm: null\ngram:"
        " null\nfraction: 3.0\n"
    ),
    "model/mine": "_target_: mine.model\nname: mine\nhidden: [0]\n",
    "partition/mine": "_target_: mine.deal\nname: mine\nseed: 0\nalpha: -1.0\npercent: 200.0\n",
}


@pytest.fixture
def own(tmp_path: Path) -> str:
    for name, text in OWN.items():
        (tmp_path / "own" / f"{name}.yaml").parent.mkdir(parents=True)
        (tmp_path / "own" / f"{name}.yaml").write_text(text)
    return str(tmp_path / "own")


@pytest.mark.parametrize(
    "overrides",
    [
        ("dataset=mine", "model=mine", "partition=mine"),
        ("dataset=mine", "model=lstm", "partition=natural"),
        ("dataset=mine", "model=logreg"),
        ("dataset=ixi", "model=mine"),
        ("dataset=mnist", "partition=mine", "clients=70000"),
    ],
)
def test_what_a_user_s_file_does_not_say_is_left_to_its_functions(
    overrides: tuple[str, ...], own: str
) -> None:
    assert complaint(*overrides, config_dir=own) == ""


def test_files_are_fetched_and_shown_whatever_the_default_model_is(own: str) -> None:
    """`data fetch` and `data show` train nothing."""
    composed = compose.composed(["dataset=quadratics", "model=cnn", "partition=shards"])
    assert validate.settings(composed, used=("dataset",)).dataset["name"] == "quadratics"
    with pytest.raises(ConfigError, match="partition=shards sorts by class"):
        validate.settings(composed, used=("dataset", "partition"))


# --- what it costs ---


@pytest.mark.slow
def test_no_torch() -> None:
    code = (
        "from dpfl_bench.config.validate import settings; from dpfl_bench.config.compose import composed;"
        " settings(composed(['batch_size=4', 'dataset=breast_cancer', 'model=mlp']));"
        " settings(composed(['dataset=mnist', 'model=cnn']))"
    )
    assert not loaded_by(code) & {"torch", "numpy", "scipy"}


def test_ten_thousand_points_take_seconds() -> None:
    made = settings_of("dataset=mnist", "model=cnn", "batch_size=10")
    start = time.process_time()
    for seed in range(1000):
        fits.check(dataclasses.replace(made, seed=seed), fits.GROUPS)
    assert time.process_time() - start < 0.2, "a tenth of 10,000 points: .02 s here"


# --- data that are not here ---


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (("dataset=breast_cancer,digits,synthetic_linear",), []),
        (("dataset=mnist",), []),  # downloaded by the run itself
        (("dataset=mushrooms",), []),
        (
            ("dataset=mnist", "dataset.download=false", "dataset.seed=1,2,3"),
            ["mnist: .*/MNIST/raw lacks .*: `dpfl-bench data fetch mnist .*`"],
        ),
        (
            ("dataset=femnist,ixi", "eps=1,2"),
            [
                "femnist: .*/femnist/data lacks .* says how .by LEAF's scripts.*",
                "ixi: .*/IXI/IXI_sample lacks .* says how .by hand.*",
            ],
        ),
        (
            ("dataset=libsvm", "dataset.path=my.txt"),
            ["libsvm: .* lacks my.txt, .*: put it there, or set dataset.path.*"],
        ),
    ],
)
def test_a_sweep_says_once_what_is_missing(
    overrides: tuple[str, ...], said: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPFL_DATA_DIR", str(tmp_path / "none"))
    found = call("run", "-m", "--dry-run", *overrides)
    assert found.code == 0
    for line, expected in zip(found.err.splitlines(), said, strict=True):
        assert re.fullmatch(f"dpfl-bench: dataset={expected}", line), line


@pytest.mark.slow
def test_looking_for_files_loads_no_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPFL_DATA_DIR", str(tmp_path / "none"))
    loaded = loaded_by(
        "from dpfl_bench.cli import main; main('run -m --dry-run dataset=mnist,ixi"
        " dataset.root=nowhere'.split())"
    )
    assert not loaded & {"torch", "torchvision", "scipy"}

"""A sweep composes its jobs by Hydra once for each choice of groups. The rest has to be what Hydra
would have made of every job.
"""

from __future__ import annotations

import os
import pickle
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose as hydra_compose
from hydra import version
from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_config_search_path
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import GROUPS, Composer, composed

GROUP_CHOICES = [
    *(
        "algo=dp_fedavg",
        "algo=dp_fedexp_scaffold",
        "algo=scaffnew",
        "dataset=digits",
        "dataset=mushrooms",
        "dataset=synthetic_logistic",
    ),
    *(
        "dataset=quadratics",
        "dataset=synthetic_linear",
        "model=mlp",
        "model=cnn",
        "privacy=central",
        "privacy=record",
        "partition=iid",
    ),
    *(
        "+algo@other=fedavg",
        "+dataset@inner.place=digits",
        "~partition",
        "partition@else=iid",
        "algo@algo=fedavg",
    ),
    *(
        "algo=nosuch",
        "dataset=null",
        "algo=3",
        "algo=[dp_fedavg]",
        "algo={mu:1}",
        "hydra/launcher=joblib",
        "hydra.job.name=x",
    ),
]
VALUES = [
    *("eps=inf", "eps=-inf", "eps=.5", "eps=1e-3", "eps=null", "eps=nan"),
    *("eps=", "eps='2'", 'eps="null"', "eps=???", "lr=+1", "lr=01"),
    *("seed=3", "clients=0x10"),
    *("plot=TRUE", "plot=no", "device='cpu'", "device=cuda:0"),
    *('device="a, b"', r"device='it\'s'", r"device=a\=b"),
    *("outputs=a b", "outputs='${seed}'", r"outputs='\${seed}'"),
    *("clients=${seed}", "batch_size=${dataset.records}", "lr=${nosuch}"),
    *("outputs=${oc.env:HOME}", "dataset.url=${outputs}/x", "eps=str(3)"),
    *("seed=int(4.0)", "dataset.name=other", "dataset.clients=7"),
    *("dataset.shape=[5]", "dataset.shape=[2,3]", "dataset.shape=3"),
    *("dataset.shape[0]=9", "dataset.dimension=7", "dataset.features=2"),
    *("dataset.records=null", "dataset.test_fraction=.3", "privacy.clip=median"),
    *("privacy.clip=.3", "privacy.nosuch=1", "privacy=3"),
    *("engine={chunk:3}", "engine.chunk=4", "engine=null"),
    *("+engine.more={a:[1,{b:2}]}", "theory={}", "theory.psi0=1e400"),
    *("+new.key=1", "+privacy.foo=bar"),
    *("+seed=5", "++lr=3", "++deep.er.key=[1,2]", "~theory.L", "~plot", "~nosuch", "~seed=0", "~seed=1"),
    *("epz=1", "eps.x=1"),
    *("algo.mu=1", "algo.warm_rounds=2", "algo.work.name=x"),
    *("model.l2=.1", "model.widths=[3,4]", "local_steps=divisors"),
    *("eps=1,2", "seed=range(3)"),
    *("local_steps=divisors:8", "partition.alpha=.1"),
    *("partition.seed=1", "a b=3", "=3", "eps=[", "dataset={n:1}"),
    *("repeats=true", "repeats=off", "server_lr=1_000", "delta=1e-05"),
    *("delta=.00001", "hydra.searchpath=[]", "+hydra.foo=1"),
]  # fmt: skip

MORE = """
defaults: [config, _self_]
default_total_steps: ${default_local_steps}
batch_size: ${dataset.records}
outputs: ${oc.env:HOME}/out
"""
REFERRING = """
defaults: [config, _self_]
default_total_steps: ${default_local_steps}
eval_every: ${engine.chunk}
lr: ${dataset.lr}
theory: {psi0: "${.L}", L: "${engine.chunk}"}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder: one primary config with resolvers, one with plain references, an algorithm,
    an experiment.
    """
    (tmp_path / "more.yaml").write_text(MORE)
    (tmp_path / "referring.yaml").write_text(REFERRING)
    for group in ("algo", "experiment"):
        (tmp_path / group).mkdir()
    (tmp_path / "algo/mine.yaml").write_text(
        "# @package _global_\nalgo:\n  _target_: a.B\n  name: mine\n  private: false\n  mu: ${lr}\n"
    )
    (tmp_path / "experiment/big.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /algo: dp_fedavg\neps: 7\nseed: ${clients}\n"
    )
    return tmp_path


READ: dict[tuple[Any, ...], bytes] = {}
LOAD = OmegaConf.load


def load_once(file: Any) -> Any:
    """OmegaConf.load, which takes a third of Hydra's time: the same files for each of 600 jobs."""
    there = os.stat(file.name)
    key = (file.name, there.st_mtime_ns, there.st_size)
    if key not in READ:
        READ[key] = pickle.dumps(LOAD(file))
    return pickle.loads(READ[key])


def by_hydra(overrides: tuple[str, ...], folder: Path | None, name: str) -> Any:
    """Every job by Hydra from the beginning, as its documentation says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OmegaConf, "load", load_once)
        return _by_hydra(overrides, folder, name)


def _by_hydra(overrides: tuple[str, ...], folder: Path | None, name: str) -> Any:
    path = create_config_search_path("pkg://dpfl_bench.conf")
    if folder:
        path.prepend("user", f"file://{folder}", "main")
    version.setbase("1.3")
    GlobalHydra.instance().clear()
    Hydra.create_main_hydra2("dpfl-bench", path)
    try:
        config = hydra_compose(name, list(overrides), return_hydra_config=True)
        chosen = config.hydra.runtime.choices
        with open_dict(config):
            del config["hydra"]
        reference = _reference(
            name, tuple(f"{group}={chosen[group]}" for group in GROUPS if group in chosen), folder
        )
        return [OmegaConf.to_container(config, resolve=True), reference]
    finally:
        GlobalHydra.instance().clear()


@cache
def _reference(name: str, choices: tuple[str, ...], folder: Path | None) -> Any:
    return OmegaConf.to_container(hydra_compose(name, list(choices)), resolve=True)


def compare(composer: Composer, overrides: tuple[str, ...], folder: Path | None, name: str) -> bool:
    """Whether Hydra takes them; then the same keys in the same order with values of the same types,
    else a complaint of the same override.
    """
    try:
        expected, complaint = by_hydra(overrides, folder, name), None
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        complaint = str(error).strip().splitlines()[0]
    if complaint is not None:
        with pytest.raises(ConfigError) as refused:
            composer.job(overrides)
        ours = str(refused.value)
        assert complaint in ours or any(word.lstrip("+~") in ours for word in overrides), overrides
        return False
    made = composer.job(overrides)
    assert repr([made.config, made.reference]) == repr(expected), overrides
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config", "referring", "more"])
def test_jobs_are_what_hydra_makes_of_them(name: str, folder: Path) -> None:
    dice = random.Random(name)
    user = None if name == "config" else folder
    composer = Composer(str(user) if user else None, name)
    groups, values = [*GROUP_CHOICES], [*VALUES]
    if user:
        groups += ["algo=mine"] * 4 + ["+experiment=big"] * 4
    alone = [*groups, *values]
    if user:  # the package's own config has them all
        alone = dice.sample(alone, 50)
    taken = [compare(composer, (one,), user, name) for one in dict.fromkeys(alone)]
    for _ in range(40):
        overrides = [
            *dice.sample(groups, dice.choice((0, 0, 1, 2))),
            *dice.sample(values, dice.choice((1, 1, 2, 3))),
        ]
        dice.shuffle(overrides)
        taken.append(compare(composer, tuple(overrides), user, name))
    assert min(taken.count(True), taken.count(False)) > 25, "a sample of both kinds"


@pytest.mark.slow
def test_valid_jobs_of_many_keys(folder: Path) -> None:
    """Only what Hydra takes, more keys at a time: the sample above rarely holds five that are
    right.
    """
    dice, composer = random.Random(5), Composer(str(folder), "referring")
    groups = [
        "algo=dp_fedavg",
        "algo=mine",
        "dataset=mushrooms",
        "dataset=synthetic_logistic",
        "model=mlp",
        "privacy=record",
        "+experiment=big",
    ]
    values = [
        "eps=inf",
        "eps=.5",
        "lr=3",
        "seed=${clients}",
        "clients=12",
        "engine.chunk=4",
        "dataset.lr=5",
        "dataset.shape=[7]",
    ]
    values += [
        "dataset.clients=3",
        "theory.L=2",
        "+more=1",
        "~plot",
        "outputs='a, b'",
        "default_local_steps=3",
        "privacy.clip=median",
    ]
    for _ in range(25):
        chosen = {override.partition("=")[0]: override for override in dice.choices(groups, k=3)}
        overrides = (*chosen.values(), *dice.sample(values, 5))
        assert compare(composer, overrides, folder, "referring")


def test_ten_thousand_jobs_take_seconds() -> None:
    composer = Composer(None, "config")
    overrides = [
        ("algo=dp_fedavg", "dataset=mushrooms", f"seed={seed}", "total_steps=100", "local_steps=10")
        for seed in range(1000)
    ]
    composer.job(overrides[0])
    start = time.process_time()
    for job in overrides:
        composer.job(job)
    assert time.process_time() - start < 1.0, "a tenth of 10,000 jobs: .4 s here"


def test_the_dictionaries_of_two_jobs_are_their_own() -> None:
    composer = Composer(None, "config")
    one, other = composer.job(["seed=1"]), composer.job(["seed=2"])
    one.config["dataset"]["name"] = "changed"
    assert (one.config["seed"], other.config["seed"], other.config["dataset"]["name"]) == (
        1,
        2,
        "breast_cancer",
    )


def test_a_users_file_that_changed_is_read_again(folder: Path) -> None:
    """In his folder, and where hydra.searchpath leads. The package's own stay as they were read."""
    there = f"hydra.searchpath=[file://{folder}]"
    ways = ((["algo=mine"], str(folder)), (["algo=mine", there], None))
    text = (folder / "algo/mine.yaml").read_text()
    for mu in (1, 2):
        (folder / "algo/mine.yaml").write_text(text.replace("${lr}", str(mu)))
        for overrides, config_dir in ways:
            assert composed(overrides, config_dir).config["algo"]["mu"] == mu
    expected = composed(["algo=scaffnew"])
    expected.config["algo"]["name"] = "changed"
    again = composed(["algo=scaffnew"])
    assert again.config["algo"]["name"] == "scaffnew"
    with pytest.raises(ConfigError, match="algo=mine: no such choice"):
        composed(["algo=mine"])


# --- sweeps ---


@pytest.mark.parametrize(
    ("overrides", "jobs"),
    [
        (["eps=1,2", "seed=0"], ["eps=1 seed=0", "eps=2 seed=0"]),
        (
            ["seed=range(2)", "eps=choice(1,inf)"],
            ["seed=0 eps=1", "seed=0 eps=inf", "seed=1 eps=1", "seed=1 eps=inf"],
        ),
        (["privacy=glob([c*,s*])"], ["privacy=central", "privacy=secagg"]),
        (["privacy=glob(*, exclude=[_*,record])"], ["privacy=central", "privacy=local", "privacy=secagg"]),
        (["outputs='a,b'"], ["outputs='a,b'"]),
        (["dataset.shape=[1,2]"], ["dataset.shape=[1,2]"]),
        (["eps=1", "hydra/launcher=joblib", "hydra.launcher.n_jobs=3", "eps=4"], ["eps=4"]),
        (
            ["algo=fedavg,dp_fedexp", "algo.naive=true"],
            ["algo=fedavg algo.naive=True", "algo=dp_fedexp algo.naive=True"],
        ),
        ([], [""]),
    ],
)
def test_sweeps_in_hydras_words(overrides: list[str], jobs: list[str]) -> None:
    assert [" ".join(job) for job in Composer(None, "config").sweep(overrides).jobs] == jobs


def test_sweep_in_a_config_file(folder: Path) -> None:
    """hydra.sweeper.params of the primary config, or of an experiment; the command line goes
    first.
    """
    (folder / "sweep.yaml").write_text(
        "defaults: [config, _self_]\nhydra:\n  sweeper:\n    params:\n      eps: 1,2\n      seed: range(2)\n "
        " launcher: {}\n"
    )
    (folder / "experiment/grid.yaml").write_text(
        "# @package _global_\nhydra:\n  sweeper:\n    params:\n      lr: .1,.2\n"
    )
    composer = Composer(str(folder), "sweep")
    assert len(composer.sweep([]).jobs) == 4
    assert composer.sweep(["eps=5"]).jobs == [("eps=5", "seed=0"), ("eps=5", "seed=1")]
    found = Composer(str(folder), "config").sweep(["+experiment=grid", "epz=3"]).jobs
    assert found == [("lr=0.1", "+experiment=grid", "epz=3"), ("lr=0.2", "+experiment=grid", "epz=3")]


def test_what_launches() -> None:
    composer = Composer(None, "config")
    assert composer.sweep([]).launcher["_target_"].endswith("BasicLauncher")
    launcher = composer.sweep(["hydra/launcher=joblib", "hydra.launcher.n_jobs=3"]).launcher
    assert launcher == {"_target_": "dpfl_bench.sweep.launchers.cores.Cores", "n_jobs": 3}


def test_beside_hydras_own_plugin_of_that_name() -> None:
    """hydra-joblib-launcher, where it is installed, brings keys that are not ours."""
    ConfigStore.instance().store(
        group="hydra/launcher", name="joblib", node={"_target_": "hydra_plugins.Joblib", "backend": "loky"}
    )
    test_what_launches()


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["hydra/launcher=nosuch"], "hydra/launcher=nosuch: no such choice"),
        (["hydra/launcher=joblib", "hydra.launcher.jobs=3"], "did you mean hydra.launcher.n_jobs=3?"),
        (["hydra.launcher.n_jobs=1,2"], "Sweeping over Hydra's configuration is not supported"),
        (
            ["seed=range(3,3)"],
            "seed=range(3,3): expected something to sweep, a glob() or range() among them is empty",
        ),
        (["eps=1", "algo=glob(no*)"], "algo=glob(no*): expected something to sweep"),
        (["eps=interval(0,1)"], "BasicSweeper does not support sweep type : INTERVAL_SWEEP"),
        (["eps=["], "eps=["),
        (
            ["hydra.sweeper.params.eps='1,2'"],
            "expected in a config file (-cn); here, say what is swept by itself (eps=1,2)",
        ),
    ],
)
def test_refused_sweeps(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Composer(None, "config").sweep(overrides)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)

"""Every YAML file under conf/ composes, validates and builds; its stem is its `name`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.federations import CONF, settings_of
from helpers.real_data import whole_here
from model_rounds import CASES

from dpfl_bench import rng
from dpfl_bench.assembly.model import build_problem
from dpfl_bench.config import compose
from dpfl_bench.config.call import call
from dpfl_bench.experiment import plan, run
from dpfl_bench.experiment.build_player import build_player

pytestmark = pytest.mark.one_in(8)

FILES = sorted(
    file.relative_to(CONF) for group in compose.GROUPS for file in (CONF / group).glob("[!_]*.yaml")
)
STEPS = (
    "rounds=2",
    "local_steps=2",
    "device=cpu",
    "plot=false",
    "privacy.calibration=fixed",
    "privacy.noise_multiplier=6",
)
# what a choice needs beside it
BESIDE = {
    "dataset/synthetic_logistic": ("dataset.clients=4", "clients=4", "dataset.records_per_client=20"),
    "dataset/synthetic_linear": ("dataset.clients=4", "clients=4", "dataset.dimension=10"),
    "dataset/quadratics": ("dataset.clients=4", "clients=4", "dataset.dimension=10", "dataset.rank=3"),
    "dataset/libsvm": ("dataset.path=tiny.txt", "clients=2"),
    "dataset/csv": ("dataset.path=tiny.csv", "dataset.target=y", "clients=2"),
    "dataset/npz": ("dataset.path=tiny.npz", "clients=2"),
    "partition/natural": ("dataset=quadratics",),
    "privacy/central": ("algo=dp_fedavg",),
    "algo/scaffold_warm": ("rounds=2",),
}
PARAMETERS = {"logreg": 112, "linreg": 500, "mlp": 784 * 200 + 200 + 200 * 10 + 10, "cnn": 28938}
TRIED = {case.model: case for case in reversed(CASES.values())}  # of several data sets, the first


def overrides_of(group: str, name: str) -> list[str]:
    noise = STEPS[:4] if group == "algo" else STEPS
    if group == "model":
        return [*TRIED[name].arguments, *noise]
    return [f"{group}={name}", *noise, *BESIDE.get(f"{group}/{name}", ())]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_the_stem_is_the_name(file: Path) -> None:
    assert file.parts[0] in compose.GROUPS
    group, name = file.parts[0], file.stem
    composed = compose.composed(overrides_of(group, name))
    assert composed.config[group]["name"] == name
    assert (CONF / file).read_text().splitlines()[1 if group == "algo" else 0].startswith("# "), (
        "the first comment is `list`'s line"
    )


@pytest.mark.parametrize("file", FILES, ids=str)
def test_it_validates_and_plans(file: Path) -> None:
    group, name = file.parts[0], file.stem
    settings = settings_of(*overrides_of(group, name))
    assert (
        getattr(settings, group).name == name
        if group == "privacy"
        else getattr(settings, group)["name"] == name
    )
    planned = plan.plan(settings)
    assert planned["run_id"] == settings.run_id
    assert planned["releases"] == 2
    assert (planned["eps"] == float("inf")) == (not settings.private)


@pytest.mark.parametrize("name", [f.stem for f in FILES if f.parts[0] in ("algo", "privacy")])
def test_algorithms_and_privacy_models_build(name: str) -> None:
    group = "privacy" if (CONF / "privacy" / f"{name}.yaml").exists() else "algo"
    job = run.prepare(settings_of(*overrides_of(group, name)))
    assert job.problem.dimension == 30
    player = build_player(job.settings, job.budget, job.problem, job.data, 0)
    assert player.private == job.settings.private
    at_records = job.settings.private and job.settings.privacy.unit == "record"
    assert (player.gradient_door is not None) == at_records
    assert player.send_door.private == (job.settings.private and not at_records)


@pytest.mark.parametrize("name", [f.stem for f in FILES if f.parts[0] == "model"])
def test_models_build_from_the_yaml_alone(name: str) -> None:
    settings = settings_of(*overrides_of("model", name))
    problem = build_problem(settings, settings.dataset["shape"], settings.dataset["classes"])
    assert problem.dimension == PARAMETERS.get(name, problem.dimension) > 0


@pytest.mark.parametrize("name", [f.stem for f in FILES if f.parts[0] == "partition" and f.stem != "overlap"])
def test_partitions_deal_every_record_once(name: str) -> None:
    labels = rng.generator(0, "labels").integers(0, 3, 60)
    settings = settings_of(*overrides_of("partition", name))
    draw = rng.generator(0, "partition")
    parts = call(
        settings.partition, "partition", labels=labels, owners=np.arange(60) % 6, clients=6, rng=draw
    )
    assert len(parts) == 6
    dealt = np.sort(np.concatenate(parts))
    if name == "one_label":  # a class that has too many records leaves some over
        assert len(set(dealt)) == len(dealt) > 40
    else:
        assert np.array_equal(dealt, np.arange(60))


@pytest.mark.parametrize("name", [f.stem for f in FILES if f.parts[0] == "dataset"])
def test_data_sets_build_and_are_as_their_yaml_says(name: str, tmp_path: Path) -> None:
    rows = (f"{1 if i % 2 else -1} 1:{i} 3:{i % 5}" for i in range(10))
    (tmp_path / "tiny.txt").write_text("\n".join(rows) + "\n")
    (tmp_path / "tiny.csv").write_text("x,y\n" + "".join(f"{i},{i % 2}\n" for i in range(10)))
    np.savez(tmp_path / "tiny.npz", x=np.arange(10.0)[:, None], y=np.arange(10) % 2)
    settings = settings_of(*overrides_of("dataset", name))
    described = settings.dataset
    whole_here(described)
    job = run.prepare(settings)
    records = job.data.records
    assert job.data.federation.clients == settings.clients
    assert int(job.data.federation.sizes.sum()) == len(records.train_y)
    assert records.subset == ""
    if described["shape"] is not None:
        assert list(records.train_x.shape[1:]) == described["shape"]
        assert records.classes == described["classes"]
    if f"dataset/{name}" not in BESIDE:  # the small ones above have fewer than the YAML says
        assert len(records.train_y) == described["records"]
    if described["max_row_norm"] is not None and name not in ("csv", "libsvm", "npz"):
        norms = np.linalg.norm(records.train_x.reshape(len(records.train_x), -1), axis=1)
        assert norms.max() == pytest.approx(described["max_row_norm"], rel=1e-5)

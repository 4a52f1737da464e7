"""A launcher of the user's own: found by its YAML, called by a real run alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from helpers.command import call, read

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import catalogue
from dpfl_bench.config.targets import target
from dpfl_bench.sweep import launchers

SMALL = ("total_steps=4", "local_steps=2", "plot=false", "device=cpu")
CODE = '''
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from dpfl_bench.sweep.launchers.base import work

Path("imported").touch()


@dataclass(frozen=True)
class Backwards:
    """The last point first."""

    note: str
    at_once: ClassVar[int] = 1
    waits_for_others: ClassVar[bool] = False

    def launch(self, points, progress):
        for point in reversed(points):
            Path("order").open("a").write(f"{self.note} {point.overrides[0]}\\n")
            work(point)
            progress.update()


class Incomplete:
    def launch(self, points, progress): ...
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_launcher", raising=False)
    (tmp_path / "toy_launcher.py").write_text(CODE)
    yaml = tmp_path / "hydra" / "launcher"
    yaml.mkdir(parents=True)
    for name, path in (
        ("backwards", "toy_launcher.Backwards"),
        ("incomplete", "toy_launcher.Incomplete"),
        ("missing", "toy_launcher.Missing"),
        ("hydras", "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher"),
        ("function", "toy_launcher.Path"),
    ):
        keys = "note: from YAML\n" if name == "backwards" else ""
        (yaml / f"{name}.yaml").write_text(f"_target_: {path}\n{keys}")
    return str(tmp_path)


def test_it_runs_a_sweep(folder: str) -> None:
    said = call(
        "run", "-m", "-cd", folder, "hydra/launcher=backwards", "hydra.launcher.note=told", "lr=1,2,3", *SMALL
    )
    assert said.code == 0, said.err
    assert Path("order").read_text().splitlines() == ["told lr=3", "told lr=2", "told lr=1"]
    folders = said.out.splitlines()
    assert [read(Path(run), "result.json")["lr"] for run in folders] == [1, 2, 3]
    assert "3 of 3 jobs done" in said.err
    by_ours = call("run", "-m", "lr=1,2,3", "outputs=other", *SMALL)
    for run in folders:
        assert (Path(run) / "metrics.csv").read_bytes() == (
            Path("other/runs") / Path(run).name / "metrics.csv"
        ).read_bytes()
    assert by_ours.code == 0


def test_a_dry_run_does_not_even_import_it(folder: str) -> None:
    said = call("run", "-m", "--dry-run", "-cd", folder, "hydra/launcher=backwards", "lr=1,2", *SMALL)
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1].startswith("2 jobs, 0 finished, 2 to run")
    assert not Path("imported").exists()
    assert call("plan", "-cd", folder, "hydra/launcher=backwards").code == 0
    assert not Path("imported").exists()
    assert call("run", "-m", "-cd", folder, "hydra/launcher=backwards", "lr=1", *SMALL).code == 0
    assert Path("imported").exists(), "the check sees an import"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("hydra/launcher=incomplete",), "hydra/launcher: expected basic, "),
        (
            ("hydra/launcher=hydras",),
            "got the class hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher",
        ),
        (("hydra/launcher=function",), "a class of your own with launch, at_once, waits_for_others"),
        (("hydra/launcher=missing",), "_target_=toy_launcher.Missing: expected an importable"),
        (("hydra/launcher=backwards", "+hydra.launcher.nosuch=1"), "does not take these keys"),
        (("hydra/launcher=backwards", "--cancel"), "--cancel: expected hydra/launcher=slurm"),
    ],
)
def test_what_is_no_launcher_is_refused_before_any_job(
    folder: str, arguments: tuple[str, ...], said: str
) -> None:
    refused = call("run", "-m", "-cd", folder, *arguments, "lr=1,2", *SMALL)
    assert refused.code == 2
    assert said in refused.err
    assert refused.err.count("\n") == 1
    assert not Path("outputs").exists()


def test_ours_are_those_that_yaml_files_name() -> None:
    named = catalogue.launchers()
    assert set(named) == {"cores", "joblib", "slurm"}
    for path in filter(None, named.values()):
        assert launchers.is_shipped({"_target_": path})
        assert all(hasattr(target({"_target_": path}), name) for name in ("launch", "waits_for_others"))
    assert not launchers.is_shipped({"_target_": "toy_launcher.Backwards"})


def test_joblib_is_another_name_for_cores() -> None:
    one, other = (launchers.chosen({"_target_": catalogue.launchers()["cores"], "n_jobs": n}) for n in (2, 3))
    assert (one.at_once, other.at_once) == (2, 3)
    shown = [call("run", f"hydra/launcher={name}", "--cfg", "hydra").out for name in ("cores", "joblib")]
    nodes = [text.partition("launcher:")[2].partition("sweeper:")[0] for text in shown]
    assert "Cores" in nodes[0]
    assert nodes[0] == nodes[1]
    with pytest.raises(ConfigError, match="n_jobs=0"):
        launchers.chosen({"_target_": catalogue.launchers()["cores"], "n_jobs": 0})

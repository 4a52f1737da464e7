"""How a run ends, and who may decide that: no client's data, and no record's; and what is said
where the data did.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import QUICK, Said, call, metrics, read

from dpfl_bench.config.compose import composed

pytestmark = pytest.mark.one_in(4)


SHORT = ("rounds=3", "local_steps=3", *QUICK)


def libsvm(path: Path, size: float | None) -> tuple[str, ...]:
    """400 records of 5 features, one of them that large."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 5))
    y = (x.sum(1) > 0).astype(int)
    if size is not None:
        x[7] = size * np.sign(x[7])
    lines = (
        f"{label} " + " ".join(f"{i + 1}:{v:.9g}" for i, v in enumerate(row))
        for row, label in zip(x, y, strict=True)
    )
    path.write_text("\n".join(lines) + "\n")
    standardise = composed(("dataset=libsvm",)).config["dataset"]["standardise"]  # a word, or true and false
    scaled = (
        f"dataset.standardise={'none' if isinstance(standardise, str) else 'false'}",
        "dataset.unit_norm=false",
    )
    return (
        "dataset=libsvm",
        f"dataset.path={path}",
        "dataset.shape=[5]",
        "dataset.classes=2",
        "clients=20",
        *scaled,
    )


def ended(said: Said) -> tuple[dict[str, Any], dict[str, Any]]:
    folder = Path(said.out.splitlines()[-1])
    return read(folder, "result.json"), read(folder, "privacy.json")


PLACES = [
    ("privacy=secagg",),
    ("privacy=local",),
    ("privacy=central",),
    ("privacy.bound=normalise",),
    ("privacy=local", "privacy.mechanism=privunit"),
    ("privacy.noise=discrete",),
    ("privacy=record", "batch_size=4"),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=" ".join)
@pytest.mark.parametrize("size", [1e20, 3e38])
def test_one_record_ends_no_run(size: float, place: tuple[str, ...], tmp_path: Path) -> None:
    """Finite, and beyond what a model can take: the run ends as it does without, at the same eps,
    and its file counts it.
    """
    given = ("algo=dp_fedavg", "model=mlp", "lr=0.5", "eps=20", *place, *SHORT)
    results = []
    for name, large in (("plain", None), ("evil", size)):
        said = call("run", *libsvm(tmp_path / name, large), *given)
        assert said.code == 0, said.err
        results.append(ended(said))
    (plain, _), (evil, privacy) = results
    assert (evil["status"], evil["eps"], evil["diverged"]) == ("done", plain["eps"], None)
    assert evil["fully_accounted"]
    assert privacy["fully_accounted"]
    rows = metrics(said.folder)
    assert rows["blanked"].isna().tolist() == [True, False, False, False]
    assert (rows["blanked"][1:] <= (5 if place[0] != "privacy=record" else 12)).all()
    if place[0] != "privacy=record" and size == 3e38:
        assert rows["blanked"][1] == 1


@pytest.mark.parametrize("place", ["privacy=secagg", "privacy=record"])
def test_where_every_update_is_blanked_the_run_stops_and_says_what_that_tells(place: str) -> None:
    said = call("run", "algo=dp_fedavg", "model=mlp", "lr=1e30", place, *SHORT)
    assert said.code == 1
    result, privacy = ended(said)
    assert result["status"] == "diverged"
    assert result["diverged"]["cause"] == "every update was blanked"
    assert result["fully_accounted"] is privacy["fully_accounted"] is False
    assert privacy["not_accounted"][0] == result["diverged"]["tells_of_the_data"]
    assert "blanked" in privacy["not_accounted"][0]
    for told in ("every update was blanked, which tells of the data", "not fully accounted"):
        assert told in said.err


def test_an_overflow_of_the_servers_model_costs_nothing_and_says_so() -> None:
    """Noise times a learning rate does that, made of nothing but what was released."""
    said = call("run", "algo=dp_fedsgd", "lr=1e38", "server_lr=1e3", "rounds=5", "local_steps=1", *QUICK)
    assert said.code == 1
    result, privacy = ended(said)
    assert result["diverged"]["cause"] == "overflow"
    assert "post-processing" in result["diverged"]["tells_of_the_data"]
    assert result["fully_accounted"] is privacy["fully_accounted"] is True
    assert "by overflow, which is post-processing of what was released" in said.err


def test_behind_open_doors_a_run_diverges_as_ever(tmp_path: Path) -> None:
    said = call("run", *libsvm(tmp_path / "evil", 1e20), "algo=fedavg", "model=mlp", "lr=0.5", *SHORT)
    assert said.code == 1
    result, _ = ended(said)
    found = result["diverged"]
    assert (found["round"], found["cause"], found["tells_of_the_data"]) == (1, "overflow", None)
    assert metrics(Path(said.out.splitlines()[-1]))["blanked"].isna().all()


@pytest.mark.parametrize("model", ["logreg", "mlp"])
@pytest.mark.parametrize("place", ["privacy=secagg", "privacy=record"])
def test_losses_that_are_no_numbers_end_no_run(place: str, model: str, tmp_path: Path) -> None:
    """Nor do the reference optimum, theory and the picture, which all look at such records."""
    said = call(
        "run",
        *libsvm(tmp_path / "evil", 3e38),
        f"model={model}",
        place,
        "rounds=3",
        "local_steps=3",
        "device=cpu",
    )
    assert said.code == 0, said.err
    assert (said.folder / "curve.png").exists()
    assert ended(said)[0]["status"] == "done"

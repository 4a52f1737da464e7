"""Who holds a record is counted from what was dealt: no name, no file and no partition of a user's
own can make eps smaller than that.
"""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.command import QUICK, call, read
from helpers.federations import TINY, settings_of

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.experiment.job import prepare
from dpfl_bench.federation import partition
from dpfl_bench.federation.holders import Holders
from dpfl_bench.privacy.accounting import epsilon
from dpfl_bench.privacy.released.composition import Composition

pytestmark = pytest.mark.one_in(4)

HALVES = ("algo=dp_fedavg", "dataset=digits", "clients=10", "privacy=record",
          "privacy.neighbours=add_remove_one", "sample_rate=0.1",
          "rounds=10", "local_steps=5", "privacy.calibration=fixed",
          "privacy.noise_multiplier=1.751")  # fmt: skip
OWN = """
import numpy as np

def {name}(labels, owners, clients, rng):
    parts = np.array_split(np.arange(len(labels)), clients)
    {body}
    return parts
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a partition of one's own (its function's body after an equal split, and keys of its
    YAML) and returns what selects it.
    """
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "conf" / "partition").mkdir(parents=True)

    def write(name: str, body: str = "pass", target: str = "", **keys: object) -> list[str]:
        module = f"own_{tmp_path.name.replace('-', '_')}_{name}"
        (tmp_path / f"{module}.py").write_text(OWN.format(name=name, body=body))
        told = "".join(f"{key}: {value}\n" for key, value in {"name": name, "seed": 0, **keys}.items())
        (tmp_path / "conf" / "partition" / f"{name}.yaml").write_text(
            f"_target_: {target or f'{module}.{name}'}\n{told}"
        )
        return ["-cd", str(tmp_path / "conf"), f"partition={name}"]

    return write


def run(*overrides: str) -> dict[str, Any]:
    folder = call("run", *overrides, *QUICK).folder
    told: dict[str, Any] = read(folder, "privacy.json")
    assert read(folder, "result.json")["eps"] == told["eps"]
    return told


@pytest.mark.slow
@pytest.mark.parametrize(
    "way",
    ["ours", "renamed on the command line", "renamed in a YAML file", "called by a function of one's own"],
)
def test_half_of_all_records_each_by_whatever_name(way: str, own: Any) -> None:
    """Ten clients draw half of the digits each, and some record sits in all ten: eps 6.677. Told
    apart by its name it was 1.999.
    """
    inside = "from dpfl_bench.federation.partition import overlap_of; "
    inside += "parts = overlap_of(len(labels), clients, rng, 50)"
    chosen = {
        "ours": ["partition=overlap", "partition.percent=50"],
        "renamed on the command line": ["partition=overlap", "partition.percent=50", "partition.name=mine"],
        "renamed in a YAML file": own(
            "overlap50", target="dpfl_bench.federation.partition.overlap", percent=50.0
        ),
        "called by a function of one's own": own("halves", inside),
    }[way]
    told = run(*HALVES, *chosen)
    assert told["releases"][0]["times_of_worst_record"] == 10 * 50
    assert told["eps"] == pytest.approx(6.677, abs=1e-3)
    assert any("counted over all clients that hold it" in line for line in told["assumes"])


@pytest.mark.slow
def test_what_it_is_where_nobody_shares_a_record() -> None:
    assert run(*HALVES, "partition=iid")["eps"] == pytest.approx(1.999, abs=1e-3)


@pytest.mark.slow
def test_the_plan_says_what_it_cannot_know(own: Any) -> None:
    planned = [*HALVES, *own("nobody_knows")]
    said = call("plan", *planned).out
    assert "overlapping: not known before the data are dealt" in said
    assert call("plan", "--json", *planned).json["overlapping"] is None
    declared = own("declared", deals="disjoint")
    assert "not known" not in call("plan", *HALVES, *declared).out
    assert call("plan", "--json", *HALVES, *declared).json["overlapping"] is False
    several = own("several", deals="overlapping")
    assert (
        "overlapping: not known before the data are dealt" in call("plan", *HALVES, *several).out
    )  # in how many is not
    renamed = ["partition=overlap", "partition.percent=50", "partition.name=mine"]
    assert call("plan", "--json", *HALVES, *renamed).json["eps"] == pytest.approx(6.677, abs=1e-3)
    assert call("plan", "--json", *HALVES, *renamed).json["overlapping"] is True


@pytest.mark.slow
def test_an_own_partition_s_smallest_client_is_not_guessed(own: Any) -> None:
    """Equal shares of 1438 digits are 143 records; this partition leaves one client 20, whose lots
    of 14 amplify far less.
    """
    chosen = own("uneven", "parts[1] = np.concatenate([parts[0][20:], parts[1]]); parts[0] = parts[0][:20]")
    lots = (
        "algo=dp_fedavg",
        "dataset=digits",
        "clients=10",
        "privacy=record",
        "batch_size=14",
        "rounds=4",
        "local_steps=2",
        *HALVES[-2:],
    )
    said = call("plan", *lots, *chosen)
    assert said.code == 2
    assert "say records=N" in said.err
    assert call("plan", "--json", *lots, *chosen, "records=20").json["eps"] == run(*lots, *chosen)["eps"]


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        (
            "twice",
            "parts[3] = np.append(parts[3], parts[3][:1])",
            r"client 3 holds record \d+ more than once",
        ),
        (
            "beyond",
            "parts[3] = np.append(parts[3], len(labels))",
            r"client 3: expected one row of whole numbers in 0\.\.1437",
        ),
        ("behind", "parts[3] = parts[3] - len(labels)", "client 3: expected one row of whole numbers"),
        ("mask", "parts[3] = parts[3] > 7", "client 3: expected one row of whole numbers"),
        ("fewer", "parts = parts[1:]", r"expected 10 clients \(clients=\), it dealt records to 9"),
        ("more", "parts.append(parts[0][:0])", r"expected 10 clients \(clients=\), it dealt records to 11"),
        ("nothing", "parts[3] = parts[3][:0]", "a client of 10 has no records"),
    ],
)
def test_what_no_partition_may_deal(own: Any, name: str, body: str, words: str) -> None:
    """Also without privacy: a record that counts twice is another problem than the one that was
    asked.
    """
    for private in (HALVES, ("algo=fedavg", "dataset=digits", "clients=10", "rounds=1", "local_steps=1")):
        said = call("run", *private, *own(name, body), *QUICK)
        assert said.code == 2
        assert len(said.err.strip().splitlines()) == 1
        with pytest.raises(AssertionError, match=words):
            raise AssertionError(said.err)


@pytest.mark.slow
def test_a_declaration_is_checked(own: Any) -> None:
    shared = "parts[0] = np.append(parts[0], parts[1][0])"
    said = call("run", *HALVES, *own("liar", shared, deals="disjoint"), *QUICK)
    assert said.code == 2
    assert "declares that no record sits in two clients, and one sits in 2" in said.err
    assert (
        run(*HALVES, *own("honest", shared, deals="overlapping"))["releases"][0]["times_of_worst_record"]
        == 100
    )
    said = call("run", *HALVES, *own("odd", deals="sometimes"), *QUICK)
    assert said.code == 2
    assert "partition.deals=sometimes: expected disjoint or overlapping" in said.err


@pytest.mark.slow
def test_at_client_level_shared_records_are_told(own: Any) -> None:
    told = run(
        "algo=dp_fedavg",
        "dataset=digits",
        "clients=10",
        "rounds=1",
        "local_steps=1",
        *own("common", "parts[0] = np.append(parts[0], parts[1][0])"),
    )
    assert any(line.startswith("clients overlap: the unit is a client's copy") for line in told["assumes"])


def naive_exposure(parts: list[np.ndarray], taken: np.ndarray) -> int:
    """By a loop over every record of every client."""
    counts: Counter[int] = Counter()
    for part, count in zip(parts, taken.tolist(), strict=True):
        for record in part.tolist():
            counts[record] += count
    return max(counts.values(), default=0)


@pytest.mark.parametrize("seed", range(40))
def test_eps_is_never_below_the_count_over_holders(seed: int) -> None:
    """Random partitions, ours and others, that overlap or do not; clients that take part more or
    less often.
    """
    draw = np.random.default_rng(seed)
    records, clients = int(draw.integers(20, 200)), int(draw.integers(1, 12))
    labels = draw.integers(0, 3, records)
    ways = [
        lambda: partition.iid(labels, None, clients, draw),
        lambda: partition.overlap(labels, None, clients, draw, float(draw.uniform(10, 100))),
        lambda: partition.dirichlet(labels, None, clients, draw, 0.3),
        lambda: [draw.permutation(records)[: int(draw.integers(1, records + 1))] for _ in range(clients)],
        lambda: [np.arange(k, min(records, k + 9)) for k in range(clients)],
    ]
    parts = ways[seed % len(ways)]()
    taken = draw.integers(0, 30, clients)
    holders = Holders.of(parts, records)
    assert holders.exposure(taken) == naive_exposure(parts, taken)
    assert holders.most == naive_exposure(parts, np.ones(clients, int))
    assert holders.smallest == min(map(len, parts))
    if holders.exposure(taken):
        eps = epsilon(Composition("gaussian", holders.exposure(taken)), 20.0, 1e-5)
        assert eps >= epsilon(Composition("gaussian", naive_exposure(parts, taken)), 20.0, 1e-5)


def test_overlap_with_sampled_clients_counts_every_holder_towards_a_third_party() -> None:
    """The coins of the clients that hold a record are not independent: as if all took part in every
    round. Nothing of the draw shows.
    """
    from dpfl_bench.budget.budget import Budget
    from dpfl_bench.budget.schedules import drawn_schedules

    settings = settings_of(
        *HALVES,
        "partition=overlap",
        "partition.percent=50",
        "sampled_clients=2",
        "privacy.observer=third_party",
    )
    for seed in range(3):
        drawn = drawn_schedules(settings)
        parts = partition.overlap_of(1438, 10, np.random.default_rng(seed), 50.0)
        budget = Budget.of(settings, drawn, Holders.of(parts, 1438))
        most = naive_exposure(parts, np.ones(10, int))
        assert budget.eps == epsilon(Composition("poisson", 50 * most, 0.1, 0, 0), 1.751, 1e-5)
        assert budget.views()["third_party_given_cohorts"] < budget.eps < math.inf


def test_the_records_that_plans_were_made_with_are_there() -> None:
    """Else lots and plans were those of another federation."""
    assert prepare(settings_of(*TINY, "records=12")).data.federation.sizes.min() == 12
    with pytest.raises(ConfigError, match="records=13: the smallest client has 12 training records"):
        prepare(settings_of(*TINY, "records=13"))

"""The tables of docs/findings.md are those of the csv files beside it."""

from __future__ import annotations

import csv
import re

import pytest
from helpers.pages import ROOT

PAGE = (ROOT / "docs" / "findings.md").read_text()


def read(name: str) -> list[dict[str, str]]:
    with (ROOT / "docs" / f"findings_{name}.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below that heading."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in lines if "--" not in line]


def three(value: str) -> str:
    return f"{float(value):.3f}".lstrip("0")


def test_the_best_local_steps() -> None:
    (_, _, *budgets), *body = rows("The best local steps")
    best = {(row["apart"], row["eps_target"]): row for row in read("trust")}
    trust = ""
    for told, clients, *cells in body:
        trust = {"secure aggregation": "secagg", "local": "local", "": trust}[told]
        for budget, cell in zip(budgets, cells, strict=True):
            row = best[f"privacy.trust {trust}, clients {clients}", f"{float(budget.split()[1])}"]
            steps, _, alike = cell.partition(" ")
            assert steps == row["local_steps"]
            tried, as_good = row["tried"].split(), set(row["as_good"].split())
            listed = {
                step
                for part in re.findall(r"[\d-]+", alike or steps)
                for step in tried
                if int(part.split("-")[0]) <= int(step) <= int(part.split("-")[-1])
            }
            assert listed == as_good, (trust, clients, budget)


def test_normalise_or_clip() -> None:
    (_, *clips), *body = rows("Normalise or clip")
    told = {(row[0], float(c)): cell for row in body for c, cell in zip(clips, row[1:], strict=True)}
    data = read("bounds")
    made = {(row["privacy.bound"], float(row["privacy.clip"])): three(row["mean"]) for row in data}
    assert told == made


@pytest.mark.parametrize("trust", ["secagg", "central", "local"])
def test_control_variates(trust: str) -> None:
    (_, _, *steps), *body = rows("Control variates under noise")
    first = {"secagg": 0, "central": 2, "local": 4}[trust]
    made = {
        (row["algo"], row["local_steps"]): three(row["mean"])
        for row in read("variates")
        if row["privacy.trust"] == trust
    }
    for algo, (_, _, *cells) in zip(("dp_fedavg", "dp_scaffnew"), body[first : first + 2], strict=True):
        assert cells == [made[algo, step] for step in steps]


def test_dp_scaffold_at_record_level() -> None:
    best = {(row["algo"], row["local_steps"]): three(row["mean"]) for row in read("scaffold")}
    ours, theirs = (
        [best[algo, steps] for steps in ("50", "5")] for algo in ("dp_scaffold_warm", "dp_fedavg")
    )
    told = f"a test error of {ours[0]} (K = 50) and {ours[1]} (K = 5), DP-FedAvg {theirs[0]} and {theirs[1]}"
    assert told in " ".join(PAGE.split())


def test_a_constant_global_step_beside_the_adaptive_one() -> None:
    distance = {
        (row["privacy.trust"], row["algo"], float(row["server_lr"])): float(row["mean"])
        for row in read("extrapolation")
    }
    adaptive = distance["central", "dp_fedexp", 1]
    constant = {
        step: far
        for (trust, algo, step), far in distance.items()
        if (trust, algo) == ("central", "dp_fedavg")
    }
    best = min(constant, key=lambda step: constant[step])
    assert 1 < best < max(constant)
    page = " ".join(PAGE.split())
    assert f"it ends {adaptive:.1f} from the optimum, DP-FedAvg {constant[1]:.1f}" in page
    assert (
        f"With a constant of {best:.0f}, tuned like the rest, DP-FedAvg ends at {constant[best]:.1f}" in page
    )
    behind = distance["local", "dp_fedexp", 1] - distance["local", "dp_fedavg", 1]
    assert f"DP-FedEXP ends {behind:.1f} farther".replace("0.", ".") in page

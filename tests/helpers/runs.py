"""Two finished runs compared."""

from __future__ import annotations

from pathlib import Path

import torch

from helpers.command import read


def same_numbers(one: Path, other: Path) -> None:
    assert (one / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()
    finals = [torch.load(folder / "checkpoint" / "final.pt", weights_only=True) for folder in (one, other)]
    assert list(finals[0]) == list(finals[1])
    assert all(torch.equal(finals[0][seed], finals[1][seed]) for seed in finals[0])
    results = [read(folder, "result.json") for folder in (one, other)]
    assert {**results[0], "seconds": 0} == {**results[1], "seconds": 0}
    assert read(one, "privacy.json") == read(other, "privacy.json")
    places = [folder / "iterates.csv" for folder in (one, other)]
    assert places[0].exists() == places[1].exists()
    if places[0].exists():
        assert places[0].read_bytes() == places[1].read_bytes()
    lines = [
        (folder / name).read_text().count("\n")
        for folder in (one, other)
        for name in ("metrics.csv", "timing.csv")
    ]
    assert len(set(lines)) == 1

"""Every scale and reading of every artefact has valid jobs."""

from __future__ import annotations

import re

import pytest
from helpers.command import call

from dpfl_bench.papers.artefact import artefacts
from dpfl_bench.papers.overlays import READINGS, SCALES

PAPERS = {"balancing": 12, "normalized": 5, "dpscaffold": 12, "fedexp": 6, "pfl": 4}


AT_FULL = ("balancing", "normalized")  # those with most jobs
FAST = [("smoke", paper) for paper in AT_FULL]


@pytest.mark.parametrize(
    ("scale", "paper"),
    [
        pytest.param(scale, paper, marks=() if (scale, paper) in FAST else pytest.mark.slow)
        for scale in SCALES
        for paper in PAPERS
        if scale != "full" or paper in AT_FULL
    ],
)
def test_every_job_is_valid(scale: str, paper: str) -> None:
    """At full scale 2,400 of them, and those that follow from them."""
    names = [name for name in artefacts() if name.startswith(f"{paper}/")]
    assert len(names) == PAPERS[paper]
    said = call("reproduce", paper, f"scale={scale}", "reading=both", "--dry-run")
    assert said.code == 0, said.err
    *lines, whole = said.out.splitlines()
    assert whole.startswith("in all ")
    assert len(lines) == len(READINGS) * len(names)
    jobs = [int(count) for count in re.findall(r": (\d+) jobs", "\n".join(lines))]
    assert len(jobs) == len(lines)
    trained = sum(count > 0 for count in jobs)
    assert scale != "smoke" or trained >= len(lines) - 2, "without any data file; table 1 trains nothing"

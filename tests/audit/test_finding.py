"""The verdict over all parts."""

from __future__ import annotations

from typing import Any

from dpfl_bench.audit.finding import Part, report

TESTED = Part("residuals", "holds", "", 1.0, 0.4)


def of(*parts: Part) -> tuple[str, Any]:
    found = report(2.0, 0.95, [TESTED, *parts])
    return found["verdict"], found["lower"]


def test_what_is_proved_above_the_claim_is_never_said_to_hold() -> None:
    bound = Part("composition", "holds", "eps is at least so much", 1.0, 1.0, 1.99)
    assert of(bound) == ("holds", 1.99)
    above = Part("composition", "holds", "eps is at least so much", 1.0, 1.0, 2.01)
    assert of(above) == ("inconclusive", 2.01)
    said = report(2.0, 0.95, [above])["parts"][0]["says"]
    assert "at most one of 20 audits of right runs" in said
    assert of(Part("composition", "violated", "", 1.0, 0.0, 2.5)) == ("violated", 2.5)


def test_what_can_say_nothing_decides_nothing() -> None:
    assert of(Part("workers", "inconclusive", "it has none")) == ("holds", 0.0)
    assert of(Part("residuals: shape", "inconclusive", "", 0.1, 1e-4)) == ("inconclusive", 0.0)
    assert of(Part("not accounted", "inconclusive", "a median")) == ("inconclusive", 0.0)
    assert report(2.0, 0.95, [])["verdict"] == "inconclusive"

"""All parts of one audit, in order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dpfl_bench.audit import (
    agreement,
    canaries,
    cohorts,
    evidence,
    lots,
    privunit_messages,
    privunit_parts,
    record_plays,
    record_replay,
    replay,
    residuals,
    scalars,
    statistics,
    workers,
)
from dpfl_bench.audit.audited_run import Asked, Audited, prepared
from dpfl_bench.audit.finding import Part, report, unable, unaccounted
from dpfl_bench.audit.plays import plays

NOBODY = unable("composition", "nobody took part in a round that was played")
BOUNDS = 3  # bounds from below that share the confidence: noise, mean shift, black box


def audit(asked: Asked, confidence: float, count: int) -> dict[str, Any]:
    """What `audit --json` prints; also in the folder's audit.json, where there is a run folder.
    count: of canaries.
    """
    audited = prepared(asked, confidence, count)
    found = report(audited.claim.eps, confidence, parts(audited))
    if asked.record is not None:
        asked.folder.write("audit.json", found)
        told = {name: found[name] for name in ("verdict", "lower", "confidence")}
        asked.folder.write("privacy.json", {**asked.record, "audited": told})
    return found


def parts(audited: Audited) -> list[Part]:
    claim = audited.claim
    found = [agreement.part(claim), *_KINDS[claim.unit, claim.mechanism](audited), *workers.parts(audited)]
    return [*found, unaccounted(claim.leaks)] if claim.leaks else found


def of_clients(audited: Audited) -> list[Part]:
    """Client level, Gaussian noise."""
    each = statistics.shared(audited.confidence, BOUNDS)
    moved = replay.moved(audited)
    found = plays(audited)
    further = scalars.spreads(audited)
    hides = [residuals.main_noise(audited, found), *further]
    times = cohorts.participations(audited)
    return [
        *replay.parts(audited, moved),
        *residuals.parts(audited, found, further),
        *canaries.parts(audited, found, each),
        *cohorts.parts(audited),
        *evidence.parts(audited, moved, hides, times, each),
    ]


def of_records(audited: Audited) -> list[Part]:
    """Record level: lot by lot."""
    each = statistics.shared(audited.confidence, BOUNDS)
    moved = record_replay.moved(audited)
    found = record_plays.plays(audited)

    if not found.messages:
        return [*record_replay.parts(audited, moved), *lots.parts(audited, found), NOBODY]
    sides = 1.0 if audited.claim.adds else 2.0
    far = {audited.claim.release: sides * found.farthest / audited.claim.factor}
    moved.take(far, f"canaries in {len(found.scores)} steps", audited.claim.noise)

    def rate(confidence: float) -> float:
        return lots.rate_at_least(audited, found, confidence)

    return [
        *record_replay.parts(audited, moved),
        *residuals.parts(audited, found, []),
        *canaries.parts(audited, found, each),
        *lots.parts(audited, found),
        *evidence.parts(
            audited,
            moved,
            [residuals.main_noise(audited, found)],
            lots.participations(audited),
            each,
            rate,
        ),
    ]


def of_privunit(audited: Audited) -> list[Part]:
    """Client level, PrivUnit: message by message."""
    each = statistics.shared(audited.confidence, 2)
    found = privunit_messages.messages(audited)
    if not found.plays.messages:
        return [*cohorts.parts(audited), NOBODY]
    proved = privunit_parts.parts(audited, found, each)
    return [
        privunit_parts.replayed(audited),
        *proved,
        *residuals.law(audited, found.plays),
        *cohorts.parts(audited),
        privunit_parts.composed(audited, proved, cohorts.participations(audited)),
    ]


_KINDS: dict[tuple[str, str], Callable[[Audited], list[Part]]] = {
    ("client", "gaussian"): of_clients,
    ("client", "privunit"): of_privunit,
    ("record", "gaussian"): of_records,
}

"""PrivUnit: how often messages of u and of -u point into u's cap and tell u's norm.

Counts prove eps without any trust in a law, as far as the rarer side is seen at all. Beyond that
the law of the messages is tested, and its likelihood ratio is bounded. Unit: client, one message.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from dpfl_bench.audit import statistics
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.evidence import EVEN, supported
from dpfl_bench.audit.finding import SURE, Part, exact, judged, with_test
from dpfl_bench.audit.privunit_messages import Law, Messages
from dpfl_bench.audit.replay import direction, with_memory
from dpfl_bench.audit.watched import Watched, played
from dpfl_bench.audit.worlds import neighbours, offering
from dpfl_bench.privacy import accounting

ROUNDS = 2  # of the replay


def parts(audited: Audited, found: Messages, confidence: float) -> list[Part]:
    """confidence: of each bound."""
    law = Law.of(audited.claim, len(audited.x))
    return [_counts(audited, law, found, confidence), _ratio(audited, law, found, confidence)]


def _counts(audited: Audited, law: Law, found: Messages, confidence: float) -> Part:
    """Which event is counted follows from the claim, before a message is seen."""
    n, m = int(found.inside.sum()), int((~found.inside).sum())
    apart = found.index[found.inside].max(initial=0) != found.index[~found.inside].max(initial=0)
    shares = {"cap": (law.rate, (1 - law.rate) * law.cap / (1 - law.cap))}
    if apart:
        other = (1 - law.stays) / law.norms
        shares["cap and norm"] = (shares["cap"][0] * law.stays, shares["cap"][1] * other)

    def expected(name: str) -> float:
        hits, alarms = (round(count * share) for count, share in zip((n, m), shares[name], strict=True))
        return statistics.two_rates(hits, n, alarms, m, 0.0, confidence)

    event = max(shares, key=expected)
    there = found.heights >= law.height
    if event == "cap and norm":
        there &= found.told == law.norms
    hits, alarms = int((there & found.inside).sum()), int((there & ~found.inside).sum())
    proved = statistics.two_rates(hits, n, alarms, m, 0.0, confidence)
    surely = statistics.two_rates(hits, n, alarms, m, 0.0, 1 - SURE)
    says = (
        f"{event}: {hits} of {n} messages of u, {alarms} of {m} of -u; one message is at least"
        f" {proved:.4g} of {law.eps:.4g}"
    )
    p = statistics.two_rates_p(hits, n, alarms, m, law.eps)
    if law.eps > 10:
        says += "; beyond 10 counts cannot certify, see the likelihood ratio"
    lower = _of_the_run(audited, proved)
    return Part("PrivUnit", "violated" if surely > law.eps else "holds", says, proved / law.eps, p, lower)


def _ratio(audited: Audited, law: Law, found: Messages, confidence: float) -> Part:
    """The law: the cap's rate, uniform on the cap and on the rest; the norm's rate, uniform on the
    others. Then the largest likelihood ratio follows from the two rates.
    """
    height = np.where(found.inside, found.heights, -found.heights)  # of -u, -u's own cap
    above, n = law.above(height), len(height)
    capped, kept = above <= law.cap, found.told == found.index
    others = found.told[~kept] - (found.told[~kept] > found.index[~kept])
    tests = {
        "rate of the cap": statistics.share_p(int(capped.sum()), n, law.rate),
        "place in the cap": _uniform(above[capped] / law.cap),
        "place in the rest": _uniform((above[~capped] - law.cap) / (1 - law.cap)),
        "rate of the norm": statistics.share_p(int(kept.sum()), n, law.stays),
        "other norms": statistics.even_p(np.bincount(others[others >= 0].astype(int), minlength=law.norms)),
        "norms that are none": float((found.told >= 0).all()),
    }
    each = statistics.shared(confidence, 2)
    capped_least = statistics.share_at_least(int(capped.sum()), n, each)
    kept_least = statistics.share_at_least(int(kept.sum()), n, each)
    proved = (
        _logit(capped_least)
        + math.log1p(-law.cap)
        - math.log(law.cap)
        + max(0.0, _logit(kept_least) + math.log(law.norms))
    )
    worst = min(tests, key=lambda name: tests[name])
    says = (
        f"the likelihood ratio of one message is at least e^{proved:.4g}, claimed e^{law.eps:.4g}; least p"
        f" {tests[worst]:.2g} of the {worst}"
    )
    part = with_test(
        "PrivUnit: likelihood ratio", statistics.joint_p(tests.values()), audited.confidence, says, proved
    )
    return Part(part.part, part.verdict, part.says, proved, part.p, _of_the_run(audited, max(0.0, proved)))


def _logit(share: float) -> float:
    return math.log(share) - math.log1p(-share) if 0 < share < 1 else -math.inf


def _uniform(values: np.ndarray) -> float:
    return float(stats.kstest(values, "uniform").pvalue) if len(values) else 1.0


def _of_the_run(audited: Audited, proved: float) -> float:
    return supported(audited.claim, 1 / proved) if proved > 0 else 0.0


def replayed(audited: Audited) -> Part:
    """One client's update is another one: no message but its own may move, by a bit."""
    player, found, how = Watched.of(audited.player), 0.0, ""
    state = player.start(audited.x)
    rounds = [r for r in map(audited.schedule.round, range(audited.schedule.rounds)) if len(r.cohort)]
    for round in rounds[:ROUNDS]:
        before, target = with_memory(state), int(round.cohort[0])
        state = played(player, state, round)
        rows = {int(i): row for ids, chunk in player.diary.offered for i, row in zip(ids, chunk, strict=True)}
        others, here = player.diary.clients != target, player.diary.messages
        toward = direction(audited, len(state.server.x))
        for world in neighbours(audited.job.data.federation, target, toward, audited.claim.clip or 1.0):
            offer = None if world.update is None else offering(rows, target, world.update)
            other = Watched.of(player, offer, federation=world.federation)
            played(other, with_memory(before), round)
            gap = float(np.abs(other.diary.messages - here)[others].max(initial=0.0))
            if not gap <= found:
                found, how = gap, f"client {target}, round {round.index}: {world.name}"
    p = exact(found, 0.0)
    says = "the messages of other clients do not move" if p else f"other clients' messages moved ({how})"
    return Part("replay", "holds" if p else "violated", says, found, p)


def composed(audited: Audited, listed: list[Part], times: int) -> Part:
    """What the parts prove of one message, in the composition that was accounted."""
    claim = audited.claim
    stated = accounting.epsilon(claim.seen, claim.multiplier, claim.delta)
    one = Law.of(claim, len(audited.x)).eps
    p = min(
        exact(stated, claim.eps * (1 + EVEN)),
        exact(one, (1 + EVEN) / claim.multiplier),
        exact(times, claim.seen.times) if not claim.seen.rounds else 1.0,
    )
    lower = max(part.lower or 0.0 for part in listed)
    says = (
        f"{times} messages of the worst client, {one:.5g} each; eps is at least {lower:.5g} of"
        f" {claim.eps:.5g} claimed"
    )
    if stated > claim.eps * (1 + EVEN):
        says += f"; the declared messages amount to {stated:.5g}"
    return Part("composition", judged(p, 0.5), says, lower / claim.eps, p, lower)

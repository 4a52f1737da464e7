"""Canaries: how far apart those that are in and those that are out were seen.

`mean shift` trusts that the scores are normal. `black box` does not: it counts right guesses.
Unit: each canary is one client or one record, and its coin is its neighbouring relation.
"""

from __future__ import annotations

import math

import numpy as np

from dpfl_bench.audit import statistics
from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.evidence import supported
from dpfl_bench.audit.finding import SURE, Part, judged, unable
from dpfl_bench.audit.plays import Plays

LEAST = 20  # scores on either side


def parts(audited: Audited, found: Plays, confidence: float) -> list[Part]:
    """confidence: of each bound."""
    if not found.scores:
        return [unable("mean shift", "no canary took part"), unable("black box", "no canary took part")]
    scores, coins = found.scored
    if min(coins.sum(), (~coins).sum()) < LEAST:
        reason = f"{len(coins)} scores: expected at least {LEAST} of either side; raise --canaries"
        return [unable("mean shift", reason), unable("black box", reason)]
    return [_mean_shift(audited, scores, coins, confidence), _black_box(audited, found, confidence)]


def _mean_shift(audited: Audited, scores: np.ndarray, coins: np.ndarray, confidence: float) -> Part:
    """Of one release; the accountant's composition makes the run of it."""
    claim, inside, outside = audited.claim, scores[coins], scores[~coins]
    mu = statistics.shift_at_least(inside, outside, confidence)
    lower = supported(claim, 1 / mu if mu > 0 else math.inf)
    claimed = 1 / claim.multiplier
    p = statistics.shift_p(inside, outside, claimed * 1.001)
    found = statistics.shift(inside, outside)
    says = (
        f"one {claim.unit} shifts one release by {found:.4g} standard deviations, at least {mu:.4g};"
        f" claimed: {claimed:.4g} ({len(scores)} scores of canaries)"
    )
    verdict = judged(p, (1 - audited.confidence) / 10)
    return Part("mean shift", verdict, says, found, p, lower)


def _black_box(audited: Audited, found: Plays, confidence: float) -> Part:
    """Scores of each canary's whole run. Threshold and number of guesses follow from the claim, so
    they are chosen before a score is seen.
    """
    claim, seen = audited.claim, found.counts > 0
    times, coin = found.counts[seen], found.inside[seen]
    rate = claim.seen.rate if claim.secret else 1.0
    expected = rate / (claim.multiplier * (claim.proved_scale if claim.of_local_sums else 1.0))
    middle = 0.0 if not claim.adds else expected / 2
    total = (found.totals[seen] - middle * times) / np.sqrt(times)
    mu, n = expected * math.sqrt(float(times.mean())), len(total)
    each = statistics.shared(confidence, 2)
    hits = _by_rates(total, coin, mu, claim.delta, each)
    right = statistics.best_guesses(mu, n, claim.delta, each)
    surest = np.argsort(-np.abs(total))[:right]
    correct = int(((total[surest] > 0) == coin[surest]).sum())
    one_run = statistics.one_run_eps(correct, right, n, claim.delta, each)
    p = statistics.one_run_p(correct, right, n, claim.eps, claim.delta)
    says = (
        f"{n} canaries, {int(times.mean())} releases: two rates prove {hits:.4g}, {correct} right of"
        f" {right} guesses prove {one_run:.4g}"
    )
    return Part("black box", "violated" if p < SURE else "holds", says, float(correct), p, max(hits, one_run))


def _by_rates(total: np.ndarray, coin: np.ndarray, mu: float, delta: float, confidence: float) -> float:
    n, m = int(coin.sum()), int((~coin).sum())
    if min(n, m) == 0:
        return 0.0
    at = statistics.best_threshold(mu, n, m, delta, confidence) - mu / 2
    hits, alarms = int((total[coin] > at).sum()), int((total[~coin] > at).sum())
    return statistics.two_rates(hits, n, alarms, m, delta, confidence)

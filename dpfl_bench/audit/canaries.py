"""Canaries: how far apart those that are in and those that are out were seen.

`mean shift` trusts that the scores are normal. `black box` does not: it counts right guesses.
Unit: client; each canary is one, and its coin is its neighbouring relation.
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
    scores, coins, which = found.scored
    if min(coins.sum(), (~coins).sum()) < LEAST:
        reason = f"{len(coins)} scores: expected at least {LEAST} of either side; raise --canaries"
        return [unable("mean shift", reason), unable("black box", reason)]
    return [
        _mean_shift(audited, scores, coins, confidence),
        _black_box(audited, scores, coins, which, confidence),
    ]


def _mean_shift(audited: Audited, scores: np.ndarray, coins: np.ndarray, confidence: float) -> Part:
    """Of one release; the accountant's composition makes the run of it."""
    inside, outside = scores[coins], scores[~coins]
    mu = statistics.shift_at_least(inside, outside, confidence)
    lower = supported(audited.claim, 1 / mu if mu > 0 else math.inf)
    claimed = 1 / audited.claim.multiplier
    p = statistics.shift_p(inside, outside, claimed * 1.001)
    found = statistics.shift(inside, outside)
    says = (
        f"one client shifts one release by {found:.4g} standard deviations, at least {mu:.4g}; claimed:"
        f" {claimed:.4g} ({len(scores)} scores of canaries)"
    )
    verdict = judged(p, (1 - audited.confidence) / 10)
    return Part("mean shift", verdict, says, found, p, lower)


def _black_box(
    audited: Audited, scores: np.ndarray, coins: np.ndarray, which: np.ndarray, confidence: float
) -> Part:
    """Scores of each canary's whole run. Threshold and number of guesses follow from the claim, so
    they are chosen before a score is seen.
    """
    claim, (_, place) = audited.claim, np.unique(which, return_inverse=True)
    expected = 1 / claim.multiplier
    middle = 0.0 if not claim.adds else expected / 2
    times = np.bincount(place)
    total = np.bincount(place, scores - middle) / np.sqrt(times)
    coin = np.bincount(place, coins) > 0
    mu, n = expected * math.sqrt(float(times.mean())), len(total)
    each = statistics.shared(confidence, 2)
    hits = _by_rates(total, coin, mu, claim.delta, each)
    right = statistics.best_guesses(mu, n, claim.delta, each)
    surest = np.argsort(-np.abs(total))[:right]
    correct = int(((total[surest] > 0) == coin[surest]).sum())
    one_run = statistics.one_run_eps(correct, right, n, claim.delta, each)
    p = statistics.one_run_p(correct, right, n, claim.eps, claim.delta)
    says = (
        f"{n} canaries, {int(times.mean())} rounds: two rates prove {hits:.4g}, {correct} right of {right}"
        f" guesses prove {one_run:.4g}"
    )
    return Part("black box", "violated" if p < SURE else "holds", says, float(correct), p, max(hits, one_run))


def _by_rates(total: np.ndarray, coin: np.ndarray, mu: float, delta: float, confidence: float) -> float:
    n, m = int(coin.sum()), int((~coin).sum())
    if min(n, m) == 0:
        return 0.0
    at = statistics.best_threshold(mu, n, m, delta, confidence) - mu / 2
    hits, alarms = int((total[coin] > at).sum()), int((total[~coin] > at).sum())
    return statistics.two_rates(hits, n, alarms, m, delta, confidence)

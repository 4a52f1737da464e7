"""Worker processes: a round by the run's own crew is the round that the other parts look at.

The other parts play every round in one process, where doors can be observed. Unit, neighbours: any.
"""

from __future__ import annotations

from dpfl_bench.audit.audited_run import Audited
from dpfl_bench.audit.finding import Part, exact
from dpfl_bench.experiment import engine
from dpfl_bench.federation.alone import Alone

ROUNDS = 2


def parts(audited: Audited) -> list[Part]:
    """One part where the run has workers, else none."""
    settings, player, rounds = audited.job.settings, audited.player, min(ROUNDS, audited.schedule.rounds)
    count = engine.workers(settings, player)
    if count == 1:
        return []
    alone, shared, gap = player.start(audited.x), player.start(audited.x), 0.0
    with engine.crew(settings, player, shared) as crew:
        for round in map(audited.schedule.round, range(rounds)):
            alone, _ = player.play(alone, round, Alone(player))
            shared, _ = player.play(shared, round, crew)
            gap = max(gap, float((alone.server.x - shared.server.x).abs().nan_to_num(1.0).max()))
    p = exact(gap, 0.0)
    says = f"{rounds} rounds by {count} processes " + ("are the same bits" if p else f"differ by {gap:.3g}")
    return [Part("workers", "holds" if p else "violated", says, gap, p)]

"""How many ranks work on a round changes no bit of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers.crews import Trace, by_this_process, by_workers, differing, in_chunks, trace_of
from helpers.federations import TINY, Played, player_of, settings_of
from helpers.ranks import in_ranks

from dpfl_bench.config.settings import Settings
from dpfl_bench.federation.ranks import Ranks, gathered, handed_out, with_share
from dpfl_bench.federation.share import Share, blocks
from dpfl_bench.machine.ranks import Group

# blocks, owners and visitors


@pytest.mark.parametrize("sizes", [(), (3,), (2, 2, 2, 2, 1, 1), (1,) * 64, (5, 0, 0, 5), (9, 1, 1)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_blocks_are_contiguous_and_have_every_piece(sizes: tuple[int, ...], ranks: int) -> None:
    dealt = blocks(sizes, ranks)
    assert len(dealt) == ranks
    assert [piece for block in dealt for piece in block] == list(range(len(sizes)))
    fair = sum(sizes) / ranks
    most = max((sum(sizes[k] for k in block) for block in dealt), default=0)
    assert most <= fair + max(sizes, default=0)


def test_a_memory_travels_from_its_owner_to_who_plays_and_nowhere_else() -> None:
    draw = np.random.default_rng(0)
    everyone = np.array_split(np.arange(50), 6)
    shares = [Share(rank, 3, everyone) for rank in range(3)]
    np.testing.assert_array_equal(np.concatenate([shares[0].kept(r) for r in range(3)]), np.arange(50))
    moved = 0
    for _ in range(20):
        groups = np.array_split(np.sort(draw.choice(50, 12, replace=False)), 4)
        for share in shares:
            share.make_room([groups])
        travels = [share.expect(groups) for share in shares]
        for one in range(3):
            played = [groups[k] for k in shares[one].block([len(group) for group in groups])]
            rows = shares[one].places(np.concatenate(played))
            assert len(set(rows)) == len(rows)
            assert 0 <= rows.min() <= rows.max() < shares[one].room(50)
            for other in range(3):
                np.testing.assert_array_equal(travels[one].away[other], travels[other].visitors[one])
                moved += len(travels[one].away[other])
        assert travels[0].any == any(len(each) for travel in travels for each in travel.away)
    assert moved
    assert not shares[0].travels(everyone).any


# rounds

LOTS = ("batch_size=4", "sampled_clients=9")
EPS = [f"privacy.eps{k}=3" for k in range(3)]
UNNOISED = [o for o in TINY if "noise_multiplier" not in o]
SETTINGS = {
    "client, central": (*TINY, "algo=dp_fedavg", "privacy=central", *LOTS),
    "client, secagg": (*TINY, "algo=dp_fedavg", "privacy=secagg", "privacy.quantile=0.5", *LOTS),
    "client, local": (*TINY, "algo=dp_fedexp", "privacy=local", *LOTS),
    "memories stay": (*TINY, "algo=dp_scaffnew", "server_momentum=0.5", "average_last=3"),
    "memories travel": (*TINY, "algo=dp_scaffnew", "batch_size=4", "sampled_clients=4"),
    "poisson": (*TINY, "algo=dp_fedexp", "rounds=12", "client_sampling=poisson", "sampled_clients=2"),
    "record": (*TINY, "algo=dp_scaffold", "privacy=record", "privacy.neighbours=replace_one", *LOTS),
    "privunit": (*UNNOISED, "algo=dp_fedexp", "privacy=local", "privacy.mechanism=privunit", *EPS),
}
WITH_WORKERS = ["client, secagg", "memories travel"]


def _settings(name: str) -> Settings:
    return in_chunks(settings_of(*SETTINGS[name]), 1 if name == "poisson" else 2)


class Tracing(Ranks):
    """Looks at all clients' memories, as if they were in the state."""

    def __init__(self, crew: Any, group: Group) -> None:
        super().__init__(crew, group)
        self.seen: list[bytes] = []

    def update_memories(self, *given: Any) -> None:
        super().update_memories(*given)
        whole = self.memories(given[0])
        self.seen.append(b"" if whole is None else whole.numpy().tobytes())


def _of_rank(group: Group, whole: Played, inner: Callable[[Played], Any]) -> Trace:
    """What one rank finds; of the memories, rank 0."""
    player = with_share(whole.player, whole.schedule, group)
    played = dataclasses.replace(whole, player=player, start=player.start(whole.start.server.x))
    crews = []

    def crew(played: Played) -> Tracing:
        crews.append(Tracing(inner(played), group))
        return crews[0]

    trace = trace_of(played, crew)
    if crews[0].seen:
        trace["memory"] = crews[0].seen
    return trace


def test_no_bit_depends_on_the_number_of_ranks() -> None:
    played = {name: player_of(_settings(name)) for name in SETTINGS}
    expected = {name: trace_of(whole, by_this_process) for name, whole in played.items()}
    for count, inner, names in ((2, by_this_process, list(SETTINGS)), (3, by_workers(2), WITH_WORKERS)):

        def work(group: Group, inner: Any = inner, names: list[str] = names) -> dict[str, Trace]:
            return {name: _of_rank(group, played[name], inner) for name in names}

        for rank, found in enumerate(in_ranks(count, work)):
            for name in names:
                found[name]["memory"] = found[name]["memory"] if rank == 0 else expected[name]["memory"]
                assert differing(found[name], expected[name]) == [], f"{name}, rank {rank} of {count}"
    assert any(expected["memories travel"]["memory"])


def test_sums_of_ranks_that_are_added_up_have_other_bits() -> None:
    """What an all_reduce would give: each rank adds its groups, then the ranks' sums are added."""
    played = player_of(_settings("client, central"))
    round = played.schedule.round(0)
    with by_this_process(played) as crew:
        totals = [result.sums.total for result in crew.play_groups(played.start, round)]
    one = sum(totals, torch.zeros_like(totals[0]))
    parts = [sum((totals[k] for k in block), torch.zeros_like(one)) for block in blocks([1] * len(totals), 2)]
    assert not torch.equal(one, parts[0] + parts[1])
    torch.testing.assert_close(one, parts[0] + parts[1], rtol=1e-4, atol=1e-6)


def test_memories_come_to_rank_0_and_go_back() -> None:
    """To another number of ranks."""
    whole = torch.arange(30.0).view(10, 3)
    everyone = np.array_split(np.arange(10), 4)

    def there_and_back(group: Group) -> Any:
        share = Share(group.rank, group.size, everyone)
        mine = torch.zeros(share.room(10), 3)
        handed_out(whole if group.first else None, mine, share, group)
        again = gathered(mine, share, group)
        return mine.tolist(), None if again is None else again.tolist()

    (first, again), (second, nothing) = in_ranks(2, there_and_back)
    assert [*first, *second] == whole.tolist() == again
    assert nothing is None

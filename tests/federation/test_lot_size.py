"""How large a lot is: one place says it to settings, noise, engine and the weights of gradients."""

from __future__ import annotations

import pytest

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.federation import lot_size
from dpfl_bench.federation.sampling import LotRule


@pytest.mark.parametrize(
    ("batch_size", "sample_rate", "kind", "expected", "rate"),
    [
        (None, None, "full", 40, 1.0),
        (None, 1.0, "full", 40, 1.0),
        (8, None, "fixed", 8, 0.2),
        (40, None, "fixed", 40, 1.0),
        (None, 0.05, "poisson", 2.0, 0.05),
    ],
)
def test_a_lot_of_forty_records(
    batch_size: int | None, sample_rate: float | None, kind: str, expected: float, rate: float
) -> None:
    lot = batch_size, sample_rate
    assert lot_size.kind(*lot) == kind
    assert lot_size.expected(*lot, 40) == expected
    assert lot_size.rate(*lot, 40) == rate
    assert LotRule(*lot).weight(40) == 1 / expected


def test_lots_are_at_most_as_large_as_the_smallest_client() -> None:
    for batch_size, smallest in ((8, 8), (8, None), (None, 3)):
        lot_size.check(batch_size, smallest)
    with pytest.raises(ConfigError, match="batch_size=8: expected at most the smallest client's records, 7;"):
        lot_size.check(8, 7)

"""How many of a client's records a local step looks at. Without numpy: settings ask this too.

`batch_size` and `sample_rate` are the two settings of the same name; at most one of them is given.
"""

from __future__ import annotations

from typing import Literal

from dpfl_bench.checks.errors import ConfigError

Lots = Literal["full", "fixed", "poisson"]


def kind(batch_size: int | None, sample_rate: float | None) -> Lots:
    """How a local step draws its lot: all records (full), `batch_size` of them without replacement
    (fixed), or each record with probability `sample_rate` (poisson).
    """
    if sample_rate is not None:
        return "poisson" if sample_rate < 1 else "full"
    return "full" if batch_size is None else "fixed"


def expected(batch_size: int | None, sample_rate: float | None, records: int) -> float:
    """Number of records in a lot of a client with so many `records`; under poisson the expected
    number.
    """
    return batch_size or records * (sample_rate or 1)


def rate(batch_size: int | None, sample_rate: float | None, records: int) -> float:
    """Probability that one record of a client with so many `records` is in a lot."""
    if batch_size is not None:
        return min(1.0, batch_size / records)
    return sample_rate or 1.0


def check(batch_size: int | None, smallest: int | None) -> None:
    """Refuse lots that are larger than the smallest client.

    smallest: records of the smallest client, or a bound on them from above; None: not known yet.
    Asked three times, as more is known: of the settings (`config/refusals.py`), of the shards that
    the seed deals (`config/fits.py`), of the records that were dealt (`assembly/data.py`).
    """
    if batch_size is not None and smallest is not None and batch_size > smallest:
        raise ConfigError(
            f"batch_size={batch_size}: expected at most the smallest client's records, {smallest}; lower it,"
            " or use fewer clients"
        )

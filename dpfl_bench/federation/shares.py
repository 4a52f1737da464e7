"""What a partition asks of the records that it is to deal: of the numbers in the data set's file
before any load, then of their own.
"""

from __future__ import annotations


def enough(records: int, clients: int, shards_per_client: int = 1) -> None:
    if clients < 1:
        raise ValueError(f"clients={clients}: expected at least 1")
    if records < clients * shards_per_client:
        each = "at least one record" if shards_per_client == 1 else f"{shards_per_client} shards, none empty"
        raise ValueError(
            f"clients={clients} with {each} each: there are {records} training records: use fewer clients"
        )


def overlapping(records: int, percent: float) -> int:
    """How many records each client draws."""
    size = int(records * percent / 100)
    if not 1 <= size <= records:
        raise ValueError(
            f"partition.percent={percent:g}: expected 0 < percent <= 100 with at least one of the {records}"
            " records"
        )
    return size


def natural(found: int, clients: int) -> None:
    """As many clients as the data set has of its own."""
    if found == 0:
        raise ValueError(
            "partition=natural: this data set has no natural clients: use partition=iid, shards or dirichlet"
        )
    if found != clients:
        remedy = f"set clients={found} (or dataset.clients={clients} where the data are generated)"
        raise ValueError(f"clients={clients}: this data set has {found} natural clients: {remedy}")


def classes(labelled: bool, name: str) -> None:
    """A partition by class needs records that have one each."""
    if not labelled:
        raise ValueError(
            f"partition={name} sorts by class but the targets are no classes: use partition=iid or natural"
        )

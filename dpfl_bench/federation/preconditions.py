"""Preconditions of a partition. They are checked on the YAML file's counts before any load, and
again on the records.
"""

from __future__ import annotations


def enough(records: int, clients: int, shards_per_client: int = 1) -> None:
    """At least one record for each client, or for each of its shards."""
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


def natural(owners: int, clients: int) -> None:
    """As many clients as the data set has of its own."""
    if owners == 0:
        raise ValueError(
            "partition=natural: this data set has no natural clients: use partition=iid or"
            " partition=dirichlet"
        )
    if owners != clients:
        remedy = f"set clients={owners} (or dataset.clients={clients} where the data are generated)"
        raise ValueError(f"clients={clients}: this data set has {owners} natural clients: {remedy}")


def classes(labelled: bool, name: str) -> None:
    """A partition by class needs records that have one each."""
    if not labelled:
        raise ValueError(
            f"partition={name} sorts by class but the targets are no classes: use partition=iid or"
            " partition=natural"
        )

"""What is allowed, and worth a line to the user before a run."""

from __future__ import annotations

from dpfl_bench.config.settings import Settings


def notes(settings: Settings) -> list[str]:
    """One line for each: a delta above one over the number of those whom it protects."""
    if not settings.private:
        return []
    of_records = settings.privacy.unit == "record"
    count = settings.dataset["records"] if of_records else settings.clients
    if count is None or settings.delta * count <= 1:
        return []
    who = "training records" if of_records else "clients"
    return [
        f"delta={settings.delta:g} is above 1 / {count}, one over the number of {who}: a mechanism that gives"
        " away one of them as a whole would do; lower delta"
    ]

"""How long a run is, and how often it evaluates: what follows of what is given."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.checks.ranges import COUNT
from dpfl_bench.checks.ranges import check as check_range
from dpfl_bench.config.settings import Settings, equal_share
from dpfl_bench.config.typed import checked
from dpfl_bench.federation import dealing, lot_size

DEFAULTS = tuple(f"default_{which}_{unit}" for which in ("local", "total") for unit in ("steps", "epochs"))


def sample_rate(config: Mapping[str, Any], reference: Mapping[str, Any]) -> float | None:
    """The rate of Poisson lots: as given, or what `expected_lot` means for the smallest client. One
    over the steps of an epoch, as Opacus has it: 64 of 6000 records make 94 steps.

    reference: the chosen files without what was set.
    """
    lot, given = config["expected_lot"], {k: config[k] for k in ("batch_size", "sample_rate")}
    other = next((f"{k}={v}" for k, v in given.items() if v is not None), None)
    rate: float | None = config["sample_rate"]
    if lot is None or (other and lot == reference["expected_lot"]):
        return rate
    lot = checked("expected_lot", lot, int)
    if lot < 1:
        raise ConfigError(f"expected_lot={lot}: expected at least 1")
    if other:
        raise ConfigError(f"expected_lot={lot}, {other}: expected one of the two")
    records = config["records"]
    if records is None:
        records = _smallest_client(config)
    if records is None:
        raise ConfigError(
            f"expected_lot={lot}: expected to know the records of the smallest client; say records=N, or"
            " sample_rate in its place"
        )
    steps: int = math.ceil(max(1, checked("records", records, int)) / lot)
    return 1 / steps


def _smallest_client(config: Mapping[str, Any]) -> int | None:
    """As far as the files know. Clients out of their range are refused later."""
    known, says = config["dataset"]["records"], dealing.of(config["partition"])
    if known is None or says is None or config["dataset"].get("split") == "client":
        return None
    clients: int = checked("clients", config["clients"], int)
    try:
        return says.smallest(known, max(1, clients), config["partition"])
    except ValueError as error:
        raise ConfigError(str(error)) from None


def lengths(config: Mapping[str, Any]) -> dict[str, int]:
    """Exactly two of rounds, local_steps and total_steps; the third follows."""
    names = ("rounds", "local_steps", "total_steps")
    config = {**config, **_epochs_as_steps(config, "")}
    given = {n: checked(n, config[n], int) for n in names if config[n] is not None}
    if len(given) == 3:
        text = ", ".join(f"{n}={v}" for n, v in given.items())
        raise ConfigError(f"{text}: expected exactly two of the three, the third follows; leave one out")
    if len(given) < 2:
        config = {**config, **_epochs_as_steps(config, "default_")}
    if len(given) < 2 and "local_steps" not in given:
        given["local_steps"] = checked("default_local_steps", config["default_local_steps"], int)
    if len(given) < 2:
        given["total_steps"] = checked("default_total_steps", config["default_total_steps"], int)
    for name, value in given.items():
        check_range(name, value, COUNT)
    if "total_steps" not in given:
        given["total_steps"] = given["rounds"] * given["local_steps"]
    for known, follows in (("local_steps", "rounds"), ("rounds", "local_steps")):
        if known in given and follows not in given:
            given[follows] = _divide(given["total_steps"], known, given[known])
    return given


def _epochs_as_steps(config: Mapping[str, Any], prefix: str) -> dict[str, int]:
    """local_steps and total_steps of local_epochs and total_epochs; the same of the defaults."""
    asked = {
        name: f"{name.removesuffix('epochs')}steps"
        for name in (f"{prefix}local_epochs", f"{prefix}total_epochs")
        if config[name] is not None
    }
    steps = {}
    for name, follows in asked.items():
        epochs = checked(name, config[name], int)
        if config[follows] is not None:
            raise ConfigError(f"{name}={epochs}, {follows}={config[follows]}: expected one of the two")
        if epochs < 1:
            raise ConfigError(f"{name}={epochs}: expected at least 1")
        steps[follows] = epochs * _steps_per_epoch(name, config)
    return steps


def _steps_per_epoch(name: str, config: Mapping[str, Any]) -> int:
    """Values out of their range count as 1: the range is refused later."""
    if config["sample_rate"] is not None:
        rate = checked("sample_rate", config["sample_rate"], float)
        steps: int = round(1 / rate) if 0 < rate <= 1 else 1
        return steps
    if config["batch_size"] is None:
        return 1
    size: int = checked("batch_size", config["batch_size"], int)
    clients: int = checked("clients", config["clients"], int)
    records: int | None = config["records"]
    if records is None and config["dataset"]["records"] is not None:
        records = equal_share(config["dataset"]["records"], config["partition"], max(1, clients))
    if records is None:
        raise ConfigError(
            f"{name}={config[name]}: expected to know a client's records; say records=N, or sample_rate in"
            " place of batch_size"
        )
    return max(1, -(-records // max(1, size)))


def _divide(total: int, name: str, part: int) -> int:
    if total % part:
        every = divisors(total)
        below = [k for k in every if k < part][-2:]
        above = [k for k in every if k > part][:2]
        near = " or ".join(f"{name}={divisor}" for divisor in below + above)
        raise ConfigError(f"{name}={part}: expected a divisor of total_steps={total}; the nearest are {near}")
    return total // part


def divisors(number: int) -> list[int]:
    small = [k for k in range(1, math.isqrt(number) + 1) if number % k == 0]
    return sorted({*small, *(number // k for k in small)})


def evaluation_interval(settings: Settings) -> int:
    """About 25 evaluations; fewer where they would be more than 4 % of the work, but four. A
    gradient is three evaluations.
    """
    often = math.ceil(settings.rounds / 25)
    each, everything = settings.records_per_client, settings.dataset["records"]
    if not each or everything is None:
        return often
    lot = lot_size.expected(settings.batch_size, settings.sample_rate, each)
    work = 3 * settings.sampled_clients * settings.local_steps * lot
    rarely: int = math.ceil(25 * everything / work)
    return max(often, min(rarely, math.ceil(settings.rounds / 4)))

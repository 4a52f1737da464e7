"""Whether a finished run is of the data files that are there now: its folder is named by settings, and files change without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dpfl_bench.results.folder import RunFolder
from dpfl_bench.settings import ConfigError, Settings


def check(made: Settings, folder: RunFolder, result: dict[str, Any]) -> None:
    """Refuse to take a result for one of other files: where no checksum holds them, their names and sizes have to be the same."""
    _check(folder, result, _now(made.dataset))


def check_all(asked: Iterable[tuple[Settings, RunFolder]]) -> list[str]:
    """The same of every run of a sweep; each data set is looked at once."""
    known: dict[str, str | None] = {}
    errors = []
    for made, folder in asked:
        name = repr(sorted(made.dataset.items(), key=lambda item: item[0]))
        if name not in known:
            known[name] = _now(made.dataset)
        result = folder.finished if known[name] else None
        try:
            _check(folder, result or {}, known[name])
        except ConfigError as error:
            errors.append(str(error))
    return errors


def _now(dataset: Mapping[str, Any]) -> str | None:
    if "root" not in dataset:  # without files
        return None
    from dpfl_bench.data.presence import fingerprint  # with numpy, which a dry run mostly does without

    return fingerprint(dataset)


def _check(folder: RunFolder, result: dict[str, Any], now: str | None) -> None:
    data = result.get("data") or {}
    then = data.get("files")
    if now and then and now != then:
        raise ConfigError(
            f"{folder.path}: computed on other data files than are there now ({data.get('source')}); "
            "expected the same names and sizes; say another outputs=, or delete the folder to compute it anew"
        )

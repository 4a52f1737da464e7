"""Every algorithm there is: one for each conf/algo/*.yaml, at each unit of privacy."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dpfl_bench.config import compose
from dpfl_bench.config.settings import Settings
from helpers.federations import CONF, TINY, settings_of


@dataclass(frozen=True)
class Algo:
    """One conf/algo/*.yaml, ours or of a folder named in DPFL_TEST_CONF, at client level or with
    the overrides of record level.
    """

    name: str
    folder: str | None
    overrides: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.name}-record" if self.overrides else self.name

    def settings(self, **changes: Any) -> Settings:
        """On TINY, with these settings instead of its own. Composing takes a while, so what needs
        no composing is replaced.
        """
        poisson = _poisson(self.name, self.folder)  # lots are part of it: ones that suit TINY
        lots = ("sample_rate=0.3",) if poisson else ()
        settings = settings_of(f"algo={self.name}", *TINY, *lots, *self.overrides, config_dir=self.folder)
        if poisson and "sample_rate" not in changes:
            changes = {k: v for k, v in changes.items() if k != "batch_size"}
        if settings.algo.get("warm_rounds", 0) is None:  # so that TINY's few rounds are not all of them
            changes = {**changes, "algo": {**settings.algo, "warm_rounds": 1}}
        if "privacy" in changes:
            changes["privacy"] = dataclasses.replace(settings.privacy, **changes["privacy"])
        changed = dataclasses.replace(settings, **changes)
        if changed.private and changed.privacy.unit == "record" and changed.lots != "full":
            matching: Any = "replace_one" if changed.lots == "fixed" else "add_remove_one"
            changed = dataclasses.replace(
                changed, privacy=dataclasses.replace(changed.privacy, neighbours=matching)
            )
        return changed

    @property
    def warm(self) -> bool:
        """Whether the model stands still in its first rounds."""
        return self.settings().algo.get("warm_rounds", 0) != 0


@cache
def _poisson(name: str, folder: str | None) -> bool:
    """Whether the algorithm's file asks for Poisson lots. On TINY, which Hydra composes anyway."""
    config = compose.composed((f"algo={name}", *TINY), folder).config
    return config["expected_lot"] is not None or config["sample_rate"] is not None


def _algorithms() -> list[Algo]:
    named = os.environ.get("DPFL_TEST_CONF", "")
    folders: list[str | None] = [None, *(folder for folder in named.split(os.pathsep) if folder)]
    clients = [Algo(name, folder) for folder in folders for name in _names(Path(folder) if folder else CONF)]
    return [algo for client in clients for algo in (client, *_at_record_level(client))]


def _at_record_level(client: Algo) -> list[Algo]:
    settings = client.settings()
    if not settings.private or settings.privacy.unit == "record" or settings.privacy.bound != "clip":
        return []
    naive = ("algo.naive=true",) if "naive" in settings.algo else ()
    return [Algo(client.name, client.folder, ("privacy=record", *naive))]


def _names(folder: Path) -> list[str]:
    paths = sorted((folder / "algo").rglob("*.yaml"))
    return [
        path.relative_to(folder / "algo").with_suffix("").as_posix() for path in paths if path.stem[0] != "_"
    ]


ALGORITHMS = _algorithms()

"""What a half-typed setting may become: by Hydra's own completion, and the words of a setting that
takes one of a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin, get_type_hints


def settings(word: str, others: Sequence[str], config_dir: str | None = None) -> list[str]:
    """word: the half-typed one. others: the settings before it; they choose what keys there are."""
    from hydra._internal.core_plugins.bash_completion import BashCompletion
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from dpfl_bench.config.hydra_loader import loader

    kept, _, last = word.rpartition(",") if "=" in word else ("", "", word)  # eps=1,2: the last of them
    asked = f"{word.partition('=')[0]}={last}" if kept else word
    hydras = BashCompletion(loader(config_dir))
    found: list[str] = []
    for line in ([*others, asked], [asked]):  # alone, where those before it are no settings yet
        with suppress(HydraException, OmegaConfBaseException, ValueError):
            found = hydras._query(config_name="config", line=" ".join(line))
            break
    hidden = "paper/" if word else ("paper/", "hydra")  # artefacts are of `reproduce`
    found = [each for each in found if "=_" not in each and not each.startswith(hidden)]
    if "=" in asked:
        name = asked.partition("=")[0]
        found += [option for each in _words(name) if (option := f"{name}={each}").startswith(asked)]
    return sorted({f"{kept},{each.partition('=')[2]}" if kept else each for each in found})


def _words(key: str) -> list[str]:
    """The words that a setting takes, if it takes one of a few."""
    from dpfl_bench.config.settings import Settings

    kind: Any = Settings
    for name in key.split("."):
        hints = get_type_hints(kind) if hasattr(kind, "__dataclass_fields__") else {}
        kind = hints.get(name)
    if kind is bool:
        return ["true", "false"]
    kinds = [kind, *get_args(kind)]
    return [str(each) for k in kinds if get_origin(k) is Literal for each in get_args(k)]

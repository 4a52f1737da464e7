"""Hydra's part: overrides in, composed config out. Importing hydra takes a while, so only functions do."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpfl_bench.settings import ConfigError

GROUPS = ("algo", "dataset", "model", "partition", "privacy")


@dataclass(frozen=True)
class Composed:
    config: dict[str, Any]  # as composed, interpolations resolved
    reference: dict[str, Any]  # the same group choices and nothing else: which keys exist, and of which type
    overrides: tuple[str, ...]

    def yaml(self) -> str:
        from omegaconf import OmegaConf

        return OmegaConf.to_yaml(OmegaConf.create(self.config))


def composed(overrides: Sequence[str], config_dir: str | None = None, config_name: str = "config") -> Composed:
    """Compose one job. config_dir is searched first, so it can add algorithms, data sets or experiments."""
    from hydra import compose
    from hydra.errors import HydraException
    from omegaconf import OmegaConf, open_dict
    from omegaconf.errors import OmegaConfBaseException

    try:
        with _searching(config_dir):
            config = compose(config_name, list(overrides), return_hydra_config=True)
            chosen = config.hydra.runtime.choices  # a primary config that holds all keys itself chooses nothing
            choices = tuple(f"{group}={chosen[group]}" for group in GROUPS if group in chosen)
            reference = _reference(choices, Path(config_dir or "").absolute(), config_name)
        with open_dict(config):
            del config["hydra"]
        return Composed(_plain(OmegaConf, config), reference, tuple(overrides))
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from None
    except ConfigError:
        raise
    except ValueError as error:  # Hydra's own for `algo=null` or `algo=3`; it does not say which override it means
        raise ConfigError(f"{' '.join(overrides)}: {_one_line(error)}") from None


@lru_cache(maxsize=256)
def _reference(choices: tuple[str, ...], searched: Path, config_name: str) -> dict[str, Any]:
    """Composed once for all jobs of a sweep that choose alike. `searched` only tells folders apart: the caller has set the path."""
    from hydra import compose
    from omegaconf import OmegaConf

    return _plain(OmegaConf, compose(config_name, list(choices)))


def shown(part: str, overrides: Sequence[str], config_dir: str | None, config_name: str) -> str:
    """Hydra's --cfg: the composed config as YAML, unresolved; `job` without Hydra's own, `hydra` only that, `all` both."""
    from hydra import compose
    from omegaconf import OmegaConf, open_dict

    composed(overrides, config_dir, config_name)  # for its errors
    with _searching(config_dir):
        config = compose(config_name, list(overrides), return_hydra_config=True)
    with open_dict(config):
        hydra = config.pop("hydra")
    if part == "job":
        return OmegaConf.to_yaml(config)
    return OmegaConf.to_yaml(OmegaConf.create({"hydra": hydra} if part == "hydra" else {**config, "hydra": hydra}))


@contextmanager
def _searching(config_dir: str | None) -> Iterator[None]:
    """Hydra with the user's folder before ours. Its public hydra.searchpath comes after ours and holds no primary config."""
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.global_hydra import GlobalHydra

    path = create_config_search_path("pkg://dpfl_bench.conf")
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise ConfigError(f"-cd {config_dir}: expected a folder with configs, there is none of that name; correct the path")
        path.prepend("user", f"file://{Path(config_dir).absolute()}", "main")
    version.setbase("1.3")
    GlobalHydra.instance().clear()
    Hydra.create_main_hydra2("dpfl-bench", path)
    try:
        yield
    finally:
        GlobalHydra.instance().clear()


def _plain(omegaconf: Any, config: Any) -> dict[str, Any]:
    plain: dict[str, Any] = omegaconf.to_container(config, resolve=True)
    return plain


def _one_line(error: Exception) -> str:
    """Hydra says what was wrong in several lines; the options it lists are worth keeping."""
    text = str(error).split("Config search path:")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("To append to your config")]
    cause = str(error.__cause__).splitlines()[0] if error.__cause__ else ""
    said = "; ".join([*lines, *([cause] if cause and cause not in lines[0] else [])])
    return f"{said} (dpfl-bench run --cfg job shows every key, dpfl-bench list the choices)"


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Hydra's sweep syntax (comma lists, ranges, globs) as one list of overrides for each job."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
        batches = BasicSweeper.split_arguments(parsed, max_batch_size=None)
    except HydraException as error:
        raise ConfigError(_one_line(error)) from None
    return [list(job) for batch in batches for job in batch]


def parser(prog: str) -> argparse.ArgumentParser:
    """The flags of Hydra that the verbs understand, under Hydra's names."""
    made = argparse.ArgumentParser(prog=prog, add_help=False)
    made.add_argument("overrides", nargs="*", help="key=value, group=choice")
    made.add_argument("--multirun", "-m", action="store_true", help="run every combination of comma-separated values")
    made.add_argument("--config-dir", "-cd", help="a folder searched for more configs (algo/, dataset/, ...)")
    made.add_argument("--config-name", "-cn", default="config", help="the primary config")
    made.add_argument("--cfg", "-c", choices=["job", "hydra", "all"], help="show the config instead of running")
    made.add_argument("--help", "-h", action="store_true", help="this text")
    return made

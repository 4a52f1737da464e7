"""Hydra's part: overrides in, composed config out. Importing hydra takes a while, so only functions
do.
"""

from __future__ import annotations

import argparse
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError

GROUPS = ("algo", "dataset", "model", "partition", "privacy")
LAUNCHERS = ("joblib", "slurm")
NAME = re.compile(r"\$\{\.*[A-Za-z_][\w.\[\]]*\}")  # a reference to another key: ${clients}, ${.shape[0]}


@dataclass(frozen=True)
class Composed:
    config: dict[str, Any]  # as composed, interpolations resolved
    reference: dict[str, Any]  # the same group choices and nothing else: which keys exist, and of which type
    overrides: tuple[str, ...]

    def yaml(self) -> str:
        from omegaconf import OmegaConf

        return OmegaConf.to_yaml(OmegaConf.create(self.config))


def composed(
    overrides: Sequence[str], config_dir: str | None = None, config_name: str = "config"
) -> Composed:
    """Compose one job. config_dir is searched first, so it can add algorithms, data sets or
    experiments.
    """
    return Composer(config_dir, config_name).job(overrides)


@lru_cache(maxsize=1)
def composer(config_dir: str | None, config_name: str) -> Composer:
    """One for all jobs of a sweep that this process works on. It reads every file once."""
    return Composer(config_dir, config_name)


@dataclass(frozen=True)
class Expanded:
    jobs: list[tuple[str, ...]]  # the overrides of each
    launcher: dict[str, Any]  # hydra.launcher: the class and its options


class Composer:
    """Hydra composes once for each choice of groups; a job's values are set on a copy of that, by
    Hydra's own function.
    """

    def __init__(self, config_dir: str | None, config_name: str) -> None:
        self._loader, self._name = _loader(config_dir), config_name
        self._parse = lru_cache(maxsize=None)(self._parsed)
        self._repository = lru_cache(maxsize=None)(self._searched)
        self._is_group = lru_cache(maxsize=None)(lambda key, hydra: self._repository(hydra).group_exists(key))
        self._base = lru_cache(maxsize=None)(self._based)
        self._reference = lru_cache(maxsize=None)(self._referred)

    def job(self, overrides: Sequence[str]) -> Composed:
        with _told(overrides):
            parsed = [self._parse(override) for override in overrides]
            if any(override.is_sweep_override() for override in parsed):
                self._whole(tuple(overrides))  # refuses it
            hydra = tuple(o.input_line for o in parsed if o.is_hydra_override())
            choosing = [
                o.is_hydra_override() or (self._is_group(o.key_or_group, hydra) and not _is_dict(o))
                for o in parsed
            ]
            base = self._base(
                tuple(o.input_line for o, chooses in zip(parsed, choosing, strict=True) if chooses), hydra
            )
            if isinstance(base, Exception):
                raise base
            return Composed(
                base.changed([o for o, chooses in zip(parsed, choosing, strict=True) if not chooses]),
                base.reference,
                tuple(overrides),
            )

    def sweep(self, overrides: Sequence[str]) -> Expanded:
        """Hydra's sweep syntax (comma lists, ranges, globs, hydra.sweeper.params) as one list of
        overrides for each job.
        """
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
        from hydra.core.override_parser.overrides_parser import OverridesParser
        from omegaconf import OmegaConf

        with _told(overrides):
            parsed = [self._parse(override) for override in overrides]
            for override in parsed:
                if override.key_or_group.startswith(
                    "hydra.sweeper.params"
                ):  # null in Hydra, whose own attempt to set it fails
                    raise ConfigError(
                        f"{override.input_line}: expected in a config file (-cn); here, say what is swept by"
                        " itself (eps=1,2)"
                    )
            hydra = self._master(parsed).hydra
            sweeper = _plain(OmegaConf, hydra.sweeper)
            if sweeper.pop("_target_") != f"{BasicSweeper.__module__}.BasicSweeper":
                raise ConfigError(
                    "hydra/sweeper: expected basic; say what is swept on the command line or in"
                    " hydra.sweeper.params"
                )
            params = [f"{key}={value}" for key, value in (sweeper["params"] or {}).items()]
            task = [o.input_line for o in parsed if not o.is_hydra_override()]
            ours = tuple(o.input_line for o in parsed if o.key_or_group == "hydra.searchpath")
            swept = OverridesParser.create(self._loader).parse_overrides([*params, *task])
            (jobs,) = BasicSweeper.split_arguments(swept, max_batch_size=None)
            if not jobs:
                raise ConfigError(
                    f"{' '.join([*params, *task])}: expected something to sweep, a glob() or range() among"
                    " them is empty"
                )
            return Expanded([(*ours, *job) for job in jobs], _plain(OmegaConf, hydra.launcher))

    def shown(self, part: str, overrides: Sequence[str]) -> str:
        """Hydra's --cfg: the composed config as YAML, unresolved; `job` without Hydra's own,
        `hydra` only that, `all` both.
        """
        from omegaconf import OmegaConf, open_dict

        self.job(overrides)  # for its errors
        config = self._whole(tuple(overrides))
        with open_dict(config):
            hydra = config.pop("hydra")
        if part == "job":
            return OmegaConf.to_yaml(config)
        return OmegaConf.to_yaml(
            OmegaConf.create({"hydra": hydra} if part == "hydra" else {**config, "hydra": hydra})
        )

    def _parsed(self, override: str) -> Any:
        from hydra.core.override_parser.overrides_parser import OverridesParser

        (parsed,) = OverridesParser.create().parse_overrides([override])
        return parsed

    def _searched(self, hydra: tuple[str, ...]) -> Any:
        """Where groups are looked for: hydra.searchpath adds to it."""
        return self._loader._parse_overrides_and_create_caching_repo(self._name, list(hydra))[1]

    def _based(self, groups: tuple[str, ...], hydra: tuple[str, ...]) -> _Base | Exception:
        """What Hydra makes of the groups; or why it does not, so that a mistake in every job costs
        once.
        """
        from omegaconf import OmegaConf, open_dict

        try:
            config = self._whole(groups)
            chosen = (
                config.hydra.runtime.choices
            )  # a primary config that holds all keys itself chooses nothing
            choices = tuple(f"{group}={chosen[group]}" for group in GROUPS if group in chosen)
            with open_dict(config):
                del config["hydra"]
            alone = {*hydra, *choices}.issuperset(groups)  # no group that sets other groups' keys
            return _Base.of(
                config, _plain(OmegaConf, config if alone else self._reference((*hydra, *choices)))
            )
        except Exception as error:
            return error

    def _referred(self, overrides: tuple[str, ...]) -> Any:
        from omegaconf import open_dict

        config = self._whole(overrides)
        with open_dict(config):
            del config["hydra"]
        return config

    def _whole(self, overrides: tuple[str, ...]) -> Any:
        from hydra.types import RunMode

        return self._loader.load_configuration(
            self._name, list(overrides), run_mode=RunMode.RUN, from_shell=False
        )

    def _master(self, parsed: Sequence[Any]) -> Any:
        """Hydra's own config of a sweep. It ignores what is swept, so a value may have no key yet:
        then by the groups alone.
        """
        from hydra.errors import HydraException
        from hydra.types import RunMode

        repository = self._repository(())
        groups = [o for o in parsed if o.is_hydra_override() or repository.group_exists(o.key_or_group)]
        for overrides in (parsed, groups):
            lines = [o.input_line for o in overrides]
            try:
                return self._loader.load_configuration(
                    self._name, lines, run_mode=RunMode.MULTIRUN, from_shell=False
                )
            except HydraException as error:
                refused = error
        raise refused


@dataclass(frozen=True)
class _Base:
    """A composed config before any value is set, pickled: that is quicker to copy than the config
    itself.
    """

    config: bytes
    plain: (
        bytes | None
    )  # as dictionaries, resolved; None where references are more than the names of other keys
    referred: frozenset[str]  # parts of the names that other keys refer to
    reference: dict[str, Any]

    @staticmethod
    def of(config: Any, reference: dict[str, Any]) -> _Base:
        from omegaconf import OmegaConf

        references = [
            leaf for leaf in _leaves(OmegaConf.to_container(config)) if isinstance(leaf, str) and "${" in leaf
        ]
        plain = pickle.dumps(_plain(OmegaConf, config)) if all(map(NAME.fullmatch, references)) else None
        return _Base(
            pickle.dumps(config), plain, frozenset(re.findall(r"\w+", " ".join(references))), reference
        )

    def changed(self, overrides: Sequence[Any]) -> dict[str, Any]:
        """A number or word in place of another is set in the dictionaries; whatever is less plain,
        by Hydra's own function.
        """
        if self.plain is not None:
            plain: dict[str, Any] = pickle.loads(self.plain)
            if all(_replaced(plain, override, self.referred) for override in overrides):
                return plain
        from hydra._internal.config_loader_impl import ConfigLoaderImpl
        from omegaconf import OmegaConf

        config = pickle.loads(self.config)
        ConfigLoaderImpl._apply_overrides_to_config(list(overrides), config)
        return _plain(OmegaConf, config)


def _leaves(node: Any) -> Iterator[Any]:
    if isinstance(node, dict | list):
        for inner in node.values() if isinstance(node, dict) else node:
            yield from _leaves(inner)
    else:
        yield node


def _replaced(plain: dict[str, Any], override: Any, referred: frozenset[str]) -> bool:
    """Set one value, if it is a plain one in the place of a plain one that no other key refers to."""
    value, (*path, last) = override.value(), override.key_or_group.split(".")
    if (
        override.type.name != "CHANGE"
        or override.package
        or isinstance(value, dict | list)
        or "${" in str(value)
        or value == "???"
    ):
        return False
    node: Any = plain
    for key in path:
        node = node.get(key) if isinstance(node, dict) else None
    if (
        not isinstance(node, dict)
        or last not in node
        or isinstance(node[last], dict | list)
        or not referred.isdisjoint((*path, last))
    ):
        return False
    node[last] = value
    return True


def _is_dict(override: Any) -> bool:
    return isinstance(override.value(), dict)


def _loader(config_dir: str | None) -> Any:
    """Hydra with the user's folder before ours. Its public hydra.searchpath comes after ours and
    holds no primary config.
    """
    from hydra import version
    from hydra._internal.hydra import Hydra
    from hydra._internal.utils import create_config_search_path
    from hydra.core.config_store import ConfigStore
    from hydra.core.global_hydra import GlobalHydra

    path = create_config_search_path("pkg://dpfl_bench.conf")
    if config_dir is not None:
        if not Path(config_dir).is_dir():
            raise ConfigError(
                f"-cd {config_dir}: expected a folder with configs, there is none of that name; correct the"
                " path"
            )
        path.prepend("user", f"file://{Path(config_dir).absolute()}", "main")
    version.setbase("1.3")
    GlobalHydra.instance().clear()
    try:
        loader = Hydra.create_main_hydra2("dpfl-bench", path).config_loader
    finally:
        GlobalHydra.instance().clear()
    plugins = ConfigStore.instance().repo.get("hydra", {}).get("launcher", {})
    for name in LAUNCHERS:  # Hydra's own plugins of that name are others: it would put their keys under ours
        plugins.pop(f"{name}.yaml", None)
    return loader


def _plain(omegaconf: Any, config: Any) -> dict[str, Any]:
    plain: dict[str, Any] = omegaconf.to_container(config, resolve=True)
    return plain


@contextmanager
def _told(overrides: Sequence[str]) -> Iterator[None]:
    """What Hydra and OmegaConf refuse, in one line."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(_one_line(error)) from None
    except ConfigError:
        raise
    except (
        ValueError
    ) as error:  # Hydra's own for `algo=null` or `algo=3`; it does not say which override it means
        raise ConfigError(f"{' '.join(overrides)}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    """Hydra says what was wrong in several lines; the options it lists are worth keeping."""
    text = str(error).split("Config search path:")[0]
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith("To append to your config")
    ]
    cause = str(error.__cause__).splitlines()[0] if error.__cause__ else ""
    named = getattr(error, "override", "")  # which one could not be read
    said = "; ".join(
        [
            *([named] if named and named not in text else []),
            *lines,
            *([cause] if cause and cause not in lines[0] else []),
        ]
    )
    return f"{said} (dpfl-bench run --cfg job shows every key, dpfl-bench list the choices)"


def parser(prog: str) -> argparse.ArgumentParser:
    """The flags of Hydra that the verbs understand, under Hydra's names."""
    made = argparse.ArgumentParser(prog=prog, add_help=False)
    made.add_argument("overrides", nargs="*", help="key=value, group=choice")
    made.add_argument(
        "--multirun", "-m", action="store_true", help="run every combination of comma-separated values"
    )
    made.add_argument("--config-dir", "-cd", help="a folder searched for more configs (algo/, dataset/, ...)")
    made.add_argument("--config-name", "-cn", default="config", help="the primary config")
    made.add_argument(
        "--cfg", "-c", choices=["job", "hydra", "all"], help="show the config instead of running"
    )
    made.add_argument("--help", "-h", action="store_true", help="this text")
    return made

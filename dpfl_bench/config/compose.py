"""Hydra's part: overrides in, composed configs out. Importing hydra takes a while, so only
functions do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import words
from dpfl_bench.config.catalogue import GROUPS
from dpfl_bench.config.hydra_loader import loader, ours_alone, refusals, with_hydras_defaults
from dpfl_bench.config.template import Template, plain
from dpfl_bench.config.unknown import Asked

POINTS = "points"  # the key of config.yaml: what a sweep sets together
VALUES = ("outputs",)  # keys that are no group, though a folder of that name lies beside the user's YAML


@dataclass(frozen=True)
class Composed:
    config: dict[str, Any]  # as composed, interpolations resolved
    reference: dict[str, Any]  # the same group choices and nothing else: which keys exist, and of which type
    overrides: tuple[str, ...]

    @property
    def by_name(self) -> dict[str, Any]:
        """Every single value by its dotted name."""
        return dict(_named(self.config))

    def yaml(self) -> str:
        """As OmegaConf.to_yaml has it, which would first make a config of the dictionaries."""
        import yaml
        from omegaconf._utils import get_omega_conf_dumper

        how = {"default_flow_style": False, "allow_unicode": True, "sort_keys": False}
        return str(yaml.dump(self.config, Dumper=get_omega_conf_dumper(), **how))


def _named(node: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in node.items():
        if isinstance(value, Mapping):
            yield from _named(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def composed(
    overrides: Sequence[str], config_dir: str | None = None, config_name: str = "config"
) -> Composed:
    """Compose one job. config_dir is searched first, so it can add algorithms, data sets or
    experiments.
    """
    ours_alone = config_dir is None and not any("hydra.searchpath" in override for override in overrides)
    return (_ours(config_name) if ours_alone else Composer(config_dir, config_name)).job(overrides)


def sweeps(overrides: Sequence[str]) -> bool:
    """Whether a key has several values."""
    with refusals(Asked(overrides)):
        return any(_parsed(override).is_sweep_override() for override in overrides)


@lru_cache(maxsize=4)
def _ours(config_name: str) -> Composer:
    """The package's own files do not change while it runs. A user's may, between two jobs."""
    return Composer(None, config_name)


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
        self._loader, self._name, self._users = loader(config_dir), config_name, config_dir is not None
        self._config_dir = config_dir
        self._own_hydra = config_dir is not None and (Path(config_dir) / "hydra").is_dir()
        self._repository = lru_cache(maxsize=None)(self._searched)
        self._is_group = lru_cache(maxsize=None)(
            lambda key, hydra: key not in VALUES and self._repository(hydra).group_exists(key)
        )
        self._base = lru_cache(maxsize=None)(self._based)
        self._reference = lru_cache(maxsize=None)(self._referred)

    def job(self, overrides: Sequence[str]) -> Composed:
        asked = Asked(overrides, self._config_dir)
        with refusals(asked):
            asked.overrides = parsed = [_parsed(override) for override in overrides]
            if any(override.is_sweep_override() for override in parsed):
                self._whole(tuple(overrides))  # refuses it
            hydra = tuple(o.input_line for o in parsed if o.is_hydra_override())
            choosing = [
                o.is_hydra_override() or (self._is_group(o.key_or_group, hydra) and not _is_dict(o))
                for o in parsed
            ]
            shared = self if self._users or hydra else _ours(self._name)
            base = shared._base(
                tuple(o.input_line for o, chooses in zip(parsed, choosing, strict=True) if chooses), hydra
            )
            if isinstance(base, Exception):
                raise base
            asked.reference = base.reference
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

        asked = Asked(overrides, self._config_dir)
        with refusals(asked):
            asked.overrides = parsed = [_parsed(override) for override in overrides]
            for override in parsed:
                if override.key_or_group.startswith(
                    "hydra.sweeper.params"
                ):  # null in Hydra, whose own attempt to set it fails
                    raise ConfigError(
                        f"{override.input_line}: expected in a config file (-cn); here, say what is swept by"
                        " itself (eps=1,2)"
                    )
            master = self._master(parsed)
            hydra = master.hydra
            sweeper = plain(hydra.sweeper)
            if sweeper.pop("_target_") != f"{BasicSweeper.__module__}.BasicSweeper":
                raise ConfigError(
                    "hydra/sweeper: expected basic; say what is swept on the command line or in"
                    " hydra.sweeper.params"
                )
            params = [f"{key}={value}" for key, value in (sweeper["params"] or {}).items()]
            task = [o.input_line for o in parsed if not o.is_hydra_override() and o.key_or_group != POINTS]
            ours = tuple(o.input_line for o in parsed if o.key_or_group == "hydra.searchpath")
            swept = OverridesParser.create(self._loader).parse_overrides([*params, *task])
            (jobs,) = BasicSweeper.split_arguments(swept, max_batch_size=None)
            if not jobs:
                raise ConfigError(
                    f"{' '.join([*params, *task])}: expected something to sweep, a glob() or range() among"
                    " them is empty"
                )
            points = words.of_points(_unwrapped(master.get(POINTS)))
            _refuse_twice(points, [*params, *task])
            typed = any(o.key_or_group == POINTS for o in parsed)
            alone = () if typed or not points else (f"{POINTS}=null",)  # of an experiment's file
            every = [(*alone, *point) for point in points] or [()]
            return Expanded([(*ours, *job, *point) for job in jobs for point in every], plain(hydra.launcher))

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

    def _searched(self, hydra: tuple[str, ...]) -> Any:
        """Where groups are looked for: hydra.searchpath adds to it."""
        return self._loader._parse_overrides_and_create_caching_repo(self._name, list(hydra))[1]

    def _based(self, groups: tuple[str, ...], hydra: tuple[str, ...]) -> Template | Exception:
        """What Hydra makes of the groups; or why it does not, so that a mistake in every job costs
        once.
        """
        try:
            # a primary config that holds all keys itself chooses nothing
            config, chosen = self._without_hydra(groups, hydra)
            choices = tuple(f"{group}={chosen[group]}" for group in GROUPS if group in chosen)
            alone = {*hydra, *choices}.issuperset(groups)  # no group that sets other groups' keys
            return Template.of(config, plain(config) if alone else self._reference(choices, hydra))
        except Exception as error:
            return error

    def _referred(self, choices: tuple[str, ...], hydra: tuple[str, ...]) -> dict[str, Any]:
        return plain(self._without_hydra((*hydra, *choices), hydra)[0])

    def _without_hydra(self, overrides: tuple[str, ...], hydra: tuple[str, ...]) -> tuple[Any, Any]:
        """The config but for Hydra's own, and which file was chosen of each group.

        Hydra's own takes most of the time to compose. Whatever needs it, or is refused without it,
        is composed with it.
        """
        from omegaconf import open_dict

        if not hydra and (found := ours_alone(self._loader, self._name, overrides)):
            return found
        config = self._whole(overrides)
        chosen = config.hydra.runtime.choices
        with open_dict(config):
            del config["hydra"]
        return config, chosen

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
        parsed = [o for o in parsed if o.key_or_group not in VALUES]
        groups = [o for o in parsed if o.is_hydra_override() or repository.group_exists(o.key_or_group)]
        if not self._own_hydra and not any(o.is_hydra_override() for o in parsed):
            lines = [o.input_line for o in parsed if o in groups or o.key_or_group == POINTS]
            if found := ours_alone(self._loader, self._name, lines, sweeping=True):
                return with_hydras_defaults(found[0])
        for overrides in (parsed, groups):
            lines = [o.input_line for o in overrides]
            try:
                return self._loader.load_configuration(
                    self._name, lines, run_mode=RunMode.MULTIRUN, from_shell=False
                )
            except HydraException as error:
                refused = error
        raise refused


@cache
def _parsed(override: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (parsed,) = OverridesParser.create().parse_overrides([override])
    return parsed


def _is_dict(override: Any) -> bool:
    return isinstance(override.value(), dict)


def _unwrapped(node: Any) -> Any:
    """A list of OmegaConf's as a plain one, references as they are written."""
    from omegaconf import OmegaConf

    return OmegaConf.to_container(node) if OmegaConf.is_config(node) else node


def _refuse_twice(points: Sequence[tuple[str, ...]], given: Sequence[str]) -> None:
    """A key of the points that is also set beside them: one of the two would be lost."""
    keys = {word.partition("=")[0] for point in points for word in point}
    for word in given:
        if (key := word.partition("=")[0]) in keys:
            raise ConfigError(f"{word}: expected {key} in the points or beside them, not both")

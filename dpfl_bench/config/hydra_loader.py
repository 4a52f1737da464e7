"""Hydra's loader over our YAML files and the user's, and what Hydra refuses in one line. Importing
hydra takes a while, so only functions do.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dpfl_bench.checks import yaml_file
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import catalogue, unknown, user_keys
from dpfl_bench.machine import imports

RECORDED = ".hydra"  # the folder of a run's own config, which `replay` composes
PACKAGED: dict[str, bytes] = {}  # files of packages: a process reads them once, as it does modules


def loader(config_dir: str | None) -> Any:
    """Hydra's loader with the user's folder before ours. Hydra's public searchpath will not do: it
    comes after ours, and holds no primary config.
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
        if Path(config_dir).name != RECORDED:
            imports.add_folder(config_dir)
    version.setbase("1.3")
    GlobalHydra.instance().clear()
    try:
        hydras: Any = Hydra.create_main_hydra2("dpfl-bench", path).config_loader
    finally:
        GlobalHydra.instance().clear()
    users: dict[str, bytes] = {}  # files, which may have changed when the next loader is made
    for source in hydras.repository.get_sources():
        if source.scheme() in ("pkg", "file"):
            packaged = source.scheme() == "pkg"
            source.load_config = _reading_once(source, PACKAGED if packaged else users, not packaged)
    plugins = ConfigStore.instance().repo.get("hydra", {}).get("launcher", {})
    for name in catalogue.launchers(config_dir):  # Hydra would mix the keys of its plugin of that name in
        plugins.pop(f"{name}.yaml", None)
    return hydras


def _reading_once(source: Any, kept: dict[str, bytes], users: bool) -> Callable[[str], Any]:
    """Its `load_config`, which reads a file once: reading is a third of composing. A user's file is
    checked, and of a data set gets the keys that it leaves out.

    Hydra alters what it has read, so each time gets a copy. It is pickled, for that is quicker to
    copy.
    """
    read: Callable[[str], Any] = source.load_config
    place = source.full_path()

    def load(config_path: str) -> Any:
        name = f"{place}/{config_path}"
        if name not in kept:
            kept[name] = pickle.dumps(_of_user(source, read, config_path) if users else read(config_path))
        return pickle.loads(kept[name])

    return load


def _of_user(source: Any, read: Callable[[str], Any], config_path: str) -> Any:
    """A user's file, refused in one line where it cannot be read."""
    file = Path(source.path) / f"{config_path.removesuffix('.yaml')}.yaml"
    if file.is_file():  # else Hydra says what there is
        yaml_file.loaded(file)
    result = read(config_path)
    if file.parent.name == "dataset":
        user_keys.complete(result.config, file)
    return result


def ours_alone(
    loader: Any, name: str, overrides: Sequence[str], sweeping: bool = False
) -> tuple[Any, Any] | None:
    """What `load_configuration` makes of overrides, and the choices of groups, without Hydra's own
    config. None where that does not do: a file speaks of Hydra, or something is to be refused.
    sweeping: what is swept is left out.
    """
    from hydra._internal.defaults_list import create_defaults_list
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    try:
        parsed, repository = loader._parse_overrides_and_create_caching_repo(name, list(overrides))
        found = create_defaults_list(repository, name, parsed, prepend_hydra=False, skip_missing=sweeping)
        config = loader._compose_config_from_defaults_list(found.defaults, repository)
        OmegaConf.set_struct(config, True)
        loader._apply_overrides_to_config(found.config_overrides, config)
    except (HydraException, OmegaConfBaseException, ValueError):
        return None
    return None if "hydra" in list(config) else (config, found.overrides.known_choices)


def with_hydras_defaults(config: Any) -> Any:
    """The config with what Hydra takes where nothing is said: who makes a sweep's jobs, and who
    runs them.
    """
    from hydra._internal.core_plugins.basic_launcher import BasicLauncher
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from omegaconf import open_dict

    named = {"sweeper": BasicSweeper, "launcher": BasicLauncher}
    with open_dict(config):
        config.hydra = {
            key: {"_target_": f"{each.__module__}.{each.__name__}"} for key, each in named.items()
        }
        config.hydra.sweeper.params = None
    return config


@contextmanager
def refusals(asked: unknown.Asked) -> Iterator[None]:
    """What Hydra and OmegaConf refuse inside, as a ConfigError of one line."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise ConfigError(unknown.of_hydra(error, asked) or _one_line(error)) from None
    except ConfigError:
        raise
    except (
        ValueError
    ) as error:  # of Hydra for `algo=null` or `algo=3`: it does not say which override it means
        ours = unknown.of_hydra(error, asked)
        raise ConfigError(ours or f"{' '.join(asked.words)}: {_one_line(error)}") from None


def _one_line(error: Exception) -> str:
    """Hydra's several lines as one, with the options that it lists."""
    text = str(error).split("Config search path:")[0]
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.startswith("To append to your config")
    ]
    cause = str(error.__cause__).splitlines()[0] if error.__cause__ else ""
    override = getattr(error, "override", "")  # which one could not be read
    first = [override] if override and override not in text else []
    lines = lines or [type(error).__name__]
    last = [cause] if cause and cause not in lines[0] else []
    reason = "; ".join([*first, *lines, *last])
    return f"{reason} (dpfl-bench run --cfg job shows every key, dpfl-bench list the choices)"

"""For notebooks and scripts, what the command line does: `run`, `plan` and `load`. The settings are
the command line's, as a dictionary: {"algo": "dp_fedavg", "eps": 2, "privacy.clip": 0.1}.

Wrong settings raise ConfigError with the command line's line. Runs lie in `outputs`, and what is
done is not computed again.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import compose, words
from dpfl_bench.config.compose import Composed
from dpfl_bench.config.validate import settings
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.provenance import Answer

if TYPE_CHECKING:
    import pandas as pd
    import torch


@dataclass(frozen=True)
class Run:
    """A finished run, read from its folder."""

    path: Path

    def __post_init__(self) -> None:
        if RunFolder(self.path).finished is None:
            raise ConfigError(f"{self.path}: expected the folder of a finished run, found no result")

    @property
    def result(self) -> dict[str, Any]:
        """result.json."""
        return self._read("result.json")

    @property
    def privacy(self) -> dict[str, Any]:
        """privacy.json: what was released, and eps towards each observer."""
        return self._read("privacy.json")

    @property
    def metrics(self) -> pd.DataFrame:
        """metrics.csv: a row for each seed and evaluated round."""
        import pandas as pd

        return pd.read_csv(RunFolder(self.path).metrics.path)

    @property
    def parameters(self) -> dict[int, torch.Tensor]:
        """Seed -> the final model as one vector."""
        import torch

        loaded: dict[int, torch.Tensor] = torch.load(RunFolder(self.path).finals, weights_only=True)
        return loaded

    def _read(self, name: str) -> dict[str, Any]:
        return RunFolder(self.path).read(name) or {}

    def __repr__(self) -> str:
        from dpfl_bench.results.summary import summary

        return f"Run({str(self.path)!r}): {summary(self.result)}"


def run(
    asked: Mapping[str, Any] | None = None,
    *,
    config_dir: str | None = None,
    force: bool = False,
    accept: bool = False,
) -> Run:
    """`dpfl-bench run`: train, or find what is done. force, accept: as --force and --accept."""
    from dpfl_bench.sweep import one_run

    composed = _composed(asked, config_dir)
    chosen = settings(composed)
    with contextlib.redirect_stdout(io.StringIO()):  # the folder's name
        code = one_run.computed(chosen, composed, Answer(force, accept))
    folder = RunFolder.at(chosen.outputs, chosen.run_id)
    if folder.finished is None:
        raise RuntimeError(f"{folder.path}: not finished (exit code {code}), the lines above say why")
    return Run(folder.path)


def plan(asked: Mapping[str, Any] | None = None, *, config_dir: str | None = None) -> dict[str, Any]:
    """`dpfl-bench plan --json`: noise, eps, theory, without training."""
    from dpfl_bench.experiment.plan import plan as planned

    return planned(settings(_composed(asked, config_dir)))


def load(*folders: str | Path) -> pd.DataFrame:
    """A row for each finished run below the folders: what was swept, then the scalars of its
    result.json. `collect` writes the same as results.csv.
    """
    import pandas as pd

    from dpfl_bench.results.collect import gather

    rows = gather.rows([str(folder) for folder in folders])
    if not rows:
        shown = " ".join(map(str, folders))
        raise ConfigError(f"{shown}: expected folders with finished runs, found none; run one first")
    return pd.DataFrame(rows)


def _composed(asked: Mapping[str, Any] | None, config_dir: str | None) -> Composed:
    return compose.composed([*_words(asked or {})], config_dir)


def _words(asked: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """As on the command line. {"privacy": {"clip": 1}} is privacy.clip=1."""
    for key, value in asked.items():
        if isinstance(value, Mapping):
            yield from _words(value, f"{above}{key}.")
        elif isinstance(value, Path):
            yield words.word(f"{above}{key}", str(value))
        else:
            yield words.word(f"{above}{key}", _plain(value))


def _plain(value: Any) -> Any:
    """A numpy scalar as Python's number."""
    return value.item() if hasattr(value, "item") and not hasattr(value, "__len__") else value

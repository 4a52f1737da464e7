"""Every remedy that a refusal of the package names can be typed as it stands: `privacy.neighbours=
replace_one`, not `neighbours=` or "use auto". The sources are read, and what they name is composed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import dpfl_bench
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config.compose import Composer

ROOT = Path(dpfl_bench.__file__).parent
# these speak of keys of a paper's YAML file, or of arguments of a class
ELSEWHERE = ("results/verdicts/", "results/select/", "results/exhibits/", "papers/", "privacy/released/")
RAISES = re.compile(r"(Error|OutOfReach|Blank)$")
SETTING = re.compile(r"(?<![\w.{}\]/-])(\+?[a-z][\w.]*(?:/[a-z]+)?)=('[^']*'|(?:[^\s;,(){}]|\{[^}]*\})*)")
REMEDY = re.compile(r"\b(?:use|say|take|set|expected|or|and|with|in place of)\b[^:]*$")
BARE = re.compile(
    r"\b(?:use|say|take|set) (?:auto|exact|fixed|formula|gaussian|secagg|local|third_party|server|flat|loop"
    r"|vmap|that there|add_remove_one|replace_one|batch_size|sample_rate|iid|discrete|clip)\b(?!=)"
)
# what a message leaves open, as somebody would type it
OPEN = {"dataset.shape": "[3]", "algo": "dp_fedavg", "model": "mlp", "outputs": "elsewhere"}
OF_FEW = {"privacy.neighbours": "replace_one", "privacy.accountant": "auto", "privacy.calibration": "fixed"}
OF_FEW |= {"client_sampling": "fixed", "privacy.mechanism": "gaussian", "privacy.trust": "local"}
OF_FEW |= {"dataset": "digits", "device": "cpu", "privacy.noise": "gaussian", "partition": "iid"}
# where a key is of one choice alone
CHOICES = (
    (),
    ("algo=dp_fedexp",),
    ("dataset=mnist", "model=cnn"),
    ("dataset=a9a",),
    ("dataset=quadratics",),
    ("algo=dp_scaffold_warm",),
    ("hydra/launcher=slurm",),
)
# no settings: a torch layer's argument, an example of --where, names of arguments of `Releases`
NOT_OURS = {"track_running_stats", "key", "value", "cohort_size", "worst", "sampling", "mechanism", "lots"}
NOT_OURS |= {"neighbours", "mu", "noise_multiplier", "last", "trust"}


@dataclass(frozen=True)
class Said:
    place: str
    text: str  # what is computed stands in braces

    @property
    def remedy(self) -> str:
        """What follows on the key, the value and the reason."""
        return self.text.partition(": ")[2]


@cache
def refusals() -> tuple[Said, ...]:
    return tuple(said for file in sorted(ROOT.rglob("*.py")) for said in _of_file(file))


def _of_file(file: Path) -> Iterator[Said]:
    name = str(file.relative_to(ROOT))
    if name.startswith(ELSEWHERE):
        return
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and RAISES.search(_name(node.func)):
            for argument in node.args[:1]:
                if text := _text(argument):
                    yield Said(f"{name}:{node.lineno}", text)


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(v.value if isinstance(v, ast.Constant) else "{}" for v in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def named(text: str) -> Iterator[str]:
    """The settings that a text names, each as somebody types it."""
    for key, value in SETTING.findall(text):
        if key not in NOT_OURS:
            yield f"{key}={_typed(key, value.rstrip('.'))}"


def _typed(key: str, value: str) -> str:
    if value == "..." or "{" in value or not value or re.fullmatch(r"[A-Z]+", value.strip("[]")):
        return OPEN.get(key) or OF_FEW.get(key, "1")
    return value.strip("'")


@cache
def composer() -> Composer:
    return Composer(None, "config")


@cache
def composes(setting: str) -> bool:
    for chosen in CHOICES:
        try:
            composer().job([*chosen, setting])
        except ConfigError:
            continue
        return True
    return False


def test_the_sources_are_read() -> None:
    texts = [said.text for said in refusals()]
    assert len(texts) > 250
    assert sum(bool([*named(said.remedy)]) for said in refusals()) > 70
    assert any("use privacy.observer=third_party or privacy=secagg" in text for text in texts)


def test_every_setting_that_a_refusal_names_composes() -> None:
    wrong = {
        f"{said.place}: {setting}"
        for said in refusals()
        for setting in named(said.remedy)
        if not composes(setting)
    }
    assert wrong == set()


def test_no_remedy_is_a_value_without_its_key() -> None:
    assert [said for said in refusals() if BARE.search(said.text)] == []


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("eps=1: no (use neighbours=replace_one)", True),  # in NOT_OURS: see below
        ("eps=1: no (use observr=server)", False),
        ("eps=1: no; use privacy.noise=gaussian or privacy=local", True),
        ("eps=1: no; use privacy=locl", False),
        ("eps=1: no; say records=N, or sample_rate={} in its place", True),
    ],
)
def test_the_check_sees_what_cannot_be_typed(text: str, right: bool) -> None:
    assert all(map(composes, named(Said("", text).remedy))) is right


@pytest.mark.parametrize("name", sorted(NOT_OURS))
def test_what_is_no_setting_is_no_remedy(name: str) -> None:
    """It stands in a reason, not behind `use` or `say`."""
    advised = re.compile(rf"\b(?:use|say|take|set) (?:[^;:]*(?: or | and ))?{name}=")
    assert [said for said in refusals() if advised.search(said.text)] == []


def test_a_value_alone_is_seen() -> None:
    assert BARE.search("engine.backend=vmap: it refuses; use auto, flat or loop")
    assert not BARE.search("use engine.backend=auto")

"""README.md and docs/: links and anchors, names of files and of settings, lengths, the index."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers.pages import DOCS, PAGES, ROOT, WITH_COMMANDS, anchors, lines, text_of

from dpfl_bench.papers.artefact import artefacts, load

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PUBLIC = "algorithms/"  # the modules that a user's YAML may name; all others may move, so no page names them
OTHERS = {
    "my_algo.py",
    "build_vocab.py",
    "bench_engine.py",
}  # the reader's own, LEAF's, the rest of a command that the page has


def _names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def test_anchors_are_github_s(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# FedEXP's step\n\n## `metrics.csv`\n\n    # no heading\n\n## Data, models\n\n## Data, models\n"
    )
    assert anchors(page) == {"fedexps-step", "metricscsv", "data-models", "data-models-1"}


@pytest.mark.parametrize("name", _names(WITH_COMMANDS))
def test_links_and_anchors_resolve(name: str) -> None:
    page = ROOT / name
    broken = []
    for target in LINK.findall(text_of(page)):
        if re.match(r"\w+://", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("name", _names(PAGES))
def test_prose_has_at_most_100_characters_a_line(name: str) -> None:
    assert not [
        str(line) for line in lines(ROOT / name) if line.kind in ("prose", "heading") and len(line.text) > 100
    ]


ROW = re.compile(
    r"\| `(\w+/\w+)` \| (.+?) \| (.+?) \| (.+?) \| (.+) \|"
)  # of the README's table of artefacts


def test_the_readme_has_at_most_1100_words() -> None:
    """Beside its table of artefacts."""
    text = (ROOT / "README.md").read_text()
    assert (
        len([word for line in text.splitlines() if not ROW.fullmatch(line) for word in line.split()]) <= 1100
    )


def test_the_findings_have_at_most_900_words() -> None:
    words = (ROOT / "docs" / "findings.md").read_text().split()
    assert len([word for word in words if re.search(r"\w", word)]) <= 900, "beside the lines of tables"


def test_the_readme_has_every_artefact_with_its_cost() -> None:
    told = {row[1]: row.groups()[1:4] for row in ROW.finditer((ROOT / "README.md").read_text())}
    costs = {name: load(file).cost for name, file in artefacts().items()}
    assert len(told) == 39
    assert told == {
        name: tuple(cost[scale].partition(",")[0] for scale in ("smoke", "cpu", "full"))
        for name, cost in costs.items()
    }


def test_every_page_is_in_the_index_and_says_what_it_answers() -> None:
    index = LINK.findall(text_of(ROOT / "docs" / "README.md"))
    pages = [page for page in DOCS if page.name != "README.md"]
    assert [page.name for page in pages if index.count(page.name) != 1] == []
    assert [
        page.name for page in pages if "This page answers" not in " ".join(page.read_text().split("\n")[1:4])
    ] == []


@pytest.mark.parametrize("name", _names(PAGES))
def test_files_that_a_page_names_are_there(name: str) -> None:
    """Python files: tests, scripts, public modules. No page names a module of the package that may
    move.
    """
    text = (ROOT / name).read_text()
    tests = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    for named in re.findall(r"[\w/]+\.py\b", text):
        there = (ROOT / named).is_file() and named.startswith("scripts/")
        public = named.startswith(PUBLIC) and (ROOT / "dpfl_bench" / named).is_file()
        own = name == "docs/extend.md" and named.startswith(("own/", "make_data"))  # test_extend.py
        assert named in tests or there or public or own or named in OTHERS or named == "fedavg.py", named
    for named in re.findall(r"\b(?:conf|scripts)/[\w/.]+\w", text):
        assert (ROOT / named).exists(), named
    prose = "\n".join(line.text for line in lines(ROOT / name) if line.kind != "code")  # code is run
    for named in re.findall(r"\bdpfl_bench[./]\w[\w./]*", prose):
        assert re.match(r"dpfl_bench\.(data|algorithms|federation\.partition)\b", named), named


# ---- settings that the text names ----


GROUPS = (
    "",
    "privacy",
    "dataset",
    "model",
    "partition",
    "algo",
    "hydra.launcher",
)  # "": the primary config's own
BRANCHES = ("engine", "theory")  # of the primary config
OUTSIDE = {
    "hydra/launcher",
    "hydra.sweeper.params",
    "hydra.launcher.sbatch.exclude",
}  # Hydra's; an option of sbatch


@cache
def known(group: str) -> frozenset[str]:
    """Keys of a group's files, in any depth; of group "" those of the primary config, and the
    groups.
    """
    conf = ROOT / "conf"
    files = conf.joinpath(*group.split(".")).glob("*.yaml") if group else [conf / "config.yaml"]
    keys = {key for file in files for key in _keys(yaml.safe_load(file.read_text()))}
    return frozenset(keys if group else keys | {path.name for path in conf.iterdir()})


def _keys(node: Any) -> set[str]:
    if not isinstance(node, dict):
        return set()
    return {str(key) for key in node}.union(*(_keys(value) for value in node.values()))


def settings_in(text: str) -> list[str]:
    """The key of every `key=value` in backticks."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return [key for span in spans for key in re.findall(r"(?:^|[ '\"])\+?([a-z][\w./]*)=", span)]


def exists(setting: str) -> bool:
    """With its group or, as in a table under a group's name, without."""
    group, _, key = setting.rpartition(".")
    if group in BRANCHES or setting in OUTSIDE:
        return setting in OUTSIDE or key in known("")
    return any(key in known(name) for name in ([group] if group in GROUPS[1:] else GROUPS))


@pytest.mark.parametrize("name", _names(PAGES))
def test_settings_that_a_page_names_exist(name: str) -> None:
    text = "\n".join(line.text for line in lines(ROOT / name) if line.kind != "code")
    assert [setting for setting in settings_in(text) if not exists(setting)] == []


def test_an_unknown_setting_is_noticed() -> None:
    assert settings_in("say `privacy.nois=3 eps=2`") == ["privacy.nois", "eps"]
    assert [exists(name) for name in ("privacy.noise", "privacy.nois", "eps", "epz", "engine.backend")] == [
        True,
        False,
        True,
        False,
        True,
    ]

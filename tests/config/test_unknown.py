"""Keys, choices, verbs and flags that there are not: one line that says what was meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers.command import call
from helpers.refusals import check, table

from dpfl_bench.checks import nearest

# words | what was typed | what was meant
MEANT = """
run esp=2                                  | esp=2: unknown key          | did you mean eps=2?
run +esp=2                                 | esp=2: unknown key          | did you mean eps=2?
run epsilon=2                              | epsilon=2: unknown key      | did you mean eps=2?
run neighbours=add_remove_one              | neighbours=add_remove_one   | privacy.neighbours=add_remove_one?
run privacy.eps=2                          | privacy.eps=2               | did you mean eps=2?
run memory=2                               | memory=2: unknown key       | engine.memory=2 or privacy.mem
run dataset.seeds=1                        | dataset.seeds=1             | did you mean dataset.seed=1?
run engine.worker=2                        | engine.worker=2             | did you mean engine.workers=2?
run algorithm=dp_fedavg                    | algorithm=dp_fedavg         | did you mean algo=dp_fedavg?
run optimiser=sgd                          | optimiser=sgd: unknown key  | dpfl-bench run --cfg job
run partition.alpha=1                      | of partition=shards         | partition=dirichlet has it
run algo=scafnew                           | algo=scafnew                | did you mean algo=scaffnew?
run dataset=mnsit                          | dataset=mnsit               | did you mean dataset=mnist?
run privacy=secag                          | one of central, local       | did you mean privacy=secagg?
run privacy.trust=secag                    | privacy.trust=secag         | mean privacy.trust=secagg?
run privacy.accountant=pdl                 | privacy.accountant=pdl      | mean privacy.accountant=pld?
run +experiment=quik                       | +experiment=quik            | did you mean +experiment=quick?
run experiment=quick                       | experiment=quick            | +experiment=quick
run +eps=2                                 | +eps=2: the key is there    | say eps=2
run ~foo                                   | foo: unknown key            | --cfg job
run eps                                    | eps: expected               | KEY=VALUE
run eps=1,2                                | eps=1,2: expected one value | dpfl-bench run -m
run algo=null                              | algo=null                   | dpfl-bench list
run -cn nosuch                             | -cn nosuch                  | -cd DIR
run hydra.foo=1                            | hydra.foo=1                 | --cfg hydra
run -m eps=1,2 hydra/launcher=cors         | hydra/launcher=cors         | did you mean hydra/launcher=cores?
run -m eps=1,2 hydra.launcher.njobs=2      | hydra.launcher.njobs=2      | did you mean hydra.launcher.n_jobs
run 'outputs=a                             | 'outputs=a: cannot be read  | quote what
rnu                                        | rnu: unknown verb           | did you mean run?
data fecth mnist                           | data fecth                  | did you mean data fetch?
data fetch mnst                            | dataset=mnst                | did you mean dataset=mnist?
plan --jsn                                 | --jsn: unknown flag         | did you mean --json?
reproduce normalised/fig2                  | normalised/fig2             | did you mean normalized/fig2?
reproduce normalized/fig2 scale=smok       | scale=smok                  | did you mean scale=smoke?
reproduce normalized/fig2 reeding=exact    | reeding=exact               | did you mean reading=exact?
"""
HYDRAS = re.compile(r"struct|Could not|override grammar|defaults list|hydra\.cc|HydraConf")


@pytest.mark.parametrize(("words", "key", "word"), table(MEANT))
def test_what_was_meant(words: list[str], key: str, word: str, tmp_path: Path) -> None:
    said = call(*words)
    check(said, key, word)
    assert not HYDRAS.search(said.err)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(("words", "key", "word"), table(MEANT))
def test_what_was_meant_is_taken(words: list[str], key: str, word: str) -> None:
    """What the question proposes composes, where it is a setting."""
    found = re.search(r"did you mean ([^=]+=\S+)\?", word)
    if found is None or "-m" in words or words[0] == "reproduce" or found[1].startswith("+experiment"):
        pytest.skip("no setting of one run")
    assert call("run", found[1], "--cfg", "job").code == 0


def test_nothing_is_proposed_that_is_far_away() -> None:
    known = ["eps", "privacy.neighbours", "local_steps", "algo.coins"]
    assert nearest.key("batch_norm", known) is None
    assert nearest.choice("unet", ["logreg", "mlp"]) is None
    assert "did you mean" not in call("run", "+zzz=1").err


def test_a_choice_that_a_file_asks_for(tmp_path: Path) -> None:
    """No override asks for it, so the file is named."""
    (tmp_path / "experiment").mkdir()
    text = "# @package _global_\ndefaults: [{override /model: nosuch}]"
    (tmp_path / "experiment/mine.yaml").write_text(text)
    said = call("run", "-cd", str(tmp_path), "+experiment=mine")
    assert said.code == 2
    assert "nosuch" in said.err

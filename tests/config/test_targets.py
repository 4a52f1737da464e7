"""What YAML files name as `_target_`: the paths of earlier versions stay, and none of ours brings
torch.
"""

from __future__ import annotations

from importlib import import_module

import pytest
from helpers.federations import CONF
from helpers.imported import loaded_by
from omegaconf import OmegaConf

# every `_target_` of the algorithms, data sets, models and partitions in conf/ of version 79bf0f5.
# Users' files may name them
PUBLIC = [
    "dpfl_bench.algorithms.fedavg.FedAvg",
    "dpfl_bench.algorithms.fedexp.FedEXP",
    "dpfl_bench.algorithms.fedsgd.FedSGD",
    "dpfl_bench.algorithms.normfedavg.NormFedAvg",
    "dpfl_bench.algorithms.scaffnew.ScaffNew",
    "dpfl_bench.algorithms.scaffold.Scaffold",
    "dpfl_bench.data.breast_cancer.load",
    "dpfl_bench.data.digits.load",
    "dpfl_bench.data.femnist.load",
    "dpfl_bench.data.ixi.load",
    "dpfl_bench.data.libsvm.load",
    "dpfl_bench.data.messidor.load",
    "dpfl_bench.data.reddit.load",
    "dpfl_bench.data.shakespeare.load",
    "dpfl_bench.data.synthetic.linear",
    "dpfl_bench.data.synthetic.logistic",
    "dpfl_bench.data.synthetic.quadratics",
    "dpfl_bench.data.vision.load",
    "dpfl_bench.federation.partition.dirichlet",
    "dpfl_bench.federation.partition.iid",
    "dpfl_bench.federation.partition.natural",
    "dpfl_bench.federation.partition.one_label",
    "dpfl_bench.federation.partition.overlap",
    "dpfl_bench.federation.partition.shards",
    "dpfl_bench.federation.partition.similarity",
    "dpfl_bench.problems.linear.linreg",
    "dpfl_bench.problems.linear.logreg",
    "dpfl_bench.problems.models.cnn.cnn",
    "dpfl_bench.problems.models.lstm.lstm",
    "dpfl_bench.problems.models.mlp.mlp",
    "dpfl_bench.problems.models.unet3d.unet3d",
    "dpfl_bench.problems.models.vgg.vgg",
]
CHOSEN = sorted(
    {
        str(OmegaConf.load(file)["_target_"])
        for group in ("dataset", "model", "partition")
        for file in (CONF / group).glob("[!_]*.yaml")
    }
)


@pytest.mark.parametrize("path", PUBLIC)
def test_a_path_of_an_earlier_version_stays(path: str) -> None:
    module, _, name = path.rpartition(".")
    assert callable(getattr(import_module(module), name))


def test_what_our_files_name_brings_neither_torch_nor_what_reads_data() -> None:
    """Settings are checked by what these functions declare, in a dry run too."""
    modules = sorted({path.rpartition(".")[0] for path in CHOSEN})
    heavy = {"torch", "torchvision", "pandas", "sklearn", "scipy", "PIL", "nibabel", "kymatio"}
    assert not loaded_by(f"import {', '.join(modules)}") & heavy
    light = [path for path in modules if "partition" in path or "problems" in path]
    assert "numpy" not in loaded_by(f"import {', '.join(light)}")

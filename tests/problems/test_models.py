"""The networks in conf/model: their sizes by hand, their outputs, and that records stay apart in
their gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from helpers.federations import CONF, settings_of
from helpers.networks import BY_HAND, CASES, CIFAR, MNIST, UNET_WIDTHS, Case, fc, others, started
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from dpfl_bench.assembly.model import build_problem
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.problems.backends.loop import Loop
from dpfl_bench.problems.models.activations import TemperedSigmoid, activation
from dpfl_bench.problems.models.cnn import cnn
from dpfl_bench.problems.models.lstm import lstm
from dpfl_bench.problems.models.mlp import mlp
from dpfl_bench.problems.models.unet3d import unet3d
from dpfl_bench.problems.models.vgg import vgg
from dpfl_bench.problems.module import ModuleProblem, check_module
from dpfl_bench.problems.problem import Batch

pytestmark = pytest.mark.one_in(6)

CLASSIFIERS = [case for case in CASES if case.name != "unet3d" and (not case.tokens or case.overrides)]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
each_classifier = pytest.mark.parametrize("case", CLASSIFIERS, ids=lambda case: case.id)


# sizes


@each_case
def test_parameters_by_hand_and_in_the_first_comment(case: Case) -> None:
    assert sum(p.numel() for p in case.on_meta().parameters()) == case.count
    first = (CONF / "model" / f"{case.name}.yaml").read_text().splitlines()[0]
    assert f"{case.count:,}" in first
    assert "parameters" in first


def test_a_network_of_a_new_file_is_tested_too() -> None:
    """By what the head of its file says that it is tried on, with the size that its builder
    gives.
    """
    networks = {path.stem for path in (CONF / "model").glob("*.yaml")} - {"logreg", "linreg"}
    assert {case.name for case in CASES} == networks
    for name in ("mlp", "lstm"):
        new = others(CONF / "model", networks - {name})
        assert {case.name for case in new} == {name}
        known = {tuple(case.shape): case.count for case in BY_HAND if case.name == name}
        assert {tuple(case.shape) for case in new} == known.keys()
        assert new[0].tokens == (name == "lstm")
    assert others(CONF / "model", networks - {"mlp"})[0].count == fc(784, 200, 10)


@each_case
def test_outputs(case: Case) -> None:
    """On the meta device: shapes of the whole models without their numbers."""
    records = case.records(3, torch.float32).to("meta")
    outputs = case.on_meta()(records)
    expected = {"unet3d": (3, 48, 60, 48), "lstm": (3, 10, 10_000)}.get(case.name, (3, case.classes))
    assert tuple(outputs.shape) == (expected if not case.overrides else (3, case.classes))


@pytest.mark.parametrize("shape", [[1, 48, 60, 48], [2, 5, 7, 4], [1, 4, 4, 4]])
def test_masks_have_the_size_of_their_volumes(shape: list[int]) -> None:
    with torch.device("meta"):
        assert unet3d(shape, 1, 8, 3)(torch.empty(2, *shape)).shape == (2, *shape[1:])


# what private training asks of a module


@each_case
def test_no_state_outside_the_parameters_and_no_batch_statistics(case: Case) -> None:
    check_module(case.on_meta(), private=True)
    assert not any(isinstance(layer, nn.modules.dropout._DropoutNd) for layer in case.on_meta().modules())


@each_case
def test_group_norm_for_batch_norm(case: Case) -> None:
    if "norm" not in case.node():
        layers = list(case.on_meta().modules())
        normed = sum(isinstance(layer, nn.GroupNorm) for layer in layers)
        assert normed == (len(UNET_WIDTHS) if case.name == "unet3d" else 0)
        return
    with torch.device("meta"):
        grouped, batched = (
            Case(**{**vars(case), "overrides": (f"model.norm={n}",)}).make()() for n in ("group", "batch")
        )
    convolutions = sum(isinstance(layer, nn.Conv2d) for layer in grouped.modules())
    scaled = [layer for layer in grouped.modules() if isinstance(layer, nn.GroupNorm) and layer.affine]
    assert len(scaled) == convolutions
    assert all(
        layer.num_groups > 1 and layer.num_channels % layer.num_groups == 0
        for layer in scaled
        if layer.num_channels > 1
    )
    check_module(grouped, private=True)
    check_module(batched, private=False)  # no buffers
    if convolutions:
        with pytest.raises(ValueError, match=r"BatchNorm.*model\.norm=group"):
            check_module(batched, private=True)


@each_case
def test_a_start_is_drawn_from_its_seed_alone(case: Case) -> None:
    problem, before = ModuleProblem(case.smaller.make(), case.classes), torch.random.get_rng_state()
    one, again, other = (problem.start(seed, torch.empty(0)) for seed in (3, 3, 4))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert one.isfinite().all()


@each_case
def test_gradients_reach_every_parameter(case: Case) -> None:
    small = case.smaller
    module, records = started(small).double(), small.records(6)
    outputs = module(records)
    (outputs * torch.from_numpy(np.random.default_rng(1).normal(size=outputs.shape))).sum().backward()
    found = {name: p.grad.norm().item() for name, p in module.named_parameters()}  # type: ignore[union-attr]
    assert all(np.isfinite(norm) and norm > 1e-9 for norm in found.values()), found


@each_case
def test_a_record_does_not_see_the_others(case: Case) -> None:
    small = case.smaller
    module, records = started(small).double(), small.records(3)
    torch.testing.assert_close(module(records)[1:2], module(records[1:2]), rtol=1e-10, atol=1e-12)


# gradients of records


@each_classifier
def test_clipped_gradients_of_records(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against single records through the ordinary module; the lot's last row is padding. All but
    the LSTM go through vmap.
    """
    small, looped = case.smaller, []
    weighted = Loop._weighted
    monkeypatch.setattr(
        Loop,
        "_weighted",
        lambda self, *given: looped.append(len(given[1])) or weighted(self, *given),
    )
    problem, module, x = (
        ModuleProblem(small.make(), case.classes, backend="vmap"),
        started(small).double(),
        small.records(4),
    )
    targets = torch.from_numpy(np.random.default_rng(2).integers(0, case.classes, 4))
    batch = Batch(x[None], targets[None], torch.tensor([[0.3, 0.5, 0.2, 0.0]], dtype=torch.float64))
    y = nn.utils.parameters_to_vector(module.parameters()).detach()[None]
    alone = []
    for record, target in zip(x[:3], targets[:3], strict=True):
        module.zero_grad()
        (-functional.log_softmax(module(record[None])[0], 0)[target]).backward()
        alone.append(torch.cat([p.grad.flatten() for p in module.parameters()]))  # type: ignore[union-attr]
    gradients = torch.stack(alone)
    lengths = gradients.norm(dim=1)
    bound = lengths.median()
    found, norms = problem.clipped_gradient(y, batch, lambda norms, weights: bound / norms.clamp(min=bound))
    torch.testing.assert_close(norms[0, :3], lengths, rtol=1e-9, atol=0)
    assert norms[0, 3] == 0
    expected = (batch.weights[0, :3] * (bound / lengths).clamp(max=1)) @ gradients
    assert (found[0] - expected).abs().max() <= 1e-9 * expected.abs().max()
    assert bool(looped) == case.tokens


def test_gradients_of_volumes_by_vmap() -> None:
    small = next(case for case in CASES if case.name == "unet3d").smaller
    module, x = started(small).double(), small.records(3)
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    weights = torch.from_numpy(np.random.default_rng(1).normal(size=x[0, 0].shape))

    def score(parameters: dict[str, Tensor], record: Tensor) -> Tensor:
        return (functional_call(module, parameters, (record[None],))[0] * weights).sum()

    found = vmap(grad(score), in_dims=(None, 0))(parameters, x)
    for r in range(3):
        alone = grad(score)(parameters, x[r])
        for name in parameters:
            torch.testing.assert_close(found[name][r], alone[name], rtol=1e-9, atol=1e-10)


# the builders


def test_tempered_sigmoids() -> None:
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(TemperedSigmoid(2, 2, 1)(x), x.tanh())
    odd = TemperedSigmoid(1.5, 0.5, 0.25)(torch.tensor([0.0, 2 * np.log(3.0)], dtype=torch.float64))
    torch.testing.assert_close(odd, torch.tensor([0.5, 1.5 * 3 / 4 - 0.25], dtype=torch.float64))
    assert isinstance(activation("tempered", 1, 2, 3)(), TemperedSigmoid)


@pytest.mark.parametrize("name", ["relu", "tempered"])
def test_papernots_network_written_out(name: str) -> None:
    case = Case(
        "pfl_cnn_mnist",
        MNIST,
        10,
        0,
        None,
        (f"model.activation={name}", "model.s=1.5", "model.temp=3", "model.o=.5"),
    )
    module, x = started(case).double(), case.records(2)
    w1, b1, w2, b2, w3, b3, w4, b4 = module.parameters()
    active = torch.relu if name == "relu" else lambda z: 1.5 / (1 + torch.exp(-3 * z)) - 0.5
    z = functional.max_pool2d(active(functional.conv2d(x, w1, b1, stride=2, padding=3)), 2, stride=1)
    z = functional.max_pool2d(active(functional.conv2d(z, w2, b2, stride=2)), 2, stride=1)
    torch.testing.assert_close(module(x), active(z.flatten(1) @ w3.T + b3) @ w4.T + b4)


def test_features_are_normalised_in_groups() -> None:
    case = Case("pfl_sn_linear", [81, 7, 7], 10, 0)
    module, x = started(case).double(), 5 + 3 * case.records(2)
    weight, bias = module.parameters()
    groups = x.reshape(2, 27, -1)
    normed = (groups - groups.mean(2, keepdim=True)) / (
        groups.var(2, keepdim=True, correction=0) + 1e-5
    ).sqrt()
    torch.testing.assert_close(module(x), normed.reshape(2, -1) @ weight.T + bias)
    as_they_are = started(Case("pfl_sn_linear", [81, 7, 7], 10, 0, None, ("model.input_groups=0",))).double()
    weight, bias = as_they_are.parameters()
    torch.testing.assert_close(as_they_are(x), x.flatten(1) @ weight.T + bias)


def test_a_vgg_sees_its_image() -> None:
    """At its start different images give different features; with torch's default initialisation
    they hardly do.
    """
    case = next(case for case in CASES if case.name == "vgg11_light")
    node, x = case.node(), case.records(2, torch.float32)
    plain = partial(cnn, CIFAR, 10, node["channels"], 3, "none", pool=node["pool"], pooled=1)

    def spread(make: Callable[[], nn.Module]) -> float:
        module = make()
        nn.utils.vector_to_parameters(ModuleProblem(make, 10).start(0, torch.empty(0)), module.parameters())
        features = nn.Sequential(*list(module.children())[:-1])(x)  # type: ignore[arg-type]
        return (features[0] - features[1]).norm().item()

    ours, default = spread(case.make()), spread(plain)
    assert ours > 0.3  # about .6
    assert default < 0.02  # about .005


def test_a_last_position_predicts_one_class() -> None:
    every, last = (lstm([6], 5, 3, 4, 2, every, None).double() for every in (True, False))
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(every.parameters()), last.parameters())
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, 5, (3, 6)))
    torch.testing.assert_close(every(tokens)[:, -1], last(tokens))
    later = tokens.clone()
    later[:, 4:] = 0
    torch.testing.assert_close(every(tokens)[:, :4], every(later)[:, :4])  # no position sees what follows
    assert lstm([6], 2, 3, 4, 1, None, 9, task="classify")(torch.full((1, 6), 8)).shape == (1, 2)


REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "rows for cnn": (
        lambda: cnn([30], 2, [4], 3, "none"),
        r"dataset.shape=\[30\]: .*\[channels, height, width\].*model=mlp",
    ),
    "small images": (lambda: cnn([1, 8, 8], 2, [4] * 4, 3, "none"), r"nothing is left of 8x8 .*fewer layers"),
    "small maps": (lambda: cnn([1, 5, 9], 2, [4], 8, "none", padding=1), r"nothing is left of 5x9"),
    "small pool": (
        lambda: cnn([1, 4, 4], 2, [4], 3, "none", pool=5, pool_stride=1),
        r"nothing is left of 4x4",
    ),
    "norm": (
        lambda: cnn([1, 8, 8], 2, [4], 3, "layer"),
        r"model.norm=layer: expected one of none, group, batch",
    ),
    "activation": (
        lambda: cnn([1, 8, 8], 2, [4], 3, "none", activation="elu"),
        r"model.activation=elu: expected one of relu, tanh",
    ),
    "kernels": (
        lambda: cnn([1, 8, 8], 2, [4, 4], [3], "none"),
        r"model.kernel=\[3\]: expected .* a list of 2",
    ),
    "kernel": (lambda: cnn([1, 8, 8], 2, [4], 0, "none"), r"model.kernel=0: expected a whole number >= 1"),
    "stride": (
        lambda: cnn([1, 8, 8], 2, [4], 3, "none", stride=1.5),
        r"model.stride=1.5: expected a whole number",
    ),
    "padding": (
        lambda: cnn([1, 8, 8], 2, [4], 3, "none", padding=-1),
        r"model.padding=-1: expected a whole number >= 0",
    ),
    "channels": (lambda: cnn([1, 8, 8], 2, [0], 3, "none"), r"model.channels=\[0\]"),
    "pooled": (lambda: cnn([1, 8, 8], 2, [4], 3, "none", pooled=0), r"model.pooled=0: expected at least 1"),
    "groups": (
        lambda: cnn([4, 8, 8], 2, [4], 3, "none", input_groups=3),
        r"model.input_groups=3: expected 0 or what divides the 4",
    ),
    "hidden": (lambda: mlp([4], 2, [5, 0]), r"model.hidden=\[5, 0\]: expected whole numbers >= 1"),
    "vgg": (lambda: vgg([3, 28, 28], 2, [2] * 5, 2, 1, [], "none"), r"nothing is left of 28x28"),
    "unet rows": (
        lambda: unet3d([60], 1, 8, 3),
        r"dataset.shape=\[60\]: .*\[channels, depth, height, width\] for model=unet3d",
    ),
    "unet classes": (
        lambda: unet3d([1, 8, 8, 8], 3, 8, 3),
        r"model=unet3d: expected masks of 0 and 1, .* got 3",
    ),
    "unet size": (
        lambda: unet3d([1, 8, 3, 8], 1, 8, 3),
        r"expected at least 4 voxels a side for 3 blocks; lower model.blocks",
    ),
    "unet channels": (lambda: unet3d([1, 8, 8, 8], 1, 0, 3), r"model.channels=0"),
    "lstm images": (
        lambda: lstm([1, 8, 8], 2, 4, 4, 1, True, None),
        r"shape \[length\], for model=lstm \(use model=cnn",
    ),
    "lstm layers": (lambda: lstm([8], 2, 4, 4, 0, True, None), r"model.layers=0: expected at least 1"),
    "lstm vocabulary": (lambda: lstm([8], 2, 4, 4, 1, True, 0), r"model.vocabulary=0: expected at least 1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(case: str) -> None:
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make()


def test_numbers_for_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match=r"model=lstm: expected tokens, got a data set of numbers"):
        lstm([8], 2, 4, 4, 1, False, None)(torch.zeros(1, 8))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.kernel=[3]", "a list of 2"),
        ("model.hidden=7", "a list like"),
        ("model.activation=elu", "relu, tanh, tempered"),
    ],
)
def test_errors_from_the_command_line(override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_problem(settings_of("dataset=mnist", "model=pfl_cnn_mnist", override), MNIST, 10)

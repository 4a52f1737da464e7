"""The model that a run's YAML names, as a problem, and the gradient backend that plays it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import nn

from dpfl_bench.assembly.choice import names
from dpfl_bench.checks.errors import ConfigError
from dpfl_bench.config import fits
from dpfl_bench.config.call import call as call
from dpfl_bench.config.settings import Settings
from dpfl_bench.config.typed import checked
from dpfl_bench.machine import device
from dpfl_bench.problems import linear, tasks
from dpfl_bench.problems.module import ModuleProblem, check_module
from dpfl_bench.problems.problem import Problem


def build_problem(settings: Settings, shape: list[int], classes: int) -> Problem:
    """The model for records of this shape, checked against the privacy model."""
    task = settings.dataset.get("task", "classify")
    if names(settings.model, linear.logreg, linear.linreg):  # a user's file need not say what it needs
        fits.check_task(settings, ("classify", "regress"))
    try:
        make = partial(call, settings.model, "model", shape=shape, classes=classes, task=task)
        with torch.device("meta"):  # shapes and no numbers: a large network takes seconds and half a gigabyte
            module = make()
        if not isinstance(module, nn.Module):
            return _closed_form(settings, module)
        if classes == 0:
            raise ConfigError(
                f"model={settings.model['name']}: expected a classification data set, got regression (use"
                " model=linreg)"
            )
        check_module(module, settings.private)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    backend = gradient_backend(settings, module, device.choose(settings.device))
    if backend == "opacus":
        _check_opacus(settings, make, shape, classes if task == "next_token" else 0)
    return ModuleProblem(make, classes, task=_task(settings), backend=backend)


def check_parameters(settings: Settings, problem: Problem) -> None:
    """Refuse a wrong `parameters` in the model's YAML file: the noise may follow from it."""
    stated = settings.model.get("parameters")
    if stated not in (None, problem.dimension):
        raise ConfigError(
            f"model.parameters={stated}: the model has {problem.dimension}; correct the YAML file"
        )


def _closed_form(settings: Settings, model: Any) -> Problem:
    """A model that computes its gradients itself."""
    if settings.engine.backend not in ("auto", "closed_form"):
        raise ConfigError(
            f"engine.backend={settings.engine.backend}: model={settings.model['name']} has closed forms; use"
            " engine.backend=auto"
        )
    return cast(Problem, model)


def _check_opacus(settings: Settings, make: Callable[[], nn.Module], shape: list[int], tokens: int) -> None:
    """Refuse models whose records' gradients Opacus cannot compute."""
    from dpfl_bench.problems.backends.opacus import check_opacus

    try:
        check_opacus(make, shape, tokens)
    except ValueError as error:
        raise ConfigError(
            f"engine.backend=opacus: model={settings.model['name']}: {error}; use engine.backend=auto"
        ) from None


def _task(settings: Settings) -> tasks.Task:
    """The loss and the score that the data set asks for."""
    name = settings.dataset.get("task", "classify")
    if name == "next_token":
        return tasks.next_token(settings.dataset.get("unknown"))
    return {"classify": tasks.classify, "segment": tasks.segment}[
        checked("dataset.task", name, Literal["classify", "segment"])
    ]()


def gradient_backend(settings: Settings, module: nn.Module, where: torch.device) -> str:
    """The backend asked for; under `auto`, `flat` on a CPU and `vmap` on a GPU where vmap knows all
    layers.
    """
    from dpfl_bench.problems.backends.vmap import UNBATCHED

    asked = settings.engine.backend
    batches = not any(isinstance(layer, UNBATCHED) for layer in module.modules())
    if asked == "closed_form":
        raise ConfigError(
            "engine.backend=closed_form: expected model=logreg or model=linreg, got"
            f" model={settings.model['name']}; use engine.backend=auto"
        )
    if asked == "vmap" and not batches:
        raise ConfigError(
            f"engine.backend=vmap: model={settings.model['name']} has recurrent layers, which vmap refuses;"
            " use engine.backend=auto"
        )
    if asked == "auto":
        return "vmap" if batches and where.type != "cpu" else "flat"
    return asked

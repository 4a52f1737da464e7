"""The device that is not there, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from helpers import twin

from dpfl_bench.machine import device


@pytest.fixture(autouse=True)
def _the_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """torch multiplies on the CPU too, as it does on every other device."""
    twin.device()
    monkeypatch.setattr(device, "numpy_multiplies", lambda: False)
    monkeypatch.setattr(device, "QUEUED", {twin.NAME})
    with torch.autograd.set_multithreading_enabled(False):  # a backward pass under its caller's lines
        yield

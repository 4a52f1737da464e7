"""The one place that imports torchvision."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType

_MISSING = re.compile(r"operator torchvision::(\w+) does not exist")
# a torch.library.Library takes its operators with it when it is collected
_stand_ins: list[Any] = []


def import_torchvision() -> ModuleType:
    """torchvision, also where its wheel was built for CUDA and torch for the CPU.

    There the import dies on operators (nms, qnms) whose binary needs CUDA and that nobody here
    calls. Each missing one gets an empty schema and the import is tried again; where the wheels
    match this is a plain import.
    """
    seen: set[str] = set()
    while True:
        try:
            return importlib.import_module("torchvision")
        except RuntimeError as error:
            missing = _MISSING.search(str(error))
            if missing is None or missing[1] in seen:
                raise
            seen.add(missing[1])
            _stand_in(missing[1])


def _stand_in(operator: str) -> None:
    """Declare the operator and forget the half-done import."""
    import torch

    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    make: Any = torch.library.Library  # torch does not annotate it
    library = make("torchvision", "FRAGMENT")
    library.define(f"{operator}() -> ()")
    _stand_ins.append(library)

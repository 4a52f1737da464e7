"""dpfl-bench: experiments in differentially private federated learning.

In a notebook: `dpfl_bench.run({...})`, `plan({...})` and `load(DIR)`, of `notebook.py`.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
RESULTS_VERSION = 10  # bump when a change moves any number that a run writes (see CHANGELOG, "Numbers")


def __getattr__(name: str) -> Any:
    """They import a lot, so only when they are asked for."""
    if name in ("run", "plan", "load", "Run"):
        return getattr(import_module("dpfl_bench.notebook"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

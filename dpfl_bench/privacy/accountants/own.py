"""Accountants of one's own: with `-cd DIR`, each file DIR/accountants/NAME.py that has an
ACCOUNTANT.

They are asked by their names alone, never under `auto`: nobody here has checked them.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from dpfl_bench.machine import imports
from dpfl_bench.privacy import refusals
from dpfl_bench.privacy.accountants.accountant import Accountant


def files() -> dict[str, Path]:
    """Name -> file. Nothing is imported."""
    found = (file for folder in imports.OWN for file in sorted(Path(folder).glob("accountants/[!_]*.py")))
    return {file.stem: file for file in found}


def named(name: str) -> Accountant | None:
    """None where there is no such file. Its code is run."""
    file = files().get(name)
    return None if file is None else _loaded(name, file, code(name))


def code(name: str) -> str:
    """16 hex digits of the file, so that no answer of other code is kept; empty where there is
    none.
    """
    file = files().get(name)
    return "" if file is None else hashlib.blake2b(file.read_bytes(), digest_size=8).hexdigest()


@cache
def _loaded(name: str, file: Path, code: str) -> Accountant:
    spec = spec_from_file_location(f"accountants_{name}_{code}", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    accountant = getattr(module, "ACCOUNTANT", None)
    if not isinstance(accountant, Accountant) or accountant.name != name:
        raise refusals.no_accountant(name, file)
    return replace(accountant, auto="never")

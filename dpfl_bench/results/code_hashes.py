"""The code that a run names, by its bytes: the modules of its `_target_`s with what they import of
the user's own, and this package.

Nothing is imported or executed: modules are looked up where `import` would find them, and their
imports are read from the source. What a module imports by a name that it computes is not seen.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from typing import Any

import dpfl_bench

PACKAGE = Path(dpfl_bench.__file__).parent
BUILD = "_build.py"  # written into wheels: tells where the code is from, and is none itself
_PLACES = ("stdlib", "platstdlib", "purelib", "platlib")
_LOADING = {"import_module", "importlib.import_module", "__import__"}


def named(*groups: Any) -> list[str]:
    """Every `_target_` in the groups' keys, at any depth."""
    targets = []
    for group in groups:
        if isinstance(group, Mapping):
            targets += [str(group["_target_"])] if "_target_" in group else []
            targets += named(*(value for key, value in group.items() if key != "_target_"))
        elif isinstance(group, list | tuple):
            targets += named(*group)
    return sorted(set(targets))


def code(targets: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Module -> (hash, file): of each target's, and of what that imports of the user's own, and so
    on.
    """
    return {name: (_read(file)[0], str(file)) for name, file in _files(tuple(targets))}


@cache
def _files(targets: tuple[str, ...]) -> list[tuple[str, Path]]:
    """The modules and their files."""
    importlib.invalidate_caches()
    files: dict[str, Path] = {}
    for target in targets:
        module = target.rpartition(".")[0]
        top = module.partition(".")[0]
        waiting = _and_parents(module)
        while waiting:
            name = waiting.pop()
            spec = None if name in files else _spec(name)
            if spec is None or spec.origin is None or not spec.has_location:
                continue
            file = Path(spec.origin)
            if name != module and not _is_own(name, file, top):
                continue
            files[name] = file
            if top != "dpfl_bench":
                waiting += [
                    other for called in _read(file)[1] for other in _and_parents(_absolute(called, spec))
                ]
    return list(files.items())


def package() -> str:
    """Of all code and settings of dpfl_bench, the same in a checkout and in a wheel."""
    return _package()[0]


@cache
def _package() -> tuple[str, int]:
    """Once a process, which goes on with the code that it has loaded, whatever becomes of the
    files.
    """
    spec = find_spec("dpfl_bench.conf")
    conf = Path([*((spec and spec.submodule_search_locations) or []), str(PACKAGE / "conf")][0])
    files = {f"conf/{file.relative_to(conf).as_posix()}": file for file in conf.rglob("*.yaml")}
    inside = (
        file for file in PACKAGE.rglob("*.py") if file.name != BUILD and PACKAGE / "conf" not in file.parents
    )
    files |= {file.relative_to(PACKAGE).as_posix(): file for file in inside}
    return joined({name: hash_of(file.read_bytes()) for name, file in files.items()}), len(files)


def joined(hashes: Mapping[str, str]) -> str:
    return hash_of("\n".join(f"{name} {digest}" for name, digest in sorted(hashes.items())).encode())


def hash_of(content: bytes) -> str:
    """16 hex digits; lines may end in either way, as git may have it."""
    return hashlib.blake2b(content.replace(b"\r\n", b"\n"), digest_size=8).hexdigest()


def _and_parents(name: str) -> list[str]:
    """`import a.b.c` executes a and a.b, too."""
    return list(accumulate(name.split("."), lambda one, other: f"{one}.{other}")) if name else []


def _spec(name: str) -> ModuleSpec | None:
    """Where `import` would find it. importlib's own `find_spec` imports the packages on the way."""
    path, spec = None, None
    for part in _and_parents(name):
        spec = next(
            (candidate for finder in sys.meta_path if (candidate := _asked(finder, part, path))), None
        )
        if spec is None:
            return None
        path = spec.submodule_search_locations or []
    return spec


def _asked(finder: Any, name: str, path: Any) -> ModuleSpec | None:
    return finder.find_spec(name, path) if hasattr(finder, "find_spec") else None


def _is_own(name: str, file: Path, top: str) -> bool:
    """The user's own: not Python's, not installed (but for the target's own package), not ours."""
    if name.partition(".")[0] == top and top != "dpfl_bench":
        return True
    return not is_installed(file)


def is_installed(file: Path) -> bool:
    """Of Python's, of a package that pip put there, or of ours."""
    return any(file.is_relative_to(place) for place in _libraries()) or "dist-packages" in file.parts


@cache
def _libraries() -> list[Path]:
    places = [Path(sysconfig.get_path(name)) for name in _PLACES]
    return [PACKAGE, *places, *(place.resolve() for place in places)]


@cache
def _read(file: Path) -> tuple[str, tuple[str, ...]]:
    """A file's hash, and what it imports as it is written there; once a process, as it has loaded
    the file once.
    """
    content = file.read_bytes()
    try:
        tree = ast.parse(content) if file.suffix == ".py" else ast.Module([], [])
    except (SyntaxError, ValueError):  # to import it will fail
        tree = ast.Module([], [])
    return hash_of(content), tuple(dict.fromkeys(_imports(tree)))


def _imports(tree: ast.Module) -> Iterator[str]:
    """Names of modules, with leading dots where they are relative. `from a import b` may mean a
    module b.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            yield base
            yield from (f"{base}{'' if base.endswith('.') else '.'}{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and ast.unparse(node.func) in _LOADING:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def _absolute(name: str, spec: ModuleSpec) -> str:
    """A relative name as `import` understands it in that module."""
    dots = len(name) - len(name.lstrip("."))
    if not dots:
        return name
    package = spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
    base = package.split(".")[: len(package.split(".")) - dots + 1]
    return ".".join([*base, *([name[dots:]] if name[dots:] else [])])

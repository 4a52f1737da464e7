"""The imports of every module: from its own layer or layers to its left; algorithms from their base
and torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dpfl_bench

ROOT = Path(dpfl_bench.__file__).parent
# CONTRIBUTING.md draws this: a file imports from its own package and from packages to its left
LAYERS = [
    "rng",
    "checks",
    "machine",
    "algorithms",
    "problems",
    "data",
    "privacy",
    "federation",
    "config",
    "assembly",
    "budget",
    "results",
    "experiment",
    "sweep",
    "papers",
    "audit",
    "commands",
    "notebook",
    "cli",
]
HEAVY = {
    "torch",
    "torchvision",
    "pandas",
    "matplotlib",
    "sklearn",
    "hydra",
    "omegaconf",
    "dp_accounting",
    "scipy",
    "opacus",
    "nibabel",
    "kymatio",
    "PIL",
    "platformdirs",
}
# what --help, list, plan and a dry run load, with their imports
LIGHT = [
    "cli",
    "config.compose",
    "config.validate",
    "config.catalogue",
    *(f"commands.{file.stem}" for file in sorted((ROOT / "commands").glob("[!_]*.py"))),
    "experiment.plan",
    "sweep.whole_sweep",
    "sweep.one_run",
    "sweep.status",
]
BANNED = {
    *(
        "torch.manual_seed",
        "torch.random.manual_seed",
        "torch.seed",
        "torch.cuda.manual_seed",
        "torch.set_rng_state",
        "torch.Generator",
    ),
    *(
        "torch.rand",
        "torch.randn",
        "torch.randint",
        "torch.randperm",
        "torch.normal",
        "torch.bernoulli",
        "torch.rand_like",
        "torch.randn_like",
    ),
    *(
        "random.seed",
        "np.random.seed",
        "np.random.default_rng",
        "np.random.RandomState",
        "numpy.random.seed",
        "numpy.random.default_rng",
    ),
    *(
        f"np.random.{name}"
        for name in (
            "rand",
            "randn",
            "random",
            "normal",
            "choice",
            "shuffle",
            "permutation",
            "randint",
            "uniform",
        )
    ),
}
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
    if "conf" not in path.relative_to(ROOT).parts
}


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(FILES[module].read_text())


def imports(tree: ast.Module, *, lazy: bool = True, typing: bool = True) -> Iterator[str]:
    """The modules that a file names; without the lazy ones in functions or those under
    TYPE_CHECKING if so asked.
    """
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not lazy:
            continue
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not typing:
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def ours(names: Iterator[str]) -> set[str]:
    """The files of the package among imported names: `dpfl_bench.rng.generator` is rng."""
    found = set()
    for name in names:
        if name.startswith("dpfl_bench."):
            inner = name.removeprefix("dpfl_bench.")
            found.add(inner if inner in FILES else inner.rpartition(".")[0])
    return found & set(FILES)


def layer(module: str) -> int:
    package = module.partition(".")[0].replace("__main__", "cli")  # of the same place
    assert package in LAYERS, (
        f"{module} is in no layer: add its package to LAYERS and to CONTRIBUTING.md's picture"
    )
    return LAYERS.index(package)


def test_a_file_imports_only_to_its_left() -> None:
    right = {
        module: [other for other in ours(imports(tree_of(module))) if layer(other) > layer(module)]
        for module in FILES
        if module not in ("", "__init__")
    }
    assert len(right) > 200
    assert {module: others for module, others in right.items() if others} == {}


def test_every_package_is_a_layer() -> None:
    """And every layer is a package or one of the root's files."""
    packages = {
        path.name for path in ROOT.iterdir() if path.is_dir() and path.name not in ("conf", "__pycache__")
    }
    files = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__", "_build"}
    assert packages | files == set(LAYERS)
    assert len(set(LAYERS)) == len(LAYERS)


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The strongly connected components with more than one file, and files that import themselves
    (Tarjan 1972).
    """
    numbers: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    components: list[set[str]] = []

    def visit(file: str) -> None:
        numbers[file] = lowest[file] = len(numbers)
        path.append(file)
        for other in sorted(graph[file]):
            if other not in numbers:
                visit(other)
            if other in path:
                lowest[file] = min(lowest[file], lowest[other])
        if lowest[file] == numbers[file]:
            start = path.index(file)
            component = set(path[start:])
            del path[start:]
            if len(component) > 1 or file in graph[file]:
                components.append(component)

    for file in graph:
        if file not in numbers:
            visit(file)
    return components


def test_no_files_import_each_other_in_a_circle() -> None:
    """Neither at module level nor in functions; not even for types."""
    graph = {name: ours(imports(tree_of(name))) for name in FILES}
    assert sum(map(len, graph.values())) > 200
    assert cycles(graph) == []


def test_circles_are_seen() -> None:
    """The negative control."""
    line = {"a": {"b", "c"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert cycles(line) == []
    assert cycles({**line, "d": {"b"}}) == [{"b", "c", "d"}]
    assert cycles({**line, "c": {"c"}}) == [{"c"}]
    assert cycles({"a": {"b"}, "b": {"a"}, "c": {"d", "a"}, "d": {"c"}}) == [{"a", "b"}, {"c", "d"}]


@pytest.mark.parametrize("module", [name for name in FILES if name.startswith("algorithms.")])
def test_algorithms_know_only_their_base_and_torch(module: str) -> None:
    external = {name.partition(".")[0] for name in imports(tree_of(module))} - {"dpfl_bench"}
    assert external <= {"__future__", "dataclasses", "typing", "math", "torch"}
    known = {"checks.errors"} if module == "algorithms.base" else {"algorithms.base"}
    assert ours(imports(tree_of(module))) <= known
    at_start = {name.partition(".")[0] for name in imports(tree_of(module), typing=False)}
    assert "torch" not in at_start, "`plan` reads algorithms without torch: import it under TYPE_CHECKING"


def test_nothing_heavy_at_module_level_of_what_starts_fast() -> None:
    """The closure over module-level imports of what help, list and plan load, with the algorithms
    that `plan` asks.
    """
    reached: set[str] = set()
    waiting = [*LIGHT, *(name for name in FILES if name.startswith("algorithms."))]
    while waiting:
        module = waiting.pop()
        if module not in reached:
            reached.add(module)
            waiting += ours(imports(tree_of(module), lazy=False, typing=False))
    assert {
        "budget.budget",
        "privacy.accounting",
        "privacy.calibration",
        "federation.schedule",
        "problems.theory",
    } <= reached
    heavy = {
        m: {n for n in imports(tree_of(m), lazy=False, typing=False) if n.partition(".")[0] in HEAVY}
        for m in reached
    }
    assert {module: names for module, names in heavy.items() if names} == {}


def drawing(module: str) -> set[str]:
    """What draws random numbers among all that a file calls and imports."""
    called = {ast.unparse(node.func) for node in ast.walk(tree_of(module)) if isinstance(node, ast.Call)}
    imported = imports(tree_of(module))
    return called & BANNED | {name for name in imported if name.partition(".")[0] in ("random", "secrets")}


def test_only_rng_makes_random_numbers() -> None:
    others = [module for module in FILES if module != "rng"]
    assert {module: names for module in others if (names := drawing(module))} == {}


def test_the_reader_of_imports() -> None:
    """What it must see and what it must not."""
    source = (
        "import a.b\nfrom c import d\nif TYPE_CHECKING:\n    import t\nelse:\n    import e\nclass K:\n    def"
        " f(self):\n        import lazy\ntry:\n    import g\nexcept ImportError:\n    import h\n"
    )
    tree = ast.parse(source)
    assert set(imports(tree)) == {"a.b", "c.d", "t", "e", "lazy", "g", "h"}
    assert set(imports(tree, lazy=False, typing=False)) == {"a.b", "c.d", "e", "g", "h"}
    assert (
        layer("algorithms.fedavg")
        < layer("federation.round_player")
        < layer("results.folder")
        < layer("experiment.train")
        < layer("cli")
    )

"""What a data set holds, by its bytes: two runs with one hash saw the same records.

For our loaders it is of the files that they read, so that nothing need be loaded to ask; whoever
splits, draws or deals these records otherwise has the same. What is generated has no files: its
code and settings say all. For a user's own loader it is of the records that the loader gives.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from dpfl_bench.data.records import Records

OURS = "dpfl_bench.data."
BUNDLED = {"digits": "digits.csv.gz", "breast_cancer": "breast_cancer.csv"}  # scikit-learn's
_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Contents:
    """`parts`: the hash of each file, or of each array, by name; so that it can be said what
    differs.
    """

    parts: Mapping[str, str] = field(default_factory=dict)

    @property
    def hash(self) -> str:
        return _hex("\n".join(f"{name} {found}" for name, found in sorted(self.parts.items())).encode())


def has_known_files(dataset: Mapping[str, Any]) -> bool:
    """Whether it is known without loading what the loader reads. That is so for ours."""
    target = str(dataset["_target_"])
    if not target.startswith(OURS):
        return False
    name = target.removeprefix(OURS).partition(".")[0]
    if name in BUNDLED or name == "synthetic":
        return True
    from dpfl_bench.data.presence import known

    return known(dataset)


def of_files(dataset: Mapping[str, Any]) -> Contents | None:
    """Where `has_known_files`; None where some of them are missing."""
    files = _files(dataset)
    try:
        return (
            None
            if files is None
            else Contents({name: _digest(*_stamp(file)) for name, file in files.items()})
        )
    except FileNotFoundError:
        return None


def stamps(dataset: Mapping[str, Any]) -> object:
    """Differs after a file was written to; None where files are missing, or not known."""
    files = _files(dataset) if has_known_files(dataset) else None
    try:
        return None if files is None else [_stamp(file) for file in files.values()]
    except FileNotFoundError:
        return None


def of_records(records: Records) -> Contents:
    """Of what a loader gave, before anything is split off, prepared or dealt."""
    columns = ("train_x", "train_y", "test_x", "test_y", "owners", "test_owners")
    found = {name: _column(getattr(records, name)) for name in columns if getattr(records, name) is not None}
    return Contents({**found, "task": f"{records.task} {records.classes}"})


def _column(values: np.ndarray) -> str:
    import numpy as np

    if not isinstance(values, np.ndarray) or values.dtype.hasobject:
        return "no numbers"  # which a run refuses
    content = np.ascontiguousarray(values)
    return (
        f"{len(content)} rows"
        f" {_hex(f'{content.shape} {content.dtype.str}'.encode(), content.reshape(-1).view(np.uint8).data)}"
    )


def _hex(*content: Any) -> str:
    made = hashlib.blake2b(digest_size=8)
    for part in content:
        made.update(part)
    return made.hexdigest()


def _stamp(file: Path) -> tuple[str, tuple[int, ...]]:
    """ctime cannot be set back by whoever writes to a file and then sets its times."""
    found = file.stat()
    return os.fspath(file.absolute()), (
        found.st_dev,
        found.st_ino,
        found.st_size,
        found.st_mtime_ns,
        found.st_ctime_ns,
    )


@cache
def _digest(path: str, stamp: tuple[int, ...]) -> str:
    """Each file is read once a process, and again when it was written to."""
    made = hashlib.blake2b(digest_size=8)
    with open(path, "rb") as file:
        while block := file.read(_AT_ONCE):
            made.update(block)
    return made.hexdigest()


def _files(dataset: Mapping[str, Any]) -> dict[str, Path] | None:
    """What our loader reads, by names that do not tell where it lies; None where some is missing,
    as far as that can be known.
    """
    name = str(dataset["_target_"]).removeprefix(OURS).partition(".")[0]
    if name in BUNDLED:
        spec = find_spec("sklearn")
        assert spec is not None  # a dependency
        assert spec.submodule_search_locations
        return {BUNDLED[name]: Path(spec.submodule_search_locations[0]) / "datasets" / "data" / BUNDLED[name]}
    if name == "synthetic":
        return {}
    from dpfl_bench.data.presence import read_by  # with numpy, which the others do without

    found = read_by(dataset)
    weights = dataset.get("weights") if dataset.get("transform") == "resnet18" else None
    return found if found is None or weights is None else {**found, "weights": Path(weights).expanduser()}


Load = Callable[[Mapping[str, Any]], "Records"]


def now(dataset: Mapping[str, Any], load: Load) -> Contents | None:
    """What the data set holds now, without a run; None where that cannot be told. A user's own
    loader is called.
    """
    if has_known_files(dataset):
        return of_files(dataset)
    try:
        return of_records(load(dataset))
    except Exception:  # its files are not on this machine, or not what it expects: a run would say so
        return None

"""Shakespeare: LEAF's next-character prediction, 80 characters to the one that follows, by 1129
speaking roles.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from dpfl_bench.checks.ranges import FRACTION
from dpfl_bench.data import leaf
from dpfl_bench.data.records import Records

LENGTH = 80
_SAMPLES = 4_226_158
SOURCE = leaf.source("shakespeare", _SAMPLES, LENGTH)
# LEAF's ALL_LETTERS, in its order
LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
UNKNOWN = len(LETTERS)
CLASSES = len(LETTERS) + 1
_STEPS = leaf.PREPROCESS.format(name="shakespeare", arguments="-s niid --sf 1.0 -k 0 -t sample --tf 0.8")
_IDS = np.full(128, UNKNOWN, np.int8)
_IDS[[ord(letter) for letter in LETTERS]] = np.arange(len(LETTERS))


def load(*, root: str | None, fraction: Annotated[float, FRACTION], seed: int) -> Records:
    """Ids 0..80 (n, 80), int8, and the next character's id (n,), int64; the roles of the plays as
    owners.

    Ids are positions in LEAF's 80 letters; any other character has id 80, a class of its own. (LEAF
    looks it up as -1, which its one-hot labels take for the last letter.)
    """
    kind = leaf.Kind("shakespeare", _STEPS, _lines, CLASSES, samples=_SAMPLES, users=1_129)
    return leaf.read(kind, root, fraction, seed)


def _lines(x: list[Any], y: list[Any]) -> leaf.Arrays:
    for texts, length in ((x, LENGTH), (y, 1)):
        for text in texts:
            if not isinstance(text, str) or len(text) != length:
                size = f"{len(text)}" if isinstance(text, str) else f"a {type(text).__name__}"
                raise ValueError(f"expected x of {LENGTH} characters and y of 1, found {size}")
    return _ids("".join(x)).reshape(-1, LENGTH), _ids("".join(y)).astype(np.int64)


def _ids(text: str) -> np.ndarray:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    ids: np.ndarray = _IDS[np.minimum(codes, 127)]
    return ids

"""What every data source gives: arrays of records, and where they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


class DataError(ValueError):
    """Data that is missing, cut short or corrupt. The message names the folder, the files expected
    and what to do.
    """


class Scaling(NamedTuple):
    """One number for each feature: what is subtracted from it, and what it is then divided by."""

    centres: Sequence[float] | np.ndarray
    scales: Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Records:
    """Training and test records, whose arrays a run may reorder in place.

    train_x, test_x: (n, *shape) float32, uint8 for images, or signed integers (the narrowest will
    do) for tokens. train_y, test_y: (n,) int64 classes 0..classes-1, or float32 when `classes` is 0
    (regression); (n, length) signed integers, the tokens that follow each of train_x's (next_token,
    classes = size of the vocabulary); (n, *volume) uint8 masks of 0 and 1 (segment, classes 1).
    owners: (n,) the natural client 0..M-1 of each training record, None where the data has none.
    source: one line, where it came from. expected: how many records the whole set has (train and
    test), None if unknown.
    """

    train_x: np.ndarray
    train_y: np.ndarray
    test_x: np.ndarray
    test_y: np.ndarray
    owners: np.ndarray | None
    classes: int
    source: str
    expected: int | None
    task: str = "classify"  # classify (or regress, where classes is 0) | next_token | segment
    test_owners: np.ndarray | None = (
        None  # (n,) the natural client of each test record, None where the data has none
    )
    counted: tuple[int, str] | None = (
        None  # where `expected` counts what records are cut from: how many these are of, and the word
    )
    split_off: np.ndarray | None = (
        None  # (n,) of the source's training records, those that became test records
    )

    # (n,) places among the source's training records, where some were dealt to nobody and left out
    taken: np.ndarray | None = None

    law: Scaling | None = (
        # each feature's mean and deviation by the law that generated the records, None where there
        # is none
        None
    )

    @property
    def subset(self) -> str:
        """Empty for a whole data set, else "subset n of N"."""
        count, word = self.counted or (len(self.train_y) + len(self.test_y), "")
        return (
            ""
            if self.expected is None or count == self.expected
            else f"subset {count} of {self.expected} {word}".rstrip()
        )


def check_tokens(source: str, scaled: bool, transform: str | None) -> None:
    """Tokens are names, and stay as they are."""
    if scaled:
        raise DataError(
            f"dataset.standardise, dataset.unit_norm: {source} holds tokens, not numbers; expected none and"
            " false"
        )
    if transform is not None:
        raise DataError(f"dataset.transform={transform}: {source} holds tokens, not numbers; expected null")

"""Normal numbers, against scipy's distribution."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from dpfl_bench import rng
from dpfl_bench.privacy import mechanisms

MANY = 1_000_003  # an odd number, of several blocks


def streams(count: int) -> list[np.random.Generator]:
    return [rng.generator(7, "normals-test", i) for i in range(count)]


def fits(numbers: np.ndarray) -> bool:
    """Kolmogorov and Smirnov's test, and moments up to the fourth within 5 standard errors."""
    z = numbers.astype(np.float64)
    errors = np.sqrt(np.array([1, 2, 15, 96]) / len(z))  # of the means of z, z^2, z^3, z^4
    moments = [abs((z**k).mean() - expected) for k, expected in zip((1, 2, 3, 4), (0, 1, 0, 3), strict=True)]
    return bool(stats.kstest(z, "norm").pvalue > 1e-6 and (moments < 5 * errors).all())


def test_they_are_normal() -> None:
    (row,) = mechanisms.normals(streams(1), MANY)
    assert row.dtype == np.float32
    assert fits(row)
    assert not fits(1.01 * row)  # the controls
    assert not fits(row + 0.01)
    assert not fits(np.clip(row, -2.5, 2.5))


@pytest.mark.parametrize("bound", [2.0, 3.0, 4.0])
def test_tails(bound: float) -> None:
    """As many beyond as there should be, within 5 standard errors."""
    row = mechanisms.normals(streams(8), MANY).ravel()
    expected = len(row) * 2 * stats.norm.sf(bound)
    found = int((np.abs(row) > bound).sum())
    assert abs(found - expected) < 5 * np.sqrt(expected)
    assert abs(int((np.abs(1.1 * row) > bound).sum()) - expected) > 5 * np.sqrt(expected)  # the control


def test_the_two_of_a_pair_are_independent() -> None:
    """They share a radius: their sizes would be correlated if it were anything but what makes them normal."""
    (row,) = mechanisms.normals(streams(1), mechanisms.BLOCK)
    one, other = np.split(row.astype(np.float64), 2)

    def correlated(a: np.ndarray, b: np.ndarray) -> bool:
        return abs(np.corrcoef(a, b)[0, 1]) > 5 / np.sqrt(len(a))

    assert not correlated(one, other)
    assert not correlated(one**2, other**2)
    assert not correlated(one[1:], one[:-1])
    spread = np.exp(rng.generator(8, "normals-test").normal(0, 0.3, len(one)))  # another law of the radius: the control
    assert correlated((spread * one) ** 2, (spread * other) ** 2)


@pytest.mark.parametrize("dimension", [1, 2, 3, 30, mechanisms.BLOCK - 1, mechanisms.BLOCK, mechanisms.BLOCK + 1, 3 * mechanisms.BLOCK + 5])
def test_every_stream_and_place_has_its_own(dimension: int) -> None:
    """Whoever draws beside it; and the next draw goes on where this one ended."""
    together = streams(5)
    first, second = mechanisms.normals(together, dimension), mechanisms.normals(together, dimension)
    alone = streams(5)
    for row, again, stream in zip(first, second, alone, strict=True):
        np.testing.assert_array_equal(mechanisms.normals([stream], dimension)[0], row)
        np.testing.assert_array_equal(mechanisms.normals([stream], dimension)[0], again)
    everything = np.concatenate([first.ravel(), second.ravel()])
    assert np.isfinite(everything).all()
    assert len(np.unique(everything)) > 0.98 * everything.size  # float32 values coincide now and then


class Words:
    """A generator whose bits are known."""

    def __init__(self, *words: int):
        self.words = list(words)
        self.bit_generator = self

    def random_raw(self, count: int) -> np.ndarray:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array(drawn, np.uint64)


@pytest.mark.parametrize("radius", [0, 1, -1, 2**40, -(2**62), 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("angle", [0, 1, -1, 2**30, -(2**30), 2**31 - 1, -(2**31)])
def test_from_bits_by_hand(radius: int, angle: int) -> None:
    """r cos a, r sin a in float64, with r^2 = -2 log u: the largest radius is 9.4, the smallest 0."""
    words = Words(radius % 2**64, (angle % 2**32) | (12345 << 32))
    found = mechanisms.normals([words], 2)[0]  # type: ignore[list-item]
    u = (abs(radius) + 0.5) / 2**63
    r, a = np.sqrt(max(0.0, -2 * np.log(u))), np.pi * angle / 2**31
    np.testing.assert_allclose(found, [r * np.cos(a), r * np.sin(a)], rtol=1e-5, atol=2e-6)
    assert 0 <= np.hypot(*found) < 9.5

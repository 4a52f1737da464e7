"""Normal numbers, against scipy's distribution."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpfl_bench import rng
from dpfl_bench.privacy import noise_draws

pytestmark = pytest.mark.one_in(2)


both = pytest.mark.parametrize("dtype", [np.float32, np.float64])
GOLDEN = "b6e40a3f60f077beba75073fbc8318bf7572f2bea9c30bbeeb70ce3e96ec44be"
MANY = 1_000_003  # an odd number, of several blocks


def streams(count: int) -> list[np.random.Generator]:
    return [rng.generator(7, "normals-test", i) for i in range(count)]


def fits(numbers: np.ndarray) -> bool:
    """Kolmogorov and Smirnov's test, and moments up to the fourth within 5 standard errors."""
    z = numbers.astype(np.float64)
    errors = np.sqrt(np.array([1, 2, 15, 96]) / len(z))  # of the means of z, z^2, z^3, z^4
    moments = [abs((z**k).mean() - expected) for k, expected in zip((1, 2, 3, 4), (0, 1, 0, 3), strict=True)]
    return bool(stats.kstest(z, "norm").pvalue > 1e-6 and (moments < 5 * errors).all())


@pytest.mark.slow
@both
def test_they_are_normal(dtype: noise_draws.Format) -> None:
    (row,) = noise_draws.normals(streams(1), MANY, dtype)
    assert row.dtype == dtype
    assert fits(row)
    assert not fits(1.01 * row)  # the controls
    assert not fits(row + 0.01)
    assert not fits(np.clip(row, -2.5, 2.5))


@both
@pytest.mark.parametrize("bound", [2.0, 3.0, 4.0])
def test_tails(bound: float, dtype: noise_draws.Format) -> None:
    """As many beyond as there should be, within 5 standard errors."""
    row = noise_draws.normals(streams(8), MANY, dtype).ravel()
    expected = len(row) * 2 * stats.norm.sf(bound)
    found = int((np.abs(row) > bound).sum())
    assert abs(found - expected) < 5 * np.sqrt(expected)
    assert abs(int((np.abs(1.1 * row) > bound).sum()) - expected) > 5 * np.sqrt(expected)  # the control


@both
def test_the_two_of_a_pair_are_independent(dtype: noise_draws.Format) -> None:
    """They share a radius: their sizes would be correlated if it were anything but what makes them
    normal.
    """
    (row,) = noise_draws.normals(streams(1), noise_draws.BLOCK, dtype)
    one, other = np.split(row.astype(np.float64), 2)

    def correlated(a: np.ndarray, b: np.ndarray) -> bool:
        return abs(np.corrcoef(a, b)[0, 1]) > 5 / np.sqrt(len(a))

    assert not correlated(one, other)
    assert not correlated(one**2, other**2)
    assert not correlated(one[1:], one[:-1])
    spread = np.exp(
        rng.generator(8, "normals-test").normal(0, 0.3, len(one))
    )  # another law of the radius: the control
    assert correlated((spread * one) ** 2, (spread * other) ** 2)


@both
@pytest.mark.parametrize(
    "dimension",
    [1, 2, 3, 30, noise_draws.BLOCK - 1, noise_draws.BLOCK, noise_draws.BLOCK + 1, 3 * noise_draws.BLOCK + 5],
)
def test_every_stream_and_place_has_its_own(dimension: int, dtype: noise_draws.Format) -> None:
    """Whoever draws beside it; and the next draw goes on where this one ended."""
    together = streams(5)
    first, second = (
        noise_draws.normals(together, dimension, dtype),
        noise_draws.normals(together, dimension, dtype),
    )
    alone = streams(5)
    for row, again, stream in zip(first, second, alone, strict=True):
        np.testing.assert_array_equal(noise_draws.normals([stream], dimension, dtype)[0], row)
        np.testing.assert_array_equal(noise_draws.normals([stream], dimension, dtype)[0], again)
    everything = np.concatenate([first.ravel(), second.ravel()])
    assert np.isfinite(everything).all()
    assert len(np.unique(everything)) > 0.98 * everything.size  # float32 values coincide now and then


class Words:
    """A generator whose bits are known."""

    def __init__(self, *words: int, further: list[int] | None = None):
        self.words, self.further = list(words), further or []
        self.bit_generator = self

    @property
    def state(self) -> dict[str, Any]:
        return {"buffer_pos": 1, "words": self.words}

    @state.setter
    def state(self, before: dict[str, Any]) -> None:
        self.words = before["words"]

    def advance(self, words: int) -> None:
        assert words == 2**128
        self.words = self.further

    def random_raw(self, count: int) -> np.ndarray:
        drawn, self.words = self.words[:count], self.words[count:]
        return np.array(drawn, np.uint64)


@pytest.mark.parametrize("radius", [0, 1, -1, 2**40, -(2**62), 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("angle", [0, 1, -1, 2**30, -(2**30), 2**31 - 1, -(2**31)])
def test_from_bits_by_hand(radius: int, angle: int) -> None:
    """r cos a, r sin a in float64, with r^2 = -2 log u: the largest radius is 9.4, the smallest
    0.
    """
    words = Words(radius % 2**64, (angle % 2**32) | (12345 << 32))
    found = noise_draws.normals([words], 2, np.float32)[0]  # type: ignore[list-item]
    u = (abs(radius) + 0.5) / 2**63
    r, a = np.sqrt(max(0.0, -2 * np.log(u))), np.pi * angle / 2**31
    np.testing.assert_allclose(found, [r * np.cos(a), r * np.sin(a)], rtol=1e-5, atol=2e-6)
    assert 0 <= np.hypot(*found) < 9.5


@pytest.mark.parametrize("radius", [0, 1, -1, 2**40, -(2**62), 2**63 - 1, -(2**63)])
@pytest.mark.parametrize("angle", [0, 1, -1, 2**30, -(2**62) + 7, 2**63 - 1, -(2**63)])
def test_wide_ones_from_bits_by_hand(radius: int, angle: int) -> None:
    """All 53 bits of both: to 1e-14, where float32 ends at 1e-7."""
    words = Words(
        radius % 2**64, ((angle >> 32) % 2**32) | (12345 << 32), further=[99, (angle % 2**32) | (54321 << 32)]
    )
    found = noise_draws.normals([words], 2, np.float64)[0]  # type: ignore[list-item]
    r = np.sqrt(max(0.0, -2 * np.log((abs(radius) + 0.5) / 2**63)))
    a = np.pi * (angle / 2**63)
    np.testing.assert_allclose(found, [r * np.cos(a), r * np.sin(a)], rtol=0, atol=2e-15 * (1 + r))
    assert 0 <= np.hypot(*found) < 9.5


@pytest.mark.parametrize("dimension", [1, 2, 3, 7, 4096, noise_draws.BLOCK + 3])
def test_both_formats_have_the_same_noise(dimension: int) -> None:
    """Draw after draw, up to float32's rounding: what differs between two runs is their
    arithmetic.
    """
    one, other = streams(2), streams(2)
    for _ in range(4):
        narrow, wide = (
            noise_draws.normals(one, dimension, np.float32),
            noise_draws.normals(other, dimension, np.float64),
        )
        np.testing.assert_allclose(
            narrow, wide, rtol=0, atol=4e-4
        )  # sqrt(-2 log u) of a u that float32 rounds to 1 or next to it
        assert np.median(np.abs(narrow - wide)) < 2e-7
        assert (narrow != wide).any()


@pytest.mark.parametrize("counter", [[0, 0, 0, 0], [2**64 - 1, 2**64 - 1, 2**64 - 1, 7]])
def test_further_words_are_those_of_numpys_jump(counter: list[int]) -> None:
    """Wherever the stream stands. It stands there afterwards, to the last bit of its state."""
    for drawn, halved in itertools.product(range(9), (False, True)):
        (stream,) = streams(1)
        bits: Any = stream.bit_generator
        bits.state = {**bits.state, "state": {**bits.state["state"], "counter": np.array(counter, np.uint64)}}
        bits.random_raw(drawn)
        if halved:  # the other half of a word is kept for the next number of 32 bits
            stream.integers(0, 5, dtype=np.uint32)
        before, place = repr(bits.state), bits.state["buffer_pos"]
        expected = bits.jumped().random_raw(place + 6)[place:]
        np.testing.assert_array_equal(noise_draws._further(stream, 6), expected)
        assert repr(bits.state) == before


def test_no_word_is_used_twice() -> None:
    """Neither among the further ones, whatever is drawn before and after, nor of the stream
    itself.
    """
    for lengths in ([1] * 40, [2, 1, 5, 1, 1, 9, 3, 2, 2, 1], [4097, 1, 2, 3, 4096, 5]):
        (stream,), seen = streams(1), []
        for length in lengths:
            pairs = (length + 1) // 2
            seen += [
                noise_draws._further(stream, (pairs + 1) // 2),
                stream.bit_generator.random_raw(pairs + (pairs + 1) // 2),
            ]
        everything = np.concatenate(seen)
        assert len(np.unique(everything)) == len(everything)


def test_float32_numbers_are_what_they_were() -> None:
    """The first of two streams, by the code before the wide ones came: published runs stay as they
    are.
    """
    found = noise_draws.client_gaussian(3, 1, [0, 5], 4, 0.5, np.float32)
    assert found.dtype == np.float32
    assert found.tobytes().hex() == GOLDEN


def test_wide_noise_is_not_a_float32_number() -> None:
    """That a float64 sum less the right candidate was one, and less any other was none, told which
    was right.
    """
    for drawn in (
        noise_draws.client_gaussian(3, 1, [0, 5], 4096, 0.5, np.float64),
        noise_draws.server_gaussian(3, 1, 4096, 0.5, np.float64),
        noise_draws.RecordGaussian(3, 1, [0, 5]).draw(4096, np.float64),
    ):
        assert (drawn == drawn.astype(np.float32)).mean() < 1e-3
        assert fits(2 * drawn.ravel()) or fits(drawn.ravel())


def test_wide_streams_are_independent() -> None:
    """Of clients, rounds and seeds: correlations within 5 standard errors; a tenth of another's is
    more.
    """
    named = itertools.product((0, 9), (0, 1), (0, 1))
    drawn = np.stack(
        [noise_draws.client_gaussian(seed, k, [i], 4096, 1.0, np.float64)[0] for seed, k, i in named]
    )
    apart = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(apart).max() < 5 / np.sqrt(4096)
    assert np.corrcoef(drawn[0], drawn[1] + 0.1 * drawn[0])[0, 1] > 5 / np.sqrt(4096)  # the control

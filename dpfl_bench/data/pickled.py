"""Pickles of arrays, read without running what is in them.

A pickle is a program: it may call any function that can be imported. Here every name in it is
looked up in `_KNOWN`, whose stand-ins make numbers of bytes and do nothing else; no function of
numpy or of anybody's is ever handed out. So a file gives arrays, numbers, bytes, text, lists,
dictionaries and tuples, or a `pickle.UnpicklingError`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import IO, Any

import numpy as np

# what reading a pickle that is cut short, foreign or hostile raises
UNREADABLE = (
    *(
        OSError,
        EOFError,
        ValueError,
        RuntimeError,
        AssertionError,
        LookupError,
        TypeError,
        AttributeError,
        ImportError,
    ),
    *(MemoryError, OverflowError, pickle.UnpicklingError),
)
_NUMBERS = "biuf"  # kinds of dtypes that are plain numbers
_DEEPEST = 8


def load(file: IO[bytes]) -> Any:
    """What is in the file. Text that Python 2 wrote is taken letter by letter (latin-1), as
    torchvision takes it.
    """
    return _opened(_Unpickler(file, encoding="latin1").load(), {})


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}: expected arrays, numbers and text alone"
            ) from None


class _Dtype:
    """numpy.dtype(kind, align, copy), and the state that gives its byte order."""

    __slots__ = ("dtype",)

    def __init__(self, kind: object, *_: object) -> None:
        self.dtype = np.dtype(kind) if isinstance(kind, str) and len(kind) < 8 else None
        if self.dtype is None or self.dtype.kind not in _NUMBERS:
            raise pickle.UnpicklingError(f"it has an array of {str(kind)[:40]!r}: expected numbers")

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        if order not in ("<", ">", "|", "="):
            raise pickle.UnpicklingError(f"it has numbers of byte order {str(order)[:40]!r}")
        assert self.dtype is not None
        self.dtype = self.dtype.newbyteorder(order)


class _Array:
    """numpy's `_reconstruct(ndarray, (0,), b'b')`, and the state with shape, dtype, order and
    bytes.
    """

    __slots__ = ("array",)

    def __init__(self, *_: object) -> None:
        self.array: np.ndarray | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, by_columns, data = state
        self.array = _numbers(data, dtype, shape, "F" if by_columns else "C")


class _Maker:
    """One of the functions that a pickle may call, which it can do nothing else with (to set its
    attributes, say).
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[..., Any]) -> None:
        self._make = make

    def __call__(self, *given: Any) -> Any:
        return self._make(*given)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it changes a function: expected arrays, numbers and text alone")


def _numbers(data: Any, dtype: Any, shape: Any, order: Any) -> np.ndarray:
    """An array over these bytes, which it does not copy: not to be written to."""
    if not isinstance(dtype, _Dtype) or not isinstance(shape, tuple) or order not in ("C", "F"):
        raise pickle.UnpicklingError("it has an array without numbers, shape or order")
    raw = data.encode("latin1") if isinstance(data, str) else data
    if not isinstance(raw, bytes | bytearray):
        raise pickle.UnpicklingError(f"it has an array of {type(raw).__name__}: expected bytes")
    return np.frombuffer(raw, dtype.dtype).reshape(shape, order=order)


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.array = _numbers(data, dtype, shape, order)
    return array


def _number(dtype: Any, data: Any) -> Any:
    return _numbers(data, dtype, (), "C").item()


def _bytes(text: Any, encoding: Any = "latin1") -> bytes:
    """`_codecs.encode`, in which pickles for Python 2 keep bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise pickle.UnpicklingError("it has bytes in another encoding than latin1")
    return text.encode("latin1")


def _no_bytes(*given: Any) -> bytes:
    """`bytes()`, which stands for b"" there; with a number or a list it would make others."""
    if given:
        raise pickle.UnpicklingError("it makes bytes of something else")
    return b""


def _opened(content: Any, done: dict[int, Any], depth: int = 0) -> Any:
    """The arrays themselves in place of what stood for them. `done`: what the same list or
    dictionary became where it was met before.
    """
    if depth > _DEEPEST:
        raise pickle.UnpicklingError(f"it is nested more than {_DEEPEST} deep")
    if id(content) in done:
        return done[id(content)]
    if isinstance(content, _Array):
        if content.array is None:
            raise pickle.UnpicklingError("it has an array without numbers")
        return content.array
    if isinstance(content, dict):
        done[id(content)] = {key: _opened(value, done, depth + 1) for key, value in content.items()}
        return done[id(content)]
    if isinstance(content, list | tuple):
        done[id(content)] = type(content)(_opened(value, done, depth + 1) for value in content)
        return done[id(content)]
    if content is None or isinstance(content, bool | int | float | str | bytes):
        return content
    kind = type(content).__name__
    raise pickle.UnpicklingError(f"it has a {kind}: expected arrays, numbers and text alone")


_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")  # before numpy 2 and since
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
_KNOWN: dict[tuple[str, str], Any] = {
    **{(module, "_reconstruct"): _Maker(_Array) for module in _MULTIARRAY},
    **{(module, "scalar"): _Maker(_number) for module in _MULTIARRAY},
    **{(module, "_frombuffer"): _Maker(_from_buffer) for module in _NUMERIC},
    ("numpy", "ndarray"): "ndarray",  # is only handed to _reconstruct
    ("numpy", "dtype"): _Maker(_Dtype),
    ("_codecs", "encode"): _Maker(_bytes),
    **{(module, "bytes"): _Maker(_no_bytes) for module in ("__builtin__", "builtins")},
}

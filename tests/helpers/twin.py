"""A device that is not there: tensors that say `privateuseone:0`, hold their numbers in this
machine's memory, and refuse to meet a tensor of the CPU.

    with twin.watched() as seen: ...      # seen.reads, seen.uploads: (kind, file:line) -> how often

The rules are CUDA's. A CPU tensor without axes may meet others in arithmetic, and CPU numbers may
be indices; every other meeting raises `Apart` with the operation and the line of the package. What
makes the program wait for the device is counted as a read: a number or tensor that comes to the
CPU, and results whose size depends on numbers. What goes to the device is an upload; the program
waits for it too, unless it says `non_blocking`. A CPU tensor that `where` takes is an upload.

There is no mode around the program: torch itself sends here every operation on such a tensor, and
every factory that names the device. So autograd, vmap and worker threads work as they are.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch

import dpfl_bench

NAME = "privateuseone"
PACKAGE = Path(dpfl_bench.__file__).parent
aten = torch.ops.aten
MOVES = {aten._to_copy.default, aten.copy_.default}
INDEXING = {
    aten.index.Tensor,
    aten.index_put.default,
    aten.index_put_.default,
    aten._index_put_impl_.default,
    aten._unsafe_index.Tensor,
}
# their results' sizes, or Python's answers, depend on numbers
WAITING = {
    aten._local_scalar_dense.default,
    aten.equal.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.unique_consecutive.default,
    aten.repeat_interleave.Tensor,
}
CROSSING = MOVES | INDEXING | WAITING | {aten.where.self}


class Apart(RuntimeError):
    """Tensors of two devices met."""


@dataclass
class Seen:
    """What crossed between the devices: (what, file:line) -> how often."""

    reads: Counter[tuple[str, str]] = field(default_factory=Counter)
    uploads: Counter[tuple[str, str]] = field(default_factory=Counter)
    blocking: Counter[tuple[str, str]] = field(default_factory=Counter)  # of the uploads

    @property
    def waits(self) -> Counter[tuple[str, str]]:
        """What the program waits for."""
        return self.reads + self.blocking

    def clear(self) -> None:
        for counter in (self.reads, self.uploads, self.blocking):
            counter.clear()


_watching: list[Seen] = []


@contextmanager
def watched() -> Iterator[Seen]:
    """Count what crosses inside."""
    seen = Seen()
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)


class Twin(torch.Tensor):
    here: Tensor  # the numbers
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, here: Tensor) -> Twin:
        made: Twin = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            here.size(),
            strides=here.stride(),
            storage_offset=here.storage_offset(),
            dtype=here.dtype,
            device=torch.device(NAME, 0),
        )
        made.here = here
        return made

    def __init__(self, here: Tensor) -> None: ...

    def __repr__(self, **_: Any) -> str:
        return f"Twin({self.here})"

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, other: Tensor) -> None:
        """torch changes what it knows of this tensor; the numbers have to follow."""
        if not isinstance(other, Twin):
            raise Apart(f"data: {NAME} meets cpu {tuple(other.shape)} at {place()}")
        torch.Tensor.data.__set__(self, other)  # type: ignore[attr-defined]
        self.here = other.here

    def __deepcopy__(self, memo: Any) -> Tensor:
        with torch.no_grad():
            copy = self.clone()
        if isinstance(self, torch.nn.Parameter):
            copy = torch.nn.Parameter(copy)
        return memo.setdefault(id(self), copy.requires_grad_(self.requires_grad))

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: Any) -> Any:
        raise TypeError(f"numpy: {NAME} holds no numbers of the CPU, at {place()}")

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return played(op, args, kwargs or {})


def played(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operation, with the numbers that its tensors hold."""
    twins: dict[int, Twin] = {}
    strangers = False

    def here(value: Any) -> Any:
        nonlocal strangers
        if isinstance(value, Twin):
            twins[id(value.here)] = value
            return value.here
        if isinstance(value, (list, tuple)):
            return type(value)([here(each) for each in value])
        strangers = strangers or isinstance(value, Tensor)
        return value

    given, named = [here(value) for value in args], {name: here(value) for name, value in kwargs.items()}
    if strangers:
        _refuse_mixtures(op, args, kwargs)
    there = _ends_there(op, args, kwargs)
    if _watching and op in CROSSING:
        _count(op, args, kwargs, there)
    if named.get("device") is not None:
        named["device"] = torch.device("cpu")
    found = BY_HAND.get(op, op)(*given, **named)

    def back(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) in twins:
                return twins[id(value)]
            return Twin(value) if there and not isinstance(value, Twin) else value
        if isinstance(value, (list, tuple)):
            return type(value)([back(each) for each in value])
        return value

    if _changes_the_view(op):  # torch changes what it knows of the tensor
        with no_dispatch():
            op(*args, **kwargs)
    return args[0] if op is aten.copy_.default else back(found)


@cache
def _changes_the_view(op: Any) -> bool:
    return torch.Tag.inplace_view in op.tags


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _refuse_mixtures(op: Any, args: Any, kwargs: Any) -> None:
    if op in MOVES:
        return
    for position, argument in enumerate([*args, *kwargs.values()]):
        for each in _tensors(argument):
            if isinstance(each, Twin):
                continue
            index = op in INDEXING and position == 1 and not each.is_floating_point()
            scalar = each.dim() == 0 and torch.Tag.pointwise in op.tags and not _writes(op, position)
            if not (index or scalar):
                raise Apart(f"{op}: {NAME} meets cpu {tuple(each.shape)} at {place()}")


@cache
def _writes(op: Any, position: int) -> bool:
    arguments = op._schema.arguments
    return any(a.alias_info is not None and a.alias_info.is_write for a in arguments[position : position + 1])


def _ends_there(op: Any, args: Any, kwargs: Any) -> bool:
    if op is aten.copy_.default:
        return isinstance(args[0], Twin)
    to = kwargs.get("device")
    return to is None or torch.device(to).type == NAME


def _count(op: Any, args: Any, kwargs: Any, there: bool) -> None:
    name = str(op).removeprefix("aten.")
    masks = op in INDEXING and any(t.dtype == torch.bool for t in _tensors(args[1]))
    if op in WAITING or masks or (op in MOVES and not there):
        for seen in _watching:
            seen.reads[name, place()] += 1
    arriving = op is aten.copy_.default and there and not isinstance(args[1], Twin)
    indices = op in INDEXING and any(not isinstance(t, Twin) for t in _tensors(args[1]))
    plain = op is aten.where.self and any(not isinstance(t, Twin) for t in args)
    if arriving or indices or plain:
        for seen in _watching:
            seen.uploads[name, place()] += 1
            if not (arriving and args[2:] == (True,)):
                seen.blocking[name, place()] += 1


def place() -> str:
    """The innermost line of the package under way, of `machine/` the line that called it."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PACKAGE) and path.parent != PACKAGE / "machine":
            return f"{path.relative_to(PACKAGE)}:{frame.f_lineno}"
        frame = frame.f_back
    return "a backward pass"


# kernels of devices that the CPU does not have


def _lstm_cell(
    gates: Tensor, more: Tensor, cell: Tensor, bias: Tensor | None = None, bias2: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`_thnn_fused_lstm_cell`: h, c, and the gates for the way back."""
    summed = gates + more
    for each in (bias, bias2):
        summed = summed if each is None else summed + each
    i, f, g, o = summed.chunk(4, 1)
    opened = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    after = opened[1] * cell + opened[0] * opened[2]
    return opened[3] * after.tanh(), after, torch.cat(opened, 1)


def _lstm_cell_backward(
    of_h: Tensor | None, of_c: Tensor | None, before: Tensor, after: Tensor, opened: Tensor, bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = opened.chunk(4, 1)
    of_h = torch.zeros_like(before) if of_h is None else of_h
    of_c = torch.zeros_like(before) if of_c is None else of_c
    flat = after.tanh()
    total = of_c + of_h * o * (1 - flat * flat)
    of_gates = torch.cat(
        [
            total * g * i * (1 - i),
            total * before * f * (1 - f),
            total * i * (1 - g * g),
            of_h * flat * o * (1 - o),
        ],
        1,
    )
    return of_gates, total * f, of_gates.sum(0) if bias else None


BY_HAND: dict[Any, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: _lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _lstm_cell_backward,
}


# the device, as torch sees it


def _made(op: Any) -> Callable[..., Tensor]:
    """A factory, on the device."""

    def make(*args: Any, device: Any = None, pin_memory: Any = None, **how: Any) -> Tensor:
        return Twin(op(*args, **how))

    return make


def _copy_from(source: Tensor, to: Tensor, non_blocking: bool = False) -> Tensor:
    """`torch.tensor` and `torch.as_tensor` end here: they pass by `__torch_dispatch__`."""
    copied: Tensor = played(aten.copy_.default, (to, source, non_blocking), {})
    return copied


# all others are made of these
FACTORIES = {
    "empty.memory_format": aten.empty.memory_format,
    "empty_strided": aten.empty_strided.default,
    "arange.start_step": aten.arange.start_step,
    "arange.start": aten.arange.start,
    "arange": aten.arange.default,
    "eye": aten.eye.default,
    "eye.m": aten.eye.m,
    "linspace": aten.linspace.default,
    "randperm": aten.randperm.default,
}
_kept: list[Any] = []


class _Module:
    """`torch.privateuseone`. The CPU draws the device's random numbers."""

    def is_initialized(self) -> bool:
        return True

    is_available = is_initialized

    def _is_in_bad_fork(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1

    def get_rng_state(self, device: object = None) -> Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: object = None) -> None: ...

    def manual_seed_all(self, seed: int) -> None: ...


@cache
def device() -> torch.device:
    """The device; the first call makes it known to torch, in this process for good.

    The first backward pass of a process starts a thread for each device that is known by then, and
    with such threads a process may not fork workers.
    """
    torch.ones(1, requires_grad=True).sum().backward()
    backend_registration._setup_privateuseone_for_python_backend(NAME, _Module())
    library = torch.library.Library("aten", "IMPL")
    for name, op in FACTORIES.items():
        library.impl(name, _made(op), "PrivateUse1")
    library.impl("_copy_from", _copy_from, "PrivateUse1")
    _kept.append(library)
    return torch.device(NAME, 0)

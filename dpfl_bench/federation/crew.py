"""Worker processes: a round's groups of clients, shared out over the cores of one machine.

Workers are forked once a seed, so they have the data and the model without a copy; what changes
goes through shared memory that has no name and so cannot outlive them. Each takes the next group
that nobody has. Sums are added in the groups' order: no bit depends on how many workers there are.
"""

from __future__ import annotations

import atexit
import ctypes
import io
import itertools
import math
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from dpfl_bench.algorithms.base import Sent
from dpfl_bench.federation import evaluation
from dpfl_bench.federation.cohort import Alone, Cohort, State, Worked, most_groups
from dpfl_bench.federation.schedule import Round
from dpfl_bench.problems.problem import Scored

SECONDS_TO_END = 5.0
SECONDS_TO_LOOK = 2e-3  # more than passes between two rounds of a small model


class WorkerDied(RuntimeError):
    """A worker process ended before its time."""


class Workers:
    """A crew of `count` processes, each with one thread; the state's memories move to shared
    memory.
    """

    def __init__(self, cohort: Cohort, state: State, count: int):
        self._cohort = cohort
        self._server = [_shared(t) for t in state.server]
        self._point = _shared(state.server.x)  # what is evaluated, or the round's mean
        messages = state.server.x.new_empty(0, dtype=cohort.door.format(state.server.x))
        self._totals = _shared_like(messages, (most_groups(cohort.problem.dimension), len(state.server.x)))
        state.memory = None if state.memory is None else _shared(state.memory)
        context: Any = multiprocessing.get_context("fork")
        self._next = context.Value("q", 0)
        self._questions = context.RawValue("q", 0)  # that everybody has been sent
        self._state = replace(state, server=type(state.server)(*self._server))
        self._pipes: list[Connection] = []
        self._workers: list[BaseProcess] = []
        atexit.register(
            self._end, wait=False
        )  # multiprocessing's own would ask by SIGTERM, which they don't heed, and wait for ever
        try:
            for _ in range(count):
                self._hire(context)
        except BaseException as error:  # no further process can be had: the others must not stay
            self.__exit__(type(error), error, None)
            raise

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(wait=error is None)
        atexit.unregister(self._end)

    def _end(self, wait: bool) -> None:
        """Workers end when nobody is at the other end of their pipe; after an error none is waited
        for.
        """
        for pipe in self._pipes:
            pipe.close()
        for worker in self._workers:
            if worker.pid is not None:
                if wait:
                    worker.join(SECONDS_TO_END)
                worker.kill()
                worker.join()
            worker.close()
        self._pipes, self._workers = [], []

    def _hire(self, context: Any) -> None:
        """One worker more."""
        ours, theirs = context.Pipe()
        self._pipes.append(ours)
        worker = context.Process(target=self._serve, args=(theirs, [*self._pipes], os.getpid()), daemon=True)
        self._workers.append(worker)
        try:
            worker.start()
        finally:
            theirs.close()

    def work(self, state: State, round: Round) -> Iterator[Worked]:
        for ours, theirs in zip(state.server, self._server, strict=True):
            theirs.copy_(ours)
        for group, worked in enumerate(self._asked(Workers._groups, round, state.clip)):
            worked.sums.total = self._totals[group]
            yield worked

    def remember(self, state: State, sent: Sent, round: Round) -> None:
        self._point.copy_(sent.mean)
        self._asked(Workers._remembered, round, (sent.mean_square_norm, sent.naive_square_norm))

    def losses(self, x: Tensor, test: bool) -> Scored:
        self._point.copy_(x)
        return evaluation.together(self._asked(Workers._scored, test))

    def _asked(self, question: Callable[..., Any], *given: Any) -> list[Any]:
        """What the workers answer: pieces by number, in their order."""
        self._next.value = 0
        message = _pickled((question.__name__, given))
        for pipe, worker in zip(self._pipes, self._workers, strict=True):
            try:
                pipe.send_bytes(message)
            except OSError:
                raise self._died(worker) from None
        self._questions.value += 1
        answers: dict[int, Any] = {}
        waiting: dict[Any, int] = {pipe: number for number, pipe in enumerate(self._pipes)}
        while waiting:
            ends = {self._workers[number].sentinel: number for number in waiting.values()}
            ready: list[Any] = wait([*waiting, *ends])
            for answered in [r for r in ready if r in waiting]:
                worker = self._workers[waiting.pop(answered)]
                try:
                    found, error = _received(answered)
                except (EOFError, OSError):  # no answer, or half of one
                    raise self._died(worker) from None
                if error is not None:
                    raise error
                answers.update(found)
            for end in [r for r in ready if r in ends and ends[r] in waiting.values()]:
                raise self._died(self._workers[ends[end]])
        return [answers[number] for number in sorted(answers)]

    def _died(self, worker: BaseProcess) -> WorkerDied:
        worker.join(SECONDS_TO_END)
        code = worker.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        hint = (
            "; was memory short? (lower engine.workers or engine.memory)" if code == -signal.SIGKILL else ""
        )
        return WorkerDied(
            f"worker process {worker.pid} ended by {how} in the middle of a round{hint}; the same command"
            " goes on from the checkpoint"
        )

    # in a worker

    def _serve(self, pipe: Connection, others: Sequence[Connection], parent: int) -> None:
        """Answers until the pipe is closed. Signals are the first process's to heed; when that one
        is killed, so is this.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)
        _die_with(parent)
        for other in others:
            other.close()  # else they would stay open when the first process is gone
        torch.set_num_threads(1)
        alone = Alone(self._cohort)
        with suppress(EOFError, OSError):
            for answered in itertools.count():
                self._look_for_more_than(answered)
                name, given = _received(pipe)
                answer: tuple[dict[int, Any], Exception | None]
                try:
                    answer = {number: found for number, found in getattr(self, name)(alone, *given)}, None
                except Exception as error:
                    answer = {}, _told(error)
                _send(pipe, answer)

    def _look_for_more_than(self, questions: int) -> None:
        """Awake for a moment. Of workers that are woken at once, the system may put two on one
        core, where one waits for milliseconds.
        """
        until = time.perf_counter() + SECONDS_TO_LOOK
        while self._questions.value <= questions and time.perf_counter() < until:
            os.sched_yield()

    def _numbers(self, count: int) -> Iterator[int]:
        """Of the pieces that this worker takes."""
        while True:
            with self._next.get_lock():
                number: int = self._next.value
                self._next.value += 1
            if number >= count:
                return
            yield number

    def _groups(self, alone: Alone, round: Round, clip: float) -> Iterator[tuple[int, Worked]]:
        alone.begin()
        groups = self._cohort.groups(round.cohort)
        for number in self._numbers(len(groups)):
            worked = alone.group(self._state.server, self._state.memory, round, groups[number], clip)
            self._totals[number] = worked.sums.total
            worked.sums.total = worked.sums.total[:0].clone()
            yield number, worked

    def _remembered(
        self, alone: Alone, round: Round, norms: tuple[Tensor, Tensor]
    ) -> Iterator[tuple[int, None]]:
        alone.remember(
            self._state, Sent(self._point, self._point.new_empty(0, len(self._point)), *norms), round
        )
        yield from ()

    def _scored(self, alone: Alone, test: bool) -> Iterator[tuple[int, Scored]]:
        problem, federation = self._cohort.problem, self._cohort.federation
        parts = evaluation.slices(problem, federation, test)
        for number in self._numbers(len(parts)):
            yield number, evaluation.scored_slice(problem, federation, self._point, test, parts[number])


def _send(pipe: Connection, what: object) -> None:
    pipe.send_bytes(_pickled(what))


def _pickled(what: object) -> memoryview:
    """torch would put tensors that are sent into files of shared memory; these are small."""
    told = io.BytesIO()
    _Pickler(told, pickle.HIGHEST_PROTOCOL).dump(what)
    return told.getbuffer()


class _Pickler(pickle.Pickler):
    """Tensors go as arrays: torch writes an archive for each, which takes a hundred times as long."""

    def reducer_override(self, found: Any) -> Any:
        return (torch.from_numpy, (found.numpy(),)) if isinstance(found, Tensor) else NotImplemented


def _received(pipe: Connection) -> Any:
    return pickle.loads(pipe.recv_bytes())


def _shared(tensor: Tensor) -> Tensor:
    return _shared_like(tensor, tuple(tensor.shape)).copy_(tensor)


def _shared_like(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Memory without a name that forked processes see alike; pages exist once they are written."""
    numbers = math.prod(shape)
    memory = mmap.mmap(-1, max(1, numbers * tensor.element_size()))
    return (
        torch.frombuffer(memory, dtype=tensor.dtype, count=numbers).view(shape)
        if numbers
        else tensor.new_empty(shape)
    )


def _die_with(parent: int) -> None:
    """Linux kills this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _told(error: Exception) -> Exception:
    """The error with its traceback as a note: tracebacks don't travel, nor do some errors."""
    note = "in a worker process:\n" + "".join(traceback.format_exception(error))
    try:
        travels = str(pickle.loads(pickle.dumps(error))) == str(error)
    except Exception:
        travels = False
    found = error.with_traceback(None) if travels else RuntimeError(f"{type(error).__name__}: {error}")
    found.add_note(note)
    return found

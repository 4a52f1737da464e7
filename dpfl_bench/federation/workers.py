"""Worker processes: a round's groups of clients, shared out over the cores of one machine.

Workers are forked once a seed, so they have the data and the model without a copy. What changes
goes through shared memory, which has no name and so cannot outlive the workers. Each worker takes
the next group that no other worker has. The first process adds the groups' sums in their order: no
bit depends on how many workers there are.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import math
import mmap
import multiprocessing
import os
import signal
import sys
import time
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
from dpfl_bench.federation import dissimilarity, evaluation
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.crew import GradientSums, GroupResult
from dpfl_bench.federation.messages import pickled, portable, received, send
from dpfl_bench.federation.round_player import RoundPlayer, most_groups
from dpfl_bench.federation.schedule import PlannedRound
from dpfl_bench.federation.state import TrainingState
from dpfl_bench.machine import mapped
from dpfl_bench.machine.signals import ASKING, KILL, WorkerDied
from dpfl_bench.problems.problem import Scored

SECONDS_TO_END = 5.0
SECONDS_TO_LOOK = 2e-3  # longer than the pause between two rounds of a small model


class Workers:
    """A crew of `count` processes, each with one thread."""

    def __init__(self, player: RoundPlayer, state: TrainingState, count: int):
        """Fork the workers. The clients' memories in `state` move to shared memory, where they are
        not in it.
        """
        self.player = player
        self._server = [_shared(t) for t in state.server]
        self._point = _shared(state.server.x)  # (d,): the model to evaluate, or the round's mean
        messages = state.server.x.new_empty(0, dtype=player.send_door.format(state.server.x))
        shape = (most_groups(player.problem.dimension), player.send_door.vectors, len(state.server.x))
        self._totals = _shared_like(messages, shape)
        if state.memory is not None and not mapped.is_shared(state.memory):
            state.memory = _shared(state.memory)
        context: Any = multiprocessing.get_context("fork")
        self._next = context.Value("q", 0)
        self._questions = context.RawValue("q", 0)  # how many have been sent to every worker
        self._state = replace(state, server=type(state.server)(*self._server))
        self._pipes: list[Connection] = []
        self._workers: list[BaseProcess] = []
        # multiprocessing's own exit handler sends SIGTERM, which workers ignore, and waits for ever
        atexit.register(self._end, wait=False)
        try:
            for _ in range(count):
                self._hire(context)
        except BaseException as error:  # a process could not be started: the others must not stay
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
        """Workers end when the other end of their pipe is closed. After an error they are killed at
        once.
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
        """Start one more worker."""
        ours, theirs = context.Pipe()
        self._pipes.append(ours)
        worker = context.Process(target=self._serve, args=(theirs, [*self._pipes], os.getpid()), daemon=True)
        self._workers.append(worker)
        try:
            worker.start()
        finally:
            theirs.close()

    def play_groups(self, state: TrainingState, round: PlannedRound) -> Iterator[GroupResult]:
        for ours, theirs in zip(state.server, self._server, strict=True):
            theirs.copy_(ours)
        own = self.player.own_groups(self.player.groups(round.cohort))
        results = self._ask(Workers._played_groups, round, state.clip)
        for group, result in zip(own, results, strict=True):
            result.sums.take(self._totals[group])
            yield result

    def update_memories(self, state: TrainingState, sent: Sent, round: PlannedRound) -> None:
        self._point.copy_(sent.mean)
        self._ask(Workers._updated_memories, round, (sent.mean_square_norm, sent.naive_square_norm))

    def losses(self, x: Tensor, test: bool) -> Scored:
        self._point.copy_(x)
        return evaluation.together(self._ask(Workers._scored, test))

    def gradients(self, x: Tensor) -> list[GradientSums]:
        self._point.copy_(x)
        return self._ask(Workers._gradients)

    def memories(self, state: TrainingState) -> Tensor | None:
        return state.memory

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Let every worker run `question(worker, *arguments)`. The workers answer with numbered
        pieces; returned are all pieces, by number.
        """
        self._next.value = 0
        message = pickled((question.__name__, arguments))
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
                    pieces, error = received(answered)
                except (EOFError, OSError):  # no answer, or half of one
                    raise self._died(worker) from None
                if error is not None:
                    raise error
                answers.update(pieces)
            for end in [r for r in ready if r in ends and ends[r] in waiting.values()]:
                raise self._died(self._workers[ends[end]])
        return [answers[number] for number in sorted(answers)]

    def _died(self, worker: BaseProcess) -> WorkerDied:
        worker.join(SECONDS_TO_END)
        code = worker.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
        hint = "; was memory short? (lower engine.workers or engine.memory)" if KILL and code == -KILL else ""
        return WorkerDied(
            f"worker process {worker.pid} ended by {how} in the middle of a round{hint}; the same command"
            " goes on from the checkpoint"
        )

    # in a worker

    def _serve(self, pipe: Connection, others: Sequence[Connection], parent: int) -> None:
        """In a worker: answer until the pipe is closed. Only the first process heeds signals; when
        it is killed, Linux kills the workers too.
        """
        for number in ASKING:
            signal.signal(number, signal.SIG_IGN)
        _die_with(parent)
        for other in others:
            other.close()  # else these pipes would stay open when the first process is gone
        torch.set_num_threads(1)
        alone = Alone(self.player)
        with suppress(EOFError, OSError):
            for answered in itertools.count():
                self._look_for_more_than(answered)
                name, arguments = received(pipe)
                answer: tuple[dict[int, Any], Exception | None]
                try:
                    answer = dict(getattr(self, name)(alone, *arguments)), None
                except Exception as error:
                    answer = {}, portable(error)
                send(pipe, answer)

    def _look_for_more_than(self, questions: int) -> None:
        """Stay awake for a moment, until the next question is there. Of workers that are woken at
        once, the system may put two on one core, where one waits for milliseconds.
        """
        until = time.perf_counter() + SECONDS_TO_LOOK
        while self._questions.value <= questions and time.perf_counter() < until:
            os.sched_yield()

    def _numbers(self, pieces: range) -> Iterator[int]:
        """The numbers, out of `pieces`, of those that this worker takes."""
        while True:
            with self._next.get_lock():
                number: int = self._next.value
                self._next.value += 1
            if number >= len(pieces):
                return
            yield pieces[number]

    def _played_groups(
        self, alone: Alone, round: PlannedRound, clip: float
    ) -> Iterator[tuple[int, GroupResult]]:
        alone.begin_round()
        groups = self.player.groups(round.cohort)
        if self._state.memory is not None:
            self.player.share.expect(groups)
        for number in self._numbers(self.player.own_groups(groups)):
            result = alone.play_group(self._state.server, self._state.memory, round, groups[number], clip)
            result.sums.leave(self._totals[number])
            yield number, result

    def _updated_memories(
        self, alone: Alone, round: PlannedRound, norms: tuple[Tensor, Tensor]
    ) -> Iterator[tuple[int, None]]:
        sent = Sent(self._point, None, *norms)
        alone.update_memories(self._state, sent, round)
        yield from ()

    def _scored(self, alone: Alone, test: bool) -> Iterator[tuple[int, Scored]]:
        problem, federation = self.player.problem, self.player.federation
        parts = evaluation.slices(problem, federation, test)
        sizes = evaluation.sizes(problem, federation, test)
        for number in self._numbers(self.player.share.block(sizes)):
            yield number, evaluation.scored_slice(problem, federation, self._point, test, parts[number])

    def _gradients(self, alone: Alone) -> Iterator[tuple[int, GradientSums]]:
        problem, federation = self.player.problem, self.player.federation
        parts = dissimilarity.groups(problem, federation)
        for number in self._numbers(self.player.own_groups(parts)):
            yield number, dissimilarity.sums_of(problem, federation, self._point, parts[number])


def _shared(tensor: Tensor) -> Tensor:
    return _shared_like(tensor, tuple(tensor.shape)).copy_(tensor)


def _shared_like(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A tensor in memory without a name, which forked processes share. A page takes memory once it
    is written.
    """
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

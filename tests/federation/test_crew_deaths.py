"""A worker that dies or raises ends the round with a clear word, and leaves nothing behind."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from helpers.crews import by_this_process, by_workers, differing, in_chunks, trace_of
from helpers.federations import Played, player_of, settings_of
from helpers.long_runs import GIVEN, crew_of, pid_of, play
from helpers.processes import alive, all_gone, named_memory, open_files, until

from dpfl_bench.experiment import engine
from dpfl_bench.federation import workers as workers_file
from dpfl_bench.federation.alone import Alone
from dpfl_bench.federation.workers import WorkerDied, Workers
from dpfl_bench.privacy.ledger import OverspentError

pytestmark = pytest.mark.one_in(6)


PATIENCE = 60  # seconds, after which a test that waits for ever fails


@pytest.fixture(autouse=True)
def _not_for_ever() -> Iterator[None]:
    """A crew that waits for a dead worker would wait for ever."""

    def ring(*_: object) -> None:
        raise TimeoutError("nobody came")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(PATIENCE)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def played() -> Played:
    return player_of(in_chunks(settings_of(*GIVEN), 1))


@pytest.fixture
def clean(played: Played) -> Iterator[None]:
    """Nothing is open afterwards that was not open before."""
    with Workers(played.player, player_of(settings_of(*GIVEN)).start, 1):
        pass  # the first crew of a process opens what multiprocessing keeps
    files = open_files()
    yield
    assert open_files() == files


class Acting:
    """An algorithm that does something else first, in worker processes: act(round's index)."""

    def __init__(self, inner: Any, act: Callable[[int], object], where: str):
        self.inner, self.act, self.where, self.first = inner, act, where, os.getpid()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name != self.where or os.getpid() == self.first:
            return found

        def acting(*given: Any) -> Any:
            self.act(given[-1].index if name == "remember" else given[-1].round.index)
            return found(*given)

        return acting


def acting(played: Played, act: Callable[[int], object], where: str = "client") -> Played:
    return dataclasses.replace(
        played,
        player=dataclasses.replace(played.player, algorithm=Acting(played.player.algorithm, act, where)),
    )


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def naming(victim: Any, crew: Workers) -> Workers:
    victim.value = pid_of(crew, 2)
    return crew


def kill(crew: Workers, number: int = 0) -> None:
    os.kill(pid_of(crew, number), signal.SIGKILL)
    assert until(lambda: not alive(pid_of(crew, number)))


KILLED = (
    r"^worker process \d+ ended by SIGKILL .*engine\.workers.*engine\.memory.*goes on from the checkpoint$"
)

# deaths


@pytest.mark.parametrize("where", ["client", "remember"])
@pytest.mark.parametrize("count", [1, 3])
def test_in_the_middle_of_a_round(played: Played, clean: None, count: int, where: str) -> None:
    fatal, done = acting(played, lambda index: die() if index == 2 else None, where), list[int]()
    with crew_of(fatal, count) as crew, pytest.raises(WorkerDied, match=KILLED):
        done.extend(play(fatal, crew))
    assert done == [1, 2]


def test_a_worker_that_leaves(played: Played, clean: None) -> None:
    leaving = acting(played, lambda _: os._exit(7))
    with (
        pytest.raises(WorkerDied, match=r"^worker process \d+ ended by exit code 7 .*checkpoint$"),
        crew_of(leaving) as crew,
    ):
        list(play(leaving, crew))


@pytest.mark.parametrize("number", [0, 2])
def test_between_two_rounds(played: Played, clean: None, number: int) -> None:
    with crew_of(played) as crew:
        going = play(played, crew)
        assert next(going) == 1
        kill(crew, number)
        with pytest.raises(WorkerDied, match=KILLED):
            next(going)


def test_between_a_round_and_its_evaluation(played: Played, clean: None) -> None:
    with crew_of(played) as crew:
        next(play(played, crew))
        kill(crew, 1)
        with pytest.raises(WorkerDied, match=KILLED):
            crew.losses(played.start.server.x, True)


def test_all_at_once(played: Played, clean: None) -> None:
    fatal = acting(played, die)
    with pytest.raises(WorkerDied, match=KILLED), crew_of(fatal) as crew:
        list(play(fatal, crew))


def test_while_the_others_wait_for_the_counter(
    played: Played, clean: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def numbers(crew: Workers, count: int) -> Iterator[int]:
        with crew._next.get_lock():
            time.sleep(0.3)  # the others are here too
            die()
        yield 0

    monkeypatch.setattr(Workers, "_numbers", numbers)
    with pytest.raises(WorkerDied, match=KILLED), crew_of(played) as crew:
        list(play(played, crew))


def test_in_the_middle_of_its_answer(played: Played, clean: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first, send = os.getpid(), workers_file.send

    def half(pipe: Any, what: object) -> None:
        if os.getpid() != first:
            os.write(pipe.fileno(), struct.pack("!i", 10_000) + b"half")
            die()
        send(pipe, what)

    monkeypatch.setattr(workers_file, "send", half)
    with pytest.raises(WorkerDied, match=KILLED), crew_of(played) as crew:
        list(play(played, crew))


def test_in_the_middle_of_a_long_question(
    played: Played, clean: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cohort of a million does not fit into a pipe: the first process is still writing."""
    first, received = os.getpid(), workers_file.received

    def half(pipe: Any) -> Any:
        if os.getpid() != first:
            os.read(pipe.fileno(), 100)
            time.sleep(0.1)
            die()
        return received(pipe)

    monkeypatch.setattr(workers_file, "received", half)
    round = dataclasses.replace(played.schedule.round(0), cohort=np.arange(10**6))
    with pytest.raises(WorkerDied, match=KILLED), crew_of(played) as crew:
        list(crew.play_groups(played.start, round))


@pytest.mark.parametrize("error", [OSError(11, "Resource temporarily unavailable"), KeyboardInterrupt()])
def test_while_the_crew_is_made(
    played: Played, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process can be had, or a second Ctrl-C: those that were made end at once, before anybody
    catches the error.
    """
    fork, made = os.fork, list[int]()

    def third_time() -> int:
        if len(made) == 2:
            raise error
        pid = fork()
        made.append(pid)
        return pid

    sockets = [name for name in open_files() if "socket" in name]
    monkeypatch.setattr(os, "fork", third_time)
    left = None
    try:
        Workers(played.player, played.start, 4)
    except type(error):
        left = [pid for pid in made if os.path.exists(f"/proc/{pid}")]
    assert left == []
    assert [name for name in open_files() if "socket" in name] == sockets


def test_others_are_not_waited_for(played: Played) -> None:
    victim = multiprocessing.Value("i", 0)
    slow = acting(played, lambda _: die() if os.getpid() == victim.value else time.sleep(30))
    before = time.monotonic()
    with pytest.raises(WorkerDied), crew_of(slow, 4) as crew:
        list(play(slow, naming(victim, crew)))
    assert time.monotonic() - before < 5


# the first process


@pytest.mark.parametrize("busy", [False, True])
def test_no_worker_outlives_the_first_process(played: Played, busy: bool) -> None:
    ours, theirs = multiprocessing.Pipe(False)
    slow = acting(played, lambda _: time.sleep(60)) if busy else played

    def first() -> None:
        with Workers(slow.player, slow.start, 3) as crew:
            theirs.send([worker.pid for worker in crew._workers])
            list(play(slow, crew))
            time.sleep(60)

    process = multiprocessing.get_context("fork").Process(target=first)
    process.start()
    pids = ours.recv()
    time.sleep(0.3)
    assert all(alive(pid) for pid in pids)
    process.kill()
    process.join()
    assert all_gone(pids, 3.0)


def test_shared_memory_has_no_name(played: Played) -> None:
    """What has none is gone with its last process, however that ends."""
    before = named_memory(os.getpid())
    with crew_of(played) as crew:
        next(play(played, crew))
        for pid in (os.getpid(), *(pid_of(crew, number) for number in range(3))):
            assert named_memory(pid) <= before
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        assert file.name in named_memory(os.getpid())  # it would be seen


def test_workers_leave_signals_to_the_first_process(played: Played) -> None:
    """Ctrl-C reaches the whole process group."""
    expected = trace_of(player_of(in_chunks(settings_of(*GIVEN), 1)), by_this_process)

    def made(played: Played) -> Workers:
        crew = Workers(played.player, played.start, 3)
        assert list(crew._ask(Workers._scored, False))  # they are past their first lines
        for worker in crew._workers:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
                os.kill(worker.pid or 0, number)
        return crew

    assert differing(trace_of(played, made), expected) == []


# errors


class TwoWords(Exception):
    """Pickle makes it of one."""

    def __init__(self, one: str, other: str):
        super().__init__(f"{one} and {other}")


class Holding(RuntimeError):
    """With something that does not travel."""

    def __init__(self, what: str):
        super().__init__(what)
        self.lock = threading.Lock()


def raising(error: BaseException) -> Callable[[int], None]:
    def act(index: int) -> None:
        if index == 1:
            raise error

    return act


@pytest.mark.parametrize(
    "error",
    [
        ValueError("so it is"),
        OverspentError("so it is"),
        MemoryError("so it is"),
        torch.OutOfMemoryError("so it is"),
    ],
    ids=repr,
)
def test_an_error_arrives_with_its_type_and_message(played: Played, clean: None, error: Exception) -> None:
    wrong = acting(played, raising(error))
    with pytest.raises(type(error)) as found, crew_of(wrong) as crew:
        list(play(wrong, crew))
    assert str(found.value) == "so it is"
    (note,) = found.value.__notes__
    assert "in a worker process" in note
    assert "raise error" in note  # where it was raised


class Local(Exception):
    """Which nobody finds under its name."""

    __qualname__ = "nowhere.Local"


@pytest.mark.parametrize(
    "error", [TwoWords("this", "that"), Holding("this and that"), Local("this and that")], ids=repr
)
def test_an_error_that_does_not_travel_is_told_as_well(played: Played, clean: None, error: Exception) -> None:
    wrong = acting(played, raising(error))
    with pytest.raises(RuntimeError) as found, crew_of(wrong) as crew:
        list(play(wrong, crew))
    assert str(found.value) == f"{type(error).__name__}: this and that"
    assert "raise error" in "".join(found.value.__notes__)


def test_one_gradient_too_many(played: Played, clean: None) -> None:
    class Greedy(Acting):
        def __getattr__(self, name: str) -> Any:
            found = getattr(self.inner, name)
            return (
                found
                if name != "client"
                else lambda server, own, local: [found(server, own, local), local.gradient(server.x[None])][0]
            )

    greedy = dataclasses.replace(
        played, player=dataclasses.replace(played.player, algorithm=Greedy(played.player.algorithm, die, ""))
    )
    with (
        pytest.raises(RuntimeError, match="more than the 3 gradients that this round's schedule allows"),
        crew_of(greedy) as crew,
    ):
        list(play(greedy, crew))


# from wherever a run is started


@pytest.mark.slow
def test_after_threads_of_torch(played: Played) -> None:
    """A parallel region before the fork leaves a pool whose threads the workers don't have."""
    expected = trace_of(player_of(in_chunks(settings_of(*GIVEN), 1)), by_this_process)
    torch.set_num_threads(2)
    try:
        large = torch.ones(1500, 1500)
        assert (large @ large.exp()).sum() > 0
        layer = torch.nn.Conv2d(4, 8, 3)
        layer(torch.ones(8, 4, 32, 32)).sum().backward()
        assert differing(trace_of(played, by_workers(3)), expected) == []
    finally:
        torch.set_num_threads(1)


def _in_loky() -> tuple[list[str], bool]:
    played = [player_of(in_chunks(settings_of(*GIVEN), 1)) for _ in range(2)]
    return differing(
        trace_of(played[0], by_workers(2)), trace_of(played[1], by_this_process)
    ), multiprocessing.current_process().daemon


@pytest.mark.slow
def test_in_a_worker_process_of_joblib() -> None:
    loky = pytest.importorskip("joblib.externals.loky")
    with loky.ProcessPoolExecutor(max_workers=1) as process:
        assert process.submit(_in_loky).result() == ([], False)


def test_in_a_daemon() -> None:
    """It may not have children: it works alone."""
    settings = dataclasses.replace(
        settings_of(*GIVEN), engine=dataclasses.replace(settings_of(*GIVEN).engine, workers=None, chunk=1)
    )
    ours, theirs = multiprocessing.Pipe(False)

    def daemon() -> None:
        played = player_of(settings)
        engine.SMALL_ROUND = 0
        with engine.crew(settings, played.player, played.start) as crew:
            theirs.send(
                (type(crew) is Alone, len(list(crew.play_groups(played.start, played.schedule.round(0)))))
            )

    process = multiprocessing.get_context("fork").Process(target=daemon, daemon=True)
    process.start()
    theirs.close()
    try:
        assert ours.recv() == (True, 9)
    finally:
        process.join()


# over many rounds


def test_little_goes_through_the_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of the model's size are shared, not sent."""
    network = {"_target_": "dpfl_bench.problems.models.mlp.mlp", "name": "mlp", "hidden": [20_000]}
    played = player_of(in_chunks(dataclasses.replace(settings_of(*GIVEN), model=network), 1))
    assert played.player.problem.dimension > 150_000
    sizes: list[int] = []

    def received(pipe: Any) -> Any:
        got = pipe.recv_bytes()
        sizes.append(len(got))
        return pickle.loads(got)

    monkeypatch.setattr(workers_file, "received", received)
    with crew_of(played, 2) as crew:
        next(play(played, crew))
    assert len(sizes) == 4  # two workers worked and remembered
    assert sum(sizes) < 30_000


@pytest.mark.slow
def test_rounds_and_crews_grow_nothing() -> None:
    """In a process of its own: what other tests left in this one is shared with workers until
    somebody's garbage collection looks at it.
    """
    script = "from helpers import long_runs; long_runs.three_hundred_rounds(); long_runs.fifteen_crews()"
    paths = os.pathsep.join(sys.path)
    subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": paths}, check=True)

"""One point after the other in this process: everything is imported once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dpfl_bench.launchers.base import HELD, Point, work
from dpfl_bench.progress import Progress
from dpfl_bench.signals import CODES, Interrupted, graceful


class Basic:
    waits_for_others: ClassVar[bool] = False
    at_once = 1

    def launch(self, points: Sequence[Point], progress: Progress) -> None:
        with graceful() as stop:
            for point in points:
                code = work(point, wait=False)
                if code == HELD:
                    progress.held.add(point)
                progress.update()
                if stop.number is not None or code in CODES:
                    raise Interrupted(stop.number or code - 128)

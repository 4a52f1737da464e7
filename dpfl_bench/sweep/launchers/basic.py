"""One point after the other, in a process that has imported everything: if it is killed, that costs
its own point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from dpfl_bench.sweep.launchers import cores
from dpfl_bench.sweep.launchers.base import Point
from dpfl_bench.sweep.progress import Progress


class Basic:
    waits_for_others: ClassVar[bool] = False
    at_once = 1

    def launch(self, points: Sequence[Point], progress: Progress) -> None:
        cores.launch(points, progress, self.at_once)

"""Only the process that `early` starts imports this file. It imports all that a worker needs."""

import os
import signal
import threading

import omegaconf  # noqa: F401

from dpfl_bench.machine.imports import preload
from dpfl_bench.machine.signals import ASKING
from dpfl_bench.results import code_hashes

parent, imported = os.getppid(), threading.Event()


def follow() -> None:
    """End with the command: one that has nothing to compute ends before the imports do."""
    while not imported.wait(0.05):
        if os.getppid() != parent:
            os._exit(0)


for number in ASKING:  # the command passes them on to its workers
    signal.signal(number, signal.SIG_IGN)
follower = threading.Thread(target=follow)
follower.start()
code_hashes.package()  # hashes the code that is loaded now, for all workers
preload("dpfl_bench.experiment.run")
imported.set()
follower.join()

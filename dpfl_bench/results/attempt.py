"""One process's attempt at a run: nobody else works in its folder meanwhile, and how it ended is
written there.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from dpfl_bench.machine.signals import Interrupted
from dpfl_bench.results.folder import RunFolder
from dpfl_bench.results.lock import Claim, Lost, locked


@contextmanager
def attempt(folder: RunFolder, wait: bool = False) -> Iterator[Claim]:
    """Raises Busy where another process works there. Whoever waited for one has to look whether it
    finished the run.
    """
    with locked(folder.path, wait) as claim:
        try:
            folder.tidy()
            yield claim
        except Lost:  # it is another's to write
            raise
        except (Interrupted, KeyboardInterrupt) as error:
            _told(folder, "interrupted", error=str(error) or "stopped by a second signal, at once")
            raise
        except BaseException as error:
            _told(
                folder, "failed", error=f"{type(error).__name__}: {error}", traceback=traceback.format_exc()
            )
            raise
        finally:
            claim.finished = not claim.lost and folder.finished is not None


def _told(folder: RunFolder, word: str, **more: str) -> None:
    """Where the disk is full, what ended the run counts, and not that this cannot be written."""
    with suppress(OSError):
        folder.tell(word, **more)

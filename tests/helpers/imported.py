"""The packages that a piece of code imports."""

from __future__ import annotations

import subprocess
import sys


def loaded_by(code: str) -> set[str]:
    """The top-level packages in sys.modules after `code`."""
    script = (
        f"import sys\ntry:\n {code}\nexcept SystemExit as stop:\n assert not stop.code\nsys.stderr.write('"
        " '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True
    )
    return {name.partition(".")[0] for name in done.stderr.split()}

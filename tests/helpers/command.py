"""The command line as the tests call it: in this process, or as the installed command in one of its
own.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dpfl_bench import cli

BINARY = Path(sys.executable).with_name("dpfl-bench")
QUICK = ("plot=false", "device=cpu")


@dataclass(frozen=True)
class Said:
    code: int | str | None
    out: str
    err: str

    @property
    def folder(self) -> Path:
        """The last line of stdout."""
        assert self.code == 0, self.err
        return Path(self.out.splitlines()[-1])

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


def call(*arguments: str) -> Said:
    """`dpfl-bench ARGUMENTS` in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main(arguments)
        except SystemExit as stop:
            code = stop.code
    return Said(code, out.getvalue(), err.getvalue())


def command(*arguments: str, cwd: Path | None = None) -> Said:
    """The installed `dpfl-bench ARGUMENTS` in a process of its own."""
    done = subprocess.run(
        [BINARY, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, env=dict(os.environ)
    )
    return Said(done.returncode, done.stdout, done.stderr)


def metrics(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "metrics.csv")


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())

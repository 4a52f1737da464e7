"""Artefacts' folders as `reproduce` leaves them, for the tests of the report; and a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dpfl_bench.results.figures.panels import Look, Mark, draw, save

INF = float("inf")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
CLAIM = {
    "id": "c",
    "says": "the optimum is interior",
    "place": "section 5",
    "kind": "interior",
    "verdict": "holds",
    "evidence": "best 5 of 1 to 20",
    "reads": "as the theory says",
    "test": {"kind": "interior", "along": "local_steps", "where": {"eps": 2, "algo": ["a", "b"]}},
    "cells": {"": "holds"},
}
PRINTED = {
    **{"id": "p", "what": "test accuracy, %", "place": "Table 1", "at": "eps 2 / 5", "printed": 45.5},
    **{"std": 0.7, "ours": 44.25, "interval": [43.0, 46.0], "match": "within", "why": ""},
}
MADE: dict[str, Any] = {
    **{"dpfl_bench": "0.1.0", "results_version": 10, "commit": "abc123", "dirty": False, "python": "3.13.1"},
    "versions": {"torch": "2.13.0", "numpy": "2.4.6", "scipy": "1.17.1", "dp-accounting": "0.6.0"},
    "machine": {
        **{"system": "Linux glibc2.36", "cpu": "AMD EPYC", "family": "AuthenticAMD 26 2"},
        **{"simd": "AVX512", "device": "cpu", "threads": 1, "products": "numpy"},
    },
}
RECORD: dict[str, Any] = {
    **{"scale": "smoke", "reading": "paper", "place": "Figure 1", "title": "Errors over local steps"},
    **{"eps": {"nominal": [2, 13], "valid": [0.86, [8.5, INF]]}, "nominal_how": "Theorem 3, q = 1"},
    **{"not_accounted": [], "reduced": "20 of 500 rounds", "lacks": {}, "open": ["q is not stated"]},
    **{"commands": ["dpfl-bench reproduce a/fig1 scale=smoke reading=paper"], "runs": [], "seconds": 1.5},
    "origin": {"data": ["0123456789abcdef"], "package": ["fedcba9876543210"]},
    "made": [MADE],
}
TABLE = "algorithm,error,rounds\nDP-FedAvg,0.10,20\nDP-ScaffNew,0.090,100\nFedAvg,inf,3\n"


def artefact(papers: Path, name: str, at: str = "smoke-paper", figures: int = 1, **more: Any) -> Path:
    """papers/PAPER/ARTEFACT/SCALE-READING with its verdict, table and figures."""
    folder = papers / name / at
    folder.mkdir(parents=True, exist_ok=True)
    scale, _, reading = at.partition("-")
    record = {"artefact": name, **RECORD, "scale": scale, "reading": reading}
    record = {**record, "claims": [CLAIM], "printed": [PRINTED], **more}
    (folder / "verdict.json").write_text(json.dumps(record))
    (folder / "table.csv").write_text(TABLE)
    for number in range(figures):
        (folder / f"figure{number}.svg").write_bytes(_figure())
    return folder


@cache
def _figure() -> bytes:
    """Drawn once, for many tests ask for it."""
    marks = [Mark("", "", line, float(k), 0.1 * k) for line in ("dp_fedavg", "fedavg") for k in range(3)]
    with tempfile.TemporaryDirectory() as folder:
        (file,) = save(draw(marks, Look(title="Errors", width="single")), Path(folder, "figure"), ("svg",))
        return file.read_bytes()


def browser() -> str:
    """Debian's chromium, or another; skips the test where there is none."""
    path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip("no chromium (apt-get install chromium): the report is not looked at in a browser")
    return path


def shown(page: Path, probe: str, width: int, dark: bool = False) -> tuple[Any, list[str]]:
    """What the script `probe` returns in the page at that width, and the lines of the console.

    The page is a frame of another one, for a window has a least width.
    """
    chromium = browser()
    script = (
        "<script>addEventListener('load', () => { const told = document.createElement('pre');"
        f" told.id = 'probe'; told.textContent = JSON.stringify((() => {{ {probe} }})());"
        " document.head.append(told); });</script></body>"
    )
    inside = html.escape(page.read_text().replace("</body>", script))
    outer = page.with_name("frame.html")
    outer.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        f'<iframe id="f" style="width:{width}px;height:900px;border:0" srcdoc="{inside}"></iframe>'
        "<script>f.addEventListener('load', () => setTimeout(() => {"
        " const told = document.createElement('pre'); told.id = 'told';"
        " told.textContent = f.contentDocument.getElementById('probe').textContent;"
        " f.remove(); document.body.append(told); }, 50));</script>"
    )
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0"]
    flags += ["--no-first-run", f"--user-data-dir={page.parent / 'profile'}", "--virtual-time-budget=5000"]
    flags += ["--blink-settings=preferredColorScheme=0"] if dark else []
    command = [chromium, *flags, "--dump-dom", outer.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    told = re.search(r'<pre id="told">(.*?)</pre>', done.stdout, re.DOTALL)
    assert told, done.stderr[-2000:]
    return json.loads(html.unescape(told[1])), [
        line for line in done.stderr.splitlines() if "CONSOLE" in line
    ]

"""A server on this machine that hangs up in the middle, ignores Range, or has something else than
was expected.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dpfl_bench.data import download


class Server(http.server.ThreadingHTTPServer):
    """Has `files` by path. Hangs up half-way through what is left, `drops` times; speaks Range if
    `ranges`.
    """

    def __init__(self, files: dict[str, bytes]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.drops, self.ranges = files, 0, True
        self.asked: list[tuple[str, str | None]] = []  # paths and their Range

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked, content = self.headers.get("Range"), self.server.files.get(self.path)
        self.server.asked.append((self.path, asked))
        if content is None:
            return self.send_error(404)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if first >= len(content):
            return self.send_error(416)
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - first))
        self.end_headers()
        self.server.drops -= 1
        self.wfile.write(
            content[first:] if self.server.drops < 0 else content[first : (first + len(content)) // 2]
        )
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def serving(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Without waiting between tries."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "_PAUSES", (0.0, 0.0))
    with Server(files) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()

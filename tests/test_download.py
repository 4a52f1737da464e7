"""Downloads against a server on this machine that hangs up, ignores Range, or serves the wrong bytes."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dpfl_bench.data import download
from dpfl_bench.data.download import fetch
from dpfl_bench.data.records import DataError

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """Hangs up half-way through what is left, `drops` times; speaks Range if `ranges`."""

    drops = 0
    ranges = True
    asked: list[str | None]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/data"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        asked = self.headers.get("Range")
        self.server.asked.append(asked)
        if self.path != "/data":
            return self.send_error(404)
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        body = CONTENT[first:]
        self.send_response(206 if first else 200)
        if first:
            self.send_header("Content-Range", f"bytes {first}-{len(CONTENT) - 1}/{len(CONTENT)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.server.drops > 0:
            self.server.drops -= 1
            body = body[: len(body) // 2]
        self.wfile.write(body)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "_PAUSES", (0.0, 0.0))
    with Server(("127.0.0.1", 0), Handler) as made:
        made.asked = []
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


def test_whole_file_and_nothing_else(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    assert fetch(server.url, target, SHA256) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert server.asked == [None]


def test_dropped_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.drops = 6  # more than the pauses: each try brought new bytes
    assert fetch(server.url, tmp_path / "file", SHA256).read_bytes() == CONTENT
    assert len(server.asked) == 7
    assert server.asked[:3] == [None, f"bytes={len(CONTENT) // 2}-", f"bytes={len(CONTENT) * 3 // 4}-"]


def test_dropped_connection_without_range_is_restarted(server: Server, tmp_path: Path) -> None:
    server.drops, server.ranges = 1, False
    assert fetch(server.url, tmp_path / "file", None).read_bytes() == CONTENT
    assert len(server.asked) == 2


def test_a_server_that_always_hangs_up_is_given_up(server: Server, tmp_path: Path) -> None:
    server.drops, server.ranges = 1000, False
    with pytest.raises(DataError, match=r"cannot download .*dropped after 524288 of 1048576 bytes.*put the file at"):
        fetch(server.url, tmp_path / "file", None)
    assert len(server.asked) == 4  # the first, which brought bytes, and three that brought no more
    assert list(tmp_path.iterdir()) == []


def test_wrong_checksum_is_not_kept(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "file"
    with pytest.raises(DataError, match=f"sha256 {SHA256}, expected 0000: not kept") as caught:
        fetch(server.url, target, "0000")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    target.write_bytes(b"the file from before")
    with pytest.raises(DataError):
        fetch(server.url, target, "0000")
    assert target.read_bytes() == b"the file from before"


def test_missing_page_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="404"):
        fetch(f"{server.url}/nothing", tmp_path / "file", None)
    assert len(server.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_two_fetches_at_once_do_not_disturb_each_other(server: Server, tmp_path: Path) -> None:
    server.drops = 2
    target = tmp_path / "file"
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: fetch(server.url, target, SHA256), range(4))) == [target] * 4
    assert target.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [target]


def test_offline_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "_PAUSES", (0.0,))
    with Server(("127.0.0.1", 0), Handler) as closed:
        url = closed.url  # nobody listens here any more
    target = tmp_path / "file"
    with pytest.raises(DataError) as caught:
        fetch(url, target, None)
    assert "\n" not in str(caught.value)
    assert f"cannot download {url} ([Errno 111] Connection refused): go online, or put the file at {target}" in str(caught.value)

"""Downloads against a server on this machine that hangs up, ignores Range, or serves the wrong
bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers.served import Server, serving

from dpfl_bench.data import download
from dpfl_bench.data.records import DataError

CONTENT = bytes(range(256)) * 4096  # 1 MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving({"/data": CONTENT}, monkeypatch) as made:
        yield made


def fetch(server: Server, target: Path, sha256: str | None, path: str = "data") -> Path:
    return download.fetch(f"{server.url}/{path}", target, sha256, f"put it at {target} yourself")


def ranges(server: Server) -> list[str | None]:
    return [asked for _, asked in server.asked]


def test_whole_file_and_nothing_else(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    assert fetch(server, target, SHA256) == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert ranges(server) == [None]
    md5 = hashlib.md5(CONTENT).hexdigest()
    assert download.fetch(f"{server.url}/data", tmp_path / "other", md5, "", "md5").read_bytes() == CONTENT
    with pytest.raises(DataError, match=f"md5 {md5}, expected {SHA256}"):
        download.fetch(f"{server.url}/data", tmp_path / "third", SHA256, "", "md5")


def test_dropped_connection_is_resumed(server: Server, tmp_path: Path) -> None:
    server.drops = 6  # more than the pauses: each try brought new bytes
    assert fetch(server, tmp_path / "file", SHA256).read_bytes() == CONTENT
    assert len(server.asked) == 7
    assert ranges(server)[:3] == [None, f"bytes={len(CONTENT) // 2}-", f"bytes={len(CONTENT) * 3 // 4}-"]


def test_dropped_connection_without_range_is_restarted(server: Server, tmp_path: Path) -> None:
    server.drops, server.ranges = 1, False
    assert fetch(server, tmp_path / "file", None).read_bytes() == CONTENT
    assert len(server.asked) == 2


def test_a_server_that_always_hangs_up_is_given_up(server: Server, tmp_path: Path) -> None:
    server.drops, server.ranges = 1000, False
    with pytest.raises(
        DataError, match=r"cannot download .*dropped after 524288 of 1048576 bytes\): put it at"
    ):
        fetch(server, tmp_path / "new" / "file", None)
    assert len(server.asked) == 4  # the first, which brought bytes, and three that brought no more
    assert list(tmp_path.iterdir()) == []


def test_the_next_fetch_goes_on_from_what_came(server: Server, tmp_path: Path) -> None:
    server.drops, server.ranges = 1000, False
    target, half = tmp_path / "new" / "file", len(CONTENT) // 2
    with pytest.raises(
        DataError, match=f"dropped after {half} of {len(CONTENT)} bytes; {half} bytes are kept to go on from"
    ):
        fetch(server, target, SHA256)
    assert [path.stat().st_size for path in target.parent.iterdir()] == [half]
    server.drops, server.ranges = 0, True
    server.asked.clear()
    assert fetch(server, target, SHA256).read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={half}-"]
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    "left", [b"x" * 1000, CONTENT + b"x", b"x" * len(CONTENT)], ids=["other", "longer", "same length"]
)
def test_what_does_not_fit_is_fetched_anew(left: bytes, server: Server, tmp_path: Path) -> None:
    (tmp_path / ".file.part").write_bytes(left)
    assert fetch(server, tmp_path / "file", SHA256).read_bytes() == CONTENT
    assert ranges(server) == [f"bytes={len(left)}-", None]
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_killed_process_leaves_nothing_to_fetch_twice(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".file.part").write_bytes(CONTENT)  # it died before it renamed
    assert fetch(server, tmp_path / "file", SHA256).read_bytes() == CONTENT
    assert server.asked == []
    (tmp_path / ".unchecked.part").write_bytes(CONTENT[:100])  # nothing could tell whether this fits
    assert fetch(server, tmp_path / "unchecked", None).read_bytes() == CONTENT
    assert ranges(server) == [None]


def test_wrong_checksum_is_not_kept(server: Server, tmp_path: Path) -> None:
    target = tmp_path / "new" / "file"
    with pytest.raises(DataError, match=f"sha256 {SHA256}, expected 0000: not kept; put it at") as caught:
        fetch(server, target, "0000")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    target.parent.mkdir()
    target.write_bytes(b"the file from before")
    with pytest.raises(DataError):
        fetch(server, target, "0000")
    assert target.read_bytes() == b"the file from before"
    assert list(target.parent.iterdir()) == [target]


def test_what_cannot_be_written_is_one_line(server: Server, tmp_path: Path) -> None:
    (tmp_path / "no folder").write_text("")
    with pytest.raises(
        DataError, match=r"cannot download .*Not a directory: .*no folder/libsvm'\): put it at"
    ):
        fetch(server, tmp_path / "no folder" / "libsvm" / "file", SHA256)
    assert server.asked == []


def test_missing_page_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for checksum in (None, SHA256):
        with pytest.raises(DataError, match="404"):
            fetch(server, there / "new" / "newer" / "file", checksum, "nothing")
    assert len(server.asked) == 2
    assert list(tmp_path.iterdir()) == [there]
    assert list(there.iterdir()) == []  # the user's own folder stays


def test_fetches_at_once_are_one_download(server: Server, tmp_path: Path) -> None:
    server.drops = 2
    target = tmp_path / "new" / "file"
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: fetch(server, target, SHA256), range(4))) == [target] * 4
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    assert len(server.asked) == 3
    with ThreadPoolExecutor(4) as pool:  # nothing tells that the first was enough
        assert (
            list(pool.map(lambda _: fetch(server, tmp_path / "unchecked", None), range(4)))
            == [tmp_path / "unchecked"] * 4
        )
    assert (tmp_path / "unchecked").read_bytes() == CONTENT
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("url", ["", "no address", "http:///data", "file:///nowhere"])
def test_offline_says_what_to_do(url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "_PAUSES", (0.0,))
    with Server({}) as closed:
        url = url or closed.url  # nobody listens here any more
    target = tmp_path / "new" / "file"
    with pytest.raises(DataError) as caught:
        download.fetch(url, target, SHA256, f"put it at {target}")
    assert "\n" not in str(caught.value)
    reason = r"[Errno 111] Connection refused" if url == closed.url else ""
    assert str(caught.value).startswith(f"cannot download {url} ({reason}")
    assert str(caught.value).endswith(f"): put it at {target}")
    assert list(tmp_path.iterdir()) == []

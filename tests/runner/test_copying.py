"""The cluster's side of `trn cp` against a server that behaves as S3 does on a bad day."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from trainium_cdk.runner import head
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.head import copying
from trainium_cdk.runner.requests import (
    Cluster,
    Entry,
    GiveFiles,
    Incoming,
    ListFiles,
    Outgoing,
    TakeFiles,
    read_request,
    write_request,
)

CONTENT = os.urandom(5000)
SECRET = "X-Amz-Signature=secret"


class Store(ThreadingHTTPServer):
    """Objects by path. `trouble`: what the next requests get, a status or the number of bytes after which the connection ends."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {"/o": CONTENT}
        self.trouble: list[int] = []
        self.asked: list[str] = []
        super().__init__(("127.0.0.1", 0), Handler)

    def url(self, path: str = "/o") -> str:
        return f"http://127.0.0.1:{self.server_port}{path}?{SECRET}"


class Handler(BaseHTTPRequestHandler):
    server: Store

    def do_GET(self) -> None:
        first, last = (int(n) for n in self.headers["Range"].removeprefix("bytes=").split("-"))
        self.server.asked.append(f"{first}-{last}")
        content = self.server.objects[self.path.partition("?")[0]][first : last + 1]
        trouble = self.server.trouble.pop(0) if self.server.trouble else 0
        if self.headers["If-Match"] not in (None, '"good"'):
            trouble = 412
        if 400 <= trouble < 600:
            self.send_error(trouble)
            return
        self.send_response(206)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: trouble or None])

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        trouble = self.server.trouble.pop(0) if self.server.trouble else 0
        if trouble:
            self.send_error(trouble)
            return
        self.server.objects[self.path.partition("?")[0]] = content
        self.send_response(200)
        self.send_header("ETag", f'"{hashlib.md5(content).hexdigest()}"')  # noqa: S324  as S3's
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRN_SHARED_ROOT", str(tmp_path))
    made = tmp_path / "efs/data"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(copying.time, "sleep", lambda _: None)
    with Store() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


CLUSTER = Cluster("/efs", "trn", "", "c")


def test_a_jobs_variables_are_left_out_unless_they_are_named(folder: Path) -> None:
    job = folder / "jobs/run-1"
    job.mkdir(parents=True)
    for name in ("job.json", "env.json", "result.json"):
        (job / name).write_text("{}")
    (folder / "env.json").write_text("{}")  # no job's
    found = copying.entries_of(folder, 10)
    assert sorted(one.name for one in found.entries) == ["env.json", "jobs/run-1/job.json", "jobs/run-1/result.json"]
    assert found.left_out == ("jobs/run-1/env.json (the job's variables, which may be secret)",)
    assert [one.name for one in copying.entries_of(job / "env.json", 10).entries] == ["env.json"]


def taken(folder: Path, store: Store, size: int = len(CONTENT), **mark: str) -> Path:
    asked = TakeFiles("/efs/data", ("/efs",), (Incoming(Entry("sub/file", size, 7, 0o640, ""), store.url(), **mark),))
    _, cluster, given = read_request(json.loads(json.dumps(write_request(CLUSTER, asked))))
    copying.take_files(cluster, given)
    return folder / "efs/data/sub/file"


def given(*files: Outgoing) -> list[Any]:
    return copying.give_files(CLUSTER, GiveFiles("/efs/data", ("/efs",), files))


def test_a_file_arrives_whole_with_its_time_and_permissions(tmp_path: Path, store: Store) -> None:
    file = taken(tmp_path, store, sha256=hashlib.sha256(CONTENT).hexdigest())
    assert file.read_bytes() == CONTENT
    assert (int(file.stat().st_mtime), file.stat().st_mode & 0o777) == (7, 0o640)


def test_a_large_file_moves_in_spans(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "SPAN", 2000)
    file = taken(tmp_path, store, etag='"good"')
    assert file.read_bytes() == CONTENT
    assert sorted(store.asked) == ["0-1999", "2000-3999", "4000-4999"]
    to = tuple((offset, length, store.url(f"/part{offset}")) for offset, length in copying.spans(len(CONTENT)))
    [told] = given(Outgoing(Entry("sub/file", 5000, 7, 0, ""), to))
    assert told.sha256 == hashlib.sha256(CONTENT).hexdigest()
    parts = [store.objects[f"/part{offset}"] for offset in (0, 2000, 4000)]
    assert b"".join(parts) == CONTENT
    assert told.etags == tuple(f'"{hashlib.md5(part).hexdigest()}"' for part in parts)  # noqa: S324


@pytest.mark.parametrize(
    ("trouble", "asked"),
    [
        ([1000, 1500], ["0-4999", "1000-4999", "2500-4999"]),  # what was read is not asked for again
        ([503, 500], ["0-4999"] * 3),
    ],
)
def test_a_connection_that_breaks_goes_on(tmp_path: Path, store: Store, trouble: list[int], asked: list[str]) -> None:
    store.trouble = trouble
    assert taken(tmp_path, store).read_bytes() == CONTENT
    assert store.asked == asked


def test_an_answer_that_is_late_is_waited_for(tmp_path: Path, store: Store) -> None:
    file = tmp_path / "efs/data/file"
    file.write_bytes(CONTENT)
    entry = copying.entries_of(file, 1).entries[0]
    store.trouble = [500, 503]
    given(Outgoing(entry, ((0, 5000, store.url("/new")),)))
    assert store.objects["/new"] == CONTENT


@pytest.mark.parametrize(
    ("trouble", "mark", "message"),
    [
        (
            [403],
            {},
            r"GET http://[0-9.:]+/o: HTTP Error 403: .*\. Your credentials may have ended, or lack a permission",
        ),
        ([400], {}, r"HTTP Error 400: .*\. Your credentials may have ended: renew them, and copy again"),
        ([500] * 4, {}, "HTTP Error 500"),
        ([], {"etag": '"old"'}, r"412: .*\. It changed while it was copied: copy it again"),
        ([], {"sha256": "0" * 64}, "sub/file is not what was sent: it was replaced or damaged on its way"),
        ([1] * 4, {}, "it changed while it was copied"),
    ],
)
def test_what_s3_refuses_leaves_nothing(
    tmp_path: Path, store: Store, trouble: list[int], mark: dict[str, str], message: str
) -> None:
    """And what was there before, as it was. No message has the address's signature."""
    there = tmp_path / "efs/data/sub/file"
    there.parent.mkdir(parents=True)
    there.write_text("before")
    store.trouble = trouble
    with pytest.raises(Refused, match=message) as raised:
        taken(tmp_path, store, **mark)
    assert "secret" not in str(raised.value)
    assert [file.read_text() for file in there.parent.iterdir()] == ["before"]


def test_two_copies_do_not_write_one_file(tmp_path: Path, store: Store) -> None:
    entry = Entry("file", 5000, 7, 0o644, "")
    with copying.arriving(tmp_path, entry) as out:
        out.write(CONTENT)
        with (
            pytest.raises(Refused, match="file is being written by another copy"),
            copying.arriving(tmp_path, entry),
        ):
            raise AssertionError
    assert (tmp_path / "file").read_bytes() == CONTENT
    left = tmp_path / f"{copying.PART}{hashlib.sha256(b'file').hexdigest()[:24]}"
    left.write_bytes(b"x" * 9000)  # of a copy that was killed
    with copying.arriving(tmp_path, entry) as out:
        out.write(CONTENT[::-1])
    assert (tmp_path / "file").read_bytes() == CONTENT[::-1]
    assert not left.exists()


def test_a_full_disk_is_told_at_once(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, match="No space left on device"):
        taken(tmp_path, store)
    assert store.asked == ["0-4999"]
    assert not list((tmp_path / "efs/data/sub").iterdir())


def test_a_file_that_changes_is_not_sent(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("a")
    [entry] = copying.entries_of(file, 1).entries
    with pytest.raises(Refused, match="changed while it was copied"), copying.leaving(tmp_path, entry):
        file.write_text("longer")
    with pytest.raises(Refused, match="changed while it was copied"), copying.leaving(tmp_path, entry):
        raise AssertionError


def test_a_pod_is_asked_by_a_file(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "é").write_text("1")
    for path, message in (("/efs/data", ""), ("/efs/none", "there is no file or folder"), ("/etc", "not on a shared")):
        request = write_request(CLUSTER, ListFiles(path, ("/efs",), 10))
        (tmp_path / "request").write_bytes(gzip.compress(json.dumps(request).encode()))
        head.main(str(tmp_path / "request"))
        told = json.loads(gzip.decompress(base64.b64decode(capsys.readouterr().out)))
        if message:
            assert message in told["error"]["message"]
        else:
            assert [entry[0] for entry in told["answer"]["entries"]] == ["é"]

"""`trn watch`: in a real terminal, over a lost connection, and to a browser."""

from __future__ import annotations

import io
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cli.test_view import text
from tests.jobs.report import browser
from tests.jobs.report.runs import BEGAN, CATALOG, CLUSTER, log_lines, recorded, status
from tests.jobs.report.test_export import LOG
from trainium_cdk.cli import app as cli
from trainium_cdk.cli import screen, watch
from trainium_cdk.cli.web import serve
from trainium_cdk.errors import TransportError, TrnError, UnknownJob
from trainium_cdk.jobs.report import live
from trainium_cdk.jobs.report.live import Live
from trainium_cdk.jobs.status import JobStatus, LogChunk, Stage


class Jobs:
    """A cluster whose connection is cut once."""

    cluster = CLUSTER
    interval = 0.01

    def __init__(self, *, cut: bool = False, final: str = "COMPLETED", gone: bool = False):
        self.cut, self.final, self.gone, self.open = cut, final, gone, True

    def status(self, id: str) -> JobStatus:
        return status(Stage("train", "3", "RUNNING" if self.open else self.final, "", "n-1", None, BEGAN), id=id)

    def settings(self, id: str) -> dict[str, Any]:
        return {"steps": 4}

    def ids(self, limit: int) -> tuple[str, ...]:
        return tuple(job.id for job in self.list(limit))

    def list(self, limit: int) -> tuple[JobStatus, ...]:
        return (self.status("a-1"), self.status("b-2"))

    def log_end(self, *_: object) -> bytes:
        return b"step 1\n"

    def logs(self, id: str, *, follow: bool) -> Iterator[LogChunk]:
        assert follow
        if self.gone:
            raise UnknownJob(f"there is no job {id!r}")
        yield LogChunk("train", 0, LOG[:200])
        if self.cut:
            self.cut = False
            raise TransportError("the head node does not answer")
        yield LogChunk("train", 200, LOG[200:-1])
        self.open = False


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_PAUSE", 0.01)


@pytest.mark.parametrize("cut", [False, True])
def test_a_job_is_followed_to_its_end(cut: bool) -> None:
    jobs = Jobs(cut=cut)
    with Live(jobs, jobs.status("a-1"), CATALOG) as followed:  # type: ignore[arg-type]
        assert followed.ended.wait(60)
        with followed.run() as made:
            assert made.status.state == "COMPLETED"
            assert [x for x, _ in made.curves["loss"].all()] == [1, 2, 3, 4]
            assert made.log.steps == 6  # each line once, also over the lost connection


def test_a_job_that_was_deleted_ends_the_view() -> None:
    jobs = Jobs(gone=True)
    with Live(jobs, jobs.status("a-1"), CATALOG) as followed:  # type: ignore[arg-type]
        assert followed.ended.wait(60)
        assert followed.problem == "there is no job 'a-1'"


def test_a_job_that_was_deleted_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "backend", lambda *_: Jobs(gone=True))
    with pytest.raises(UnknownJob, match="there is no job 'a-1'"):
        cli.app(["watch", "a-1"], standalone_mode=False)
    assert capsys.readouterr().out == ""  # not its last state, as if that were so now


def test_the_page_says_that_the_cluster_does_not_answer() -> None:
    jobs: Any = Jobs()
    followed = Live(jobs, jobs.status("a-1"), CATALOG)
    assert "no answer" not in watch.page_of(followed, jobs, CATALOG, 5)
    followed.answered -= 100
    assert '"alert">no answer for 1 min 40 s, still trying</p>' in watch.page_of(followed, jobs, CATALOG, 5)
    followed._failed(TransportError("the <head> node does not answer"))
    assert ", still trying: the &lt;head&gt; node does not answer</p>" in watch.page_of(followed, jobs, CATALOG, 5)
    followed._failed(UnknownJob("there is no job 'a-1'"))
    page = watch.page_of(followed, jobs, CATALOG, 5)
    assert "\"alert\">there is no job 'a-1'</p>" in page
    assert 'http-equiv="refresh"' not in page


def test_the_page_is_loaded_again_until_the_log_is_read() -> None:
    jobs: Any = Jobs()
    jobs.open = False
    followed = Live(jobs, jobs.status("a-1"), CATALOG)  # it has completed, and its last lines are not read yet
    assert 'http-equiv="refresh"' in watch.page_of(followed, jobs, CATALOG, 5)


def test_an_answer_that_is_older_than_the_last_one_changes_nothing() -> None:
    jobs: Any = Jobs()
    asked, ended = threading.Event(), threading.Event()

    def slow(id: str) -> JobStatus:
        if threading.current_thread() is not followed._threads[1]:
            return Jobs.status(jobs, id)
        before = Jobs.status(jobs, id)
        asked.set()
        ended.wait(60)
        return before

    def logs(id: str, *, follow: bool) -> Iterator[LogChunk]:
        asked.wait(60)
        yield from Jobs.logs(jobs, id, follow=follow)

    jobs.status, jobs.logs = slow, logs
    followed = Live(jobs, Jobs.status(jobs, "a-1"), CATALOG)
    with followed:
        assert followed.ended.wait(60)
        ended.set()
        followed._threads[1].join(60)
        with followed.run() as made:
            assert made.status.state == "COMPLETED"


@pytest.mark.parametrize(("final", "code"), [("COMPLETED", 0), ("FAILED", 1)])
def test_plain_lines_in_a_pipe(
    final: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "backend", lambda *_: Jobs(final=final))
    assert (cli.app(["watch", "a-1"], standalone_mode=False) or 0) == code
    assert capsys.readouterr().out.splitlines()[-1] == f"a-1: train {final}"


def test_all_jobs_need_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "backend", lambda *_: Jobs())
    with pytest.raises(TrnError, match="needs a terminal"):
        cli.app(["watch"], standalone_mode=False)
    with pytest.raises(TrnError, match="Name it: trn watch JOB --web"):
        cli.app(["watch", "--web"], standalone_mode=False)


class Recorded(Jobs):
    """The job of the docs' pictures, while it runs."""

    made = recorded(1, steps=240)

    def status(self, id: str) -> JobStatus:
        return self.made.status

    def settings(self, id: str) -> dict[str, Any]:
        return dict(self.made.settings)

    def logs(self, id: str, *, follow: bool) -> Iterator[LogChunk]:
        for stage, lines in log_lines(1, steps=240).items():
            yield LogChunk(stage, 0, lines)
        threading.Event().wait()


PROGRAM = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, such as these tests, ignore it
sys.path[:0] = ["constructs", "."]
from tests.cli.test_watch import Jobs, Recorded
from trainium_cdk.cli import app, watch
class Waits(Jobs):
    def logs(self, id, *, follow):
        yield from list(super().logs(id, follow=follow))[:1]
        threading.Event().wait()
watch.backend = lambda *_: (Recorded if "--web" in sys.argv else Waits)()
app.app(sys.argv[1:], prog_name="trn")
"""


def test_it_is_used_by_keyboard(terminal: Callable[..., tuple[int, str]]) -> None:
    code, seen = terminal("watch", "a-1", keys=[("loss: 8 to 9", b"m"), ("learning rate: ", b"q")], program=PROGRAM)
    assert code == 0
    assert "\x1b[?1049h" in seen  # the screen is another one, and the old one comes back
    assert "\x1b[?1049l" in seen
    code, seen = terminal("watch", keys=[("b-2", b"q")], program=PROGRAM)
    assert code == 0


def test_the_report_that_a_key_writes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or why it cannot be written: the view goes on."""
    seen: list[str] = []

    def frames(draw: Callable[[int, int], Any], over: object, press: Callable[[str], None]) -> Console:
        press("r")
        seen.append(" ".join(text(draw(200, 50), 200).split()))
        return Console(file=io.StringIO())

    monkeypatch.setattr(screen, "frames", frames)
    monkeypatch.chdir(tmp_path)
    jobs: Any = Jobs()
    followed = Live(jobs, jobs.status("a-1"), CATALOG)
    watch._terminal(followed, jobs, CATALOG, stay=True)
    assert f"the report is {tmp_path / 'report-a-1.html'}" in seen[0]
    (tmp_path / "report-a-1.html").unlink()
    (tmp_path / "report-a-1.html").mkdir()
    watch._terminal(followed, jobs, CATALOG, stay=True)
    assert "cannot write report-a-1.html" in seen[1]


def test_ctrl_c_says_that_the_job_goes_on(terminal: Callable[..., tuple[int, str]]) -> None:
    _, seen = terminal("watch", "a-1", keys=[("loss: 8 to 9", b"\x03")], program=PROGRAM)
    assert "a-1 is not affected. To watch it again: trn watch a-1" in seen


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    """Real parts: the command's process, its server, Chromium. Each figure is in a line of the recorded log."""
    browser.available()
    id = Recorded.made.status.id
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "watch", id, "--web"], stdout=subprocess.PIPE, text=True
    ) as program:
        try:
            assert program.stdout
            url = program.stdout.readline().strip()
            shown = browser.text(url, tmp_path)
            picture = tmp_path / "watch.png"
            browser.screenshot(url, picture, 1000, 1080, tmp_path)
        finally:
            program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
    rows = dict(re.findall(r"<th[^>]*>([^<]+)</th><td[^>]*>([^<]*)</td>", shown))
    [(last, loss)] = re.findall(
        r"\(0, (\d+)\) step_loss : ([\d.]+)", log_lines(1, steps=240)["train"].decode().splitlines()[-1]
    )
    assert rows["state"] == "RUNNING"
    assert re.fullmatch(rf"{last} of 400, .+ left", rows["steps"])
    assert rows["loss"].startswith(f"{float(loss):.4g}, from 3.466")
    assert re.fullmatch(r"[\d,.]+ USD so far, [\d,.]+ USD expected", rows["cost of its nodes"])
    assert shown.count("<svg") >= 3
    assert picture.stat().st_size > 30_000, "an empty page has 6 kB"


def get(url: str, host: str | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, headers={"Host": host} if host else {})  # noqa: S310  ours
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  ours
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        with e:
            return e.code, ""


def test_the_page_is_for_this_user_alone() -> None:
    pages = iter(["first", "second"])
    with serve(lambda _: next(pages)) as url:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", url)
        assert get(url) == (200, "first")
        assert get(url.rsplit("/", 2)[0] + "/")[0] == 404
        assert get(url, host="evil.example")[0] == 404
        assert get(url) == (200, "second")
        port = int(url.split(":")[2].split("/")[0])
        with pytest.raises(TrnError, match=f"port {port} of this machine cannot be used"), serve(lambda _: "", port):
            pass


def test_a_browser_that_leaves_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    asked, left, made = threading.Event(), threading.Event(), threading.Event()

    def page(_: object) -> str:
        asked.set()
        left.wait(60)
        made.set()
        return "x" * 2_000_000

    with serve(page) as url:
        port, path = re.fullmatch(r"http://127.0.0.1:(\d+)(/.*)", url).groups()  # type: ignore[union-attr]
        with socket.create_connection(("127.0.0.1", int(port))) as browsing:
            browsing.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert asked.wait(60)
            browsing.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        left.set()
        assert made.wait(60)
        time.sleep(0.3)  # for what it would print
    assert "Traceback" not in capsys.readouterr().err

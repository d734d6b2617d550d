"""`trn status --watch` and `trn list --watch`: figures of jobs in a terminal, until they end."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, Group

from tests.jobs.report.runs import BEGAN, CATALOG, CLUSTER, recorded, status
from trainium_cdk.cli import app as cli
from trainium_cdk.cli import follow, output, watch
from trainium_cdk.errors import TransportError, TrnError, UnknownJob
from trainium_cdk.jobs import Backend
from trainium_cdk.jobs.report.live import Live
from trainium_cdk.jobs.status import JobStatus, LogChunk, Stage

LINE = b"LOG Fri Nov 20 09:00:05 2026 - (0, %d) step_loss : %d.0 learning_rate : 1.00e-04 throughput : 90.50 \n"
RUNS = Stage("train", "1", "RUNNING", "", "n-1", None, BEGAN)


class Jobs:
    """A job that runs for two rounds and then ends, another that waits, and an array."""

    names_jobs = False
    cluster = CLUSTER
    interval = 0.0
    ordered_logs = True

    def __init__(self, final: str = "COMPLETED") -> None:
        self.final, self.asked, self.text = final, 0, LINE % (1, 9)
        self.error: TrnError | None = None
        self.offsets: list[int] = []

    def status(self, id: str, *, progress: bool = False) -> JobStatus:
        if self.error:
            raise self.error
        self.asked += 1
        train = (
            RUNS
            if self.asked < 3
            else replace(
                RUNS, state=self.final, ended=BEGAN + 60, why="A disk or file system is full" * (self.final == "FAILED")
            )
        )
        self.text = b"".join(LINE % (step, 10 - step) for step in range(1, self.asked + 1))
        return status(train, id=id)

    history: Any = Backend.history

    def settings(self, id: str) -> dict[str, Any]:
        return {"nodes": 1, "env": {"TOKEN": "hunter2"}}

    def logs(self, id: str, *, stage: str | None = None, offset: int = 0, **_: object) -> Iterator[LogChunk]:
        self.offsets.append(offset)
        yield LogChunk(stage or "train", offset, self.text[offset:])

    def list(self, limit: int) -> tuple[JobStatus, ...]:
        return (status(RUNS, id="b-2"),)

    def listed(self, limit: int = 50) -> tuple[tuple[JobStatus, ...], tuple[Any, ...]]:
        return self.list(limit), ()

    def nodes(self) -> tuple[()]:
        return ()


def text(found: Any, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(Group(*found))
    return out.getvalue()


def test_each_round_reads_what_is_new() -> None:
    jobs: Any = Jobs()
    live = Live(jobs, ["a-1"], CATALOG)
    seen = []
    for _ in range(3):
        live.look()
        [run] = live.runs
        seen.append((run.curves.step, run.curves.last["loss"], live.ended))
    assert seen == [(1, 9.0, False), (2, 8.0, False), (3, 7.0, True)]
    assert jobs.offsets[:3] == [0, len(LINE % (1, 9)), 2 * len(LINE % (1, 9))]


def test_a_lost_connection_is_said_and_tried_again() -> None:
    jobs: Any = Jobs()
    live = Live(jobs, ["a-1"], CATALOG)
    live.look()
    jobs.error = TransportError("the head node does not answer")
    live.look()
    assert live.problem.endswith("still trying: the head node does not answer")
    assert live.runs[0].curves.step == 1
    jobs.error = None
    live.look()
    assert (live.problem, live.runs[0].curves.step) == ("", 2)
    jobs.error = UnknownJob("there is no job 'a-1'")
    live.look()
    assert (live.problem, live.ended) == ("there is no job 'a-1'", True)


def test_lines_of_several_nodes_without_an_order_are_all_read_again() -> None:
    jobs: Any = Jobs()
    jobs.ordered_logs = False
    two = jobs.status
    jobs.status = lambda id, **_: replace(two(id), nodes=2)
    live = Live(jobs, ["a-1"], CATALOG)
    for _ in range(2):
        live.look()
    assert jobs.offsets == [0, 0]
    assert [step for step, _ in live.runs[0].curves["loss"].all()] == [1, 2]


def test_a_log_that_begins_again_is_read_from_its_beginning() -> None:
    """On Kubernetes, a restarted pod has a log of its own."""
    jobs: Any = Jobs()
    live = Live(jobs, ["a-1"], CATALOG)
    live.look()
    log = LINE % (30, 5)

    def logs(id: str, *, stage: str, offset: int = 0) -> Iterator[LogChunk]:
        begin = min(offset, 0)
        yield LogChunk(stage, begin, log)

    jobs.logs = logs
    live.look()
    assert live.runs[0].curves.step == 30


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_frame_of_a_job(width: int) -> None:
    made = recorded(1, steps=240)
    made.now = (made.began(made.status.stages[-1]) or 0) + 33
    shown = text(watch._job(made.status, [made]), width)
    words = " ".join(shown.split())
    assert "step 240" in words
    assert re.search(r"loss [\d.]+ +time left \d+ s +cost [\d.]+ USD", words)
    assert "RUNNING" in words
    assert all(len(one) <= width for one in shown.splitlines())


def test_a_frame_of_an_array() -> None:
    """Those that run are among the members that are shown, with their values."""
    members = tuple(
        replace(RUNS, name=str(i), state="RUNNING" if i == 40 else "PENDING", values={"lr": f"{i}e-4"})
        for i in range(50)
    )
    array = status(RUNS, id="sweep-1", members=members)
    shown = text(watch._job(array, []))
    assert "and 20 more" in shown
    assert shown.splitlines()[1].split()[:3] == ["member", "lr", "state"]
    rows = [line.split()[:3] for line in shown.splitlines()[2:32]]
    assert [row[0] for row in rows] == [*map(str, range(29)), "40"]
    assert rows[-1] == ["40", "40e-4", "RUNNING"]


def test_what_a_job_wrote_cannot_control_the_terminal() -> None:
    hostile = "\x1b]52;c;Zm9v\x07[red]\u202e"
    made = status(replace(RUNS, reason=hostile, nodes=hostile), id=f"x{hostile}")
    shown = text(watch._job(made, []))
    assert not set("\x1b\x07\u202e") & set(shown)
    assert "[red]" in shown


@pytest.mark.parametrize("words", [("list", "--watch"), ("status", "a-1", "--watch")])
def test_a_terminal_is_needed(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "backend", lambda *_: Jobs())
    with pytest.raises(TrnError, match=r"--watch needs a terminal\. Leave it out; `trn status --wait JOB`"):
        cli.app([*words], standalone_mode=False)
    with pytest.raises(TrnError, match="--json is of one moment"):
        cli.app([*words, "--json"], standalone_mode=False)


PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs, such as these tests, ignore it
sys.path[:0] = ["constructs", "."]
from tests.cli.test_watch import Jobs
from trainium_cdk.cli import app, follow, watch
from trainium_cdk.jobs.report import live
live.PAUSE = watch.PAUSE = 0.2
jobs = Jobs("FAILED" if "fails-1" in sys.argv else "COMPLETED")
follow.backend = lambda *_: jobs
app.app(sys.argv[1:], prog_name="trn")
"""


@pytest.mark.parametrize(("id", "final", "code"), [("a-1", "COMPLETED", 0), ("fails-1", "FAILED", 1)])
def test_status_stays_until_the_job_has_ended(
    id: str, final: str, code: int, terminal: Callable[..., tuple[int, str]]
) -> None:
    found, seen = terminal("status", id, "--watch", keys=[], program=PROGRAM)
    assert found == code, seen
    assert seen.index("RUNNING") < seen.rindex(final)
    assert "step 3" in seen
    assert ("A disk or file system is full" in " ".join(seen.split())) == (code == 1)


def test_ctrl_c_leaves_the_list(terminal: Callable[..., tuple[int, str]]) -> None:
    code, seen = terminal("list", "--watch", keys=[("b-2", b"\x03")], program=PROGRAM)
    assert code == 130
    assert "Traceback" not in seen


def test_words_of_others_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of a sweep's values are in a job's own record, and a script's option may have brackets."""
    names = ["member", "[/x]", "[red]lr[/red]", "\x1b[2Jgroups[0]"]
    shown = Console(file=io.StringIO(), width=200)
    shown.print(watch._table(names, [["1", "[/y]", "2", "3"]]))
    monkeypatch.setattr("sys.stdout", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    output.table("run-1 [/z]", names, [["1", "[/y]", "2", "3"]])
    for text in (shown.file.getvalue(), terminal.getvalue()):  # type: ignore[attr-defined]
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert all(word in plain for word in ("[/x]", "[red]lr[/red]", "groups[0]", "[/y]"))
        assert "\x1b[2J" not in text
    assert "run-1 [/z]" in terminal.getvalue()

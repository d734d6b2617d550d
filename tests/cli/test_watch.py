"""`trn status --watch` and `trn list --watch`: figures of jobs in a terminal, until they end."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, Group

from tests.jobs.report.runs import BEGAN, CATALOG, CLUSTER, recorded, status
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.cli import follow, output, watch
from trainium_cdk.client.jobs.report import Run
from trainium_cdk.client.jobs.report.run import Live
from trainium_cdk.client.jobs.status import JobStatus, LogChunk, Stage
from trainium_cdk.errors import TransportError, TrnError, UnknownJob
from trainium_cdk.jobs import Backend

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


def text(status: JobStatus, runs: list[Run], width: int = 120, height: int = 40, encoding: str = "utf-8") -> str:
    """A frame of a job, as its terminal shows it."""
    written = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(file=written, width=width, height=height)
    console.print(Group(*watch._job(status, runs, console, height)))
    written.seek(0)
    return written.read()


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


def halfway(*, ago: int = 3) -> Run:
    """A job that has done 240 of 400 steps, the last one some seconds ago."""
    made = recorded(1, steps=240)
    began = made.began(made.status.stages[-1]) or 0
    train = replace(made.status.stages[-1], stepped=began + 90)
    made.status = replace(made.status, stages=(*made.status.stages[:-1], train))
    made.total_steps = made.planned_steps = 400
    made.now = began + 90 + ago
    return made


@pytest.mark.parametrize(("width", "height"), [(40, 24), (80, 24), (120, 40), (200, 60)])
def test_a_frame_of_a_job(width: int, height: int) -> None:
    made = halfway()
    last = made.tail("train")[-1]
    made.feed("train", b'trn: found: {"at": 1795956901.2, "kind": "unknown", "evidence": ""}\n')
    shown = text(made.status, [made], width, height)
    words = " ".join(shown.split())
    assert "60% of 400 steps" in words
    assert re.search(r"step 240 of 400 +loss [\d.]+ from [\d.]+ +last step 3 s ago", words)
    assert re.search(r"time left \d+ s +cost [\d.]+ USD of [\d.]+ USD expected", words)
    assert "train RUNNING" in words
    assert all(len(one) <= width for one in shown.splitlines())
    assert len(shown.splitlines()) == height, "it fills the screen"
    assert last[: width - 4].strip() in shown, "the end of its log"
    assert "trn: found" not in shown, "what is for programs"
    curve = [set(one) & set("▁▂▃▄▅▆▇█") for one in shown.splitlines()]
    assert sum(map(bool, curve)) >= 3, "a curve"


@pytest.mark.parametrize("height", range(1, 30))
def test_a_low_terminal_leaves_out_the_curve_and_then_the_log(height: int) -> None:
    made = halfway()
    whole = text(made.status, [made], 80, 1).splitlines()
    shown = text(made.status, [made], 80, height).splitlines()
    assert shown[: len(whole)] == whole
    assert len(shown) <= max(height, len(whole))
    assert any("log of train" in one for one in shown) == (height >= len(whole) + 3)


def test_no_time_is_left_where_the_last_step_is_old() -> None:
    shown = text((made := halfway(ago=700)).status, [made])
    assert "last step 11 min ago" in shown
    assert "time left not known" in shown
    assert "expected" not in shown


def test_a_terminal_without_unicode() -> None:
    made = halfway()
    shown = text(made.status, [made], 80, 24, encoding="latin-1")
    assert shown.isascii()
    assert re.search(r"^\| #+[:.]* +\|$", shown, re.MULTILINE), "a curve"


def test_a_frame_of_an_array() -> None:
    """Those that run are among the members that are shown, with their values."""
    members = tuple(
        replace(RUNS, name=str(i), state="RUNNING" if i == 40 else "PENDING", values={"lr": f"{i}e-4"})
        for i in range(50)
    )
    array = status(RUNS, id="sweep-1", members=members)
    run = halfway()
    run.status = replace(run.status, id="sweep-1/40")
    shown = text(array, [run], 80, 24).splitlines()
    assert len(shown) == 24
    assert shown[-1] == "and 29 more"
    assert shown[1].split() == ["member", "lr", "state", "step", "loss", "curve", "reason"]
    rows = [line.split() for line in shown[2:23]]
    assert [row[0] for row in rows] == [*map(str, range(20)), "40"]
    assert rows[-1][:4] == ["40", "40e-4", "RUNNING", "240"]
    assert re.fullmatch("█[▁▂▃▄▅▆▇█]{11}", rows[-1][5])
    assert len(text(array, [], 80, 60).splitlines()) == 52, "all of them"
    run.now += 700
    assert "last step 11 min ago" in text(array, [run], 80, 24).splitlines()[22]


def test_what_a_job_wrote_cannot_control_the_terminal() -> None:
    hostile = "\x1b]52;c;Zm9v\x07[red]\u202e"
    made = status(replace(RUNS, reason=hostile, nodes=hostile), id=f"x{hostile}")
    shown = text(made, [])
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
from trainium_cdk.client.cli import app, follow, watch
from trainium_cdk.client.jobs.report import run
run.PAUSE = watch.PAUSE = 0.2
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
    seen = re.sub(r"\x1b\[[0-9;]*m", "", seen)
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
    shown.print(*output.lines(shown, names, [["1", "[/y]", "2", "3"]], []))
    monkeypatch.setattr("sys.stdout", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    output.table("run-1 [/z]", names, [["1", "[/y]", "2", "3"]])
    for text in (shown.file.getvalue(), terminal.getvalue()):  # type: ignore[attr-defined]
        plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
        assert all(word in plain for word in ("[/x]", "[red]lr[/red]", "groups[0]", "[/y]"))
        assert "\x1b[2J" not in text
    assert "run-1 [/z]" in terminal.getvalue()


COLUMNS = ["job", "state", "nodes", "queue", "age", "duration", "user", "reason"]
JOBS = [
    ["sweep-20261128-619c82", "train RUNNING", "1", "compute1", "57s", "50s", "ada", "2 running, 1 pending"],
    ["hang-20261128-c5b3a3", "train RUNNING", "1", "compute1", "13m 4s", "12m 57s", "ada", "last step 11 min ago"],
    ["fails-20261128-7272eb", "train FAILED", "16", "compute1", "1h 2m", "3s", "ada", "node 1: ValueError: shard 17 is empty. Write it again"],
    ["waits-20261128-aab6f4", "prepare PENDING", "16", "compute1", "2h", "", "ada", ""],
]  # fmt: skip
LISTS = {
    80: """\
job                    state            duration  reason
sweep-20261128-619c82  train RUNNING    50s       2 running, 1 pending
hang-20261128-c5b3a3   train RUNNING    12m 57s   last step 11 min ago
fails-20261128-7272eb  train FAILED     3s        node 1: ValueError: shard 17 …
waits-20261128-aab6f4  prepare PENDING
""",
    120: """\
job                    state            nodes  queue     age     duration  user  reason
sweep-20261128-619c82  train RUNNING    1      compute1  57s     50s       ada   2 running, 1 pending
hang-20261128-c5b3a3   train RUNNING    1      compute1  13m 4s  12m 57s   ada   last step 11 min ago
fails-20261128-7272eb  train FAILED     16     compute1  1h 2m   3s        ada   node 1: ValueError: shard 17 is empty
waits-20261128-aab6f4  prepare PENDING  16     compute1  2h                ada
""",
}


@pytest.mark.parametrize("width", LISTS)
def test_a_list_has_a_line_for_each_job(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal := io.StringIO())
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    output.table("", COLUMNS, JOBS, follow._DROP)
    assert re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()) == LISTS[width]


WORDS = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs", "Zl", "Zp"]), max_size=20)
IDS = st.integers(1, 60).map(lambda length: "x" * length + "-20261128-619c82")
ROWS = st.lists(st.tuples(IDS, WORDS, *map(st.just, JOBS[1][2:-1]), WORDS), max_size=3)


@given(ROWS, st.integers(1, 200), st.sampled_from(["utf-8", "ascii"]))
def test_an_id_is_never_broken(rows: list[tuple[str, ...]], width: int, encoding: str) -> None:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding), width=width)
    made = output.lines(console, COLUMNS, rows, follow._DROP)
    assert [one.plain.split()[0] for one in made] == ["job", *(row[0] for row in rows)]
    widest = max(len("job"), *(len(row[0]) for row in rows), 0)
    assert all(one.cell_len <= max(width, widest) for one in made)

"""`trn clusters --watch` and `--web`: keys, frames, a real terminal, and clusters that hang, are cut off, come and go."""

from __future__ import annotations

import html
import io
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from sandbox.processes import wait_until
from tests.cli.test_watch import Jobs, get
from tests.jobs.report import browser
from tests.jobs.report.boards import EKS, NOW, SLURM, View, clusters
from trainium_cdk.cli import app as cli
from trainium_cdk.cli.board import Cursor, view
from trainium_cdk.cli.clusters_web import Opened
from trainium_cdk.errors import OutputsError, TransportError, TrnError
from trainium_cdk.jobs.report import live_clusters
from trainium_cdk.jobs.report.live_clusters import Board, LiveClusters
from trainium_cdk.jobs.status import LogChunk, Whole
from trainium_cdk.outputs.read import Deployed

SHOWN = Board(clusters(), [], True)


def text(shown: Board, cursor: Cursor, width: int = 132, height: int = 40) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(view(shown, cursor, now=NOW, width=width, height=height))
    return out.getvalue()


def pressed(*keys: str) -> Cursor:
    cursor = Cursor()
    for key in keys:
        cursor.press(key, SHOWN.clusters, NOW)
    return cursor


def test_a_frame() -> None:
    shown = " ".join(text(SHOWN, Cursor()).split())
    for wanted in (
        "us-east-1 TrnPclusterStack slurm 5 2 1 1 1 2 1 h 50 min 107.50 43.00",
        "TrnPclusterStack: alarm: bert: nodes have failed;",
        "TrnPclusterStack-west: SSM does not manage the head node",
        "jobs by state",
        "asr-20261120-beef01 TrnEksStack speech/erin RUNNING train 2 h 1 43.00",
        "4711 TrnPclusterStack dora PENDING sbatch 3 min 20 s 1 waits for 3 min 20 s",
    ):
        assert wanted in shown


@pytest.mark.parametrize(
    ("keys", "opened"),
    [
        (("\r",), ("TrnEksStack", None)),
        (("j", "\x1b[B", "\r"), ("TrnPclusterStack-west", None)),
        (("\x1b[B",) * 3 + ("\n",), ("TrnEksStack", "asr-20261120-beef01")),
        (("j",) * 99 + ("\r",), ("TrnPclusterStack", "llama-20261120-00ffee")),
        (("k", "\x1b[A", "\r"), ("TrnEksStack", None)),
        (("j",) * 99 + ("u", "\r"), ("TrnPclusterStack", "bert-large-20261120-4f3a9c")),  # alice has one job
        (("j", "c", "j", "j", "\r"), ("TrnPclusterStack", "bert-large-20261120-4f3a9c")),
        (("j", "c", "c", "j", "j", "\r"), ("TrnEksStack", "asr-20261120-beef01")),
        (("s", "j", "j", "j", "\r"), ("TrnPclusterStack", "bert-large-20261120-4f3a9c")),  # by owner
        (("x", "\x1b[5~", "\r"), ("TrnEksStack", None)),
    ],
)
def test_the_keyboard_is_enough(keys: tuple[str, ...], opened: tuple[str, str | None]) -> None:
    found = pressed(*keys).opened
    assert found
    assert (found[0].stack, found[1] and found[1].id) == opened


def test_every_user_and_team_in_turn() -> None:
    cursor, seen = Cursor(), []
    for _ in range(6):
        cursor.press("u", SHOWN.clusters, NOW)
        seen.append(cursor.choice.owner)
    assert seen == ["alice", "bob", "dora", "erin", "speech", ""]
    assert "jobs of bob by state" in text(SHOWN, pressed("u", "u"))
    assert "alice" not in text(SHOWN, pressed("u", "u"))


def test_what_is_chosen_stays_chosen_when_rows_move() -> None:
    cursor = pressed("j", "j", "j", "j")  # bert-large
    cursor.press("\r", SHOWN.clusters[1:], NOW)
    assert cursor.opened
    assert cursor.opened[1] is not None
    assert cursor.opened[1].id == "bert-large-20261120-4f3a9c"


def test_keys_without_clusters() -> None:
    cursor = Cursor()
    for key in ("\r", "j", "k", "u", "c", "s"):
        cursor.press(key, [], NOW)
    assert cursor.opened is None
    assert "looking for clusters" in text(Board([], [], False), cursor)
    assert "there is no cluster of trainium-cdk" in text(Board([], [], True), cursor)
    assert "cannot read the stacks" in text(Board([], ["cannot read the stacks"], True), cursor)


def test_the_chosen_job_is_on_the_screen_and_the_hidden_are_counted() -> None:
    one = clusters()[1]
    many = replace(one, jobs=tuple(replace(one.jobs[0], id=f"job-{i:03}") for i in range(200)))
    for row in (1, 100, 200):
        shown = text(Board([many], [], True), Cursor(row=row), height=30)
        assert f"job-{row - 1:03}" in shown
        assert len(shown.splitlines()) <= 30
        assert f"and {200 - shown.count('job-')} more" in shown
    shown = text(Board([replace(many, stack=f"stack-{i}") for i in range(50)], [], True), Cursor(row=44), height=60)
    assert "stack-44" in shown
    assert "and 30 more" in shown


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 30), (200, 50)])
def test_what_many_clusters_say_leaves_room_for_jobs_and_keys(width: int, height: int) -> None:
    found = [replace(clusters()[1], stack=f"stack-{i}") for i in range(9)]
    shown = text(Board(found, [], True), Cursor(), width, height)
    assert len(shown.splitlines()) <= height
    assert f"and {9 - shown.count(': alarm: ')} more such lines: trn clusters" in shown or shown.count(": alarm: ") == 9
    assert "bert-large-20261120-4f3a9c" in shown
    assert "q: leave" in shown.replace("\n", "")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_too_long_and_no_id_is_cut(width: int) -> None:
    shown = text(SHOWN, Cursor(), width)
    assert all(len(one) <= width for one in shown.splitlines())
    assert ("bert-large-20261120-4f3a9c" in shown) == (width >= 80)
    assert ("waits for nodes (Resources)" in shown) == ("longest wait" in shown) == (width == 200)


def test_hostile_text_cannot_control_the_terminal() -> None:
    hostile = "\x1b]52;c;Zm9v\x07\u202e"
    one = clusters()[1]
    job = replace(one.jobs[0], id=hostile, user=hostile, reason=hostile)
    shown = Board([replace(one, stack=hostile, note=hostile, jobs=(job,))], [hostile], True)
    assert not set("\x1b\x07\u202e") & set(text(shown, Cursor(problem=hostile)))


class Account:
    """Stacks of two regions, and what each cluster answers; counts what is asked."""

    def __init__(self) -> None:
        self.stacks = {"us-east-1": ["fine", "cut", "hangs"], "us-west-2": ["west"]}
        self.asked: dict[str, int] = {}
        self.cut, self.refused = False, False

    def deployed(self, region: str) -> list[Deployed]:
        if self.refused:
            raise OutputsError(f"cannot read the stacks in {region}: no permission")
        return [Deployed(region, name, "CREATE_COMPLETE", {"TrnEngine": "slurm"}) for name in self.stacks[region]]

    def reach(self, stack: Deployed) -> dict[str, Any]:
        return {"": Asked(self, stack.name) if stack.name != "opens" else Opens()}


class Opens(Jobs, View):
    """A cluster whose views can be opened."""

    def __init__(self) -> None:
        Jobs.__init__(self)
        View.__init__(self, SLURM)

    def logs(self, id: str, *, follow: bool) -> Iterator[LogChunk]:
        yield from list(super().logs(id, follow=follow))[:1]
        threading.Event().wait()


class Asked(View):
    def __init__(self, account: Account, name: str) -> None:
        super().__init__(EKS if name == "west" else SLURM)
        self.account, self.name = account, name

    def whole(self, limit: int) -> Whole:
        self.account.asked[self.name] = self.account.asked.get(self.name, 0) + 1
        if self.name == "hangs":
            threading.Event().wait()
        if self.name == "cut" and self.account.cut:
            raise TransportError("the head node does not answer")
        return super().whole(limit)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    made = Account()
    monkeypatch.setattr(live_clusters, "deployed", made.deployed)
    monkeypatch.setattr(live_clusters, "reach", made.reach)
    monkeypatch.setattr(live_clusters, "with_alarms", lambda stacks, _: [(one, ("disk full",)) for one in stacks])
    return made


@pytest.fixture
def live(account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveClusters]:
    monkeypatch.setattr(live_clusters, "_SEARCH", 0.05)
    with LiveClusters(["us-east-1", "us-west-2"], pause=0.02) as made:
        yield made


def of(live: LiveClusters, name: str) -> Any:
    return next((one for one in live.board().clusters if one.stack == name), None)


def test_one_that_hangs_delays_no_other(live: LiveClusters, account: Account) -> None:
    assert wait_until(lambda: account.asked.get("fine", 0) > 3 and account.asked.get("west", 0) > 3, 60)
    assert account.asked["hangs"] == 1
    assert [one.stack for one in live.board().clusters] == ["cut", "fine", "hangs", "west"]
    assert of(live, "hangs").nodes is None
    assert (of(live, "fine").nodes, of(live, "fine").alarms, of(live, "fine").note) == (5, ("disk full",), "")
    assert live.board().complete


def test_a_lost_connection_comes_back(live: LiveClusters, account: Account) -> None:
    assert wait_until(lambda: (of(live, "cut") or clusters()[2]).nodes, 60)
    account.cut = True
    assert wait_until(lambda: of(live, "cut").note == "the head node does not answer", 60)
    assert of(live, "cut").nodes == 5  # the last that is known
    account.cut = False
    assert wait_until(lambda: not of(live, "cut").note, 60)


def test_clusters_come_and_go_and_regions_are_refused(live: LiveClusters, account: Account) -> None:
    assert wait_until(lambda: of(live, "fine"), 60)
    account.stacks = {"us-east-1": ["new"], "us-west-2": []}
    assert wait_until(lambda: [one.stack for one in live.board().clusters if one.nodes] == ["new"], 60)
    with pytest.raises(TrnError, match="us-east-1/fine has not answered yet"):
        live.way("us-east-1/fine")
    assert live.way("us-east-1/new").whole(50) == SLURM
    account.refused = True
    assert wait_until(lambda: len(live.board().notes) == 2, 60)
    assert of(live, "new")


def test_nothing_is_asked_while_the_figures_are_not_looked_at(live: LiveClusters, account: Account) -> None:
    assert wait_until(lambda: account.asked.get("fine", 0) > 0, 60)
    live._looked -= 1000
    before = account.asked["fine"]
    time.sleep(0.5)  # 25 pauses
    assert account.asked["fine"] <= before + 1, "one was under way"
    before = account.asked["fine"]
    live.board()
    assert wait_until(lambda: account.asked["fine"] > before + 1, 60)


def test_the_page_of_a_job_is_followed_while_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Jobs()

    class Ways:
        def way(self, key: str, team: str) -> Any:
            if key != "us-east-1/fine":
                raise TrnError(f"{key} has not answered yet")
            return jobs

    opened = Opened(Ways())  # type: ignore[arg-type]
    assert "Training report: a-1" in opened.page("us-east-1/fine", "", "a-1")
    followed = opened._open["us-east-1/fine", "", "a-1"][1]
    opened.page("us-east-1/fine", "", "a-1")
    assert opened._open["us-east-1/fine", "", "a-1"][1] is followed
    monkeypatch.setattr("trainium_cdk.cli.clusters_web._UNSEEN", -1.0)
    opened.close_unseen()
    assert opened._open == {}
    assert followed._stopped.is_set()
    with pytest.raises(TrnError, match="other has not answered yet"):
        opened.page("other", "", "a-1")


def test_a_job_of_a_cluster_that_hangs_delays_no_other_page() -> None:
    asked, answers = threading.Event(), threading.Event()

    class Hangs(Jobs):
        def status(self, id: str) -> Any:
            if id == "hangs-1":
                asked.set()
                answers.wait(60)
            return super().status(id)

    opened = Opened(Mock(way=lambda *_: Hangs()))
    waiting = threading.Thread(target=lambda: opened.page("hangs", "", "hangs-1"))
    waiting.start()
    assert asked.wait(60)
    other = threading.Thread(target=lambda: opened.page("fine", "", "a-1"))
    other.start()
    other.join(30)
    hung = other.is_alive()
    answers.set()
    waiting.join(60)
    assert not hung
    assert [key[2] for key in opened._open] == ["a-1", "hangs-1"]


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = ["constructs", "."]
from tests.cli.test_clusters import Account
from tests.jobs.report.boards import BEGAN
from trainium_cdk.cli import app
from trainium_cdk.jobs.report import live_clusters
clock, begun = time.time, time.time()
time.time = lambda: BEGAN + 7200 + clock() - begun  # when these clusters were as they are
account = Account()
account.stacks = {"us-east-1": ["opens", "hangs"], "us-west-2": ["west"]}
live_clusters.deployed, live_clusters.reach = account.deployed, account.reach
live_clusters.with_alarms = lambda stacks, _: [(one, ()) for one in stacks]
app.app(["clusters", "--regions", "us-east-1,us-west-2", *sys.argv[1:]], prog_name="trn")
"""


def test_in_a_terminal(terminal: Callable[..., tuple[int, str]]) -> None:
    """From the clusters to a job, back, to all jobs of a cluster, back, and out."""
    keys = [
        ("llama-20261120-00ffee", b"\x1b[B"),
        ("jobs by state", b"jjj\r"),
        ("loss: 8 to 9", b"q"),
        ("jobs by state", b"kkkkk\r"),
        ("hangs has not answered yet", b"j\r"),
        ("b-2", b"q"),
        ("jobs by state", b"u"),
        ("jobs of alice by state", b"q"),
    ]
    code, seen = terminal("--watch", keys=keys, program=PROGRAM)
    assert code == 0, seen


def test_in_a_browser(tmp_path: Path) -> None:
    """Real parts: the command's process, its server, Chromium; from the page to a job's by its link."""
    browser.available()
    command = [sys.executable, "-c", PROGRAM, "--web"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout
            url = program.stdout.readline().strip()
            assert wait_until(lambda: "llama-20261120-00ffee" in get(url)[1] and "TrnEks" not in get(url)[1], 60)
            shown = browser.text(url, tmp_path)
            picture = tmp_path / "clusters.png"
            browser.screenshot(url, picture, 1240, 760, tmp_path)
            [link] = set(re.findall(r'href="(\?job=bert-large[^"]*)"', shown))
            code, job = get(url + html.unescape(link))
            refused = get(f"{url}?job=a-1&on=us-east-1%2Fhangs")
            of_bob = get(f"{url}?owner=bob")[1]
        finally:
            program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
    cells = re.findall(r"<td[^>]*>(?:<a[^>]*>)?([^<]*)", shown)
    at = cells.index("opens")
    assert cells[at - 1 : at + 8] == ["us-east-1", "opens", "slurm", "5", "2", "1", "1", "1", "2"]
    assert cells[cells.index("hangs") + 2] == ""  # it has its row
    assert "west" in cells
    assert picture.stat().st_size > 30_000
    assert (code, "Training report: bert-large-20261120-4f3a9c" in job) == (200, True)
    assert refused == (503, "")
    assert ("finetune" in of_bob, "bert-large" in of_bob) == (True, False)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--watch"], TrnError, "--watch needs a terminal"),
        (["--watch", "--json"], Exception, "--json is of one moment"),
    ],
)
def test_errors(words: list[str], error: type[Exception], message: str, account: Account) -> None:
    with pytest.raises(error, match=message):
        cli.app(["clusters", "--region", "us-east-1", *words], standalone_mode=False)
    assert account.asked == {}

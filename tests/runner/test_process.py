"""Programs on one node: their output, time, signals and end. Real processes."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import file_system
from trainium_cdk.runner.work import process
from trainium_cdk.runner.work.process import Output

ROOM = Path(__file__).resolve().parents[2] / "constructs/trainium_cdk"
_RUN = """
import json, os, sys
from pathlib import Path
from runner.work import process
from runner.work.process import Output
given = json.loads(sys.argv[1])
for name in ("SAVING_SECONDS", "LIMIT_SECONDS", "_OTHERS_SECONDS"):
    setattr(process, name, given["patience"])
given.pop("patience")
starts = [process.ProgramStart(words, given["folder"], {**os.environ, **each}) for words, each in given["starts"]]
output = Output(Path(given["log"]) if given["log"] else None)
try:
    ended = process.run(starts, output, passes_on=given["passes_on"], seconds=given["seconds"], looks_for=given["looks_for"])
    told = {"code": ended.code, "why": ended.why, "last": ended.said.line, "found": ended.found}
except process.CannotStart as e:
    told = {"cannot": str(e)}
Path(given["told"]).write_text(json.dumps(told))
"""
PATIENCE = 3.0


class Ran:
    """The runner's function in a process of its own, with programs of Python."""

    def __init__(self, place: Path, *programs: str, stdout: str | int = "out", log: str = "log", **given: Any) -> None:
        self.log, self._told = place / log, place / "told"
        words = [
            [[sys.executable, "-c", textwrap.dedent(one)], {"LOCAL_RANK": str(i)}] for i, one in enumerate(programs)
        ]
        told = {
            "starts": words, "folder": str(place), "log": str(self.log), "told": str(self._told),
            "passes_on": True, "seconds": None, "looks_for": "", "patience": PATIENCE, **given,
        }  # fmt: skip
        env = {**os.environ, "PYTHONPATH": str(ROOM), "PYTHONUNBUFFERED": "1"}
        interpreter = os.environ.get("TRN_TEST_PYTHON", sys.executable)
        self.out = place / "out"
        to = stdout if isinstance(stdout, int) else os.open(place / stdout, os.O_WRONLY | os.O_CREAT, 0o644)
        started = [interpreter, "-c", _RUN, json.dumps(told)]
        self.process = subprocess.Popen(started, env=env, stdout=to, start_new_session=True)
        os.close(to)

    def says(self, text: str, patience: float = 30) -> None:
        until = time.monotonic() + patience
        while not (self.log.exists() and text in self.log.read_text(errors="replace")):
            assert time.monotonic() < until, self.log.read_text(errors="replace") if self.log.exists() else "no log"
            time.sleep(0.02)

    def ended(self, patience: float = 40) -> dict[str, Any]:
        try:
            self.process.wait(patience)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        told: dict[str, Any] = json.loads(self._told.read_text())
        return told


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("print('trains')", 0),
        ("import sys; print('trains'); sys.exit(3)", 3),
        ("import os; print('trains'); os.kill(os.getpid(), 9)", -9),
    ],
)
def test_how_a_program_ends(program: str, code: int, tmp_path: Path) -> None:
    ran = Ran(tmp_path, program)
    assert ran.ended() == {"code": code, "why": "", "last": "trains", "found": False}
    assert (ran.log.read_text(), ran.out.read_text()) == ("trains\n", "trains\n")


@pytest.mark.parametrize(
    ("words", "folder", "message"),
    [
        (["/no/such/program"], "", "/no/such/program cannot be started: No such file or directory"),
        (["no-such-program"], "", "no-such-program cannot be started: No such file or directory"),
        (["true"], "/no/such/folder", "/no/such/folder cannot be started: No such file or directory"),
        (["/etc/passwd"], "", "/etc/passwd cannot be started: Permission denied"),
        (["true", "\0"], "", "true cannot be started: embedded null byte"),
    ],
)
def test_what_cannot_be_started(words: list[str], folder: str, message: str, tmp_path: Path) -> None:
    ran = Ran(tmp_path, starts=[[words, {}]], **({"folder": folder} if folder else {}))
    assert ran.ended() == {"cannot": message}


def test_a_copy_that_cannot_be_started_ends_the_others(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    sleeps = [
        sys.executable,
        "-c",
        f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(100)",
    ]
    ran = Ran(tmp_path, starts=[[sleeps, {}], [["/no/such"], {}]])
    assert "cannot" in ran.ended()
    assert not pid.exists() or not pid.read_text() or not alive(int(pid.read_text()))


SAVES = """
import signal, sys, time
def save(*_):
    print("saves", flush=True)
    time.sleep(1)
    print("has saved", flush=True)
    sys.exit({code})
signal.signal(signal.SIGTERM, save)
print("begins", flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("code", [0, 1])
def test_a_program_that_is_told_to_end_saves_its_state(code: int, tmp_path: Path) -> None:
    """It has not completed, even if it ends with 0."""
    ran = Ran(tmp_path, SAVES.format(code=code))
    ran.says("begins\n")
    ran.process.terminate()
    ran.says("saves\n")
    ran.process.terminate()  # a second one does not interrupt it
    assert ran.ended() == {"code": code, "why": "terminated", "last": "has saved", "found": False}
    assert ran.log.read_text() == "begins\nsaves\nhas saved\n"


def test_what_a_shell_has_started_saves_its_state(tmp_path: Path) -> None:
    """The shell itself ends at once."""
    (tmp_path / "save.py").write_text(SAVES.format(code=0))
    ran = Ran(tmp_path, starts=[[["sh", "-c", f"{sys.executable} save.py; true"], {}]])
    ran.says("begins\n")
    ran.process.terminate()
    assert ran.ended()["why"] == "terminated"
    assert "has saved" in ran.log.read_text()


DEAF = "import signal, time, os; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('begins', os.getpid(), flush=True); time.sleep(100)"


@pytest.mark.parametrize("how", ["terminated", "limit"])
def test_a_program_that_does_not_end_is_killed(how: str, tmp_path: Path) -> None:
    ran = Ran(tmp_path, DEAF, seconds=1 if how == "limit" else None)
    ran.says("begins")
    began = time.monotonic()
    if how == "terminated":
        ran.process.terminate()
    ended = ran.ended()
    assert (ended["code"], ended["why"]) == (-9, how)
    assert time.monotonic() - began >= PATIENCE - 0.5


def test_a_program_whose_time_is_over_saves_its_state(tmp_path: Path) -> None:
    ran = Ran(tmp_path, SAVES.format(code=0), seconds=1)
    assert ran.ended() == {"code": 0, "why": "limit", "last": "has saved", "found": False}
    assert ran.log.read_text() == "begins\nsaves\nhas saved\n"


def test_slurm_tells_the_program_itself(tmp_path: Path) -> None:
    """Twice would interrupt it while it saves."""
    ran = Ran(tmp_path, SAVES.format(code=0), passes_on=False)
    ran.says("begins")
    ran.process.terminate()
    time.sleep(0.5)
    assert "saves" not in ran.log.read_text()
    [child] = Path(f"/proc/{ran.process.pid}/task/{ran.process.pid}/children").read_text().split()
    os.kill(int(child), signal.SIGTERM)
    assert ran.ended()["why"] == "terminated"
    assert ran.log.read_text().endswith("has saved\n")


@pytest.mark.parametrize("late", [0.0, 0.2])
def test_a_program_that_slurm_has_told_first(late: float, tmp_path: Path) -> None:
    """It ends before this process knows that it was told, too."""
    ran = Ran(tmp_path, "import sys, time; print('begins', flush=True); time.sleep(1); sys.exit(1)", passes_on=False)
    ran.says("begins")
    time.sleep(1 + late)
    ran.process.terminate()
    assert ran.ended()["why"] == "terminated"


@pytest.mark.parametrize("how", ["USR1", "USR2", "HUP", "INT"])
def test_signals_for_the_program_do_not_end_the_runner(how: str, tmp_path: Path) -> None:
    """`sbatch --signal` sends them to all processes of a job."""
    ran = Ran(tmp_path, "print('begins', flush=True); import time; time.sleep(1.5); print('ends')")
    ran.says("begins")
    os.kill(ran.process.pid, getattr(signal, f"SIG{how}"))
    assert ran.ended() == {"code": 0, "why": "", "last": "ends", "found": False}
    assert ran.log.read_text() == "begins\nends\n"


def test_signals_have_their_defaults_in_a_program(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "print(open('/proc/self/status').read())")
    ran.ended()
    masks = dict(line.split(":\t") for line in ran.log.read_text().splitlines() if line.startswith("Sig"))
    assert int(masks["SigBlk"], 16) == 0
    assert not int(masks["SigIgn"], 16) & sum(1 << (n - 1) for n in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM))


COPY = r"""
import os, sys, time
rank = int(os.environ["LOCAL_RANK"])
os.write(1, b"begins %d %d\n" % (rank, os.getpid()))
time.sleep({0} if rank == 1 else {1})
sys.exit({2} if rank == 1 else 0)
"""


def test_as_soon_as_one_copy_fails_all_end(tmp_path: Path) -> None:
    ran = Ran(tmp_path, *[COPY.format(0.5, 100, 7)] * 3)
    ended = ran.ended()
    assert (ended["code"], ended["why"]) == (7, "")
    pids = [int(line.split()[2]) for line in ran.log.read_text().splitlines()]
    assert len(pids) == 3
    assert not any(map(alive, pids))


def test_copies_that_succeed(tmp_path: Path) -> None:
    ran = Ran(tmp_path, *[COPY.format(0.1, 0.5, 0)] * 3)
    assert ran.ended()["code"] == 0


def test_what_a_program_leaves_behind_is_killed(tmp_path: Path) -> None:
    """It holds the output open, for which nobody waits then."""
    ran = Ran(tmp_path, "import subprocess; print(subprocess.Popen(['sleep', '100']).pid)")
    began = time.monotonic()
    assert ran.ended()["code"] == 0
    assert time.monotonic() - began < 9
    assert not alive(int(ran.log.read_text()))


def test_process_1_waits_for_orphans(tmp_path: Path) -> None:
    """In a namespace of its own, where this process gets what others have left behind, and signals have no defaults."""
    alone = ["unshare", "--fork", "--pid", "--mount-proc"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces of processes here")
    leaves = "import os, time\nfor _ in range(3):\n  if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(0.3)\n    os._exit(0)\n  os.wait()\n"
    program = (
        leaves
        + "time.sleep(1)\nprint(sum(' Z' in open(f'/proc/{p}/stat').read() for p in os.listdir('/proc') if p.isdigit()))"
    )
    told = {
        "starts": [[[sys.executable, "-c", program], {}]], "folder": str(tmp_path), "log": str(tmp_path / "log"), "told": str(tmp_path / "told"),
        "passes_on": True, "seconds": None, "looks_for": "", "patience": PATIENCE,
    }  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(ROOM)}
    subprocess.run([*alone, sys.executable, "-c", _RUN, json.dumps(told)], env=env, check=True, timeout=60)
    assert (tmp_path / "log").read_text() == "0\n"


def test_a_full_disk_ends_no_job(tmp_path: Path) -> None:
    ran = Ran(tmp_path, "print('x' * 100_000)", stdout="/dev/full")
    assert ran.ended()["code"] == 0
    assert ran.log.stat().st_size == 100_001


def test_a_disk_that_fills_up_ends_no_job(tmp_path: Path) -> None:
    with file_system(tmp_path / "small", "64k"):
        ran = Ran(tmp_path, "for _ in range(1000): print('x' * 1000)\nprint('ends')", log="small/log")
        ended = ran.ended()
        assert (ended["code"], ended["last"]) == (0, "ends")


def test_nobody_who_listens_ends_no_job(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = Ran(tmp_path, "print('x' * 100_000)\nprint('ends')", stdout=writing)
    assert ran.ended()["code"] == 0
    assert ran.log.read_text().endswith("ends\n")


def test_a_log_that_is_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    ran = Ran(tmp_path, "print('trains')")
    assert ran.ended()["code"] == 0
    said = ran.out.read_text()
    assert said.startswith(f"trn: {tmp_path}/log cannot be written")
    assert said.endswith("trains\n")


def test_a_low_limit_of_open_files_is_said_by_the_first_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (20_000, 20_000))
    monkeypatch.setattr(resource, "setrlimit", lambda *_: None)
    process.allow_open_files(None)
    assert capfd.readouterr().out == ""
    process.allow_open_files(Output())
    assert capfd.readouterr().out == "trn: at most 20000 files may be open here; large jobs need 65535\n"


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        (["Total failed compilations: 0"], False),
        (["Total failed compilations: 2"], True),
        (["Total failed comp", "ilations: 12"], True),
        (["Total failed compilations: 2", "x" * 90_000], True),
    ],
)
def test_what_is_looked_for_is_found(printed: list[str], found: bool, tmp_path: Path) -> None:
    program = (
        f"import sys, time\nfor piece in {printed!r}:\n  sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.3)"
    )
    assert Ran(tmp_path, program, looks_for="Total failed compilations: [1-9]").ended()["found"] is found

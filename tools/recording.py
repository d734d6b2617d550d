"""`make recording`: what the docs show of jobs in a sandbox with a real Slurm.

python -m tools.recording first-job    submit a job, watch it, see why it failed: an asciicast, and its text. 5 minutes
python -m tools.recording hang         a job that hangs and restarts, by the clocks of a cluster: the lines of its steps. 20 minutes
"""

from __future__ import annotations

import codecs
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from fcntl import ioctl
from pathlib import Path

import pyte

ROOT = Path(__file__).parent.parent
CAST = ROOT / "docs/pictures/first-job.cast"
SANDBOX = ("python", "-m", "sandbox")
STACK = "TrnPclusterStack"
COLUMNS, ROWS = 80, 24
TYPED, PAUSE, LONGEST = 0.035, 2.0, 18.0
"""Seconds: for a letter of a command; the longest silence that is played, and the one after an output; the longest that a command plays."""
PROMPT = "\x1b[2m(local AWS)\x1b[0m \x1b[1;32m$\x1b[0m "
SCRIPT = """import json, os, time
node = int(os.environ["NODE_RANK"])
for step in range(1, 61):
    time.sleep(1)
    if node == 1 and step == 46:
        raise ValueError("data/shard-00017.arrow is empty")
    print(json.dumps({"step": step, "total_steps": 60, "loss": round(1 + 3 / (1 + step / 9), 3)}), flush=True)
"""
COMMANDS = {"trn submit train.py --nodes 2": 0, "trn status latest --watch": 1, "trn status latest": 0}
"""Commands, and the exit code that each must have: the job fails."""

HANG = ROOT / "tools/reference/hang.log"
HANGS = """import json, os, time
from pathlib import Path
node, saved = int(os.environ["NODE_RANK"]), Path(os.environ["TRN_CHECKPOINTS"])
begun = max((int(one.name[5:]) for one in saved.glob("step-*")), default=0)
met = Path.cwd().parent / f"met-{begun}"
met.mkdir(exist_ok=True)
for step in range(begun + 1, 61):
    if step == 37 and not begun and node == 1:
        print("waits for a device", flush=True)
        time.sleep(1e6)
    (met / f"{step}.{node}").touch()
    while len(list(met.glob(f"{step}.*"))) < 2:
        time.sleep(0.1)
    time.sleep(4)
    print(json.dumps({"step": step, "steps": 60, "loss": round(1 + 3 / (1 + step / 9), 3), "time": round(time.time())}), flush=True)
    if step % 10 == 0 and node == 0:
        (saved / f"step-{step}").mkdir(parents=True)
"""

Event = tuple[float, str]
"""Seconds since the event before, and what the terminal got."""


def output(command: Sequence[str], code: int, env: dict[str, str]) -> Iterator[Event]:
    """What a command writes to a terminal until it ends, with this exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        os.chdir(ROOT)
        os.execvpe(command[0], [*command], env)  # noqa: S606  it becomes the command
    decoder, before = codecs.getincrementaldecoder("utf-8")("replace"), time.monotonic()
    while True:
        try:
            read = os.read(terminal, 65536)
        except OSError:  # Linux: the other end is closed
            break
        now = time.monotonic()
        yield now - before, decoder.decode(read)
        before = now
    os.close(terminal)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended != code:
        raise SystemExit(f"{' '.join(command)} ended with {ended}")


def session(env: dict[str, str]) -> Iterator[list[Event]]:
    """The events of each command: it is typed, and runs."""
    shell = (*SANDBOX, "shell", "--dir", env["SANDBOX"], "--", "bash", "-c")
    for command, code in COMMANDS.items():
        typed = [(1.0, PROMPT), *((TYPED, letter) for letter in command), (0.3, "\r\n")]
        yield typed + list(output((*shell, f"cd {env['WORK']}; exec {command}"), code, env)) + [(PAUSE, "")]


def screen(text: str) -> str:
    """What can be read on a terminal after this output."""
    terminal = pyte.HistoryScreen(COLUMNS, ROWS, history=1000, ratio=1)
    pyte.Stream(terminal).feed(text)
    above = ["".join(row[column].data for column in range(COLUMNS)) for row in terminal.history.top]
    return "\n".join(line.rstrip() for line in [*above, *terminal.display]).rstrip()


def write(parts: Sequence[list[Event]]) -> None:
    """The recording as an asciicast of version 2, and its text next to it."""
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "Submit a job, watch it, see why it failed"}
    lines, read, clock = [json.dumps(header)], list[str](), 0.0
    for part in parts:
        waits = [min(wait, PAUSE) for wait, _ in part]
        for wait, (_, text) in zip(waits, part, strict=True):
            clock += wait * min(1, LONGEST / sum(waits))
            lines.append(json.dumps([round(clock, 3), "o", text], ensure_ascii=False))
        screens = re.split(r"\x1b\[\?1049[hl]", "".join(text for _, text in part))  # a program's own, and back
        read.append("\n".join(filter(None, map(screen, screens))))
    CAST.write_text("\n".join(lines) + "\n", "utf-8")
    CAST.with_suffix(".txt").write_text("\n\n".join(read) + "\n", "utf-8")
    print(f"{CAST.relative_to(ROOT)}: {clock:.0f} seconds, {CAST.stat().st_size} bytes")


def first_job(env: dict[str, str]) -> None:
    """Write the recording of a job."""
    write(list(session(env)))


def hang(env: dict[str, str]) -> None:
    """Write the record of a job that hangs and restarts: the steps of its first node, and what the runner says of the restart."""

    def trn(*words: str) -> str:
        command = [*SANDBOX, "shell", "--dir", env["SANDBOX"], "--", "trn", *words]
        return subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout

    job = trn("submit", f"{env['WORK']}/hang.py", "--nodes", "2").strip()
    trn("status", job, "--wait")
    lines = trn("logs", job, "--node", "0").splitlines()
    HANG.write_text("\n".join(line for line in lines if line.startswith(("{", "trn: restart"))) + "\n", "utf-8")


SCENES = {"first-job": (first_job, ""), "hang": (hang, "\njobs: {health: {hang: restart}}\n")}


def main() -> int:
    """Record a scene; returns the exit code."""
    scene, more = SCENES[sys.argv[1] if len(sys.argv) > 1 else "first-job"]
    # The recording shows this path, which names no machine.
    folder = Path(tempfile.mkdtemp(prefix="recording-", dir="/dev/shm"))
    work, environment = folder / "my-project", folder / "environment.yaml"
    work.mkdir()
    (work / "train.py").write_text(SCRIPT)
    (work / "hang.py").write_text(HANGS)
    without = ("AWS_", "TRN_", "CDK_", "NO_COLOR", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(without)}
    env = kept | {
        "PATH": f"{ROOT / '.venv/bin'}:{ROOT / 'node_modules/.bin'}:{kept['PATH']}",
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
        "LANG": "C.UTF-8",
        "USER": "ubuntu",
        "LOGNAME": "ubuntu",
        "XDG_CONFIG_HOME": f"{folder}/config",
        "TRN_ENV": str(environment),
        "SANDBOX": f"{folder}/aws",
        "WORK": str(work),
    }
    inside = (*SANDBOX, "shell", "--dir", env["SANDBOX"], "--")

    def run(*command: str) -> None:
        print("$", *command, flush=True)
        subprocess.run(command, cwd=ROOT, env=env, check=True)

    try:
        run(*SANDBOX, "up", "--slurm", "--region", "us-east-2", "--dir", env["SANDBOX"])
        run(*inside, "trn", "init", str(environment), "--instance-type", "trn2.48xlarge")
        environment.write_text(environment.read_text() + more)
        run(*inside, "cdk", "deploy", STACK, "-o", f"{folder}/cdk.out", "--require-approval", "never")
        scene(env)
    finally:
        subprocess.run([*SANDBOX, "down", "--dir", env["SANDBOX"]], cwd=ROOT, env=env, check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

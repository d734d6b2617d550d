"""`trn logs` and what `trn status` says of a log, on a real Slurm."""

from __future__ import annotations

import contextlib
import html
import re
import subprocess
import textwrap
from pathlib import Path

import pytest
import typer

from sandbox.slurm import LocalSlurm
from tests import command
from tests.support import swept, until
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.cli import follow, report
from trainium_cdk.description.catalog.known_errors import job_errors
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import Result, Script, SlurmBackend, Transport


def script(body: str) -> Script:
    return Script(filename="x.sh", content=body.encode(), precompile=False)


def test_the_log_of_a_job_that_writes_all_the_time_is_printed_as_far_as_it_was(
    backend: SlurmBackend, shared: Path
) -> None:
    job = backend.submit(script("for ((i = 0; i < 2000000; i++)); do printf '%0999d\\n' 0; done"))
    file = shared / "trn/jobs" / job.id / "logs/train.0.log"
    try:
        assert until(lambda: file.exists() and file.stat().st_size > 40_000_000)
        before = file.stat().st_size
        [*_, last] = backend.logs(job.id, node=0)
        assert last.next_offset >= before
        assert file.stat().st_size > last.next_offset  # it went on meanwhile
        [*_, end] = backend.logs(job.id, node=0, tail=3)
    finally:  # otherwise it fills the disk
        backend.cancel(job.id)
    assert end.offset > 40_000_000
    with file.open("rb") as log:
        log.seek(end.offset - 1)
        assert log.read(1001) == b"\n" + b"0" * 999 + b"\n"
    assert end.data.count(b"\n") in (2, 3)  # it may have been writing a line
    file.unlink()


def test_a_known_error_is_explained(backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path) -> None:
    line = "E0811 14:46:04.709808861 2142245 tcp_server_posix.cc:216]    Failed accept4: Too many open files"
    failed = backend.submit(script(f"for i in $(seq 500); do echo step $i; done; echo '{line}'; exit 3"))
    assert backend.wait(failed.id, 600).state == "FAILED"
    (tmp_path / "cluster.json").write_text(backend.cluster.model_dump_json())

    def trn(*words: str) -> subprocess.CompletedProcess[str]:
        done = command.trn([*words, "--cluster", tmp_path / "cluster.json", "--local"], slurm.node_env())
        done.check_returncode()
        return done

    told = "A process may not open enough files; each worker holds many connections. Raise the limit to 65535"
    for words in (("status",), ("logs", "--tail", "5")):
        done = trn(*words, failed.id)
        assert done.stderr.count(told) == 1
        assert f"The log has: {line}" in done.stderr
    assert len(re.findall("step [0-9]*7$", trn("logs", "--node", "0", failed.id).stdout, re.MULTILINE)) == 50
    ended = backend.submit(script(f"echo '{line}'"))
    assert backend.wait(ended.id, 600).ok
    assert told not in trn("status", ended.id).stderr + trn("logs", ended.id).stderr


HARMLESS = """2026-Nov-26 09:11:12.0950 1358943:1359077 [0] init.cc:138 CCOM WARN OFI plugin initNet() failed is EFA enabled?
2026-11-26 09:11:13.000111:  3131  INFO ||NEURON_CACHE||: Another process must be compiling MODULE_1, been waiting for: 0.1 minutes
"""
ADVICE = {error.name: f"{error.cause[0].upper()}{str(error)[1:]}" for error in job_errors()}
MISSING = f"ModuleNotFoundError: No module named 'einops_is_missing'. {ADVICE['package-missing']}"
FULL = f"MemoryError. {ADVICE['host-memory']}"
PROGRAMS = [
    ("import", 2, "import einops_is_missing", MISSING),
    ("memory", 2, "raise MemoryError", FULL),
    ("kill", 2, "os.kill(os.getpid(), 9)", "killed by signal 9 (SIGKILL), most often because the node's memory was full"),
    ("harmless", 1, f"print({HARMLESS!r}, flush=True)\nimport einops_is_missing", MISSING),
]  # fmt: skip


@pytest.mark.parametrize(("name", "nodes", "body", "why"), swept(PROGRAMS, PROGRAMS[0], PROGRAMS[2]))
def test_each_command_ends_with_the_same_reason(
    name: str, nodes: int, body: str, why: str, backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path
) -> None:
    """Of the node that failed first, the last: the others wait, and have tracebacks of their own that would hide it."""
    others = "try:\n    print('step 1', flush=True)\nfinally:\n    time.sleep(60)"
    text = f"import os, time\nif os.environ['NODE_RANK'] != '{nodes - 1}':\n{textwrap.indent(others, '    ')}\n{body}\n"
    job = Script(filename="train.py", content=text.encode(), precompile=False, nodes=nodes)
    sent = backend.submit(job, token=f"ends-{name}")
    failed = backend.wait(sent.id, 600)
    assert (failed.state, failed.current.failed_node) == ("FAILED", nodes - 1)
    (tmp_path / "cluster.json").write_text(backend.cluster.model_dump_json())
    options: list[str | Path] = ["--cluster", tmp_path / "cluster.json", "--local"]
    where = f"node {nodes - 1}: " if nodes > 1 else ""
    said = f"{sent.id}: {where}{why}"
    for words in (["status"], ["logs"], ["logs", "--tail", "0"], ["logs", "-f"]):
        done = command.trn([*words, sent.id, *options], slurm.node_env())
        assert done.stderr.splitlines()[-1] == said, words
    assert command.trn(["list", *options], slurm.node_env()).stdout.count(f"{where}{why}") == 1
    command.trn(["report", sent.id, "-o", tmp_path / "report.html", *options], slurm.node_env())
    assert f"<p><b>{html.escape(where + why, quote=False)}.</b></p>" in (tmp_path / "report.html").read_text()


class Counted:
    """A connection that counts its requests."""

    instance = ""

    def __init__(self, transport: Transport):
        self._transport, self.interval, self.requests = transport, transport.interval, 0

    def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
        self.requests += 1
        return self._transport.run(script, timeout, private)

    def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
        self.requests += 1
        return self._transport.ask(cluster, request, timeout, private)


def test_a_command_asks_once_for_each_thing(
    backend: SlurmBackend, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each request takes seconds through Run Command. That of a log has the status, too, and that why a job failed."""
    ok, bad = (backend.submit(script(f"seq 1 30; exit {code}")).id for code in (0, 3))
    own = backend.submit(script("exit 4"), "named").id
    assert (backend.wait(ok, 600).state, backend.wait(bad, 600).state) == ("COMPLETED", "FAILED")
    assert backend.wait(own, 600).state == "FAILED"
    counted = Counted(backend.transport)
    monkeypatch.setattr(follow, "backend", lambda *_: SlurmBackend(backend.cluster, counted))

    def requests(*words: str) -> int:
        before = counted.requests
        cli.app([*words], standalone_mode=False)
        return counted.requests - before

    assert requests("logs", ok) == 1
    assert requests("logs", "--tail", "20", ok) == 1
    assert capfd.readouterr().out.splitlines()[-20:] == [f"0: {at}" for at in range(11, 31)]
    assert requests("logs", "--stage", "train", "--node", "0", ok) == 1
    assert requests("status", ok) == 1
    assert requests("logs", bad) == requests("logs", "--tail", "20", bad) == 1
    assert requests("status", bad) == requests("status", own) == requests("list") == 1


LAUNCHER = r"""
import os, pathlib, signal, subprocess, sys, time
TRACE = "Traceback (most recent call last):\n  File 'train.py', line 7, in step\n"
def say(rank, text):
    print(*(f"[rank{rank}]:{line}" for line in text.splitlines()), sep="\n", flush=True)
if len(sys.argv) > 1:
    rank = int(sys.argv[1])
    what = "ValueError: shard 7 of /fsx/tokens is cut off" if rank == 37 else "torch.distributed.DistBackendError: a rank is gone"
    say(rank, TRACE + what)
    sys.exit(1)
node, printed = int(os.environ["NODE_RANK"]), pathlib.Path("printed")
while node == 0 and not printed.exists():
    time.sleep(0.1)
ranks = sorted(range(32 * node, 32 * node + 32), key=lambda rank: rank != 37)
for rank in ranks:
    subprocess.run([sys.executable, "-S", __file__, str(rank)])
    if rank == 37:
        for step in range(100_000):
            print(f"[rank{step % 32 + 32}]:step {step} waits for the others")
if node == 1:
    sys.stdout.flush()
    printed.touch()
    signal.pause()
sys.exit(1)
"""


def test_the_first_cause_of_64_ranks_is_named_by_each_command_in_one_request(
    backend: SlurmBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is 100,000 lines before the end, and of the node that ends last."""
    job = Script(filename="train.py", content=LAUNCHER.encode(), precompile=False, nodes=2)
    sent = backend.submit(job)
    assert backend.wait(sent.id, 600).state == "FAILED"
    counted = Counted(backend.transport)
    for module in (follow, report):
        monkeypatch.setattr(module, "backend", lambda *_: SlurmBackend(backend.cluster, counted))
    why = "node 1, rank 37: ValueError: shard 7 of /fsx/tokens is cut off"
    page = tmp_path / "report.html"
    commands = (
        ["status", sent.id],
        ["logs", sent.id],
        ["logs", "-f", sent.id],
        ["list"],
        ["report", sent.id, "-o", str(page)],
    )
    asked = {}
    for words in commands:
        before = counted.requests
        with contextlib.suppress(typer.Exit):
            cli.app(words, standalone_mode=False)
        asked[" ".join(one for one in words[:2] if one != sent.id)] = counted.requests - before
        out, err = capfd.readouterr()
        if words[0] in ("status", "logs"):
            assert err.splitlines()[-1] == f"{sent.id}: {why}", words
        else:
            assert why in (page.read_text() if words[0] == "report" else out), words
    # following asks for the stages first
    assert asked == {"status": 1, "logs": 1, "logs -f": 2, "list": 1, "report": 1}
    failure = backend.status(sent.id).current.failure
    assert failure is not None
    assert (failure.node, failure.rank, failure.said.raised) == (
        1,
        37,
        ("ValueError: shard 7 of /fsx/tokens is cut off",),
    )


def test_the_last_lines_are_followed(backend: SlurmBackend) -> None:
    """From them on, each line once; also from the end of a log that grows."""
    sent = backend.submit(script("seq 1 30; sleep 15; echo more"))
    assert until(lambda: any(b"30\n" in one.data for one in backend.logs(sent.id)))
    last = backend.logs(sent.id, follow=True, tail=2)
    none = backend.logs(sent.id, follow=True, tail=0)
    assert (next(last).data, next(none).data) == (b"0: 29\n0: 30\n", b"0: more\n")
    assert b"".join(one.data for one in last) == b"0: more\n"
    assert list(none) == []

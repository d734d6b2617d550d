"""`trn logs` and what `trn status` says of a log, on a real Slurm."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sandbox.slurm import LocalSlurm
from tests.support import TRN, completed, until
from trainium_cdk.jobs import Script, SlurmBackend


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
        begin = backend.tail_offset(job.id, None, 0, 3)
    finally:  # otherwise it fills the disk
        backend.cancel(job.id)
    assert file.stat().st_size - begin >= 3000
    with file.open("rb") as log:
        log.seek(begin - 1)
        assert log.read(1001) == b"\n" + b"0" * 999 + b"\n"
    file.unlink()


def test_a_known_error_is_explained(backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path) -> None:
    line = "E0811 14:46:04.709808861 2142245 tcp_server_posix.cc:216]    Failed accept4: Too many open files"
    failed = backend.submit(script(f"for i in $(seq 500); do echo step $i; done; echo '{line}'; exit 3"))
    assert backend.wait(failed.id, 600).state == "FAILED"
    (tmp_path / "cluster.json").write_text(backend.cluster.model_dump_json())

    def trn(*words: str) -> subprocess.CompletedProcess[str]:
        return completed(
            [TRN, *words, "--cluster", tmp_path / "cluster.json", "--local"], env=slurm.node_env(), check=True
        )

    told = "a process may not open enough files; each worker holds many connections. Raise the limit to 65535"
    for words in (("status",), ("logs", "--tail", "5")):
        done = trn(*words, failed.id)
        assert done.stderr.count(told) == 1
        assert f"The log has: 0: {line}" in done.stderr or f"The log has: {line}" in done.stderr
    assert len(trn("logs", "--grep", "step [0-9]*7$", "--node", "0", failed.id).stdout.splitlines()) == 50
    ended = backend.submit(script(f"echo '{line}'"))
    assert backend.wait(ended.id, 600).ok
    assert told not in trn("status", ended.id).stderr + trn("logs", ended.id).stderr

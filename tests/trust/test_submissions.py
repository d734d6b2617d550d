"""Clients that are killed while they submit, and a thousand submissions in a burst."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.support import TRN
from tests.trust.moments import Moments, spread
from trainium_cdk.client.cli.options import Target, user
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend

EACH, BURST = 3, 1000  # programs of each phase; jobs
ONCE = b'#!/bin/bash\necho ran >> "$HOME/ran-$NAME"\n'


def known(slurm: LocalSlurm) -> Counter[str]:
    """How many Slurm jobs there are, or were, of each of our jobs; those that were cancelled do not count."""
    rows = slurm.run(["squeue", "-h", "-a", "-t", "all", "-o", "%T %k"]).stdout.splitlines()
    return Counter(row.split(" trn:")[1] for row in rows if not row.startswith("CANCELLED") and " trn:" in row)


@pytest.mark.sweep
@pytest.mark.parametrize("stages", [("precompile", "train"), ("train",)], ids=len)
def test_a_client_that_is_killed_and_run_again_submits_once(
    stages: tuple[str, ...],
    slurm: LocalSlurm,
    backend: SlurmBackend,
    cluster: SlurmCluster,
    jobs_dir: Path,
    tmp_path: Path,
) -> None:
    """SIGKILL before a program of each phase: of `trn` alone, so that the head node's side continues, or of both sides."""
    (tmp_path / "once.sh").write_bytes(ONCE)
    (tmp_path / "cluster.json").write_text(cluster.model_dump_json())
    env = {**slurm.node_env(), "TRN_CLUSTER": str(tmp_path / "cluster.json")}
    moments, several = Moments(tmp_path, slurm.node_env(), jobs_dir), len(stages) > 1

    def submit(token: str, number: int = 0, action: str = "") -> list[str]:
        command = [
            TRN,
            "submit",
            "once.sh",
            "--token",
            token,
            "--env",
            f"NAME={token}",
            "--local",
            *["--precompile"] * several,
        ]
        done = subprocess.run(
            command, env={**env, **moments.env(token, number, action)}, cwd=tmp_path, capture_output=True, check=False
        )
        assert done.returncode == (-signal.SIGKILL if number else 0), done.stderr.decode()
        return moments.phases(token)

    def one(i: int, number: int, phase: str, action: str) -> None:
        token = f"kill-{len(stages)}-{i}"
        seen = submit(token, number, action)
        assert seen[number - 1] == phase
        again = Script(filename="once.sh", content=ONCE, env={"NAME": token}, precompile=several, user=user(Target()))
        assert tuple(backend.submit(again, token).stages) == stages

    submit(f"first-{len(stages)}")  # makes the folders of a new file system
    whole = submit(f"whole-{len(stages)}")
    assert whole == ["writing files"]
    plan = [(*point, action) for point in spread(whole, EACH) for action in ("kill-client", "kill-both")]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda numbered: one(numbered[0], *numbered[1]), enumerate(plan)))
    killed = len(plan)
    ids = [f"once-kill-{len(stages)}-{i}" for i in range(killed)]
    ended = [backend.wait(id, 600) for id in ids]
    found = known(slurm)
    home = Path(slurm.node_env()["HOME"])
    ran = [(home / f"ran-kill-{len(stages)}-{i}").read_text().count("ran") for i in range(killed)]
    assert all(job.ok for job in ended)
    assert {found[id] for id in ids} == {1}
    assert set(ran) == {len(stages)}  # once to compile (a trial run) and once to train


def paused(slurm: LocalSlurm, on: bool) -> None:
    """A partition that takes jobs and starts none, so that what is measured is the submission."""
    slurm.run(["scontrol", "update", "PartitionName=compute1", f"State={'DOWN' if on else 'UP'}"])


def burst(backend: SlurmBackend, name: str, count: int, clients: int) -> set[str]:
    """Submit `count` jobs from several clients at once, and return their ids."""
    jobs = [(Script(filename="job.sh", content=b"true\n", name=name), f"{i}") for i in range(count)]
    ids: set[str] = set()
    lock = threading.Lock()

    def submit(job: tuple[Script, str]) -> None:
        sent = backend.submit(*job)
        with lock:
            ids.add(sent.id)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(submit, jobs))
    return ids


@pytest.mark.sweep
def test_a_burst_is_accepted_completely(slurm: LocalSlurm, cluster: SlurmCluster, jobs_dir: Path) -> None:
    backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env()))
    paused(slurm, True)
    try:
        ids = burst(backend, "burst", BURST, 8)
        found = known(slurm)
        assert len(ids) == BURST
        assert {found[id] for id in ids} == {1}
        assert sum(1 for id in found if id.startswith("burst-")) == BURST
        assert {job.id for job in backend.list(BURST)} >= ids
        assert all((jobs_dir / id / "submitted.json").exists() for id in ids)
        numbers = [row for row in slurm.run(["squeue", "-h", "-a", "-o", "%A %k"]).stdout.splitlines() if "trn:burst-" in row]  # fmt: skip
        first, *rest = sorted(int(row.split()[0]) for row in numbers)
        slurm.run(["scancel", *map(str, rest)])
        paused(slurm, False)
        ran = next(row.split(" trn:")[1] for row in numbers if row.startswith(f"{first} "))
        assert backend.wait(ran, 600).ok
    finally:
        slurm.run(["scancel", "-p", "compute1"])
        paused(slurm, False)


@pytest.mark.sweep
def test_a_burst_through_ssm(slurm: LocalSlurm, over_ssm: object) -> None:
    assert callable(over_ssm)
    paused(slurm, True)
    try:
        ids = burst(over_ssm(), "ssm", 100, 6)
        found = known(slurm)
        assert len(ids) == 100
        assert {found[id] for id in ids} == {1}
    finally:
        slurm.run(["scancel", "-p", "compute1"])
        paused(slurm, False)

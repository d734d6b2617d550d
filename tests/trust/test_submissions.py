"""Clients that are killed while they submit, and a thousand submissions in a burst."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.support import timed
from tests.trust.figures import record
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.outputs import SlurmCluster

TRN = Path(sys.executable).with_name("trn")
KILLS, BURST = 24, 1000
ONCE = b'#!/bin/bash\necho ran >> "$HOME/ran-$NAME"\n'


def known(slurm: LocalSlurm) -> Counter[str]:
    """How many Slurm jobs there are, or were, of each of our jobs; those that were cancelled do not count."""
    rows = slurm.run(["squeue", "-h", "-a", "-t", "all", "-o", "%T %k"]).stdout.splitlines()
    return Counter(row.split(" trn:")[1] for row in rows if not row.startswith("CANCELLED") and " trn:" in row)


def phase(folder: Path) -> str:
    """How far a submission had come."""
    for name, said in (("released", "released"), ("stages", "written down"), ("stages.part", "taken by Slurm")):
        if (folder / name).exists():
            return said
    return "writing files" if folder.exists() else "not begun"


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *children(int(entry.name))]
    return found


def test_a_client_that_is_killed_and_run_again_submits_once(
    slurm: LocalSlurm, backend: SlurmBackend, cluster: SlurmCluster, jobs_dir: Path, tmp_path: Path
) -> None:
    """SIGKILL at a random moment: of `trn` alone, so that the head node's side goes on by itself, or of both sides."""
    (tmp_path / "once.sh").write_bytes(ONCE)
    (tmp_path / "cluster.json").write_text(cluster.model_dump_json())
    env = {**slurm.node_env(), "TRN_CLUSTER": str(tmp_path / "cluster.json")}
    dice = random.Random(20261120)  # noqa: S311  the same each time
    phases: Counter[str] = Counter()

    def one(number: int, wait: float, both: bool) -> None:
        token = f"kill-{number}"
        command = [TRN, "submit", "once.sh", "--token", token, "--env", f"NAME={token}", "--precompile", "--local"]
        with subprocess.Popen(command, env=env, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as trn:
            assert trn.stderr is not None
            for line in trn.stderr:
                if line.startswith(b"submitting"):
                    break
            time.sleep(wait)
            below = children(trn.pid)
            trn.kill()
            for pid in below if both else []:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        phases[phase(jobs_dir / f"once-{token}")] += 1
        again = Script(filename="once.sh", content=ONCE, env={"NAME": token}, precompile=True)
        assert list(backend.submit(again, token).stages) == ["precompile", "train"]

    one_whole = Script(filename="once.sh", content=ONCE, env={"NAME": "whole"}, precompile=True)
    whole = min(timed(partial(backend.submit, one_whole, f"whole-{i}")) for i in range(3))
    plan = [(i, dice.uniform(0, 1.5 * whole), dice.random() < 0.6) for i in range(KILLS)]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda args: one(*args), plan))
    ids = [f"once-kill-{i}" for i in range(KILLS)]
    ended = [backend.wait(id, 600) for id in ids]
    found = known(slurm)
    home = Path(slurm.node_env()["HOME"])
    ran = [(home / f"ran-kill-{i}").read_text().count("ran") for i in range(KILLS)]
    record(
        "killed-clients", killed=KILLS, jobs=sum(found[id] >= 2 for id in ids), lost=sum(found[id] < 2 for id in ids),
        doubled=sum(found[id] > 2 for id in ids) + sum(n > 2 for n in ran), killed_while=dict(phases),
    )  # fmt: skip
    assert all(job.ok for job in ended)
    assert {found[id] for id in ids} == {2}  # its two stages, once each
    assert set(ran) == {2}  # once to compile (a trial run) and once to train
    assert len(phases) > 1, "all were killed at the same point"


def paused(slurm: LocalSlurm, on: bool) -> None:
    """A partition that takes jobs and starts none, so that what is measured is the submission."""
    slurm.run(["scontrol", "update", "PartitionName=compute1", f"State={'DOWN' if on else 'UP'}"])


def burst(slurm: LocalSlurm, backend: SlurmBackend, name: str, count: int, clients: int) -> tuple[float, set[str]]:
    """Submit `count` jobs from several clients at once: seconds, and the ids."""
    jobs = [(Script(filename="job.sh", content=b"true\n", name=name), f"{i}") for i in range(count)]
    ids: set[str] = set()
    lock = threading.Lock()

    def submit(job: tuple[Script, str]) -> None:
        sent = backend.submit(*job)
        with lock:
            ids.add(sent.id)

    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(submit, jobs))
    return time.monotonic() - began, ids


def test_a_burst_is_taken_whole(slurm: LocalSlurm, cluster: SlurmCluster, jobs_dir: Path) -> None:
    backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env()))
    paused(slurm, True)
    try:
        began = time.monotonic()
        bare = 100
        for _ in range(bare):
            slurm.run(["sbatch", "--parsable", "--hold", "-o", "/dev/null", "--wrap=true"])
        per_bare = (time.monotonic() - began) / bare
        slurm.run(["scancel", "-n", "wrap"])
        seconds, ids = burst(slurm, backend, "burst", BURST, 8)
        found = known(slurm)
        assert len(ids) == BURST
        assert {found[id] for id in ids} == {1}
        assert sum(1 for id in found if id.startswith("burst-")) == BURST
        assert {job.id for job in backend.list(BURST)} >= ids
        assert all((jobs_dir / id / "released").exists() for id in ids)
        record(
            "burst-local", submitted=BURST, accepted=len(ids), lost=sum(found[id] == 0 for id in ids),
            doubled=sum(found[id] > 1 for id in ids), clients=8,
            seconds=round(seconds, 1), per_second=round(BURST / seconds, 1),
            ratio_to_bare_sbatch=round(seconds / BURST / per_bare, 2),
        )  # fmt: skip
        numbers = [row for row in slurm.run(["squeue", "-h", "-a", "-o", "%A %k"]).stdout.splitlines() if "trn:burst-" in row]  # fmt: skip
        first, *rest = sorted(int(row.split()[0]) for row in numbers)
        slurm.run(["scancel", *map(str, rest)])
        paused(slurm, False)
        ran = next(row.split(" trn:")[1] for row in numbers if row.startswith(f"{first} "))
        assert backend.wait(ran, 600).ok
    finally:
        slurm.run(["scancel", "-p", "compute1"])
        paused(slurm, False)


@pytest.mark.timeout(300)
def test_a_burst_through_ssm(slurm: LocalSlurm, over_ssm: object) -> None:
    assert callable(over_ssm)
    paused(slurm, True)
    try:
        seconds, ids = burst(slurm, over_ssm(), "ssm", 100, 6)
        found = known(slurm)
        assert len(ids) == 100
        assert {found[id] for id in ids} == {1}
        record(
            "burst-ssm", submitted=100, accepted=len(ids), lost=sum(found[id] == 0 for id in ids),
            doubled=sum(found[id] > 1 for id in ids), clients=6, seconds=round(seconds, 1),
        )  # fmt: skip
    finally:
        slurm.run(["scancel", "-p", "compute1"])
        paused(slurm, False)

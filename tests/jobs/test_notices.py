"""Of each job that has ended, however it ended, root's service of the head node writes one line: on a real Slurm."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from tests.runner.training import TRAINS
from tests.support import until
from trainium_cdk.cdk.observability.notice.function import notice
from trainium_cdk.description.node.scripts import scripts_dir
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend
from trainium_cdk.runner.spec import HealthRules


def test_a_line_for_each_end(slurm: LocalSlurm, tmp_path: Path) -> None:
    backend = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=slurm.node_env(), interval=0.2))
    log = tmp_path / "trn-metrics.log"
    program = [sys.executable, str(scripts_dir() / "lib/metrics.py"), "trn-slurm", str(log), "--queue", "--once"]

    def told() -> dict[str, Any]:
        log.unlink(missing_ok=True)
        subprocess.run(program, env=slurm.node_env(), check=True)
        found = [json.loads(line) for line in log.read_text().splitlines()]
        return {one["JobEnded"]: one["State"] for one in found if "JobEnded" in one}

    def submit(text: str, **fields: Any) -> str:
        return backend.submit(Script(filename="w.sh", content=f"#!/bin/bash\n{text}\n".encode(), **fields)).id

    before = submit("true")
    assert backend.wait(before, 300).ok
    time.sleep(2)
    assert told() == {}, "what ended before the service began is not told"
    ends = {
        submit("true", name="good"): "COMPLETED",
        submit("kill -9 $PPID; kill -9 $$; sleep 60", name="killed"): "FAILED",
        submit("sleep 600", name="stopped"): "CANCELLED",
        submit("exit $TRN_ARRAY_INDEX", name="sweep", array="0-2"): "1 COMPLETED, 2 FAILED",
    }
    stopped = next(id for id, state in ends.items() if state == "CANCELLED")
    assert until(lambda: backend.status(stopped).state in ("RUNNING", "PENDING"), 60)
    backend.cancel(stopped)
    found: dict[str, str] = {}

    def all_told() -> bool:
        for id, state in told().items():
            assert id not in found, f"{id} is told twice"
            found[id] = state
        return found.keys() == ends.keys()

    assert until(all_told, 120), found
    assert {id: " ".join(sorted(state.split(", "))) for id, state in found.items()} == {
        id: " ".join(sorted(state.split(", "))) for id, state in ends.items()
    }
    time.sleep(2)
    assert told() == {}


def test_a_line_for_what_is_wrong_with_a_job_that_runs(slurm: LocalSlurm, tmp_path: Path) -> None:
    """Root's service reads the job's comment in Slurm's queue, and no file of it. Each once, also if the job goes on meanwhile."""
    backend = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=slurm.node_env(), interval=0.2))
    log = tmp_path / "trn-metrics.log"
    program = [sys.executable, str(scripts_dir() / "lib/metrics.py"), "trn-slurm", str(log), "--queue", "--once"]

    def told() -> list[dict[str, Any]]:
        log.unlink(missing_ok=True)
        subprocess.run(program, env=slurm.node_env(), check=True)
        found = [json.loads(line) for line in log.read_text().splitlines()]
        return [one for one in found if "JobFound" in one]

    made = backend.render(Script(filename="train.py", content=TRAINS.encode(), nodes=2, env={"FAULT": "hang"}), "told")
    spec = dataclasses.replace(made.spec, health=HealthRules(every=0.4, least=3.0))
    id = backend.send(dataclasses.replace(made, spec=spec))[0].id
    [line] = until(told, 120)
    assert (line["JobFound"], line["Found"], line["Nodes"], line["Cluster"]) == (id, "hang", "2", "trn-slurm")
    assert notice(line)[0] == f"{id}: hangs (RUNNING) on trn-slurm"
    assert told() == []
    assert backend.status(id).state == "RUNNING"  # it is still known by its comment
    assert backend.cancel(id).state == "CANCELLED"

"""`trn nodes stop`: the fleet of a real Slurm is stopped and started with (fakes of) ParallelCluster's own scripts on its head node."""

from __future__ import annotations

import getpass
import re
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox.slurm import LocalSlurm
from tests import command
from tests.jobs.conftest import fleet as nodes
from tests.jobs.conftest import make_cluster, with_program
from tests.support import until
from trainium_cdk.client.jobs.slurm import fleet
from trainium_cdk.errors import TransportError, TrnError
from trainium_cdk.jobs import Script, SlurmBackend


def script(body: str) -> Script:
    return Script(filename="x.sh", content=body.encode(), precompile=False)


def test_the_fleet_is_stopped_and_started(backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(backend.cluster.model_dump_json())

    def trn(*words: str, code: int = 0) -> str:
        done = command.trn(["nodes", *words, "--cluster", file, "--local"], {**slurm.node_env(), "TZ": "UTC"})
        assert done.returncode == code, done.stderr
        return done.stderr

    first = trn("status")
    assert re.fullmatch(r"the fleet of trn-slurm is RUNNING since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\n", first)
    time.sleep(1.1)
    assert trn("status") == first  # not the time of the question
    assert trn("start") == "the fleet is RUNNING already\n"
    job = backend.submit(script("sleep 3600"))
    refused = trn("stop", code=1)
    assert f"1 job runs or waits ({job.id}), and stopping the fleet ends their nodes" in refused
    assert fleet.status(backend).status == "RUNNING"
    backend.cancel(job.id)
    plain = slurm.run(["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 3600"]).stdout.strip()
    refused = trn("stop", code=1)
    assert f"1 job runs or waits ({plain} of {getpass.getuser()})" in refused
    assert "jobs of srun and salloc are lost" in refused
    slurm.run(["scancel", plain])
    assert until(lambda: not backend.others())
    assert trn("stop") == "the fleet is STOP_REQUESTED\nthe fleet is STOPPED\n"
    assert trn("stop") == "the fleet is STOPPED already\n"
    assert set(slurm.node_states().values()) <= {"down", "down*"}
    assert trn("start").endswith("the fleet is RUNNING\n")
    assert backend.wait(backend.submit(script("true")).id, 600).ok


@pytest.mark.sweep
def test_a_job_goes_on_after_a_stop_with_force(backend: SlurmBackend, slurm: LocalSlurm) -> None:
    job = backend.submit(script("if [ -e mark ]; then exit 0; fi; touch mark; sleep 3600"))
    mark = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / f"efs/trn/jobs/{job.id}/work/mark"
    while not mark.exists():
        assert not backend.status(job.id).done
    fleet.change(backend, "STOPPED", force=True)
    fleet.wait(backend, "STOPPED", lambda _: None)
    assert backend.status(job.id).state == "PENDING"
    fleet.change(backend, "RUNNING")
    fleet.wait(backend, "RUNNING", lambda _: None)
    assert backend.wait(job.id, 600).ok


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("echo 'not json'; exit 0", "the head node's response is not a fleet status: 'not json"),
        ("echo '[1]'; exit 0", "is not a fleet status"),
        ("exit 0", "is not a fleet status"),
        ("echo 'AccessDeniedException' >&2; exit 1", "AccessDenied"),
    ],
)
def test_a_response_that_cannot_be_read(
    answer: str, error: str, backend: SlurmBackend, slurm: LocalSlurm, tmp_path: Path
) -> None:
    odd = SlurmBackend(backend.cluster, with_program(slurm, tmp_path, "get-compute-fleet-status.sh", answer))
    with pytest.raises((TrnError, TransportError)) as refused:
        fleet.status(odd)
    assert error in str(refused.value)


def test_a_protected_fleet_is_told_with_the_command_that_explains_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Protected:
        cluster, interval = make_cluster(nodes()), 0.0
        sleep: Any = staticmethod(lambda _: None)

    monkeypatch.setattr(fleet, "status", lambda _: fleet.FleetStatus("PROTECTED"))
    with pytest.raises(TrnError, match=r"nodes failed to start\. `trn why TrnPclusterStack` has the reason"):
        fleet.wait(Protected(), "RUNNING", lambda _: None)  # type: ignore[arg-type]
    monkeypatch.setattr(fleet, "status", lambda _: fleet.FleetStatus("STARTING"))
    with pytest.raises(TrnError, match="the fleet is STARTING, not RUNNING, after 0 s"):
        fleet.wait(Protected(), "RUNNING", lambda _: None, timeout=0)  # type: ignore[arg-type]

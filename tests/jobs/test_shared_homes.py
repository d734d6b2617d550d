"""Jobs on a cluster whose /home is a shared file system, the only one: their folder is /home/trn."""

from __future__ import annotations

import copy
from pathlib import Path

from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.jobs.test_slurm import log, script
from tests.support import need
from trainium_cdk.client.jobs.slurm.transport import LocalTransport
from trainium_cdk.jobs import SlurmBackend


def test_a_job_has_its_folder_beside_the_homes(tmp_path: Path) -> None:
    reason = available()
    need(reason is None, str(reason))
    config = copy.deepcopy(CONFIGURATION)
    [*_, efs] = [mount for mount in config["SharedStorage"] if mount["StorageType"] == "Efs"]
    efs["MountDir"] = "/home"
    config["SharedStorage"] = [efs]
    cluster = make_cluster(fleet(nodes=4), shared_dir="/home", mount_dirs=("/home",))
    with LocalSlurm.start(tmp_path, config) as slurm:
        backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env(), interval=0.2))
        id = backend.submit(script('echo "in $PWD"', nodes=2), "at-home").id
        assert wait_until(lambda: backend.status(id).state == "COMPLETED", 120), backend.status(id)
        assert f"/home/trn/jobs/{id}" in log(backend, id)
        assert backend.status(id).directory == f"/home/trn/jobs/{id}"

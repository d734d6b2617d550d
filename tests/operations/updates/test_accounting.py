"""What of Slurm's accounting belongs to a cluster's name: the real slurmdbd and MariaDB, with the commands that `trn diff` prints."""

from __future__ import annotations

import re
from pathlib import Path

from sandbox.slurm import LocalSlurm, available
from sandbox.slurm_accounting import unavailable
from tests.pcluster.examples import ids_for
from tests.support import need
from trainium_cdk import settings
from trainium_cdk.client.operations.updates.slurm import accounting
from trainium_cdk.description.cluster_configuration import render

ENV = settings.validate(
    {"pcluster": {"accounting": {"uri": "db", "user": "slurm", "password_secret": "arn:aws:secretsmanager:us-east-1:111122223333:secret:s"}}}
)  # fmt: skip
OURS = "parallelcluster"
"""The name of the sandbox's Slurm."""


def test_users_and_qos_stay_and_limits_are_copied_as_printed(tmp_path: Path) -> None:
    reason = available() or unavailable()
    need(not reason, str(reason))
    config = render(ENV, ids_for(ENV))
    with LocalSlurm.start(tmp_path, config) as slurm:

        def asked(*command: str) -> str:
            done = slurm.run(command)
            assert done.returncode == 0, done.stdout + done.stderr
            return done.stdout

        for made in (
            "account ml GrpTRES=node=4",
            "qos high MaxWall=01:00:00",
            "user daemon account=ml MaxJobs=3 qos=high",
            "cluster second",
        ):
            asked("sacctmgr", "-i", "add", *made.split())
        limits = ["format=account,user,maxjobs,qos,grptres"]
        assert "ml|" not in asked("sacctmgr", "-Pn", "show", "assoc", "cluster=second", *limits)
        assert {"ml", "root"} == set(asked("sacctmgr", "-Pn", "show", "account", "format=account").split())
        assert "high|01:00:00" in asked("sacctmgr", "-Pn", "show", "qos", "format=name,maxwall")

        old = {"ClusterName": OURS, "ClusterConfiguration": config}
        same = {"Scheduling": {"SlurmSettings": {"Database": {"Uri": "db", "DatabaseName": OURS}}}}
        [(level, _, advice, *_)] = accounting(old, {"ClusterName": "second", "ClusterConfiguration": same})
        assert level == "interrupts"
        dump, load, records = re.findall("`([^`]+)`", advice)
        asked(*dump.split())
        asked("sacctmgr", "-i", *load.split()[1:])
        asked(*records.split())
        found = asked("sacctmgr", "-Pn", "show", "assoc", "cluster=second", *limits)
        assert "ml|||normal|node=4" in found
        assert "ml|daemon|3|high|" in found

"""`trn` of a fresh environment with the wheel, on the examples' stacks: deployed in the local AWS, with a real Slurm or Kubernetes."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from sandbox import LocalAws, kubernetes, shell, slurm, supervisor
from sandbox.attach import Kind
from tests.credentials import session
from tests.foreign.existing import GIVEN, Context
from tests.foreign.test_examples import REGIONS
from tests.support import completed, need
from tests.wheels import ROOT
from trainium_cdk.description.outputs import GROUP_LABEL

pytestmark = pytest.mark.sweep
Trn = Callable[..., "subprocess.CompletedProcess[str]"]
UNAVAILABLE: dict[Kind, Callable[[], str | None]] = {"slurm": slurm.available, "kubernetes": kubernetes.available}
HELLO = """#!/bin/bash
echo "node $NODE_RANK of $NNODES: <$1>"
"""


@contextmanager
def attached(aws: LocalAws, kind: Kind) -> Iterator[None]:
    """A real Slurm or Kubernetes behind each cluster that is created meanwhile."""
    need(UNAVAILABLE[kind]() is None, str(UNAVAILABLE[kind]()))
    supervisor.launch(aws, kind)
    try:
        yield
    finally:
        supervisor.end(aws.directory)


@contextmanager
def deployed(example: str, stack: str, aws: LocalAws, installed: Path, folder: Path) -> Iterator[Trn]:
    """`trn(verb, ..., **variables)` on the stack of an example; the stack is destroyed at the end."""
    shutil.copy(ROOT / f"examples/{example}.py", folder / "app.py")
    region = REGIONS.get(example, aws.region)
    if region != aws.region:
        aws.bootstrap(region)
    kept = {"PATH": f"{installed.parent}:/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    env = {**shell.variables(aws), **kept}

    def trn(verb: str, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [str(installed.with_name("trn")), verb, *words, "--stack", stack, "--region", region]
        done = completed(command, env=env | variables, cwd=folder, timeout=900)
        assert done.returncode == code, f"{words}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done

    with GIVEN[example](aws) if example in GIVEN else nullcontext(Context()) as given:
        context = [word for key, value in given.items() for word in ("-c", f"{key}={value}")]
        app = ("--app", f"{installed} app.py", "-o", "cdk.out", *context)
        try:
            aws.cdk("deploy", "--all", *app, "--require-approval", "never", cwd=folder, timeout=1500)
            yield trn
        finally:
            aws.cdk("destroy", "--all", "--app", "cdk.out", "--force", cwd=folder, timeout=1500)


def jobs_are_followed(trn: Trn, folder: Path) -> None:
    """One job from its submission to its end, and another that is cancelled."""
    (folder / "hello.sh").write_text(HELLO)
    (folder / "long.sh").write_text("#!/bin/bash\nsleep 3600\n")
    sent = trn("submit", "hello.sh", "--nodes", "2", "--token", "one", "a b")
    assert sent.stdout == "hello-one\n"
    followed = trn("logs", "--follow", "hello-one")
    for line in ("node 0 of 2: <a b>", "node 1 of 2: <a b>"):
        assert line in followed.stdout
    status = json.loads(trn("status", "hello-one", "--json").stdout)
    assert (status["state"], status["ok"], status["nodes"]) == ("COMPLETED", True, 2)
    trn("submit", "long.sh", "--token", "two")
    assert json.loads(trn("cancel", "long-two", "--json").stdout)["state"] == "CANCELLED"
    trn("status", "--wait", "long-two", code=1)
    listed = {line.split("\t")[0]: line for line in trn("list").stdout.splitlines()}
    assert "COMPLETED" in listed["hello-one"]
    assert "CANCELLED" in listed["long-two"]


def test_on_slurm(local_aws: LocalAws, installed: Path, tmp_path: Path) -> None:
    with (
        attached(local_aws, "slurm"),
        deployed("slurm_existing_efs", "ExampleSlurm", local_aws, installed, tmp_path) as trn,
    ):
        jobs_are_followed(trn, tmp_path)


def test_on_a_kubernetes_cluster_of_the_users(local_aws: LocalAws, installed: Path, tmp_path: Path) -> None:
    with (
        attached(local_aws, "kubernetes"),
        deployed("eks_jobs", "ExampleEksJobs", local_aws, installed, tmp_path) as trn,
    ):
        with session(local_aws, 900, "cloudformation:DescribeStacks", "eks:DescribeCluster") as keys:
            refused = trn("list", code=1, **keys)
        assert "access entry" in refused.stderr, "of a user to whom the app grants nothing"
        eks = local_aws.client("eks", REGIONS["eks_jobs"])
        cluster = json.loads(trn("show", "cluster").stdout)["cluster_name"]
        for group in eks.list_nodegroups(clusterName=cluster)["nodegroups"]:
            if GROUP_LABEL in eks.describe_nodegroup(clusterName=cluster, nodegroupName=group)["nodegroup"]["labels"]:
                eks.update_nodegroup_config(clusterName=cluster, nodegroupName=group, scalingConfig={"desiredSize": 2})
        jobs_are_followed(trn, tmp_path)

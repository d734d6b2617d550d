"""`trn nodes` and `trn shell`: with a real Slurm, and the EC2 of the local AWS."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests import command
from tests.jobs.conftest import fleet, make_cluster, slurm  # noqa: F401  a fixture
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.support import TRN, completed, head_node, session_manager_plugin
from trainium_cdk.client.jobs.slurm import transport
from trainium_cdk.client.jobs.status import Node
from trainium_cdk.jobs import JobError, LocalTransport, Script, SlurmBackend

CLUSTER = make_cluster(fleet(nodes=4))


def run(
    folder: Path, env: dict[str, str], *words: str, cluster: str = "cluster.json"
) -> subprocess.CompletedProcess[str]:
    (folder / "cluster.json").write_text(CLUSTER.model_dump_json())
    (folder / "eks.json").write_text(make_eks(fleet(queue="trn")).model_dump_json())
    return command.trn([*words, "--local", "--cluster", folder / cluster], env, folder)


def test_the_nodes_of_a_real_slurm(slurm: LocalSlurm, local_aws: LocalAws, tmp_path: Path) -> None:  # noqa: F811
    env = {**os.environ, **slurm.node_env()}
    backend = SlurmBackend(CLUSTER, LocalTransport(env=slurm.node_env(), interval=0.2))
    go = tmp_path / "go"
    job = backend.submit(Script(filename="w.sh", content=f"until [ -e {go} ]; do sleep 0.1; done".encode(), nodes=2))
    assert wait_until(lambda: backend.status(job.id).state == "RUNNING", 300)
    found = backend.nodes()
    assert [node.job for node in found if node.job] == [f"{job.id}:train"] * 2
    assert {node.instance_type for node in found} == {"trn1.32xlarge"}
    done = run(tmp_path, env, "nodes", "--all", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) == len(found) == 4
    shown = run(tmp_path, env, "nodes")
    assert f"\t{job.id}:train\t" in shown.stdout
    assert "nodes are on: " in shown.stderr
    go.touch()
    assert backend.wait(job.id, 300).ok


def test_a_node_has_a_job_that_is_suspended_or_has_a_name_of_several_words(slurm: LocalSlurm) -> None:  # noqa: F811
    """To Slurm, the node of a suspended job is idle: it starts other jobs there, and such a job is the one that is shown."""
    backend = SlurmBackend(CLUSTER, LocalTransport(env=slurm.node_env(), interval=0.2))
    job = backend.submit(Script(filename="w.sh", content=b"sleep 600"))
    assert wait_until(lambda: backend.status(job.id).state == "RUNNING", 300)
    (node,) = (one.name for one in backend.nodes() if one.job)

    def busy() -> dict[str, str]:
        return {one.name: one.job for one in backend.nodes() if one.job}

    assert slurm.run(["scontrol", "suspend", job.stages["train"]]).returncode == 0
    assert wait_until(lambda: busy() == {node: f"{job.id}:train"}, 60), backend.nodes()
    words = ["sbatch", "--parsable", "-o", "/dev/null", "-w", node, "-J", "my long job", "--wrap", "sleep 600"]
    other = slurm.run(words).stdout.strip()
    assert wait_until(lambda: busy() == {node: "my long job"}, 120), backend.nodes()
    slurm.run(["scancel", other])
    backend.cancel(job.id)


@pytest.mark.parametrize(
    ("words", "cluster", "message"),
    [
        (
            ["shell", "compute1-dy-trn-99"],
            "cluster.json",
            "there is no node 'compute1-dy-trn-99'. Did you mean compute1-",
        ),
        (["shell"], "cluster.json", "session-manager-plugin is not installed"),
        (["shell", "login", "--node", "1"], "cluster.json", "login is not a job: leave out --node"),
        (["nodes"], "eks.json", "has no head node. Remove --local"),
    ],
)
def test_errors(words: list[str], cluster: str, message: str, slurm: LocalSlurm, tmp_path: Path) -> None:  # noqa: F811
    done = run(tmp_path, {**os.environ, **slurm.node_env()}, *words, cluster=cluster)
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr


def test_ssh(slurm: LocalSlurm, local_aws: LocalAws, tmp_path: Path) -> None:  # noqa: F811
    """A shell on the head node, with AWS's own plug-in; from there, one on a node."""
    env = {**os.environ, **local_aws.variables, "PATH": f"{session_manager_plugin()}:{os.environ['PATH']}"}
    with head_node(local_aws, "of-ssh") as head:
        attached = slurm.attach(local_aws.directory / "clusters/of-ssh")
        cluster = CLUSTER.model_copy(update={"head_node_id": head, "cluster_name": "of-ssh"})
        (tmp_path / "cluster.json").write_text(cluster.model_dump_json())
        words = [TRN, "shell", "--cluster", "cluster.json"]
        done = completed(words, env=env, cwd=tmp_path, input="sinfo --noheader\n", timeout=300)
        command = completed([*words, "login", "--", "sinfo", "--noheader"], env=env, cwd=tmp_path, timeout=300)
        # input that ends while a command runs there
        late = subprocess.Popen(words, env=env, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert late.stdin
        assert late.stdout
        late.stdin.write(b"echo be''gun; sleep 1; echo af''ter\n")
        late.stdin.flush()
        assert any(b"begun" in line for line in late.stdout)
        rest = late.communicate(timeout=300)[0]
        attached.unlink()
        attached.parent.rmdir()
    assert (done.returncode, "compute1" in done.stdout) == (0, True), done
    assert (command.returncode, "compute1" in command.stdout) == (0, True), command
    assert (late.returncode, b"after" in rest) == (0, True), rest
    backend = SlurmBackend(cluster, LocalTransport(env=slurm.node_env()))
    node = backend.nodes()[0]
    ssh = f"exec ssh -F /etc/ssh/ssh_config {node.name}"
    assert backend.session(node) == (head, transport.as_user("ubuntu", ssh, "sudo"))
    there = f"{ssh} {shlex.quote(shlex.join(['echo', 'a  b']))}"
    assert backend.session(node, ["echo", "a  b"]) == (head, transport.as_user("ubuntu", there, "sudo"))


@pytest.mark.parametrize("users", ["directory", "local"])
def test_one_of_several_users_has_no_ssh_to_nodes(users: str) -> None:
    """There are others' jobs. Its own account on the head node is not refused."""
    ada = CLUSTER.model_copy(update={"users": users}).of_user("ada")

    backend, node = SlurmBackend(ada, LocalTransport()), Node("compute1-dy-trn-1", "compute1", "", "mixed+cloud")
    assert backend.session() == (ada.head_node_id, transport.shell("ada"))
    assert backend.session(command=["ls", "a b"]) == (ada.head_node_id, transport.as_user("ada", "ls 'a b'", "sudo"))
    with pytest.raises(JobError, match=r"nodes of .* take no ssh from ada"):
        backend.session(node)

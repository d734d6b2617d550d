"""A local Slurm made from a cluster configuration: what ParallelCluster's users see, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import paths, processes
from sandbox.slurm import LocalSlurm
from sandbox.slurm_config import BadClusterConfiguration, Places, cgroup_conf, slurm_conf
from sandbox.slurm_layout import SlurmFailed
from sandbox.slurm_plan import plan
from sandbox.testing import completed, need_slurm, until

REPO = Path(__file__).parents[2]


def config(*resources: dict[str, Any], queue: str = "compute1", **more: Any) -> dict[str, Any]:
    """A cluster configuration with one queue."""
    queues = [{"Name": queue, "ComputeResources": list(resources), **more}]
    return {
        "Scheduling": {"Scheduler": "slurm", "SlurmQueues": queues},
        "SharedStorage": [{"Name": "efs", "StorageType": "Efs", "MountDir": "/efs"}, {"MountDir": "/fsx"}],
    }


def resource(
    name: str = "queue1-i1", least: object = 0, most: object = 16, kind: str = "trn1.32xlarge"
) -> dict[str, Any]:
    return {"Name": name, "InstanceType": kind, "MinCount": least, "MaxCount": most}


SIXTEEN = config(resource(least="0", most="16"), JobExclusiveAllocation="true")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    need_slurm()
    with LocalSlurm.start(tmp_path_factory.mktemp("slurm"), SIXTEEN) as running:
        yield running


def submit(slurm: LocalSlurm, command: str, *options: str) -> str:
    """Submit `command` on one node; returns the job's number."""
    done = slurm.run(["sbatch", "--parsable", "-N1", "-o", "/dev/null", *options, f"--wrap={command}"])
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def facts(slurm: LocalSlurm, job: str) -> dict[str, str]:
    shown = slurm.run(["scontrol", "-o", "show", "job", job]).stdout
    return dict(word.split("=", 1) for word in shown.split() if "=" in word)


def wait_for(slurm: LocalSlurm, job: str, key: str, value: str, seconds: float = 600) -> dict[str, str]:
    assert processes.wait_until(lambda: facts(slurm, job).get(key) == value, seconds, 0.1), facts(slurm, job)
    return facts(slurm, job)


# --- the requested nodes -----------------------------------------------------------------------------------------------


def test_nodes_are_named_as_parallelcluster_names_them() -> None:
    made = plan(config(resource("trn", 2, 4), resource("spare", "0", "1")))
    assert [node.name for node in made.nodes] == [
        "compute1-st-trn-1",
        "compute1-st-trn-2",
        "compute1-dy-trn-1",
        "compute1-dy-trn-2",
        "compute1-dy-spare-1",
    ]
    assert made.mount_dirs == ("/efs", "/fsx")
    assert made.left_out == 0


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8).filter(any), st.integers(8, 64))
def test_the_cap_is_used_up_and_every_compute_resource_keeps_a_node(wanted: list[int], most: int) -> None:
    made = plan(config(*(resource(f"r{i}", 0, n) for i, n in enumerate(wanted))), max_nodes=most)
    assert len(made.nodes) == min(most, sum(wanted))
    assert made.left_out == sum(wanted) - len(made.nodes)
    assert {node.compute_resource for node in made.nodes} == {f"r{i}" for i, n in enumerate(wanted) if n}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "has no `Scheduling`"),
        ({"Scheduling": {"SlurmQueues": []}}, "has no `SlurmQueues`"),
        ({"Scheduling": {"SlurmQueues": [{"ComputeResources": []}]}}, "has no Name"),
        (config(), "queue 'compute1' has no `ComputeResources`"),
        (config(resource(most="many")), "'queue1-i1': MaxCount is 'many', which is not a whole number"),
        (config(resource(least=-1)), "MinCount is -1; it must be 0 or more"),
        (config(resource(most=0)), "every MaxCount is 0; set MaxCount to 1 or more"),
    ],
)
def test_a_configuration_without_nodes_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(BadClusterConfiguration) as refused:
        plan(wrong)
    assert message in str(refused.value)


def test_the_configuration_file() -> None:
    trn = {**resource(most=1), "Efa": {"Enabled": "true"}, "DisableSimultaneousMultithreading": "true"}
    two = config(trn, JobExclusiveAllocation=True)
    two["Scheduling"]["SlurmQueues"].append({"Name": "cpu", "ComputeResources": [resource("c", 1, 1, "c5.xlarge")]})
    text = slurm_conf(plan(two), Places(Path("/tmp/trn-0"), "here", "me", 20000, (20001, 20002), (22, 5)))
    shown = [
        line for line in text.splitlines() if line.startswith(("Node", "Partition", "Enforce", "Return", "SlurmUser"))
    ]
    assert shown == [
        "SlurmUser=me",
        "EnforcePartLimits=ALL",
        "ReturnToService=1",
        "NodeName=compute1-dy-queue1-i1-1 NodeHostname=here NodeAddr=127.0.0.1 Port=20001 CPUs=64 RealMemory=498073"
        " Feature=dynamic,trn1.32xlarge,queue1-i1,efa Weight=1000 State=UNKNOWN",
        "NodeName=cpu-st-c-1 NodeHostname=here NodeAddr=127.0.0.1 Port=20002 CPUs=2 RealMemory=3891"
        " Feature=static,c5.xlarge,c Weight=1 State=UNKNOWN",
        "NodeSet=compute1_nodes Nodes=compute1-dy-queue1-i1-1",
        "PartitionName=compute1 Nodes=compute1-dy-queue1-i1-1 MaxTime=INFINITE State=UP Default=YES OverSubscribe=EXCLUSIVE",
        "NodeSet=cpu_nodes Nodes=cpu-st-c-1",
        "PartitionName=cpu Nodes=cpu-st-c-1 MaxTime=INFINITE State=UP",
    ]
    assert cgroup_conf((22, 5)) == "CgroupAutomount=no\n"
    assert cgroup_conf((25, 11)) == "CgroupPlugin=disabled\n"


# --- the real thing ----------------------------------------------------------------------------------------------------


@pytest.mark.sweep
def test_sixteen_nodes_report_their_own_names(slurm: LocalSlurm) -> None:
    result = slurm.run(["srun", "-N16", "hostname"])
    assert sorted(result.stdout.split()) == sorted(slurm.node_names), result.stderr
    assert slurm.run(["sinfo", "-h", "-o", "%P %D"]).stdout.split() == ["compute1*", "16"]
    assert slurm.notices == ()


@pytest.mark.sweep
def test_more_nodes_than_the_partition_has_are_refused_at_once(slurm: LocalSlurm) -> None:
    done = slurm.run(["sbatch", "-N17", "--wrap=true"])
    assert done.returncode != 0
    assert "Node count specification invalid" in done.stderr or "More processors" in done.stderr


@pytest.mark.sweep
def test_a_failing_job_ends_failed_with_its_exit_code(slurm: LocalSlurm) -> None:
    job = submit(slurm, "exit 7")
    assert wait_for(slurm, job, "JobState", "FAILED")["ExitCode"] == "7:0"


@pytest.mark.sweep
def test_a_dependency_that_cannot_be_satisfied(slurm: LocalSlurm) -> None:
    first = submit(slurm, "exit 1", "--hold")
    ends = submit(slurm, "true", f"--dependency=afterok:{first}", "--kill-on-invalid-dep=yes")
    hangs = submit(slurm, "true", f"--dependency=afterok:{first}")
    follows = submit(slurm, "true", f"--dependency=afternotok:{first}")
    slurm.run(["scontrol", "release", first])
    wait_for(slurm, ends, "JobState", "CANCELLED")
    wait_for(slurm, hangs, "Reason", "DependencyNeverSatisfied")
    wait_for(slurm, follows, "JobState", "COMPLETED")
    slurm.run(["scancel", hangs])


@pytest.mark.sweep
def test_a_job_on_a_lost_node_is_started_again_elsewhere(slurm: LocalSlurm) -> None:
    lost = slurm.node_names[15]
    job = submit(slurm, "hostname > where.$SLURM_RESTART_COUNT; sleep 3600", "--requeue", f"-w{lost}")
    wait_for(slurm, job, "JobState", "RUNNING")
    slurm.kill_node(lost)
    # On AWS ParallelCluster's own daemon finds the lost instance and reports this.
    slurm.run(["scontrol", "update", f"nodename={lost}", "state=down", "reason=instance lost"])
    assert wait_for(slurm, job, "Restarts", "1")["JobState"] == "PENDING"
    assert slurm.node_states()[lost].startswith("down")
    slurm.run(["scontrol", "update", f"jobid={job}", "reqnodelist="])
    wait_for(slurm, job, "JobState", "RUNNING")
    assert facts(slurm, job)["NodeList"] != lost
    slurm.run(["scancel", job])


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("runuser -u ubuntu -- bash -c 'echo $0 $1' a b", "a b"),
        ("runuser -l ubuntu -c 'cd /; srun -N1 true && command -v neuron-ls'", "{bin}/neuron-ls"),
        ("cd /; runuser - ec2-user -c pwd", "{home}"),
        ("sudo -u ubuntu echo me", "me"),
        ("sudo sysctl -w net.ipv4.ip_local_reserved_ports=48620", "net.ipv4.ip_local_reserved_ports = 48620"),
        ("srun -N1 neuron-ls -j | python3 -c 'import json,sys; d=json.load(sys.stdin); print(len(d), d[3][\"nc_count\"])'", "16 2"),
        ("bash -lc 'which hostname'", "{bin}/hostname"),
        ("srun -N1 env | grep -c ^LD_LIBRARY_PATH=", "0"),
        ("hostname; srun -N1 -w compute1-dy-queue1-i1-3 hostname -s", "ip-10-0-0-10\ncompute1-dy-queue1-i1-3"),
        (". ~/aws_neuron_venv_pytorch/bin/activate; pip install -q h5py requests && pip list | grep -c -E 'h5py|requests'", "2"),
        ("cd $(mktemp -d -p ~); git clone -q --depth 1 https://github.com/aws-neuron/aws-neuron-samples.git a; ls a", "torch-neuronx"),
        ("aws --version | cut -d/ -f1", "aws-cli"),
    ],
)  # fmt: skip
@pytest.mark.sweep
def test_a_shell_on_the_head_node(slurm: LocalSlurm, command: str, expected: str) -> None:
    done = slurm.run(["bash", "-c", command])
    home = slurm.node_env()["HOME"]
    assert done.stdout.strip() == expected.format(home=home, bin=slurm.directory / "bin"), done.stderr


@pytest.mark.sweep
def test_the_machine_is_not_touched(slurm: LocalSlurm) -> None:
    before = Path("/proc/sys/net/ipv4/ip_local_reserved_ports").read_text()
    slurm.run(["bash", "-c", "sudo sysctl -w net.ipv4.ip_local_reserved_ports=48620; sudo modprobe -r neuron"])
    assert Path("/proc/sys/net/ipv4/ip_local_reserved_ports").read_text() == before


@pytest.mark.sweep
def test_attached_clusters_know_their_head_node(slurm: LocalSlurm, tmp_path: Path) -> None:
    result = json.loads(slurm.attach(tmp_path / "clusters" / "trn").read_text())
    done = completed(["squeue", "-h"], env=result["env"], cwd=result["cwd"])
    assert done.returncode == 0, done.stderr
    assert (Path(result["env"]["TRN_SHARED_ROOT"]) / "efs").is_dir()


# --- ends --------------------------------------------------------------------------------------------------------------


def ours(directory: Path) -> list[str]:
    found = processes.with_environment(lambda env: env.get("TRN_SANDBOX") == str(directory))
    return [name for _, name, _ in found]


@pytest.mark.sweep
def test_stop_ends_running_jobs_and_a_new_start_keeps_the_files(tmp_path: Path) -> None:
    need_slurm()
    small = config(resource(most=2))
    with LocalSlurm.start(tmp_path, small) as slurm:
        home = Path(slurm.node_env()["HOME"])
        (home / "kept").write_text("mine")
        job = submit(slurm, "trap '' TERM; (trap '' TERM; sleep 3600) & sleep 3600", "-N2")
        wait_for(slurm, job, "JobState", "RUNNING")
        assert processes.wait_until(lambda: "sleep" in ours(tmp_path), 600)
        link = Path(slurm.node_env()["SLURM_CONF"]).parents[1]
    assert ours(tmp_path) == []
    assert not link.is_symlink()
    with pytest.raises(SlurmFailed, match="no local Slurm is running in"):
        LocalSlurm.open(tmp_path)
    with LocalSlurm.start(tmp_path, small) as again:
        assert (home / "kept").read_text() == "mine"
        assert again.run(["squeue", "-h", "--states=all"]).stdout == ""
    again.stop(wipe=True)
    assert not tmp_path.exists()


@pytest.mark.sweep
def test_up_and_down_from_different_processes(tmp_path: Path) -> None:
    """Also: names and a path so long that a socket under them would not fit, and more nodes than the cap."""
    need_slurm()
    directory = tmp_path / ("a-rather-long-name-for-a-directory-" * 3)
    queue = "a" * 25
    file = tmp_path / "cluster.yaml"
    file.write_text(
        f"Scheduling: {{SlurmQueues: [{{Name: {queue}, ComputeResources: [{{Name: {'b' * 25}, "
        "InstanceType: trn1.32xlarge, MinCount: '1', MaxCount: '1000'}]}]}\n"
    )
    trn = [sys.executable, "-m", "sandbox.slurm"]
    up = completed([*trn, "up", str(directory), str(file), "--max-nodes=3"], cwd=REPO)
    try:
        assert "has 1000 nodes; this machine runs 3 virtual ones (997 left out)" in up.stderr
        assert up.returncode == 0, up.stderr
        result = completed(["bash", "-c", f"{up.stdout}\nsrun -N3 hostname"])
        assert len(result.stdout.split()) == 3, result.stderr
    finally:
        down = subprocess.run([*trn, "down", str(directory), "--wipe"], cwd=REPO, check=False)
    assert down.returncode == 0
    assert ours(directory) == []
    assert not directory.exists()


@pytest.mark.sweep
def test_a_slurm_that_cannot_start_reports_the_reason_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_slurm()
    monkeypatch.setattr("sandbox.slurm_layout.slurm_conf", lambda *_: "ClusterName=broken\nNoSuchKey=1\n")
    with pytest.raises(SlurmFailed, match=r"slurmctld ended immediately .*NoSuchKey"):
        LocalSlurm.start(tmp_path, config(resource(most=2)), timeout=900)
    assert ours(tmp_path) == []


STARTS = """
import json, os, signal, sys
from pathlib import Path
from sandbox.slurm import LocalSlurm
LocalSlurm.start(Path(sys.argv[1]), json.loads(sys.argv[2]))
for name in sys.argv[3:]:
    Path(sys.argv[1], name).unlink()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("removed", [[], ["local-slurm.json"]])
def test_a_slurm_ends_with_the_process_that_started_it(tmp_path: Path, removed: list[str]) -> None:
    """Also after an interrupted clean-up, which has removed its state first."""
    need_slurm()
    command = [sys.executable, "-c", STARTS, str(tmp_path), json.dumps(config(resource(most=2))), *removed]
    assert subprocess.run(command, check=False, env={**os.environ, "PYTHONPATH": paths.python_path()}).returncode == -9
    assert until(lambda: not ours(tmp_path), seconds=60)

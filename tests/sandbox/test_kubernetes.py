"""A real Kubernetes with Volcano and virtual Trainium nodes: what a job on EKS meets, and nothing left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from sandbox import paths, processes
from sandbox.kubernetes import KubernetesFailed, LocalKubernetes, available, build, schemas
from sandbox.kubernetes.api import ApiError, load_all, path_of
from sandbox.kubernetes.logs import LogWriter
from tests.support import completed, need, until
from trainium_cdk.catalog import Catalog

TRN1 = Catalog.load().instance("trn1.32xlarge")
JOBS, GROUPS = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
Object = dict[str, Any]


def job(name: str, nodes: int, command: str, **spec: Any) -> Object:
    """A Volcano Job of whole trn1.32xlarge nodes, one pod each, all or none."""
    devices = {"aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8", "hugepages-2Mi": "5120Mi", "cpu": "8"}
    resources = {**devices, "memory": "64Gi"}
    container = {
        "name": "trainer",
        "image": "registry.example/train:1",
        "command": ["bash", "-c", command],
        "resources": {"requests": resources, "limits": resources},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2,
        "tolerations": [{"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"node.kubernetes.io/instance-type": "trn1.32xlarge"},
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
    }
    return {
        "apiVersion": JOBS,
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "minAvailable": nodes,
            "queue": "default",
            "schedulerName": "volcano",
            "plugins": {"env": [], "svc": []},
            "tasks": [{"name": "trainer", "replicas": nodes, "template": {"spec": pod}}],
            **spec,
        },
    }


def phase(cluster: LocalKubernetes, name: str) -> str:
    found = cluster.api().get(path_of(JOBS, "Job", name, "default"))
    return str(found.get("status", {}).get("state", {}).get("phase", ""))


def pods(cluster: LocalKubernetes, name: str) -> list[Object]:
    listed = cluster.api().get(path_of("v1", "Pod", namespace="default"), labelSelector=f"volcano.sh/job-name={name}")
    return list(listed["items"])


def remove(cluster: LocalKubernetes, name: str) -> None:
    cluster.api().delete(path_of(JOBS, "Job", name, "default"), propagationPolicy="Foreground")
    assert until(lambda: not pods(cluster, name)) is True


def test_nodes_announce_what_the_catalogue_says(cluster: LocalKubernetes) -> None:
    listed = cluster.api().get("/api/v1/nodes", labelSelector="trainium/group=trn")["items"]
    assert len(listed) == 2
    for node in listed:
        can = node["status"]["allocatable"]
        assert (can["aws.amazon.com/neuron"], can["vpc.amazonaws.com/efa"], can["aws.amazon.com/neuroncore"]) == (
            "16",
            "8",
            "32",
        )
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "us-east-1b"
        assert node["spec"]["taints"][0]["key"] == "aws.amazon.com/neuron"


def test_a_gang_is_placed_runs_and_shares_a_volume(cluster: LocalKubernetes) -> None:
    api = cluster.api()
    api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "fsx"},
            "spec": {
                "capacity": {"storage": "1200Gi"},
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "csi": {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-0123456789abcdef0"},
                "claimRef": {"name": "fsx-claim", "namespace": "default"},
            },
        }
    )
    api.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "fsx-claim"},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "storageClassName": "",
                "volumeName": "fsx",
                "resources": {"requests": {"storage": "1200Gi"}},
            },
        }
    )
    body = job(
        "gang",
        2,
        'echo "$VC_TASK_INDEX is $(hostname)" | tee /data/rank-$VC_TASK_INDEX; touch /dev/shm/mine;'
        "getent hosts gang-trainer-0.gang;"
        "until [ -e /data/rank-0 ] && [ -e /data/rank-1 ]; do sleep 0.1; done; ls /data /dev/shm",
    )
    pod = body["spec"]["tasks"][0]["template"]["spec"]
    pod["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "fsx-claim"}})
    pod["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
    api.create(body)
    assert until(lambda: phase(cluster, "gang") == "Completed"), cluster.kubectl("get", "events").stdout
    made = pods(cluster, "gang")
    assert {one["metadata"]["name"] for one in made} == {"gang-trainer-0", "gang-trainer-1"}
    assert len({one["spec"]["nodeName"] for one in made}) == 2
    for rank in (0, 1):
        output = api.get(path_of("v1", "Pod", f"gang-trainer-{rank}", "default") + "/log", container="trainer")
        lines = output.split()
        assert output.startswith(f"{rank} is gang-trainer-{rank}\n127.")
        assert lines[-4:] == ["rank-0", "rank-1", "/dev/shm:", "mine"]
    assert not Path("/data/rank-0").exists()
    remove(cluster, "gang")


def test_a_gang_that_fits_only_in_total_waits_as_a_whole(cluster: LocalKubernetes) -> None:
    """Three pods of 10 devices: 30 of 32 are there, but each node takes one pod. None may start."""
    body = job("sum", 3, "true")
    limits = {"aws.amazon.com/neuron": "10", "cpu": "1"}
    body["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": limits, "limits": limits}
    cluster.api().create(body)

    def condition() -> str:
        groups = cluster.api().get(path_of(GROUPS, "PodGroup", namespace="default"))["items"]
        return "".join(one["message"] for group in groups for one in group["status"].get("conditions", []))

    assert "Insufficient aws.amazon.com/neuron" in until(
        lambda: found if "Insufficient aws.amazon.com/neuron" in (found := condition()) else ""
    )
    assert [one["spec"].get("nodeName") for one in pods(cluster, "sum")] == [None] * 3
    remove(cluster, "sum")


def test_failure_and_exit_code_are_those_of_the_command(cluster: LocalKubernetes) -> None:
    cluster.api().create(job("fails", 1, "echo to no avail >&2; exit 3"))
    assert until(lambda: phase(cluster, "fails") == "Failed")
    [pod] = pods(cluster, "fails")
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert cluster.kubectl("logs", "fails-trainer-0").stdout == "to no avail\n"
    remove(cluster, "fails")


def test_deleting_a_job_ends_its_processes(cluster: LocalKubernetes) -> None:
    marker = f"sleep 9{os.getpid()}"
    cluster.api().create(job("cancel", 2, f"echo began; {marker} & {marker}; wait"))

    def running() -> list[str]:
        shown = completed(["ps", "-eo", "args"], check=True).stdout
        return [line for line in shown.splitlines() if line == marker]

    assert until(lambda: len(running()) == 4)
    shell = cluster.kubectl("exec", "cancel-trainer-1", "--", "sh", "-c", "echo $HOSTNAME has task $VC_TASK_INDEX")
    assert shell.stdout == "cancel-trainer-1 has task 1\n"
    remove(cluster, "cancel")
    assert until(lambda: not running()) is True


def test_other_pods_follow_their_annotations(cluster: LocalKubernetes) -> None:
    api = cluster.api()
    for name, extra in (("ends", {}), ("breaks", {"sandbox/exit-code": "7"})):
        annotations = {"sandbox/ends-after": "1s", **extra}
        spec = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "registry.example/tool:1"}]}
        metadata = {"name": name, "annotations": annotations}
        api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def ended(name: str) -> Object | None:
        status: Object = api.get(path_of("v1", "Pod", name, "default"))["status"]
        return status if status["phase"] in ("Succeeded", "Failed") else None

    assert until(lambda: ended("ends"))["phase"] == "Succeeded"
    broken = until(lambda: ended("breaks"))
    assert broken["phase"] == "Failed"
    assert broken["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    assert until(lambda: cluster.kubectl("logs", "ends").returncode == 0)  # its file is there
    with LogWriter(cluster.log_file("default", "ends", "main")) as log:
        log.write("a line of its own")
    assert cluster.kubectl("logs", "ends").stdout == "a line of its own\n"
    for name in ("ends", "breaks"):
        api.delete(path_of("v1", "Pod", name, "default"))


def _set(body: Object, place: str, value: Any) -> Object:
    at: Any = body
    *steps, last = [int(step) if step.isdigit() else step for step in place.split("/")]
    for step in steps:
        at = at[step]
    at[last] = value
    return body


@pytest.mark.parametrize(
    ("place", "value", "output"),
    [
        ("spec/minAvailable", 3, "'minAvailable' should not be greater than total replicas"),
        ("spec/queue", "nobodys", "nobodys"),
        ("spec/tasks/0/replicas", "two", "spec.tasks.replicas of type int32"),
        ("spec/tasks/0/name", "Trainer_1", "should match"),
        ("spec/policies", [{"event": "Nothing", "action": "RestartJob"}], "spec.policies[0].event"),
        ("spec/tasks/0/template/spec/containers/0/name", "", "name"),
    ],
)
def test_wrong_jobs_are_refused(cluster: LocalKubernetes, place: str, value: Any, output: str) -> None:
    with pytest.raises(ApiError) as refused:
        cluster.api().create(_set(job("wrong", 2, "true"), place, value))
    assert output in str(refused.value)


def test_the_definitions_kept_here_are_those_of_the_version_built() -> None:
    need(available() is None, str(available()))
    kept = Path(build.__file__).parent / "volcano_crds"
    came = {file.name: file for file in build.crds("volcano")}
    for file in kept.glob("*.yaml"):
        assert load_all([file]) == load_all([came[file.name]])
    [jobset] = load_all([*build.chart("jobset").glob("crds/*jobsets.yaml")])
    assert load_all([schemas.JOBSET]) == [schemas.reduced(jobset)]


@pytest.mark.sweep
def test_stop_from_another_process_leaves_nothing(tmp_path: Path) -> None:
    need(available() is None, str(available()))
    began = time.monotonic()
    cluster = LocalKubernetes.start(tmp_path / "cluster", run_jobs=True, volcano=True)
    cluster.add_nodes(TRN1, 1)
    cluster.api().create(job("orphan", 1, f"sleep 8{os.getpid()}"))
    marked = lambda env: env.get("TRN_SANDBOX_KUBERNETES") == str(tmp_path / "cluster")  # noqa: E731
    assert until(lambda: any(name == "sleep" for _, name, _ in processes.with_environment(marked)))
    daemons = cluster.processes
    assert set(daemons) > {"etcd", "kube-apiserver", "kwok", "jobset", "kueue", "vc-scheduler", "pods"}
    done = completed(
        [sys.executable, "-m", "sandbox.kubernetes", "down", str(tmp_path / "cluster")],
        cwd=paths.HOME,
        env={**os.environ, "PYTHONPATH": paths.python_path()},
    )
    assert done.returncode == 0, done.stderr
    assert not [name for name, process in daemons.items() if process.alive]
    assert processes.with_environment(marked) == []
    with pytest.raises(KubernetesFailed, match="start it with"):
        LocalKubernetes.open(tmp_path / "cluster")
    cluster.stop()  # a second time does no harm
    print(f"up, used and down in {time.monotonic() - began:.0f} s")

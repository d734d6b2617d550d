"""A real Kubernetes with Volcano and virtual Trainium nodes: what a job on EKS meets, and nothing left behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from sandbox import paths, processes
from sandbox.kubernetes import KubernetesFailed, LocalKubernetes
from sandbox.kubernetes.api import ApiError, path_of
from sandbox.kubernetes.logs import LogWriter
from sandbox.testing import completed, need_kubernetes, until
from trainium_cdk.description.catalog import Catalog

TRN1 = Catalog.load().instance("trn1.32xlarge")
JOBS, GROUPS = "batch.volcano.sh/v1alpha1", "scheduling.volcano.sh/v1beta1"
Object = dict[str, Any]


def job(name: str, nodes: int, command: str) -> Object:
    need_kubernetes(volcano=True)
    text = Path(__file__).with_name("volcano_job.yaml").read_text("utf-8")
    made: Object = yaml.safe_load(text.replace("NAME", name).replace("COMMAND", command))
    made["spec"]["minAvailable"] = made["spec"]["tasks"][0]["replicas"] = nodes
    return made


def phase(cluster: LocalKubernetes, name: str) -> str:
    found = cluster.api().get(path_of(JOBS, "Job", name, "default"))
    return str(found.get("status", {}).get("state", {}).get("phase", ""))


def pods(cluster: LocalKubernetes, name: str) -> list[Object]:
    listed = cluster.api().get(path_of("v1", "Pod", namespace="default"), labelSelector=f"volcano.sh/job-name={name}")
    return list(listed["items"])


def remove(cluster: LocalKubernetes, name: str) -> None:
    cluster.api().delete(path_of(JOBS, "Job", name, "default"), propagationPolicy="Foreground")
    assert until(lambda: not pods(cluster, name)) is True


@pytest.mark.sweep
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


@pytest.mark.sweep
def test_failure_and_exit_code_are_those_of_the_command(cluster: LocalKubernetes) -> None:
    cluster.api().create(job("fails", 1, "echo to no avail >&2; exit 3"))
    assert until(lambda: phase(cluster, "fails") == "Failed")
    [pod] = pods(cluster, "fails")
    assert pod["status"]["phase"] == "Failed"
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert cluster.kubectl("logs", "fails-trainer-0").stdout == "to no avail\n"
    remove(cluster, "fails")


@pytest.mark.sweep
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


@pytest.mark.sweep
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
@pytest.mark.sweep
def test_wrong_jobs_are_refused(cluster: LocalKubernetes, place: str, value: Any, output: str) -> None:
    with pytest.raises(ApiError) as refused:
        cluster.api().create(_set(job("wrong", 2, "true"), place, value))
    assert output in str(refused.value)


@pytest.mark.sweep
def test_stop_from_another_process_leaves_nothing(tmp_path: Path) -> None:
    need_kubernetes(volcano=True)
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

"""A hostile member of a team, with the rights of a member, on a real API server: what reaches beyond the team is refused there. The team's own
work goes on."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from sandbox.kubernetes import build
from sandbox.kubernetes.api import path_of
from sandbox.paths import HOME
from tests.jobs.kubernetes.conftest import Running, script
from tests.jobs.kubernetes.test_teams import QUEUES, member
from tests.support import completed, until
from trainium_cdk import outputs
from trainium_cdk.client.jobs.kubernetes import render
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.client.jobs.kubernetes.status import train_spec
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import GROUP_LABEL

__all__ = ["member"]

DEVICES = {"aws.amazon.com/neuron": "16"}
QUEUE = {"kueue.x-k8s.io/queue-name": "trn"}
EXAMPLE = HOME / "examples/kubernetes/jobset.yaml"
MOVE = YAML(typ="safe").load(HOME / "examples/kubernetes/own-folder.yaml")
ALL = [{"operator": "Exists"}]
Kubectl = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def kubectl(running: Running, member: dict[str, str], tmp_path: Path) -> Kubectl:
    """`kubectl` as a member of the team speech."""
    cluster, config = tmp_path / "cluster.json", tmp_path / "config"
    teams = tuple(outputs.eks.Team(namespace=each["namespace"]) for each in QUEUES)
    cluster.write_text(running.cluster.model_copy(update={"teams": teams}).model_dump_json())
    environment = {**member, "TRN_CLUSTER": str(cluster), "TRN_TEAM": "speech", "HOME": str(tmp_path)}
    written = completed(["trn", "show", "kubeconfig", "-o", str(config)], env=environment)
    assert written.returncode == 0, written.stderr

    def run(*words: str, send: Any = None) -> subprocess.CompletedProcess[str]:
        text = None if send is None else json.dumps(send)
        command = [str(build.program("kubectl")), *words, *([] if send is None else ["-f", "-"])]
        env = {**environment, "KUBECONFIG": str(config)}
        return subprocess.run(command, input=text, text=True, capture_output=True, timeout=120, env=env, check=False)

    return run


def thing(kind: str, spec: Any, api: str = "v1", **metadata: Any) -> Any:
    base = {"name": f"hostile-{kind.lower()}", "namespace": "speech"}
    return {"apiVersion": api, "kind": kind, "metadata": base | metadata, "spec": spec}


def pod(amounts: Any = DEVICES, **more: Any) -> Any:
    least = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "c", "image": "x", "resources": {"limits": amounts}, "securityContext": least}
    nobody = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    return {"restartPolicy": "Never", "containers": [container], "securityContext": nobody, **more}


def of_apps(kind: str, **more: Any) -> Any:
    labels = {"app": kind.lower()}
    template = {"metadata": {"labels": labels}, "spec": pod(tolerations=ALL, restartPolicy="Always")}
    return thing(kind, {"selector": {"matchLabels": labels}, "template": template, **more}, "apps/v1")


def job(name: str = "hostile-job", labels: Any = None, spec: Any = None, owners: Any = (), **more: Any) -> Any:
    body = {"template": {"spec": spec or pod()}, **more}
    return thing("Job", body, "batch/v1", name=name, labels=labels or {}, ownerReferences=list(owners))


def jobset(name: str = "hostile-jobset", labels: Any = None, spec: Any = None, **more: Any) -> Any:
    one = {"name": "train", "template": {"spec": {"template": {"spec": spec or pod()}, "backoffLimit": 0}}}
    body = {"replicatedJobs": [one], **more}
    return thing("JobSet", body, "jobset.x-k8s.io/v1alpha2", name=name, labels=labels or {})


def paused(part: Any) -> Any:
    return {**part, "template": {"spec": {**part["template"]["spec"], "parallelism": 0}}}


def service(**body: Any) -> Any:
    return thing("Service", {"selector": {"a": "b"}, "ports": [{"port": 53}], **body})


def policy(**body: Any) -> Any:
    return thing("NetworkPolicy", {"podSelector": {}, **body}, "networking.k8s.io/v1")


CRON = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": {"spec": pod()}}}}
FIRST = {"initContainers": [{**pod()["containers"][0], "name": "first"}]}
EVERYBODY = {"podSelector": {}, "namespaceSelector": {}}
NEED_QUEUE, TAINT, ZERO = "come only from a queue", "may tolerate the taint", "asks for 0 Trainium devices"
NO_PODS, TRAIN = "a part has 0 pods", jobset()["spec"]["replicatedJobs"]
CREATED = [
    (thing("Pod", pod(tolerations=ALL)), NEED_QUEUE),
    (thing("Pod", pod(tolerations=ALL), labels=QUEUE), NEED_QUEUE),
    (thing("Pod", pod({"aws.amazon.com/neuroncore": "2"})), NEED_QUEUE),
    (thing("Pod", pod({"aws.amazon.com/neurondevice": "1"})), NEED_QUEUE),
    (thing("Pod", pod({"vpc.amazonaws.com/efa": "1"})), NEED_QUEUE),
    (thing("Pod", pod({}, **FIRST)), NEED_QUEUE),
    (thing("Pod", pod({}, resourceClaims=[{"name": "x", "resourceClaimName": "x"}])), NEED_QUEUE),
    (thing("Pod", pod({}, tolerations=ALL)), TAINT),
    (thing("Pod", pod({}, tolerations=[{"key": Catalog.load().eks.taint, "operator": "Exists"}])), TAINT),
    (thing("Pod", pod({}, nodeName="any")), "past the scheduler"),
    (thing("Pod", pod({}, priorityClassName="system-cluster-critical")), "exceeded quota: trn-no-priority"),
    (thing("Pod", pod({}, hostNetwork=True)), "violates PodSecurity"),
    (thing("Pod", pod({}, securityContext={"runAsUser": 0})), "violates PodSecurity"),
    (thing("Pod", pod({}, volumes=[{"name": "x", "nfs": {"server": "x", "path": "/"}}])), "violates PodSecurity"),
    (of_apps("DaemonSet"), NEED_QUEUE),
    (of_apps("Deployment"), NEED_QUEUE),
    (of_apps("ReplicaSet"), NEED_QUEUE),
    (of_apps("StatefulSet", serviceName="x"), NEED_QUEUE),
    (job(), NEED_QUEUE),
    (jobset(), NEED_QUEUE),
    (thing("CronJob", CRON, "batch/v1"), NEED_QUEUE),
    (jobset(labels=QUEUE, spec=pod({"aws.amazon.com/neuron": "0"}), suspend=True), ZERO),
    (jobset(labels=QUEUE, spec=pod({"aws.amazon.com/neuron": 0}), suspend=True), ZERO),
    (jobset(labels=QUEUE, spec=pod({"aws.amazon.com/neuron": "0e5"}), suspend=True), ZERO),
    (jobset(labels=QUEUE, spec=pod({"aws.amazon.com/neuron": "-1"}), suspend=True), ZERO),
    (job(labels=QUEUE, spec=pod({"aws.amazon.com/neuroncore": "0"}), suspend=True), ZERO),
    (jobset(labels=QUEUE, suspend=True, replicatedJobs=[*TRAIN, {**TRAIN[0], "name": "none", "replicas": 0}]), NO_PODS),
    (jobset(labels=QUEUE, suspend=True, replicatedJobs=[paused(TRAIN[0])]), NO_PODS),
    (job(labels=QUEUE, suspend=True, parallelism=0), NO_PODS),
    (service(type="LoadBalancer"), "exceeded quota: trn-nothing-outside"),
    (service(type="NodePort"), "exceeded quota: trn-nothing-outside"),
    (service(externalIPs=["172.20.0.10"]), "externalIPs take the traffic"),
    (policy(policyTypes=["Egress"], egress=[{}]), "pods of its own namespace"),
    (policy(ingress=[{}]), "pods of its own namespace"),
    (policy(ingress=[{"from": [EVERYBODY]}]), "pods of its own namespace"),
    (policy(ingress=[{"from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]), "pods of its own namespace"),
    (thing("ResourceQuota", {"hard": {"pods": "9"}}), "forbidden"),
]
OURS = "belongs to the stack"
EMPTIED = '{"spec":{"egress":[{}]}}'
CHANGED = [
    (("delete", "networkpolicy", "trn-out"), OURS),
    (("delete", "networkpolicies", "--all"), OURS),
    (("patch", "networkpolicy", "trn-out", "--type=merge", "-p", EMPTIED), OURS),
    (("label", "networkpolicy", "trn-deny-in", "app.kubernetes.io/managed-by-"), OURS),
    (("delete", "serviceaccount", "trn-job", "--wait=false"), OURS),
    (("delete", "pvc", "--all", "--wait=false"), OURS),
    (("delete", "resourcequota", "trn-no-priority"), "cannot delete"),
    (("delete", "validatingadmissionpolicy", "trn-pods"), "cannot delete"),
    (("label", "namespace", "speech", "pod-security.kubernetes.io/enforce=privileged", "--overwrite"), "cannot patch"),
    (("get", "secrets", "-n", "training"), "cannot list"),
    (("create", "configmap", "trn-runner-x", "--from-literal=a=b", "-n", "training"), "cannot create"),
    (("delete", "lease", "trn-scaler", "-n", "training"), "cannot delete"),
    (("patch", "node", "n", "--subresource=status", "-p", '{"status":{}}'), "cannot"),
    (("delete", "node", "n", "--wait=false"), "cannot delete"),
]


def test_what_reaches_beyond_the_team_is_refused(kubectl: Kubectl) -> None:
    passed = []
    for one, reason in CREATED:
        done = kubectl("create", send=one)
        if done.returncode == 0 or reason not in done.stderr:
            passed.append((one, done.stdout or done.stderr))
            kubectl("delete", "--wait=false", send=one)
    for words, reason in CHANGED:
        done = kubectl(*words)
        if done.returncode == 0 or reason not in done.stderr:
            passed.append((words, done.stdout or done.stderr))
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "spec": {"unschedulable": True}}
    done = kubectl(
        "replace", "--raw=/api/v1/nodes/n", send=node
    )  # what cordon and annotate send, where there is that node
    assert "cannot update" in done.stderr, done.stderr
    assert passed == []


def test_people_bring_pods_to_the_jobs_namespace_that_a_team_may_not(running: Running, kubectl: Kubectl) -> None:
    """Why `eks.namespace` has the standard baseline: the pods of our examples, as many images, run as root, and so does what makes the first
    folder on FSx for Lustre. Those of `trn` on EFS run in both."""
    [example] = [each for each in YAML(typ="safe").load_all(EXAMPLE) if each["kind"] == "JobSet"]
    people = example["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    cluster = running.cluster.model_copy(update={"claims": ("fsx-x",), "mount_dirs": ("/fsx",), "shared_dir": "/fsx"})
    efs, fsx = (
        train_spec(objects(render(script(image="x", nodes=1), c, "t"), c).jobs[0]) for c in (running.cluster, cluster)
    )
    passed = {}
    for name, spec in {"example": people, "move": MOVE["spec"], "of trn": efs, "of trn on FSx": fsx}.items():
        for namespace in ("training", "speech"):
            own = {**spec, "nodeSelector": {}, "containers": [{**c, "resources": {}} for c in spec["containers"]]}
            own["tolerations"] = []
            one = json.dumps(thing("Pod", own, namespace=namespace))
            file = running.kubernetes.directory / "one.json"
            file.write_text(one)
            done = running.kubernetes.kubectl("create", "--dry-run=server", "-f", str(file))
            assert done.returncode == 0 or "violates PodSecurity" in done.stderr, done.stderr
            passed[name, namespace] = done.returncode == 0
    refused = [each for each, there in passed.items() if not there]
    assert refused == [("example", "speech"), ("move", "speech"), ("of trn on FSx", "speech")]


def test_a_queue_is_not_left_by_a_change(running: Running, kubectl: Kubectl) -> None:
    """A suspended JobSet without a queue, a running one in its queue, and a Deployment without devices, changed afterwards."""
    waits, free = jobset("waits", suspend=True), of_apps("Deployment")
    free["spec"]["template"]["spec"] = pod({}, restartPolicy="Always")
    for one in (waits, free):
        made = kubectl("create", send=one)
        assert made.returncode == 0, made.stderr
    path = "/spec/template/spec/containers/0/resources"
    devices = json.dumps([{"op": "add", "path": path, "value": {"limits": DEVICES}}])
    for words in (
        ("patch", "jobset", "waits", "--type=merge", "-p", '{"spec":{"suspend":false}}'),
        ("patch", "deployment", "hostile-deployment", "--type=json", "-p", devices),
    ):
        done = kubectl(*words)
        assert NEED_QUEUE in done.stderr, done
    for one in (waits, free):
        assert kubectl("delete", "--wait=false", send=one).returncode == 0
    api = running.kubernetes.api()
    assert until(lambda: not api.get(path_of("v1", "Pod", namespace="speech"))["items"])


def test_the_teams_own_work_goes_on(running: Running, kubectl: Kubectl) -> None:
    """Its own Job and JobSet in the queue, each after the other, and what needs no device."""
    api, pods = running.kubernetes.api(), path_of("v1", "Pod", namespace="speech")
    cpu = thing("Pod", pod({}), name="cpu")
    cron = thing("CronJob", {**CRON, "jobTemplate": {"metadata": {"labels": QUEUE}, **CRON["jobTemplate"]}}, "batch/v1")
    inside = policy(ingress=[{"from": [{"podSelector": {"matchLabels": {"a": "b"}}}]}])
    for one in (cpu, cron, service(), inside):
        done = kubectl("create", send=one)
        assert done.returncode == 0, done.stderr
        assert kubectl("delete", "--wait=false", send=one).returncode == 0
    selected = pod(nodeSelector={GROUP_LABEL: "trn"})
    beside = {**pod({})["containers"][0], "name": "beside"}
    sidecars = {**selected, "initContainers": [{**beside, "name": "before", "restartPolicy": "Always"}]}
    sidecars["containers"] = [*selected["containers"], beside]
    for one in (job("own-job", QUEUE, selected), jobset("own-set", QUEUE, sidecars)):
        done = kubectl("create", send=one)
        assert done.returncode == 0, done.stderr

        def runs(name: str = one["metadata"]["name"]) -> bool:
            found = api.get(pods)["items"]
            return any(p["metadata"]["name"].startswith(name) and p["spec"].get("nodeName") for p in found)

        assert until(runs, 90), kubectl("get", "pods,jobs,jobsets,events").stdout
        # Kueue takes the child of an admitted job for a part of it, and lets its devices run beyond the share
        here = json.loads(kubectl("get", one["kind"], one["metadata"]["name"], "-o", "json").stdout)
        owner = {"apiVersion": one["apiVersion"], "kind": one["kind"], "name": one["metadata"]["name"]}
        owner |= {"uid": here["metadata"]["uid"], "controller": True}
        forged = kubectl("create", send=job("forged", QUEUE, suspend=True, owners=[owner]))
        assert "no controller as its owner" in forged.stderr
        assert kubectl("delete", "--cascade=foreground", send=one).returncode == 0

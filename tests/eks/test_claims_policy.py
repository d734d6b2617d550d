"""Who may claim devices, and how: the policy `trn-claims` and the rights of people, on a real API server with its own controllers; and Kueue, as
it is deployed for claims."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ruamel.yaml import YAML

from sandbox.kubernetes import LocalKubernetes
from sandbox.kubernetes.api import Api, path_of
from sandbox.paths import HOME
from tests.jobs.kubernetes.conftest import apply
from tests.support import need_kubernetes, until
from trainium_cdk import settings
from trainium_cdk.cdk.eks import charts, kueue, manifests
from trainium_cdk.cdk.eks.access import EDITORS, SCALER, VIEWERS
from trainium_cdk.cdk.eks.boundaries import boundaries
from trainium_cdk.cdk.eks.installation import Installation, kubernetes_object

V1, TEMPLATES = "resource.k8s.io/v1", "resourceclaimtemplates"
ADMINS, RBAC = "admins", {"apiGroup": "rbac.authorization.k8s.io"}
"""Who has Kubernetes's own role `admin` in the namespace."""
CLAIMS = f"/apis/{V1}/namespaces/training/resourceclaim"
WANTED = Installation.of(settings.validate({"eks": {"plugins": {"devices": "claims"}}}))
Person = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKubernetes]:
    need_kubernetes()
    [installed] = [release for release in charts.releases(WANTED) if release.name == "kueue"]
    configuration = json.loads(installed.values["managerConfig"]["controllerManagerConfigYaml"])
    folder = tmp_path_factory.mktemp("claims")
    with LocalKubernetes.start(folder, volcano=False, kueue_configuration=configuration) as running:
        access = [*manifests.access(WANTED), *manifests.scaler_access(WANTED)]
        refers = {
            "roleRef": {**RBAC, "kind": "ClusterRole", "name": "admin"},
            "subjects": [{**RBAC, "kind": "Group", "name": ADMINS}],
        }
        access.append(
            {**kubernetes_object(f"{RBAC['apiGroup']}/v1", "RoleBinding", ADMINS, namespace="training"), **refers}
        )
        apply(running, [*manifests.namespaces(WANTED), *access, *boundaries(WANTED), *kueue.queues(WANTED)])
        yield running


@pytest.fixture
def as_member(cluster: LocalKubernetes) -> Person:
    """`kubectl` in the jobs' namespace, as a member of a group."""

    def run(group: str, *words: str, send: Any = None) -> subprocess.CompletedProcess[str]:
        file = cluster.directory / "sent.json"
        file.write_text(json.dumps(send))
        who = ["--as=ada", f"--as-group={group}", "--as-group=system:authenticated", "--namespace=training"]
        return cluster.kubectl(*who, *words, *(["-f", str(file)] if send else []))

    return run


@pytest.fixture
def api(cluster: LocalKubernetes, as_member: Person) -> Api:
    """Once the policies bind."""
    assert until(
        lambda: "Kueue counts no" in as_member(EDITORS, "create", "--dry-run=server", send=template(every())).stderr
    )
    return cluster.api()


def exact(count: int = 16, **more: Any) -> Any:
    return {"name": "neuron", "exactly": {"deviceClassName": "neuron.aws.com", "count": count, **more}}


def every() -> Any:
    return {"name": "neuron", "exactly": {"deviceClassName": "neuron.aws.com", "allocationMode": "All"}}


def template(*requests: Any, name: str = "own", owner: Any = None, **devices: Any) -> Any:
    """`name` is without the count, with which it ends."""
    count = requests[0].get("exactly", {}).get("count", 1) if requests else 1
    metadata = {"name": f"{name}-{count}", "namespace": "training", **({"ownerReferences": [owner]} if owner else {})}
    spec = {"spec": {"devices": {"requests": list(requests), **devices}}}
    return {"apiVersion": V1, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": spec}


def claim() -> Any:
    found = template(exact())
    return {**found, "kind": "ResourceClaim", "spec": found["spec"]["spec"]}


LNC = {"opaque": {"driver": "neuron.aws.com", "parameters": {"apiVersion": "neuron.aws.com/v1", "kind": "NeuronConfig", "logicalNeuronCore": 1}}}  # fmt: skip


def connected(count: int) -> Any:
    return {"requests": ["neuron"], "matchAttribute": f"resource.aws.com/devicegroup{count}_id"}


TAKEN = [
    *(template(exact(count)) for count in (1, 4, 8, 16)),
    template(exact(4), constraints=[connected(4)], config=[{"requests": ["neuron"], **LNC}]),
    template(exact(4), constraints=[connected(8), {"matchAttribute": "neuron.aws.com/instanceType"}]),
    template({"name": "any", "exactly": {"deviceClassName": "neuron.aws.com"}}),
    *YAML(typ="safe").load_all(HOME / "examples/kubernetes/claims.yaml"),
]
SELECTOR = {"cel": {"expression": "device.attributes['neuron.aws.com'].instanceType == 'trn2.48xlarge'"}}
REFUSED = [
    (template(exact(2)), "Write count: 1, 4, 8 or 16"),
    (template(exact(17)), "Write count: 1, 4, 8 or 16"),
    (template(exact(8), constraints=[connected(8), connected(4)]), "Write matchAttribute: resource.aws.com/devicegroupCOUNT_id"),
    (template(every()), "Write ExactCount"),
    (template(exact(selectors=[SELECTOR])), "Remove the selectors, and write nodeSelector"),
    (template({"name": "any", "firstAvailable": [{"name": "a", "deviceClassName": "neuron.aws.com"}]}), "Write one request with `exactly`"),
    (template(exact(8), {**exact(8), "name": "more"}), "Write one request"),
    (template(), "Write one request"),
    (template({"name": "any", "exactly": {"deviceClassName": "efa.networking.k8s.aws"}}), "Write deviceClassName: neuron.aws.com"),
    (template(exact(adminAccess=True)), "dmin access"),
    ({**template(exact(16)), "metadata": template(exact(8))["metadata"]}, "Write for example name: my-claims-8"),
    (claim(), "Send a ResourceClaimTemplate"),
]  # fmt: skip


def test_what_people_may_claim(api: Api, as_member: Person) -> None:
    for one in TAKEN:
        done = as_member(EDITORS, "create", "--dry-run=server", send=one)
        assert done.returncode == 0, done.stderr
    passed = []
    for one, reason in REFUSED:
        done = as_member(ADMINS, "create", "--dry-run=server", send=one)
        if done.returncode == 0 or reason not in done.stderr:
            passed.append((one, done.stdout or done.stderr))
    assert passed == []


def test_who_claims_nothing_does_not_tolerate_the_nodes(api: Api, as_member: Person) -> None:
    """The API server keeps an empty list of a JobSet."""
    pod = {"containers": [{"name": "c", "image": "x"}], "resourceClaims": [], "tolerations": [{"operator": "Exists"}]}
    metadata = {"name": "none", "namespace": "training", "labels": {"kueue.x-k8s.io/queue-name": "trn"}}
    spec = {"suspend": True, "replicatedJobs": [{"name": "train", "template": {"spec": {"template": {"spec": pod}}}}]}
    one = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
    assert "Remove the toleration" in as_member(EDITORS, "create", "--dry-run=server", send=one).stderr


def test_admin_access_is_refused_where_the_namespace_allows_it(api: Api, as_member: Person) -> None:
    """The API server refuses it elsewhere."""
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    [namespace] = [each for each in manifests.namespaces(WANTED) if each["metadata"]["name"] == "training"]
    marked = copy.deepcopy(namespace)
    marked["metadata"]["labels"] |= label["metadata"]["labels"]
    api.apply(marked)
    done = as_member(EDITORS, "create", "--dry-run=server", send=template(exact(adminAccess=True)))
    assert "takes the devices of others" in done.stderr, done.stderr
    api.apply(namespace)


def test_a_template_with_an_owner_stays_as_kueue_counted_it(api: Api, as_member: Person) -> None:
    """People neither change nor delete it, and it ends with its owner. One without an owner is deleted by whoever made it."""
    own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "job", "namespace": "training"}}
    made = api.create(own)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "job", "uid": made["metadata"]["uid"]}
    for one in (template(exact(1), name="owned", owner=owner), template(exact(1), name="free")):
        done = as_member(EDITORS, "create", send=one)
        assert done.returncode == 0, done.stderr
    remove = '{"metadata":{"ownerReferences":null}}'
    assert "Kueue has counted" in as_member(EDITORS, "delete", TEMPLATES, "owned-1").stderr
    assert "Kueue has counted" in as_member(ADMINS, "patch", TEMPLATES, "owned-1", "--type=merge", "-p", remove).stderr
    for name in ("owned-1", "free-1"):
        assert "cannot patch" in as_member(EDITORS, "patch", TEMPLATES, name, "--type=merge", "-p", remove).stderr
    assert as_member(EDITORS, "delete", TEMPLATES, "free-1").returncode == 0
    api.delete(path_of("v1", "ConfigMap", "job", "training"))
    assert until(lambda: not api.exists(f"{CLAIMS}templates/owned-1"))


def test_who_reads_claims(api: Api, as_member: Person) -> None:
    for group, word, resource, may in (
        (VIEWERS, "list", TEMPLATES, True), (VIEWERS, "get", "resourceclaims", True), (VIEWERS, "create", TEMPLATES, False),
        (VIEWERS, "delete", TEMPLATES, False), (EDITORS, "list", "resourceclaims", True), (EDITORS, "create", "resourceclaims", False),
        (EDITORS, "update", TEMPLATES, False), (SCALER, "list", "resourceslices", True), (SCALER, "get", TEMPLATES, True),
        (SCALER, "delete", "resourceclaims", False),
    ):  # fmt: skip
        told = as_member(group, "auth", "can-i", word, f"{resource}.resource.k8s.io").stdout
        assert told.strip() == ("yes" if may else "no"), (group, word, resource)


def test_controllers_make_the_claims_of_pods(api: Api, as_member: Person) -> None:
    """The claim is Kubernetes's own, and it is deleted with its pod."""
    assert as_member(EDITORS, "create", send=template(exact(4), name="of-a-pod")).returncode == 0
    spec = {
        "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "neuron"}]}}],
        "resourceClaims": [{"name": "neuron", "resourceClaimTemplateName": "of-a-pod-4"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "training"}, "spec": spec}
    api.create(pod)
    assert until(lambda: len(api.get(f"{CLAIMS}s")["items"]) == 1)
    api.delete(path_of("v1", "Pod", "p", "training"))
    assert until(lambda: not api.get(f"{CLAIMS}s")["items"])


def test_a_job_of_claims_has_its_quota_and_asks_for_its_nodes(api: Api, as_member: Person) -> None:
    """While there is none, and no device in the cluster."""
    group = {"requests": ["neuron"], "matchAttribute": "resource.aws.com/devicegroup16_id"}
    pod = {
        "containers": [{"name": "c", "image": "x", "resources": {"claims": [{"name": "neuron"}]}}],
        "resourceClaims": [{"name": "neuron", "resourceClaimTemplateName": "whole-16"}],
        "restartPolicy": "Never",
    }
    job = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
    one = {"name": "train", "template": {"spec": job}}
    spec = {"suspend": True, "replicatedJobs": [one]}
    metadata = {"name": "whole", "namespace": "training", "labels": {"kueue.x-k8s.io/queue-name": "trn"}}
    jobset = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": metadata, "spec": spec}
    for thing in (template(exact(), name="whole", constraints=[group]), jobset):
        done = as_member(EDITORS, "create", send=thing)
        assert done.returncode == 0, done.stderr
    asked = path_of("autoscaling.x-k8s.io/v1", "ProvisioningRequest", namespace="training")
    assert until(lambda: api.get(asked)["items"], 60), as_member(ADMINS, "get", "workloads", "-o", "yaml").stdout
    [request] = api.get(asked)["items"]
    assert [part["count"] for part in request["spec"]["podSets"]] == [2]
    [workload] = api.get(path_of(kueue.API, "Workload", namespace="training"))["items"]
    [usage] = [part["resourceUsage"] for part in workload["status"]["admission"]["podSetAssignments"]]
    assert usage["aws.amazon.com/neuron"] == "32"
    assert not [c for c in workload["status"]["conditions"] if c["type"] == "Admitted" and c["status"] == "True"]

"""The Kubernetes objects that the stack creates in the cluster. Pure: account-specific values are passed in.
Jobs use the names: the outputs have the namespace, the service account, the claims and the queues.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from trainium_cdk.cdk.eks.access import OBJECTS, SCALER, groups_of
from trainium_cdk.cdk.eks.charts import DETECTOR_NAMESPACE
from trainium_cdk.cdk.eks.installation import OWNER, Installation, Manifest, kubernetes_object
from trainium_cdk.cdk.eks.kueue import NAMESPACE_LABEL
from trainium_cdk.cdk.eks.scaler import leaving
from trainium_cdk.cdk.eks.scaler.labels import LEASE
from trainium_cdk.description.outputs import SERVICE_ACCOUNT, Fleet
from trainium_cdk.description.outputs.eks import claim_of, claim_of_folder

if TYPE_CHECKING:
    from trainium_cdk.cdk.storage import FileSystemMount

STORAGE_CLASS = "trn-shared"
_NOMINAL = "1200Gi"
"""A volume needs a size, which cannot change; it is not enforced for a shared file system."""
_VOLCANO_JOBS = {"apiGroups": ["batch.volcano.sh"], "resources": ["jobs", "jobs/status"]}
_VOLCANO_GROUPS = {"apiGroups": ["scheduling.volcano.sh"], "resources": ["podgroups", "podgroups/status"]}
_COMMANDS = {"apiGroups": ["bus.volcano.sh"], "resources": ["commands"]}
_JOB_SETS = {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets", "jobsets/status"]}
_WAITING = [
    {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads", "workloads/status", "localqueues"]},
    {"apiGroups": ["autoscaling.x-k8s.io"], "resources": ["provisioningrequests", "provisioningrequests/status"]},
]
_CLAIMS = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates", "resourceclaims"]}
_TEMPLATES = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaimtemplates"]}
_LEASE = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "resourceNames": [LEASE]}
_QUEUES = ["clusterqueues", "cohorts", "resourceflavors", "workloadpriorityclasses", "admissionchecks"]
_READ = ["get", "list", "watch"]
_WRITE = [*_READ, "create", "update", "patch", "delete", "deletecollection"]


def namespaces(wanted: Installation, restricted: Collection[str] = ()) -> list[Manifest]:
    """The namespaces of jobs, in which no pod is privileged, and the node problem detector's.

    Args:
        restricted: those in which no pod is root. Elsewhere a root makes the first folder of FSx for Lustre, and people's own pods may be root.
    """
    standard = {f"pod-security.kubernetes.io/{mode}-version": "latest" for mode in ("enforce", "audit", "warn")}
    jobs = {
        **OWNER,
        **NAMESPACE_LABEL,
        # enough for devices and huge pages; what `restricted` would reject (root in an image) is a warning
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/audit": "restricted",
        "pod-security.kubernetes.io/warn": "restricted",
        **standard,
    }
    strict = {"pod-security.kubernetes.io/enforce": "restricted"}
    found = [
        kubernetes_object("v1", "Namespace", name, labels=jobs | (strict if name in restricted else {}))
        for name in wanted.namespaces
    ]
    if wanted.plugins.node_problem_detector:
        watched = {**OWNER, "pod-security.kubernetes.io/enforce": "privileged"}  # it reads the kernel's messages
        found.append(kubernetes_object("v1", "Namespace", DETECTOR_NAMESPACE, labels=watched))
    return found


def service_account(wanted: Installation, namespace: str | None = None) -> Manifest:
    """The jobs' identity. EKS Pod Identity gives it its role; it has no permissions in the Kubernetes API."""
    found = kubernetes_object("v1", "ServiceAccount", SERVICE_ACCOUNT, namespace=namespace or wanted.namespace)
    return {**found, "automountServiceAccountToken": False}


def access(wanted: Installation) -> list[Manifest]:
    """Permissions that EKS's access policies lack: JobSets, claims of devices and Volcano's jobs in each namespace, and reading nodes, queues and volumes."""
    waiting = [{**rule, "verbs": _READ} for rule in (*_WAITING, _VOLCANO_GROUPS)] + [{**_LEASE, "verbs": ["get"]}]
    edit = [{**rule, "verbs": _WRITE} for rule in (_JOB_SETS, _VOLCANO_JOBS, _COMMANDS)] + waiting
    view = [{**rule, "verbs": _READ} for rule in (_JOB_SETS, _VOLCANO_JOBS)] + waiting
    if wanted.claims:  # nobody changes a template, which Kueue counts once
        edit += [{**_CLAIMS, "verbs": _READ}, {**_TEMPLATES, "verbs": ["create", "delete"]}]
        view += [{**_CLAIMS, "verbs": _READ}]
    look = [
        {"apiGroups": [""], "resources": ["nodes", "persistentvolumes", "namespaces"], "verbs": _READ},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": _QUEUES, "verbs": _READ},
        {"apiGroups": ["scheduling.volcano.sh"], "resources": ["queues"], "verbs": _READ},
        {"apiGroups": ["storage.k8s.io"], "resources": ["storageclasses"], "verbs": _READ},
    ]
    rbac = "rbac.authorization.k8s.io/v1"
    rules = {"trn-read": look, "trn-edit": edit, "trn-view": view}
    found = [{**kubernetes_object(rbac, "ClusterRole", name), "rules": of} for name, of in rules.items()]
    everyone: list[str] = []
    for namespace in wanted.namespaces:
        team = None if namespace == wanted.namespace else namespace
        editors, viewers = groups_of("edit", team), groups_of("view", team)
        found += [
            # not of the roles' names: to what a binding refers cannot change, and it was a role of the namespace once
            _binding("RoleBinding", "trn-editors", "ClusterRole", editors, namespace, to="trn-edit"),
            _binding("RoleBinding", "trn-viewers", "ClusterRole", viewers, namespace, to="trn-view"),
        ]
        everyone += [*editors, *viewers]
    return [*found, _binding("ClusterRoleBinding", "trn-read", "ClusterRole", everyone)]


def scaler_access(wanted: Installation) -> list[Manifest]:
    """Permissions of the scaler: to read pods and requests for nodes, cordon and annotate nodes, and write its answers; and the Lease
    that shows when it ran last."""
    rules = [
        {"apiGroups": [""], "resources": ["pods", "podtemplates"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "patch"]},
        {"apiGroups": ["autoscaling.x-k8s.io"], "resources": ["provisioningrequests"], "verbs": ["list"]},
        {"apiGroups": ["autoscaling.x-k8s.io"], "resources": ["provisioningrequests/status"], "verbs": ["patch"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list", "patch"]},
        # Workloads that can never start, which are set aside with an event
        {
            "apiGroups": ["kueue.x-k8s.io"],
            "resources": ["clusterqueues", "localqueues", "resourceflavors"],
            "verbs": ["list"],
        },
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "list"]},
        # JobSets that enter their queue after a Job
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"], "verbs": ["list", "patch"]},
        {"apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets/status"], "verbs": ["patch"]},
    ]
    if wanted.claims:
        claims = ["resourceslices", "resourceclaims", "resourceclaimtemplates"]
        rules.append({"apiGroups": ["resource.k8s.io"], "resources": claims, "verbs": ["get", "list"]})
    lease = {**_LEASE, "verbs": ["get", "patch"]}
    rbac, name, namespace = "rbac.authorization.k8s.io/v1", "trn-scaler", wanted.namespace
    return [
        {**kubernetes_object(rbac, "ClusterRole", name), "rules": rules},
        _binding("ClusterRoleBinding", name, "ClusterRole", [SCALER]),
        {**kubernetes_object(rbac, "Role", name, namespace=namespace), "rules": [lease]},
        _binding("RoleBinding", name, "Role", [SCALER], namespace),
        {
            **kubernetes_object("coordination.k8s.io/v1", "Lease", LEASE, namespace=namespace),
            "spec": {"holderIdentity": name},
        },
    ]


def removal_access() -> list[Manifest]:
    """Permissions of the function that removes objects which leave: for the kinds of the stack's objects, and to see who uses them."""
    verbs = {kind: ["get", "list", "patch", "delete"] for kind in leaving.KINDS.values()}
    rules = [
        {"apiGroups": [at.group], "resources": [at.folder], "verbs": verbs.get(at, ["list"])}
        for at in dict.fromkeys([*leaving.KINDS.values(), *leaving.WORK.values()])
    ]
    name = "trn-objects"
    role = kubernetes_object("rbac.authorization.k8s.io/v1", "ClusterRole", name)
    return [{**role, "rules": rules}, _binding("ClusterRoleBinding", name, "ClusterRole", [OBJECTS])]


def volumes(wanted: Installation, mounted: Sequence[FileSystemMount], folders: Mapping[str, str]) -> list[Manifest]:
    """A volume and a claim for each of the stack's file systems in each namespace, bound to each other. Deleting them does not delete the file
    systems, and no file system is created by the drivers, which the stack would leave behind.

    Args:
        folders: ids of EFS's access points by namespace. The others have the whole file system.
    """
    kind = kubernetes_object("storage.k8s.io/v1", "StorageClass", STORAGE_CLASS)
    found: list[Manifest] = [
        {
            **kind,
            "provisioner": "kubernetes.io/no-provisioner",
            "reclaimPolicy": "Retain",
            "volumeBindingMode": "Immediate",
        }
    ]
    for namespace in wanted.namespaces:
        for system in mounted:
            found += _volume(namespace, system, folders.get(namespace, "") if system.kind == "efs" else "")
    return found


def claims(mounted: Sequence[FileSystemMount]) -> list[str]:
    """The claims of the jobs' own namespace, in the order of the file systems. It has its own folder on a new EFS, and the whole of one
    that may have files already."""
    found = {claim_of(each.kind, each.id, each.mount_name): each.owned for each in mounted}
    return [claim_of_folder(claim) if new else claim for claim, new in found.items()]


def queues(wanted: Installation) -> list[Manifest]:
    """A Volcano queue for each node group, with the capacity of the group's largest size."""
    return [_queue(wanted, fleet) for fleet in wanted.fleets]


def _queue(wanted: Installation, fleet: Fleet) -> Manifest:
    names, kind = wanted.catalog.eks.resources, wanted.catalog.instance(fleet.instance_type)
    capability = {
        "cpu": str(fleet.nodes * kind.vcpus),
        "memory": f"{fleet.nodes * kind.memory_gib}Gi",
        names.device: str(fleet.nodes * fleet.devices),
    }
    if fleet.efa:
        capability[names.efa] = str(fleet.nodes * fleet.efa)
    found = kubernetes_object("scheduling.volcano.sh/v1beta1", "Queue", fleet.queue)
    return {**found, "spec": {"weight": 1, "reclaimable": True, "capability": capability}}


def _volume(namespace: str, system: FileSystemMount, folder: str) -> list[Manifest]:
    # by what they point to, which cannot change: another file system has another volume and claim
    claim = claim_of(system.kind, system.id, system.mount_name)
    if folder:
        claim = claim_of_folder(claim)
    name = f"{namespace}-{claim}"
    if system.kind == "fsx":
        driver: Manifest = {
            "driver": "fsx.csi.aws.com",
            "volumeHandle": system.id,
            "volumeAttributes": {"dnsname": system.dns_name, "mountname": system.mount_name},
        }
        options = ["flock", "noatime"]
    else:
        options = ["tls", "iam"]
        handle = f"{system.id}::{folder}" if folder else system.id
        driver = {"driver": "efs.csi.aws.com", "volumeHandle": handle}
    size, modes = {"storage": _NOMINAL}, ["ReadWriteMany"]
    volume = kubernetes_object("v1", "PersistentVolume", name)
    volume["spec"] = {
        "capacity": size,
        "accessModes": modes,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": STORAGE_CLASS,
        "mountOptions": options,
        "csi": driver,
        # no other claim can bind it
        "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": claim},
    }
    request = kubernetes_object("v1", "PersistentVolumeClaim", claim, namespace=namespace)
    request["spec"] = {
        "accessModes": modes,
        "storageClassName": STORAGE_CLASS,
        "volumeName": name,
        "resources": {"requests": size},
    }
    return [volume, request]


def _binding(
    kind: str, name: str, role: str, groups: Sequence[str], namespace: str | None = None, *, to: str = ""
) -> Manifest:
    found = kubernetes_object("rbac.authorization.k8s.io/v1", kind, name, namespace=namespace)
    found["roleRef"] = {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": to or name}
    found["subjects"] = [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": g} for g in groups]
    return found

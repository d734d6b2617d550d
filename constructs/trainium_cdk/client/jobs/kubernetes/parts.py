"""What a job's objects on Kubernetes consist of: their names and labels, and the containers, devices and volumes of its pods. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from trainium_cdk.cdk.eks.scaler.labels import AFTER as AFTER
from trainium_cdk.cdk.eks.scaler.labels import AFTER_LABEL as AFTER_LABEL
from trainium_cdk.cdk.eks.scaler.labels import ARRAY_LABEL as ARRAY_LABEL
from trainium_cdk.cdk.eks.scaler.labels import BROKEN as BROKEN
from trainium_cdk.cdk.eks.scaler.labels import CANCELLED as CANCELLED
from trainium_cdk.cdk.eks.scaler.labels import DESCRIPTION as DESCRIPTION
from trainium_cdk.cdk.eks.scaler.labels import DIGEST as DIGEST
from trainium_cdk.cdk.eks.scaler.labels import LEASE as LEASE
from trainium_cdk.cdk.eks.scaler.labels import LEAVING as LEAVING
from trainium_cdk.cdk.eks.scaler.labels import MANAGED_BY as MANAGED_BY
from trainium_cdk.cdk.eks.scaler.labels import NEVER as NEVER
from trainium_cdk.cdk.eks.scaler.labels import QUEUE as QUEUE
from trainium_cdk.cdk.eks.scaler.labels import QUEUE_LABEL as QUEUE_LABEL
from trainium_cdk.cdk.eks.scaler.labels import RUN_LABEL
from trainium_cdk.cdk.eks.scaler.labels import TRAIN as TRAIN
from trainium_cdk.cdk.eks.scaler.labels import condition as condition
from trainium_cdk.cdk.eks.scaler.labels import seconds as seconds
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.constants import Fetches
from trainium_cdk.description.outputs import GROUP_LABEL, ROLE_LABEL, EksCluster, Fleet
from trainium_cdk.description.outputs.eks import JOB_USER
from trainium_cdk.errors import JobError, UnknownCatalogEntry

if TYPE_CHECKING:
    from trainium_cdk.description.catalog.models import Helper

Object = dict[str, Any]

JOBSET = "jobset.x-k8s.io/v1alpha2"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
"""Label of a JobSet: Kueue's WorkloadPriorityClass."""
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
"""Label of a pod: its number within its Job."""
JOB_LABEL = "trainium-cdk/job"
"""On every object and pod of a job; its value is the job's name."""
KIND_LABEL = "trainium-cdk/kind"
MEMBER_LABEL = "trainium-cdk/array-index"
"""On a member's JobSet and pods: its index."""
CACHE_LABEL = "trainium-cdk/cache-set"
HOLDER = "trainium-cdk/held-by"
"""Annotation of a cache set's guard: the job that uses it."""
TASK_LABEL = "trainium-cdk/task"
"""On a pod: `train` or `prepare`."""
RUNNER = "trainium-cdk/runner"
"""Annotation of a JobSet: the ConfigMap with its runner."""

FOLDER = "folder"
"""The init container that creates the jobs' directory: the first one that needs the pod's image."""
PREPARE = "prepare"
REFUSED, NOT_COMPILED, FAILED, TIMED_OUT = FINAL = (64, 65, 66, 124)
"""Exit codes of the runner at which a job ends: it cannot start; it does not compile; its program has failed; its time limit is reached."""
MAX_NAME = 44
"""Longest name of a job: the names of its pods, `<name>-train-0-9999-abcde`, have 63 characters at most."""
HOME = "/home/trn"
GRACE_SECONDS = 60
MEMORY_FULL: tuple[Object, ...] = (
    # its node is lost, or a pod is evicted: another attempt may run
    {"action": "Count", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    # SIGKILL without that: the next attempt would need as much memory. the runner leaves this code to such an end
    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [137]}},
)
"""Rules of a batch Job's failure policy, behind its own: a container whose memory was full ends the Job."""
CLAIM = "neuron"
"""The name by which a pod's containers know its claim of devices."""


def object_name(id: str) -> str:
    """The name of a job's objects: its id, with hyphens for dots, as host names and services require.

    Raises:
        JobError: it is too long.

    >>> object_name("gpt-6.7b-20261120-4f3a9c")
    'gpt-6-7b-20261120-4f3a9c'
    """
    name = re.sub(r"[^a-z0-9]+", "-", id).strip("-")
    if not name[:1].isalpha():
        name = f"job-{name}".rstrip("-")
    if len(name) > MAX_NAME:
        raise JobError(
            f"the job's name is {name}, {len(name)} characters; at most {MAX_NAME} are allowed. Give a shorter --name or "
            "--token"
        )
    return name


def member(name: str, index: int) -> str:
    """The name of the objects of an array's member.

    Raises:
        JobError: it is too long.
    """
    return object_name(f"{name}-{index}")


def array(obj: Mapping[str, Any]) -> str:
    """The name of the array that an object belongs to; empty if none."""
    return str((obj["metadata"].get("labels") or {}).get(ARRAY_LABEL, ""))


def submission(obj: Mapping[str, Any]) -> str:
    """The name under which an object was submitted: the array's, or the job's own."""
    return array(obj) or str(obj["metadata"]["name"])


def id_of(obj: Mapping[str, Any]) -> str:
    """The id of a JobSet's job: its name, or `ARRAY/INDEX`."""
    if not (name := array(obj)):
        return str(obj["metadata"]["name"])
    return f"{name}/{obj['metadata']['labels'].get(MEMBER_LABEL, '?')}"


def cache_guard(cache_set: str) -> str:
    """The name of the object that records which job uses a cache set.

    >>> cache_guard("bert-large")
    'trn-cache-bert-large'
    """
    plain = re.sub(r"[^a-z0-9]+", "-", cache_set.lower()).strip("-")
    if plain == cache_set:
        return f"trn-cache-{plain}"
    # different names may become equal when simplified: the hash keeps their cache sets apart
    return f"trn-cache-{plain}-{hashlib.sha256(cache_set.encode()).hexdigest()[:6]}"


def priority_class(priority: str) -> str:
    """The WorkloadPriorityClass of a job's priority: one of the stack's for low, normal and high, else the class of this name."""
    return f"trn-{priority}" if priority in ("low", "normal", "high") else priority


def labels(name: str, kind: str) -> dict[str, str]:
    """The labels of a job's objects."""
    return {"app.kubernetes.io/managed-by": MANAGED_BY, JOB_LABEL: name, KIND_LABEL: kind}


def submitted_by_trn(obj: Mapping[str, Any], job: str = "") -> bool:
    """Return whether `trn` created an object of a job: its labels name `trn` and the job (default: the object's own name)."""
    labels: Mapping[str, str] = obj["metadata"].get("labels") or {}
    named: bool = labels.get(JOB_LABEL) == (job or obj["metadata"]["name"])
    return named and labels.get("app.kubernetes.io/managed-by") == MANAGED_BY


def is_job(jobset: Mapping[str, Any]) -> bool:
    """Return whether `trn` created a JobSet, as above. A member of an array also has its number."""
    labels: Mapping[str, str] = jobset["metadata"].get("labels") or {}
    numbered = ARRAY_LABEL not in labels or re.fullmatch("[0-9]{1,3}", labels.get(MEMBER_LABEL, ""))
    return submitted_by_trn(jobset) and bool(numbered)


def submitted(job: Mapping[str, Any]) -> bool:
    """Return whether a JobSet's submission is complete: it was let into its queue, or waits for others before it."""
    return bool({QUEUE_LABEL, AFTER_LABEL} & (job["metadata"].get("labels") or {}).keys())


def owners(obj: Mapping[str, Any]) -> list[str]:
    """The uids of an object's owners. Unlike names and labels, uids are never reused."""
    return [str(owner.get("uid", "")) for owner in obj["metadata"].get("ownerReferences") or []]


def runner(digest: str) -> str:
    """The name of the ConfigMap with a version of the runner, by the SHA-256 of its file."""
    return f"trn-runner-{digest[:40]}"


def prepare_job(name: str) -> str:
    """The name of the batch Job that fetches what a job needs."""
    return f"{name}-{PREPARE}"


def train_job(name: str) -> str:
    """The name that JobSet gives the batch Job of the training pods."""
    return f"{name}-{TRAIN}-0"


def host(name: str, index: int) -> str:
    """The name by which the other pods of a job find a training pod: JobSet's headless service has the name of the job."""
    return f"{train_job(name)}-{index}.{name}"


class Resources(NamedTuple):
    """The requests and limits of a container, and the claims of its pod that it uses."""

    requests: Mapping[str, str]
    limits: Mapping[str, str]
    claims: Sequence[str] = ()

    @property
    def fields(self) -> Object:
        amounts = {"requests": dict(self.requests), "limits": dict(self.limits)}
        return {**amounts, **({"claims": [{"name": name} for name in self.claims]} if self.claims else {})}

    @classmethod
    def of(cls, helper: Helper, gib: int | None = None) -> Resources:
        """Return the resources of a pod on the system nodes. CPU has no limit, so that it uses what others leave.

        Args:
            gib: the most memory, instead of the default.
        """
        most = gib * 1024 if gib else helper.limit
        return cls({"cpu": f"{helper.cpu}m", "memory": f"{helper.memory}Mi"}, {"memory": f"{most}Mi"})


LEAST = Resources({"cpu": "50m", "memory": "64Mi"}, {"memory": "64Mi"})
"""Resources of a container that makes a folder: not more than a pod's other containers."""


def prepare(cluster: EksCluster, fetches: Fetches) -> Resources:
    """Return the resources of a pod that fetches data, packages or models."""
    from trainium_cdk.description.catalog.pods import pods as known  # slow to load, for those who only look

    return Resources.of(known().helpers.prepare.helper(fetches, cluster.prepare_memory_gib))


def devices(fleet: Fleet) -> dict[str, str]:
    """Resource requests of a pod that fills a node: all of its devices, and most of its processors and memory; or of one with a part of them.

    The rest of processors and memory is for the node's own processes and plug-ins. Devices that are claimed are not among them (`claim`).
    """
    catalog = Catalog.load()
    names = catalog.eks.resources
    wanted = {} if fleet.claims else {names.device: str(fleet.devices)}
    if fleet.efa:
        wanted |= {names.efa: str(fleet.efa), names.hugepages: catalog.eks.hugepages_2mi}
    try:
        kind = catalog.instance(fleet.instance_type)
    except UnknownCatalogEntry:  # described only in an environment file
        return {**wanted, "cpu": "4", "memory": "16Gi"}
    # huge pages are not counted as memory. a node that is shared has them, too, though a part does not use them
    kept = 10 if fleet.efa or fleet.share else 1 if fleet.claims else 0  # 1: the driver's
    memory = kind.memory_gib * 9 // 10 - kept
    cpu = kind.vcpus - max(2, kind.vcpus // 16)
    own, every = (fleet.devices, kind.neuron_devices) if fleet.share else (1, 1)
    return {**wanted, "cpu": str(cpu * own // every), "memory": f"{memory * own // every}Gi"}


def claim(fleet: Fleet) -> Object:
    """The claim of a pod's devices: connected ones, where several are a part of a node, with the job's own LNC. Without a selector, by which
    Kueue keeps a job from an empty node group: the pod's node selector chooses the type."""
    catalog = Catalog.load()
    known, kind = catalog.eks.claims, catalog.instances.get(fleet.instance_type)
    exactly = {"deviceClassName": known.device_class, "allocationMode": "ExactCount", "count": fleet.devices}
    made: Object = {"requests": [{"name": CLAIM, "exactly": exactly}]}
    # nodes without EFA have no attribute of a group. a part has no EFA, but its node has
    if fleet.instance_type in known.parts and fleet.devices > 1 and (fleet.efa or fleet.share):
        made["constraints"] = [{"requests": [CLAIM], "matchAttribute": known.group.format(count=fleet.devices)}]
    # the driver refuses it where there is no choice. elsewhere a device may keep that of the job before
    if kind and len(kind.lnc) > 1:
        cores = fleet.lnc or kind.default_lnc
        lnc = {"apiVersion": "neuron.aws.com/v1", "kind": "NeuronConfig", "logicalNeuronCore": cores}
        made["config"] = [{"requests": [CLAIM], "opaque": {"driver": known.device_class, "parameters": lnc}}]
    return {"devices": made}


def container(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    resources: Resources,
    mounts: Sequence[Object],
    env: Sequence[Object] = (),
) -> Object:
    """A container that may only use its devices and write to its volumes."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "env": [*_ENV, *env],
        "resources": resources.fields,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": list(mounts),
    }


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


_ENV: tuple[Object, ...] = (
    {"name": "HOME", "value": HOME},
    # the user has no entry in the image's /etc/passwd, and programs look up its name
    {"name": "USER", "value": "trn"},
    {"name": "LOGNAME", "value": "trn"},
    _field("TRN_NODE", "spec.nodeName"),
)
ATTEMPT = _field("TRN_ATTEMPT", "metadata.labels['jobset.sigs.k8s.io/restart-attempt']")
RUN = _field("TRN_RUN", f"metadata.labels['{RUN_LABEL}']")


class Volumes:
    """The volumes of a job's pods, and their mounts.

    Args:
        shm_gib: size of /dev/shm; None for the container's default.
    """

    def __init__(self, cluster: EksCluster, *, shm_gib: int | None = None) -> None:
        self.volumes: list[Object] = [{"name": "scratch", "emptyDir": {}}]
        self.mounts: list[Object] = [
            {"name": "scratch", "mountPath": place, "subPath": part}
            for place, part in (("/tmp", "tmp"), ("/var/tmp", "var-tmp"), (HOME, "home"))  # noqa: S108
        ]
        self.shared = [
            {"name": claim, "mountPath": place} for claim, place in zip(cluster.claims, cluster.mount_dirs, strict=True)
        ]
        self.volumes += [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in cluster.claims]
        self.mounts += self.shared
        if shm_gib:
            self.volumes.append({"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shm_gib}Gi"}})
            self.mounts.append({"name": "shm", "mountPath": "/dev/shm"})  # noqa: S108

    def add(self, name: str, source: Object, place: str) -> None:
        """A volume that is only read."""
        self.volumes.append({"name": name, **source})
        self.mounts.append({"name": name, "mountPath": place, "readOnly": True})


def maker(cluster: EksCluster, container: Object, folders: Sequence[str]) -> Object:
    """The container that makes the jobs' folder and others: as root, which the root of FSx for Lustre belongs to."""
    if not any(map(cluster.needs_root, folders)):
        return container
    return {**container, "securityContext": {**container["securityContext"], "runAsNonRoot": False, "runAsUser": 0}}


def on_trainium(fleet: Fleet) -> Object:
    """Node selection and tolerations of pods that train."""
    taint = Catalog.load().eks.taint
    return {
        "nodeSelector": {GROUP_LABEL: fleet.resource, "node.kubernetes.io/instance-type": fleet.instance_type},
        "tolerations": [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}],
    }


ON_SYSTEM: Object = {"nodeSelector": {ROLE_LABEL: "system"}}
"""Node selection of pods that need no devices."""


def spec(
    cluster: EksCluster,
    *,
    containers: Sequence[Object],
    volumes: Volumes,
    init_containers: Sequence[Object] = (),
    grace_seconds: int = GRACE_SECONDS,
    where: Object,
) -> Object:
    """A pod's specification: no token of the Kubernetes API, no root, no capabilities."""
    made: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": grace_seconds,
        "serviceAccountName": cluster.service_account,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": JOB_USER,
            "runAsGroup": JOB_USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        **where,
    }
    if init_containers:
        made["initContainers"] = list(init_containers)
    return {**made, "containers": list(containers), "volumes": volumes.volumes}

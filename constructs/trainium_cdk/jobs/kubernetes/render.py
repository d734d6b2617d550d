"""From a job and a cluster to the Kubernetes objects that run it. Pure: the same input gives the same text, byte for byte."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from io import StringIO
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import checkpoints
from trainium_cdk.jobs.kubernetes import names, pods, scripts
from trainium_cdk.jobs.kubernetes.pods import Object
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.plan import Plan, plan
from trainium_cdk.jobs.submission import Submission, job_id
from trainium_cdk.outputs import EksCluster
from trainium_cdk.runner import arrays

MAX_FILES = 900_000
"""Most bytes of a job's files: a Secret holds 1 MiB, including base64 (Kubernetes documentation)."""
KEPT_SECONDS = 14 * 86_400
"""Seconds for which an ended job stays in the cluster. Its directory on the shared file system is kept."""
RESTARTS = 3
SPOT_RESTARTS = 20
"""Most restarts by default: spot nodes are interrupted repeatedly during a job of several days."""
_RESERVED = ("JOB_COMPLETION_", "KUBERNETES_")
_RANK_ENV = ("MASTER_ADDR", "NNODES", "NODE_RANK", "NPROC_PER_NODE", "TRN_ATTEMPT", "TRN_LIMITED", "TRN_NODE")


@dataclass(frozen=True)
class KubernetesSubmission(Submission):
    """The objects that are created, in this order: a Secret with the job's files, the guard of its compile cache, a network policy, the
    batch Job of `prepare` if there is something to prepare, and the JobSet; of an array, a JobSet for each member. All others are then
    tied to the JobSets (owner references), so that they are deleted with the last one.

    Attributes:
        digest: SHA-256 of the objects.
    """

    objects: tuple[Object, ...] = ()
    digest: str = ""

    @property
    def text(self) -> str:
        """The objects as YAML."""
        return to_yaml(self.objects)

    @property
    def secret(self) -> Object:
        return self.objects[0]

    @property
    def guard(self) -> Object:
        return self.objects[1]

    @property
    def parts(self) -> tuple[Object, ...]:
        """What is created before the JobSets, and belongs to this job alone."""
        return (self.secret, *(thing for thing in self.objects[2:] if thing["kind"] != "JobSet"))

    @property
    def jobs(self) -> tuple[Object, ...]:
        """The JobSet, or those of an array's members."""
        return tuple(thing for thing in self.objects if thing["kind"] == "JobSet")


def render(job: Job, cluster: EksCluster, token: str, *, catalog: Catalog | None = None) -> KubernetesSubmission:
    """Render a job for a cluster.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is not valid.
    """
    name, fitted = names.object_name(job_id(job, token)), plan(job, cluster)
    _environment(job)
    parts = checkpoints.complete(job.template(fitted), fitted, names.object_name)
    made = scripts.job_files(name, fitted, parts, catalog, team=cluster.team)
    _size(made)
    labels = names.labels(name, job.kind) | ({names.ARRAY_LABEL: name} if job.array else {})
    secret = _secret(name, cluster, labels, made)
    policy = _network_policy(name, cluster, labels)
    prepare = [_prepare(name, fitted, cluster, labels, made)] if "prepare" in fitted.stages else []
    objects = (
        secret,
        _guard(name, cluster, job),
        policy,
        *prepare,
        *_jobsets(name, fitted, cluster, labels, made, catalog),
    )
    digest = hashlib.sha256(json.dumps(objects, sort_keys=True).encode()).hexdigest()
    for thing in objects:
        thing["metadata"].setdefault("annotations", {})[names.DIGEST] = digest
    return KubernetesSubmission(name, scripts.directory(name, fitted), fitted, made, objects=objects, digest=digest)


def to_yaml(objects: tuple[Object, ...]) -> str:
    """The objects as a readable YAML stream: multi-line strings are written on several lines."""
    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import LiteralScalarString

    def readable(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: readable(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [readable(inner) for inner in value]
        if isinstance(value, str) and "\n" in value:
            return LiteralScalarString(value)
        return value

    writer = YAML()
    writer.width = 10_000
    writer.explicit_start = True
    writer.indent(mapping=2, sequence=4, offset=2)
    out = StringIO()
    writer.dump_all([readable(thing) for thing in objects], out)
    return out.getvalue()


def _environment(job: Job) -> None:
    for variable in job.env:
        if variable.startswith(_RESERVED) or variable in _RANK_ENV:
            raise JobError(f"env {variable}: it is set automatically for each pod. Choose another name, or remove it")


def _size(files: Mapping[str, bytes]) -> None:
    size = sum(len(content) for content in files.values())
    if size > MAX_FILES:
        raise JobError(
            f"the job's files have {size:,} bytes; Kubernetes allows {MAX_FILES:,}. Put large files on the shared file system, or "
            "into the image (trn image build)"
        )


def _keys(paths: Iterable[str]) -> dict[str, str]:
    """The key of each file in a Secret; the name of a user's file may not be a valid one."""
    sent = (f"script-{number}" if number else "script" for number in itertools.count())
    return {path: next(sent) if path.startswith("script/") else path for path in paths}


def _secret(name: str, cluster: EksCluster, labels: Mapping[str, str], files: Mapping[str, bytes]) -> Object:
    """The files are a Secret, not a ConfigMap: they contain the user's environment."""
    text: dict[str, str] = {}
    binary: dict[str, str] = {}
    keys = _keys(files)
    for path, content in files.items():
        try:
            plain = content.decode()
        except UnicodeDecodeError:
            plain = ""
        # only what every YAML parser returns unchanged is written as text
        if plain and all(c in "\n\t" or c.isprintable() for c in plain) and not plain[0].isspace():
            text[keys[path]] = plain
        else:
            binary[keys[path]] = base64.b64encode(content).decode()
    made: Object = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": dict(labels)},
        "type": "Opaque",
        "immutable": True,
    }
    if text:
        made["stringData"] = text
    if binary:
        made["data"] = binary
    return made


def _guard(name: str, cluster: EksCluster, job: Job) -> Object:
    """Only one job at a time uses a cache set: the compiler's locks do not work on a shared file system."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": names.cache_guard(job.cache_set),
            "namespace": cluster.namespace,
            "labels": {"app.kubernetes.io/managed-by": names.MANAGED_BY},
            "annotations": {names.HOLDER: name, names.CACHE_LABEL: job.cache_set},
        },
    }


def _jobsets(name: str, fitted: Plan, cluster: EksCluster, labels: Mapping[str, str], *rest: Any) -> list[Object]:
    """The JobSet; of an array one for each member, so that Kueue starts each as soon as its nodes are there."""
    if not fitted.job.array:
        return [_jobset(name, fitted, cluster, labels, *rest)]
    indices = arrays.indices(fitted.job.array)
    names.member(name, max(indices))  # the longest name
    return [_jobset(name, fitted, cluster, labels, *rest, index=index) for index in indices]


def _network_policy(name: str, cluster: EksCluster, labels: Mapping[str, str]) -> Object:
    """The pods of one job, or array, reach each other. The namespace's own policies deny everything else."""
    of = names.ARRAY_LABEL if names.ARRAY_LABEL in labels else names.JOB_LABEL
    pods_of_job = {"matchLabels": {of: name}}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": dict(labels)},
        "spec": {
            "podSelector": pods_of_job,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": pods_of_job}]}],
        },
    }


def _jobset(
    name: str,
    fitted: Plan,
    cluster: EksCluster,
    labels: Mapping[str, str],
    files: Mapping[str, bytes],
    catalog: Catalog | None,
    *,
    index: int | None = None,
) -> Object:
    nodes, queue, files_of = fitted.job.nodes, fitted.fleet.queue, name
    # Kueue asks for nodes for all pods of a JobSet before any of them starts: while `prepare` runs, the JobSet is not in the queue
    other = {names.AFTER: names.object_name(fitted.job.after)} if fitted.job.after else {}
    waits = {names.AFTER_LABEL: other[names.AFTER]} if other else {names.QUEUE_LABEL: queue}
    if "prepare" in fitted.stages:
        waits = {names.AFTER_LABEL: names.prepare_job(name)}
    priority = {names.PRIORITY_LABEL: names.priority_class(fitted.job.priority)} if fitted.job.priority else {}
    described = json.dumps(scripts.describe(name, fitted, index), sort_keys=True)
    if index is not None:
        name = names.member(name, index)
        labels = {**labels, names.JOB_LABEL: name, names.MEMBER_LABEL: str(index)}
    return {
        "apiVersion": names.JOBSET,
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": {**labels, **waits, **priority},
            "annotations": {names.DESCRIPTION: described, names.QUEUE: queue, **other},
        },
        "spec": {
            "suspend": True,  # Kueue starts it
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            # the pods' names resolve before the pods are ready, which they are not while compiling
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            # all other failures restart the job: a kind resumes from its last checkpoint, and a script's own failure is 66
            "failurePolicy": {
                "maxRestarts": _restarts(fitted),
                "rules": [{"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "replicatedJobs": [
                {
                    "name": names.TRAIN,
                    "replicas": 1,
                    "template": {
                        "metadata": {"labels": dict(labels)},
                        "spec": {
                            "completionMode": "Indexed",
                            "completions": nodes,
                            "parallelism": nodes,
                            "backoffLimit": 0,
                            "podFailurePolicy": _ends(names.TRAIN, "In", (*scripts.FINAL, scripts.TIMED_OUT)),
                            "template": _train(files_of, fitted, cluster, labels, files, catalog, index),
                        },
                    },
                }
            ],
        },
    }


def _ends(container: str, operator: str, codes: Iterable[int]) -> Object:
    """The policy of a batch Job that fails at once with these exit codes, or if its memory was full."""
    exits = {"containerName": container, "operator": operator, "values": sorted(codes)}
    return {"rules": [{"action": "FailJob", "onExitCodes": exits}, *pods.MEMORY_FULL]}


def _restarts(fitted: Plan) -> int:
    if fitted.job.restarts is not None:
        return fitted.job.restarts
    return SPOT_RESTARTS if fitted.fleet.capacity_type == "spot" else RESTARTS


def _template(task: str, labels: Mapping[str, str], spec: Object) -> Object:
    return {"metadata": {"labels": {**labels, names.TASK_LABEL: task}}, "spec": spec}


def _prepare(
    name: str, fitted: Plan, cluster: EksCluster, labels: Mapping[str, str], files: Mapping[str, bytes]
) -> Object:
    image = scripts.image_of(fitted)
    volumes = pods.Volumes(cluster, secret=name, paths={key: path for path, key in _keys(files).items()})
    main = pods.container(
        names.PREPARE,
        image,
        ["bash", f"{scripts.FILES}/node.sh", names.PREPARE],
        resources=pods.prepare(cluster, fitted.job.fetches),
        mounts=volumes.mounts,
    )
    spec = pods.spec(
        cluster,
        containers=[main],
        init_containers=[pods.folder(cluster, image, volumes)],
        volumes=volumes,
        where=pods.ON_SYSTEM,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": names.prepare_job(name), "namespace": cluster.namespace, "labels": dict(labels)},
        "spec": {
            "backoffLimit": RESTARTS,
            # it retries internally: only if its pod was ended (SIGKILL, SIGTERM) does it start again
            "podFailurePolicy": _ends(names.PREPARE, "NotIn", (137, 143)),
            "template": _template(names.PREPARE, labels, spec),
        },
    }


def _train(
    name: str,
    fitted: Plan,
    cluster: EksCluster,
    labels: Mapping[str, str],
    files: Mapping[str, bytes],
    catalog: Catalog | None,
    index: int | None,
) -> Object:
    image, fleet = scripts.image_of(fitted), fitted.fleet
    wanted = pods.devices(fleet, catalog)
    shm = max(1, int(wanted["memory"].removesuffix("Gi")) // 2)
    volumes = pods.Volumes(cluster, secret=name, paths={key: path for path, key in _keys(files).items()}, shm_gib=shm)

    env = [pods.ATTEMPT, *([] if index is None else [{"name": "TRN_ARRAY_INDEX", "value": str(index)}])]

    def stage(which: str) -> Object:
        return pods.container(
            which,
            image,
            ["bash", f"{scripts.FILES}/node.sh", which],
            resources=pods.Resources.exactly(wanted),
            mounts=volumes.mounts,
            env=env,
        )

    first = [pods.folder(cluster, image, volumes)]
    if "precompile" in fitted.stages:
        first.append(stage("precompile"))
    spec = pods.spec(
        cluster,
        containers=[stage(names.TRAIN)],
        init_containers=first,
        volumes=volumes,
        where=pods.on_trainium(fleet, catalog),
    )
    # keeps the port of Neuron's collectives free of outgoing connections; Kubernetes lists this sysctl as safe
    spec["securityContext"]["sysctls"] = [{"name": "net.ipv4.ip_local_reserved_ports", "value": "48620"}]
    return _template(names.TRAIN, labels, spec)

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
from trainium_cdk.jobs.kubernetes import names, pods, scripts
from trainium_cdk.jobs.kubernetes.pods import Object
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.plan import Plan, plan
from trainium_cdk.jobs.submission import Submission, job_id
from trainium_cdk.outputs import EksCluster

MAX_FILES = 900_000
"""Most bytes of a job's files: a Secret holds 1 MiB, including base64 (Kubernetes documentation)."""
KEPT_SECONDS = 14 * 86_400
"""Seconds for which an ended job stays in the cluster. Its directory on the shared file system is kept."""
RESTARTS = 3
SPOT_RESTARTS = 20
"""Most restarts by default: spot nodes are interrupted repeatedly during a job of several days."""
_RESERVED = ("VC_", "VK_", "KUBERNETES_")
_RANK_ENV = ("MASTER_ADDR", "NNODES", "NODE_RANK", "NPROC_PER_NODE", "TRN_ATTEMPT", "TRN_LIMITED", "TRN_NODE")


@dataclass(frozen=True)
class KubernetesSubmission(Submission):
    """The objects that are created, in this order: a Secret with the job's files, the guard of its compile cache, the Volcano Job.
    The first two are then tied to the job (an owner reference), so that they are deleted with it.

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
    def job(self) -> Object:
        return self.objects[2]


def render(job: Job, cluster: EksCluster, token: str, *, catalog: Catalog | None = None) -> KubernetesSubmission:
    """Render a job for a cluster.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is not valid.
    """
    name, fitted = names.object_name(job_id(job, token)), plan(job, cluster)
    _environment(job)
    made = scripts.job_files(name, fitted, job.template(fitted), catalog)
    _size(made)
    labels = names.labels(name, job.kind)
    secret = _secret(name, cluster, labels, made)
    guard = _guard(name, cluster, job)
    volcano = _job(name, fitted, cluster, labels, made, catalog)
    digest = hashlib.sha256(json.dumps([secret, guard, volcano], sort_keys=True).encode()).hexdigest()
    for thing in (secret, volcano):
        thing["metadata"].setdefault("annotations", {})[names.DIGEST] = digest
    return KubernetesSubmission(
        name, scripts.directory(name, fitted), fitted, made, objects=(secret, guard, volcano), digest=digest
    )


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


def _job(
    name: str,
    fitted: Plan,
    cluster: EksCluster,
    labels: Mapping[str, str],
    files: Mapping[str, bytes],
    catalog: Catalog | None,
) -> Object:
    fleet = fitted.fleet
    described = json.dumps(scripts.describe(name, fitted, catalog), sort_keys=True)
    tasks = [_train(name, fitted, cluster, labels, files, catalog)]
    if "prepare" in fitted.stages:
        tasks.insert(0, _prepare(name, fitted, cluster, labels, files))
        tasks[1]["dependsOn"] = {"name": [names.PREPARE]}
    count = sum(task["replicas"] for task in tasks)
    # all other failures restart the job: a kind resumes from its last checkpoint, and a script's own failure is 66
    policies: list[Object] = [
        {"exitCode": code, "action": "TerminateJob"} for code in (*scripts.FINAL, scripts.TIMED_OUT)
    ]
    policies.append({"events": ["PodEvicted", "PodFailed"], "action": "RestartJob"})
    return {
        "apiVersion": names.VOLCANO,
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": dict(labels),
            "annotations": {names.DESCRIPTION: described},
        },
        "spec": {
            "schedulerName": "volcano",
            "queue": fleet.queue,
            "minAvailable": count,
            "maxRetry": _restarts(fitted) + 1,  # Volcano counts the attempts
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            # the pods' names resolve before the pods are ready, which they are not while compiling
            "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
            "policies": policies,
            "tasks": tasks,
        },
    }


def _restarts(fitted: Plan) -> int:
    if fitted.job.restarts is not None:
        return fitted.job.restarts
    return SPOT_RESTARTS if fitted.fleet.capacity_type == "spot" else RESTARTS


def _task(name: str, replicas: int, labels: Mapping[str, str], spec: Object) -> Object:
    return {
        "name": name,
        "replicas": replicas,
        "minAvailable": replicas,
        "template": {"metadata": {"labels": dict(labels)}, "spec": spec},
    }


def _prepare(
    name: str, fitted: Plan, cluster: EksCluster, labels: Mapping[str, str], files: Mapping[str, bytes]
) -> Object:
    image = scripts.image_of(fitted)
    volumes = pods.Volumes(cluster, secret=name, paths={key: path for path, key in _keys(files).items()})
    main = pods.container(
        names.PREPARE,
        image,
        ["bash", f"{scripts.FILES}/node.sh", names.PREPARE],
        resources=pods.SMALL,
        mounts=volumes.mounts,
        env=[pods.ATTEMPT],
    )
    # never ready before it has succeeded: this is what `train` depends on
    main["readinessProbe"] = {"exec": {"command": ["false"]}, "periodSeconds": 3600}
    spec = pods.spec(
        cluster,
        containers=[main],
        init_containers=[pods.folder(cluster, image, volumes)],
        volumes=volumes,
        # not Volcano: this pod must run before the others exist
        where={**pods.ON_SYSTEM, "schedulerName": "default-scheduler"},
    )
    task = _task(names.PREPARE, 1, labels, spec)
    # it retries internally; only a lost node is a reason to restart it
    task["policies"] = [{"event": "PodFailed", "action": "TerminateJob"}]
    return task


def _train(
    name: str,
    fitted: Plan,
    cluster: EksCluster,
    labels: Mapping[str, str],
    files: Mapping[str, bytes],
    catalog: Catalog | None,
) -> Object:
    image, fleet = scripts.image_of(fitted), fitted.fleet
    wanted = pods.devices(fleet, catalog)
    shm = max(1, int(wanted["memory"].removesuffix("Gi")) // 2)
    volumes = pods.Volumes(cluster, secret=name, paths={key: path for path, key in _keys(files).items()}, shm_gib=shm)

    def stage(which: str) -> Object:
        return pods.container(
            which,
            image,
            ["bash", f"{scripts.FILES}/node.sh", which],
            resources=wanted,
            mounts=volumes.mounts,
            env=[pods.ATTEMPT],
        )

    first = [pods.folder(cluster, image, volumes)]
    if fitted.job.precompile:
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
    return _task(names.TRAIN, fitted.job.nodes, labels, spec)

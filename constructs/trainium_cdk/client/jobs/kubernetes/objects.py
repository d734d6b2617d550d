"""The objects of a job on Kubernetes. Pure: the same input gives the same objects.

The JobSet is suspended and in no queue. All others belong to it (`submit.py`); then it gets the labels `Objects.release`.

Each container of its pods runs a stage:

    python3 -I /trn/runner/runner.pyz pod STAGE

with `/trn/job/job.json` (`spec.JobSpec`, without its variables), `/trn/env/env.json` (its variables; not there without any) and these variables:

    TRN_JOB            the job's folder; an array's member has TRN_JOB/TRN_ARRAY_INDEX
    TRN_HOST           begins the name of the folder with the node's compile cache: members of an array, and teams, run at once
    TRN_NODE           name of the node
    TRN_RUN            uid of the JobSet: the next one of its name is another run
    TRN_ATTEMPT        0, 1, ...: how often the JobSet was restarted
    TRN_ARRAY_INDEX    of an array's member
    MASTER_ADDR        name of the pod of node 0

Kubernetes sets JOB_COMPLETION_INDEX, the number of the node. `precompile` is an init container of the pod that trains, so on the same node,
with the same claim of devices.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from io import StringIO
from typing import TYPE_CHECKING, Any

from trainium_cdk.client.jobs.job_spec import job_id, job_spec, launch_environment
from trainium_cdk.client.jobs.kubernetes import parts
from trainium_cdk.client.jobs.kubernetes.parts import devices
from trainium_cdk.client.jobs.models import Job
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.errors import JobError
from trainium_cdk.runner import spec

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.models import Plan
    from trainium_cdk.client.jobs.runner import Pyz
    from trainium_cdk.description.outputs import Cluster, EksCluster, Fleet

Object = parts.Object

RUNNER = "/trn/runner/runner.pyz"
NO_PROGRAM = 128
"""Exit code of Kubernetes for a container whose program cannot be started, as its image has none of that name."""
MOST_BYTES = 1_000_000
"""Most bytes of a job as JSON: a Secret holds 1 MiB (Kubernetes documentation)."""
KEPT_SECONDS = 14 * 86_400
"""Seconds for which an ended job stays in the cluster. Its directory on the shared file system is kept."""
RESTARTS = 3
SPOT_RESTARTS = 20
"""Most restarts by default: spot nodes are interrupted repeatedly during a job of several days."""
_PROBE: Object = {
    "exec": {"command": ["python3", "-I", RUNNER, "ready"]},
    "periodSeconds": 60,
    "timeoutSeconds": 30,  # a node that trains is busy
    "failureThreshold": 1,
}
"""The probe by which the container that trains is not ready while its training makes no progress (`runner.work.container`). Nothing is done about it: no Service
of ours leaves out such a pod."""

_RESERVED = ("JOB_COMPLETION_", "KUBERNETES_")
_RANK_ENV = (
    "TRN_ATTEMPT",
    "TRN_HOST",
    "TRN_JOB",
    "TRN_NODE",
    "TRN_RUN",
)


@dataclass(frozen=True)
class Objects:
    """A job's objects.

    Attributes:
        runner: the ConfigMap with the runner, which jobs share.
        jobs: the JobSet; of an array one for each member, so that Kueue starts each as soon as its nodes are there.
        parts: what belongs to them: a Secret, a network policy, the guard of the compile cache, the template of claims, the batch Job of `prepare`.
        release: labels of a JobSet with which it enters its queue, or waits for what must complete before.
        digest: SHA-256 of all that but the runner: a job is the same with another version of it.
    """

    runner: Object
    jobs: tuple[Object, ...]
    parts: tuple[Object, ...]
    release: Mapping[str, str]
    digest: str

    @property
    def all(self) -> tuple[Object, ...]:
        return (*self.jobs, *self.parts)


def objects(rendered: Plan, cluster: EksCluster, runner: Pyz | None = None) -> Objects:
    """The objects of a rendered job, whose id is the name of its JobSet.

    Args:
        runner: the runner's program. Default: this version's.

    Raises:
        JobError: it is too large, or a name is too long.
    """
    runner = runner or pyz()
    made = _Made(rendered, cluster, parts.runner(runner.name))
    program: Object = {
        **_thing("v1", "ConfigMap", made.runner, cluster, {"app.kubernetes.io/managed-by": parts.MANAGED_BY}),
        "immutable": True,
        "binaryData": {"runner.pyz": base64.b64encode(runner.content).decode()},
    }
    prepare = [made.prepare()] if "prepare" in made.stages else []
    claims = [made.claims()] if rendered.fleet.claims else []
    own = (made.secret(), made.network_policy(), made.guard(), *claims, *prepare)
    release = made.release()
    first, *others = made.jobsets()
    if not claims:  # their template cannot get more owners later, so that it comes after all of them
        for one in others:
            one["metadata"]["labels"] |= release
    jobs = (first, *others)
    text = json.dumps([jobs, own, release], sort_keys=True).replace(made.runner, "")
    digest = hashlib.sha256(text.encode()).hexdigest()
    for one in (*jobs, *own):
        one["metadata"].setdefault("annotations", {})[parts.DIGEST] = digest
    return Objects(program, jobs, own, release, digest)


def render(job: Job, cluster: EksCluster, token: str) -> Plan:
    """Render a job for a cluster.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is not valid.
    """
    name, fitted = parts.object_name(job_id(job, token)), plan(job, cluster)
    for variable in job.env:
        if variable.startswith(_RESERVED) or variable in _RANK_ENV:
            raise JobError(f"env {variable}: it is set automatically for each pod. Choose another name, or remove it")
    rendered = replace(fitted, spec=job_spec(name, fitted, folder_of=parts.object_name))
    objects(rendered, cluster)  # too large, or too long a name, shows before anything is sent
    return rendered


def text(rendered: Plan) -> str:
    """The job and its objects as YAML, without the values of its variables, and without what is the same in every job, or stands twice."""
    made = objects(rendered, rendered.cluster)  # type: ignore[arg-type]  # it is one of EKS
    return _to_yaml([_shown(rendered.spec), *map(_without_values, (made.runner, *made.all))])


def _thing(api: str, kind: str, name: str, cluster: EksCluster, labels: Mapping[str, str]) -> Object:
    metadata = {"name": name, "namespace": cluster.namespace, "labels": dict(labels)}
    return {"apiVersion": api, "kind": kind, "metadata": metadata}


@dataclass(frozen=True)
class _Made:
    """The objects of one job.

    Attributes:
        runner: name of the ConfigMap with the runner.
    """

    fitted: Plan
    cluster: EksCluster
    runner: str

    @property
    def job(self) -> spec.JobSpec:
        return self.fitted.spec

    @property
    def name(self) -> str:
        return self.job.id

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.job.stages)

    @property
    def image(self) -> str:
        return self.fitted.job.image or self.cluster.image

    @property
    def labels(self) -> dict[str, str]:
        return parts.labels(self.name, self.job.kind) | ({parts.ARRAY_LABEL: self.name} if self.job.array else {})

    def secret(self) -> Object:
        """The job, and its variables in their own file. Kubernetes lets whoever may read one Secret of a namespace read all."""
        job = json.dumps(spec.to_json(replace(self.job, variables={})), sort_keys=True)
        text = {"job.json": job}
        if self.job.variables:
            text["env.json"] = json.dumps(dict(self.job.variables), sort_keys=True)
        if (size := sum(map(len, text.values()))) > MOST_BYTES:
            raise JobError(
                f"the job and its files have {size:,} bytes as JSON, where files have a third more than on disk; Kubernetes allows "
                f"{MOST_BYTES:,}. Put large files on the shared file system, or into the image (trn image build)"
            )
        made = _thing("v1", "Secret", self.name, self.cluster, self.labels)
        return {**made, "type": "Opaque", "immutable": True, "stringData": text}

    def guard(self) -> Object:
        """Return the lock of a cache set. Only one job at a time uses one: the compiler's locks do not work on a shared file system."""
        cache = self.job.environment.cache
        made = _thing("v1", "ConfigMap", parts.cache_guard(cache), self.cluster, self.labels)
        made["metadata"]["annotations"] = {parts.HOLDER: self.name, parts.CACHE_LABEL: cache}
        return made

    @property
    def claims_name(self) -> str:
        """The name of the template of its claims. It has their count, as the policy wants it: a template made again by another person has the same."""
        return f"{self.name}-{self.fitted.fleet.devices}"

    def claims(self) -> Object:
        """Return the template of the claims of its pods. Each start of a pod has a new claim."""
        made = _thing("resource.k8s.io/v1", "ResourceClaimTemplate", self.claims_name, self.cluster, self.labels)
        return {**made, "spec": {"spec": parts.claim(self.fitted.fleet)}}

    def network_policy(self) -> Object:
        """The pods of one job, or array, reach each other. The namespace's own policies deny everything else."""
        key = parts.ARRAY_LABEL if self.job.array else parts.JOB_LABEL
        pods_of_job = {"matchLabels": {key: self.name}}
        rules = {
            "podSelector": pods_of_job,
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"podSelector": pods_of_job}]}],
        }
        made = _thing("networking.k8s.io/v1", "NetworkPolicy", self.name, self.cluster, self.labels)
        return {**made, "spec": rules}

    def release(self) -> dict[str, str]:
        """Return the labels that let a JobSet into its queue. Not while `prepare` runs: Kueue asks for nodes for all pods before any starts."""
        if "prepare" in self.stages:
            return {parts.AFTER_LABEL: parts.prepare_job(self.name)}
        if other := self.fitted.job.after:
            return {parts.AFTER_LABEL: parts.object_name(other)}
        return {parts.QUEUE_LABEL: self.fitted.fleet.queue}

    def jobsets(self) -> list[Object]:
        if not self.job.array:
            return [self._jobset(self.name, self.labels, None)]
        indices = spec.array_indices(self.job.array)
        parts.member(self.name, max(indices))  # the longest name
        made = []
        for index in indices:
            name = parts.member(self.name, index)
            labels = {**self.labels, parts.JOB_LABEL: name, parts.MEMBER_LABEL: str(index)}
            made.append(self._jobset(name, labels, index))
        return made

    def _jobset(self, name: str, labels: Mapping[str, str], index: int | None) -> Object:
        job = self.fitted.job
        priority = {parts.PRIORITY_LABEL: parts.priority_class(job.priority)} if job.priority else {}
        notes = {
            parts.DESCRIPTION: json.dumps(self._description(index), sort_keys=True),
            parts.QUEUE: self.fitted.fleet.queue,
            parts.RUNNER: self.runner,
        }
        if job.after:
            notes[parts.AFTER] = parts.object_name(job.after)
        made = _thing(parts.JOBSET, "JobSet", name, self.cluster, {**labels, **priority})
        made["metadata"]["annotations"] = notes
        task = {"completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes, "backoffLimit": 0}
        pod = {
            "metadata": {"labels": {**labels, parts.TASK_LABEL: parts.TRAIN}},
            "spec": _train(self, name, index),
        }
        ends = _ends(operator="In", values=list(parts.FINAL))  # of `precompile` too
        pods_of_task = {"podFailurePolicy": ends, "template": pod}
        made["spec"] = {
            "suspend": True,  # Kueue starts it
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            # the pods' names resolve before the pods are ready, which they are not while compiling
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            # all other failures restart the job
            "failurePolicy": {
                "maxRestarts": self._restarts(),
                "rules": [{"name": "final", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "replicatedJobs": [
                {
                    "name": parts.TRAIN,
                    "replicas": 1,
                    "template": {"metadata": {"labels": dict(labels)}, "spec": {**task, **pods_of_task}},
                }
            ],
        }
        return made

    def _restarts(self) -> int:
        if self.fitted.job.restarts is not None:
            return self.fitted.job.restarts
        return SPOT_RESTARTS if self.fitted.fleet.capacity_type == "spot" else RESTARTS

    def _description(self, index: int | None) -> dict[str, Any]:
        """Return the fields that `trn status` shows of a job, or of an array's member, in addition to its state."""
        folder, settings = self.fitted.directory, dict(self.job.settings)
        settings.pop("args", None)  # they may be too long
        sweep = self.job.sweep
        return {
            **self.job.shown,
            **self._layout(),
            "id": self.name,
            "kind": self.job.kind,
            "job": settings,
            "queue": self.fitted.fleet.queue,
            "ranks_per_node": self.fitted.ranks_per_node,
            "stages": list(self.stages),
            "directory": folder if index is None else f"{folder}/{index}",
            **({"values": sweep.of(str(index))} if sweep else {}),
        }

    def _layout(self) -> dict[str, Any]:
        """Return the values that another job must share to start from its checkpoints."""
        same = self.fitted.job.layout(self.fitted)
        return {"checkpoints_of": dict(same)} if same and self.job.checkpoints else {}

    def prepare(self) -> Object:
        labels = {**self.labels, parts.TASK_LABEL: parts.PREPARE}
        template = {"metadata": {"labels": labels}, "spec": _prepare(self)}
        made = _thing("batch/v1", "Job", parts.prepare_job(self.name), self.cluster, self.labels)
        return {
            **made,
            # it retries internally: only if its pod was ended (SIGKILL, SIGTERM) does it start again
            "spec": {
                "backoffLimit": RESTARTS,
                "podFailurePolicy": _ends(containerName=parts.PREPARE, operator="NotIn", values=[137, 143]),
                "template": template,
            },
        }


def _train(given: _Made, name: str, index: int | None) -> Object:
    """The pod of each node.

    Args:
        name: of the JobSet.
        index: of an array's member.
    """
    fleet = given.fitted.fleet
    wanted = parts.devices(fleet)
    volumes = _volumes(given, shm_gib=max(1, int(wanted["memory"].removesuffix("Gi")) // 2))
    member = f"member-{index}-" if index is not None else ""
    team = f"team-{given.cluster.team}-" if given.cluster.team else ""
    env: list[Object] = [
        parts.ATTEMPT,
        parts.RUN,
        {"name": "MASTER_ADDR", "value": parts.host(name, 0)},
        {"name": "TRN_HOST", "value": f"{team}{member}"},
    ]
    if index is not None:
        env.append({"name": "TRN_ARRAY_INDEX", "value": str(index)})
    where = parts.on_trainium(fleet)
    if fleet.claims:
        where["resourceClaims"] = [{"name": parts.CLAIM, "resourceClaimTemplateName": given.claims_name}]
    needs = parts.Resources(wanted, wanted, [parts.CLAIM] if fleet.claims else ())
    containers = [_container(given, stage, needs, volumes, env) for stage in given.stages if stage != parts.PREPARE]
    containers[-1]["readinessProbe"] = dict(_PROBE)
    pod = _pod(given, containers, volumes, where)
    # keeps the port of Neuron's collectives free of outgoing connections; Kubernetes lists this sysctl as safe
    pod["securityContext"]["sysctls"] = [{"name": "net.ipv4.ip_local_reserved_ports", "value": "48620"}]
    return pod


def _prepare(given: _Made) -> Object:
    """The pod on a system node that fetches what the job needs."""
    volumes = _volumes(given)
    needs = parts.prepare(given.cluster, given.fitted.job.fetches)
    return _pod(given, [_container(given, parts.PREPARE, needs, volumes)], volumes, parts.ON_SYSTEM)


def _ends(**exits: Any) -> Object:
    """The policy of a batch Job that fails at once with such exit codes, or if its memory was full."""
    # `folder` is the first container that runs: the others have the same image
    no_program = {"containerName": parts.FOLDER, "operator": "In", "values": [NO_PROGRAM]}
    rules = [{"action": "FailJob", "onExitCodes": one} for one in (exits, no_program)]
    return {"rules": [*rules, *parts.MEMORY_FULL]}


def _volumes(given: _Made, shm_gib: int | None = None) -> parts.Volumes:
    made = parts.Volumes(given.cluster, shm_gib=shm_gib)
    made.add("runner", {"configMap": {"name": given.runner}}, "/trn/runner")
    for name, file in (("job", "job.json"), ("env", "env.json")):
        if name == "job" or given.job.variables:
            items = [{"key": file, "path": file}]
            kept = {"secretName": given.name, "defaultMode": 0o444, "items": items}
            made.add(name, {"secret": kept}, f"/trn/{name}")
    return made


def _container(
    given: _Made, stage: str, needs: parts.Resources, volumes: parts.Volumes, env: Iterable[Object] = ()
) -> Object:
    where = {"name": "TRN_JOB", "value": given.fitted.directory}
    words = ["python3", "-I", RUNNER, "pod", stage]
    return parts.container(stage, given.image, words, resources=needs, mounts=volumes.mounts, env=[where, *env])


def _pod(given: _Made, stages: list[Object], volumes: parts.Volumes, where: Object) -> Object:
    """Return a pod with these stages. All containers but the last one run one after the other, before it."""
    cluster = given.cluster
    mounts = [*volumes.shared, *(one for one in volumes.mounts if one["name"] == "runner")]
    folder = f"{cluster.shared_dir}/{cluster.folder}"
    words = ["python3", "-I", RUNNER, "folder", folder]
    makes = parts.container(parts.FOLDER, given.image, words, resources=parts.LEAST, mounts=mounts)
    first = parts.maker(cluster, makes, [folder])
    return parts.spec(
        cluster, containers=stages[-1:], init_containers=[first, *stages[:-1]], volumes=volumes, where=where
    )


def _shown(job: spec.JobSpec) -> Object:
    """A job as plain data to read: its files as text, of its variables the names."""
    made: Object = spec.to_json(job)
    if job.variables:
        made["variables"] = dict.fromkeys(job.variables, "[not shown]")
    if job.files:
        made["files"] = {name: _text(content) for name, content in job.files.items()}
    return made


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return f"[{len(content):,} bytes]"


def _without_values(thing: Object) -> Object:
    """An object without what a Secret, or the runner's ConfigMap, has in it."""
    kept = {"stringData": "[not shown]", "binaryData": "[the runner]"}
    hidden = {key: dict.fromkeys(thing[key], note) for key, note in kept.items() if key in thing}
    if "job.json" in hidden.get("stringData", ()):
        hidden["stringData"]["job.json"] = "[the job above]"
    return {**thing, **hidden}


def _to_yaml(objects: Sequence[Object]) -> str:
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


def pods_of_clients(cluster: Cluster) -> dict[str, Any]:
    """Return by instance type: `resources` of a pod that fills a node, and `env`, the launch variables of its training. For other clients than `trn`, such
    as TorchX."""
    fleets = {fleet.instance_type: fleet for fleet in reversed(cluster.fleets)}
    return {
        name: {"resources": devices(fleet), "env": _client_environment(cluster, fleet)}
        for name, fleet in fleets.items()
    }


def _client_environment(cluster: Cluster, fleet: Fleet) -> dict[str, str]:
    """Return the launch variables of a script on two nodes, if the fleet allows several. The image decides nothing here."""
    from trainium_cdk.client.jobs.kinds.script import Script

    alone = cluster.model_copy(update={"fleets": (fleet,)})
    for nodes in (2, 1):
        try:
            return launch_environment(plan(Script(filename="x", content=b"x", nodes=nodes, image="x/y:z"), alone))
        except JobError:
            continue
    return {}

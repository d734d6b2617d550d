"""The pods of a job's stages: in each container the runner. Pure.

    python3 -I /trn/runner/runner.pyz pod STAGE

with `/trn/job/job.json` (`spec.Job`, without its variables), `/trn/env/env.json` (its variables; not there without any) and these variables:

    TRN_JOB            the job's folder; that of an array's member is TRN_JOB/TRN_ARRAY_INDEX
    TRN_HOST           begins the name of the folder with the node's compile cache: members of an array, and teams, run at once
    TRN_NODE           name of the node
    TRN_RUN            uid of the JobSet: the next one of its name is another run
    TRN_ATTEMPT        0, 1, ...: how often the JobSet was restarted
    TRN_ARRAY_INDEX    of an array's member
    MASTER_ADDR        name of the pod of node 0

Kubernetes sets JOB_COMPLETION_INDEX, the number of the node. `precompile` is an init container of the pod that trains, so on the same node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainium_cdk.jobs.kubernetes import names, pods

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs.models import Plan
    from trainium_cdk.outputs import EksCluster
    from trainium_cdk.runner import spec

Object = pods.Object

RUNNER = "/trn/runner/runner.pyz"
NO_PROGRAM = 128
"""Exit code of Kubernetes for a container whose program cannot be started, as its image has none of that name."""


def directory(name: str, cluster: EksCluster) -> str:
    """A job's directory on the shared file system: logs, checkpoints, TensorBoard's files."""
    return f"{cluster.shared_dir}/{cluster.folder}/jobs/{name}"


@dataclass(frozen=True)
class Given:
    """A job on a cluster.

    Attributes:
        runner: name of the ConfigMap with the runner.
    """

    job: spec.Job
    fitted: Plan
    cluster: EksCluster
    runner: str
    catalog: Catalog | None = None

    @property
    def name(self) -> str:
        return self.job.id

    @property
    def stages(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.job.stages)

    @property
    def image(self) -> str:
        return self.fitted.job.image or self.cluster.image


def train(given: Given, name: str, index: int | None) -> Object:
    """The pod of each node.

    Args:
        name: of the JobSet.
        index: of an array's member.
    """
    fleet = given.fitted.fleet
    wanted = pods.devices(fleet, given.catalog)
    volumes = _volumes(given, shm_gib=max(1, int(wanted["memory"].removesuffix("Gi")) // 2))
    member = f"member-{index}-" if index is not None else ""
    team = f"team-{given.cluster.team}-" if given.cluster.team else ""
    env: list[Object] = [
        pods.ATTEMPT,
        pods.RUN,
        {"name": "MASTER_ADDR", "value": names.host(name, 0)},
        {"name": "TRN_HOST", "value": f"{team}{member}"},
    ]
    if index is not None:
        env.append({"name": "TRN_ARRAY_INDEX", "value": str(index)})
    needs = pods.Resources.exactly(wanted)
    containers = [_container(given, stage, needs, volumes, env) for stage in given.stages if stage != names.PREPARE]
    pod = _pod(given, containers, volumes, pods.on_trainium(fleet, given.catalog))
    # keeps the port of Neuron's collectives free of outgoing connections; Kubernetes lists this sysctl as safe
    pod["securityContext"]["sysctls"] = [{"name": "net.ipv4.ip_local_reserved_ports", "value": "48620"}]
    return pod


def prepare(given: Given) -> Object:
    """The pod on a system node that fetches what the job needs."""
    volumes = _volumes(given)
    needs = pods.prepare(given.cluster, given.fitted.job.fetches)
    return _pod(given, [_container(given, names.PREPARE, needs, volumes)], volumes, pods.ON_SYSTEM)


def ends(**exits: Any) -> Object:
    """The policy of a batch Job that fails at once with such exit codes, or if its memory was full."""
    # `folder` is the first container that runs: the others have the same image
    no_program = {"containerName": names.FOLDER, "operator": "In", "values": [NO_PROGRAM]}
    rules = [{"action": "FailJob", "onExitCodes": one} for one in (exits, no_program)]
    return {"rules": [*rules, *pods.MEMORY_FULL]}


def _volumes(given: Given, shm_gib: int | None = None) -> pods.Volumes:
    made = pods.Volumes(given.cluster, shm_gib=shm_gib)
    made.add("runner", {"configMap": {"name": given.runner}}, "/trn/runner")
    for name, file in (("job", "job.json"), ("env", "env.json")):
        if name == "job" or given.job.variables:
            items = [{"key": file, "path": file}]
            kept = {"secretName": given.name, "defaultMode": 0o444, "items": items}
            made.add(name, {"secret": kept}, f"/trn/{name}")
    return made


def _container(
    given: Given, stage: str, needs: pods.Resources, volumes: pods.Volumes, env: Iterable[Object] = ()
) -> Object:
    where = {"name": "TRN_JOB", "value": directory(given.name, given.cluster)}
    words = ["python3", "-I", RUNNER, "pod", stage]
    return pods.container(stage, given.image, words, resources=needs, mounts=volumes.mounts, env=[where, *env])


def _pod(given: Given, stages: list[Object], volumes: pods.Volumes, where: Object) -> Object:
    """All containers but the last one run one after the other, before it."""
    cluster = given.cluster
    mounts = [*volumes.shared, *(one for one in volumes.mounts if one["name"] == "runner")]
    words = ["python3", "-I", RUNNER, "folder", f"{cluster.shared_dir}/{cluster.folder}"]
    first = pods.as_root(pods.container(names.FOLDER, given.image, words, resources=pods.LEAST, mounts=mounts))
    return pods.spec(
        cluster, containers=stages[-1:], init_containers=[first, *stages[:-1]], volumes=volumes, where=where
    )

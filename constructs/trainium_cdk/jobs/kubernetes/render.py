"""From a job and a cluster to what is submitted. Pure: the same input gives the same text, byte for byte."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import JobError
from trainium_cdk.jobs.job_spec import job_spec
from trainium_cdk.jobs.kubernetes import names
from trainium_cdk.jobs.kubernetes.objects import Objects, objects
from trainium_cdk.jobs.kubernetes.stages import Object, directory
from trainium_cdk.jobs.models import Job
from trainium_cdk.jobs.plan import plan
from trainium_cdk.jobs.pyz import pyz
from trainium_cdk.jobs.submission import Submission, job_id
from trainium_cdk.outputs import EksCluster
from trainium_cdk.runner import spec

_RESERVED = ("JOB_COMPLETION_", "KUBERNETES_")
_RANK_ENV = (
    "TRN_ATTEMPT",
    "TRN_HOST",
    "TRN_JOB",
    "TRN_NODE",
    "TRN_RUN",
)


@dataclass(frozen=True)
class KubernetesSubmission(Submission):
    """A job as data for the runner, and its objects (`objects.Objects`)."""

    spec: spec.Job
    objects: Objects

    @property
    def text(self) -> str:
        """The job and the objects as YAML, without the values of its variables, and without what is the same in every job, or stands twice."""
        return to_yaml((shown(self.spec), *map(_without_values, (self.objects.runner, *self.objects.all))))

    @property
    def jobs(self) -> tuple[Object, ...]:
        """The JobSet, or those of an array's members."""
        return self.objects.jobs


def render(job: Job, cluster: EksCluster, token: str, *, catalog: Catalog | None = None) -> KubernetesSubmission:
    """Render a job for a cluster.

    Args:
        token: makes the submission idempotent: sent twice, the job is submitted once.

    Raises:
        JobError: the job does not fit the cluster, or the token is not valid.
    """
    name, fitted = names.object_name(job_id(job, token)), plan(job, cluster)
    for variable in job.env:
        if variable.startswith(_RESERVED) or variable in _RANK_ENV:
            raise JobError(f"env {variable}: it is set automatically for each pod. Choose another name, or remove it")
    made = job_spec(name, fitted, catalog, folder_of=names.object_name)
    sent = objects(made, fitted, cluster, pyz(), catalog)
    return KubernetesSubmission(name, directory(name, cluster), fitted, made.files, made, sent)


def shown(job: spec.Job) -> Object:
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

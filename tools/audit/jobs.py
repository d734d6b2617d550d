"""Jobs rendered for the cluster that a template describes, as `trn submit` renders them from a stack's outputs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any

from ruamel.yaml import YAML

from trainium_cdk import outputs
from trainium_cdk.client.jobs import kubernetes
from trainium_cdk.client.jobs.job_spec import render, text
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.description.outputs.contract import UNKNOWN
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt, JobError, Script

IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/trn@sha256:" + "0" * 64
SCRIPT = b'#!/bin/bash\nexec torchrun train.py "$@"\n'
_RUN = "20261120-4f3a9c"


def jobs(image: str | None) -> tuple[AnyJob, ...]:
    """A job of each kind. `image` where pods need one."""
    given: dict[str, Any] = {"image": image} if image else {}
    return (
        BertLarge(**given),
        Gpt(**given),
        Script(filename="run.sh", content=SCRIPT, args=("--name", "a b"), **given),
    )


def rendered(template: dict[str, Any], stack: str, region: str) -> Iterator[tuple[str, bytes]]:
    """File name -> script or Kubernetes objects."""
    values = {key: plain(output["Value"]) for key, output in template["Outputs"].items()}
    cluster = outputs.parse(stack, region, values)
    on_kubernetes = isinstance(cluster, outputs.EksCluster)
    for job in jobs(IMAGE if on_kubernetes else None):
        try:
            if isinstance(cluster, outputs.EksCluster):
                pods = objects(kubernetes.render(job, cluster, _RUN), cluster)
                # with the network policies of the namespace, which the stack creates and the network add-on enforces
                policies = [m for m in _manifests(template) if m["kind"] == "NetworkPolicy"]
                yield f"{job.kind}.yaml", _yaml([*_known([pods.runner, *pods.all]), *policies])
            elif isinstance(cluster, outputs.SlurmCluster):
                yield f"{job.kind}.json", text(render(job, cluster, _RUN)).encode()
            else:
                raise TypeError(f"no audit for the jobs of a {type(cluster).__name__}")
        except JobError:  # not every kind runs on every cluster
            continue
    if on_kubernetes:
        yield "manifests.yaml", _yaml(_known(_manifests(template)))


def _manifests(template: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in template["Resources"].values():
        if resource["Type"] == "Custom::AWSCDK-EKS-KubernetesResource":
            yield from json.loads(plain(resource["Properties"]["Manifest"]))


def _known(things: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The objects in a form that scanners know: each Job of a JobSet as such."""
    for thing in things:
        if thing["kind"] != "JobSet":
            yield thing
            continue
        metadata = thing["metadata"]
        for job in thing["spec"]["replicatedJobs"]:
            named = {"name": f"{metadata['name']}-{job['name']}", "namespace": metadata["namespace"]}
            yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": named, "spec": job["template"]["spec"]}


def _yaml(things: Iterable[dict[str, Any]]) -> bytes:
    written = StringIO()
    YAML(typ="safe", pure=True).dump_all(list(things), written)
    return written.getvalue().encode()


def plain(text: Any) -> str:
    """The text of a `Fn::Join`, with a placeholder for each value that CloudFormation fills in."""
    if isinstance(text, dict) and "Fn::Join" in text:
        separator, parts = text["Fn::Join"]
        return str(separator).join(plain(part) for part in parts)
    return text if isinstance(text, str) else UNKNOWN

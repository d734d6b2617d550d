"""`trn list` beside 2,000 jobs: processor time, memory, and a number of requests that does not grow with them."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from sandbox.kubernetes.api import Api, Object, path_of
from tests.jobs.kubernetes.conftest import Running, apply, script
from tests.support import completed, swept
from trainium_cdk import settings
from trainium_cdk.cdk.eks import manifests
from trainium_cdk.cdk.eks.access import EDITORS
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, kubernetes_api, parts, render, status
from trainium_cdk.client.jobs.kubernetes.objects import objects

pytestmark = pytest.mark.sweep

_WITH_PODS = 100
"""Ended jobs with pods: those of the others are never requested."""
_MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_maxrss // 1024, used.ru_utime + used.ru_stime, file=sys.stderr)
sys.exit(done.returncode)
"""


@pytest.fixture
def crowd(running: Running, size: int) -> Iterator[KubernetesBackend]:
    """A namespace for this size, whose jobs the user may edit, as in that of the stack. None of Kueue's: objects stay as they are made."""
    namespace = f"crowd-{size}"
    wanted = Installation.of(settings.load())
    access = json.loads(
        json.dumps([manifests.service_account(wanted), *manifests.access(wanted)]).replace(
            '"training"', f'"{namespace}"'
        )
    )
    edit = copy.deepcopy(
        next(o for o in access if o["kind"] == "RoleBinding" and o["metadata"]["name"] == "trn-editors")
    )
    edit["metadata"]["name"], edit["roleRef"] = "edit", {**edit["roleRef"], "kind": "ClusterRole", "name": "edit"}
    assert EDITORS in json.dumps(edit)
    apply(
        running.kubernetes, [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}, *access, edit]
    )
    cluster = running.cluster.model_copy(update={"namespace": namespace})
    backend = KubernetesBackend(cluster, lambda: kubernetes_api(cluster))
    yield backend
    backend.api.close()


def job(api: Api, backend: KubernetesBackend, number: int, waits: bool) -> None:
    """A job that waits with its Workload, or one that has ended, with two pods of which one in two has failed."""
    job = script(b"true\n", name=f"j{number}", image="registry.example/train:1")
    rendered = render(job, backend.cluster, "t")
    sent = objects(rendered, backend.cluster)
    wanted = copy.deepcopy(sent.jobs[0])
    wanted["metadata"]["labels"] |= sent.release  # `list` selects by it
    wanted["spec"] |= {"suspend": waits, "managedBy": "example.com/none"}
    made = api.create(wanted)
    if waits:
        template = wanted["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
        labels = {"kueue.x-k8s.io/job-uid": made["metadata"]["uid"]}
        workload = _object("kueue.x-k8s.io/v1beta2", "Workload", f"jobset-{rendered.id}", made, labels)
        api.create(
            {**workload, "spec": {"queueName": "trn", "podSets": [{"name": "train", "count": 2, "template": template}]}}
        )
        return
    failed = number % 2
    condition = {"type": "Failed" if failed else "Completed", "status": "True", "reason": "x", "message": "x"}
    ended = {
        "terminalState": condition["type"],
        "restarts": 0,
        "conditions": [{**condition, "lastTransitionTime": "2026-11-23T22:00:00Z"}],
    }
    api.patch_status(
        path_of(parts.JOBSET, "JobSet", rendered.id, backend.cluster.namespace), made["metadata"]["uid"], ended
    )
    if number >= _WITH_PODS:
        return
    template = copy.deepcopy(wanted["spec"]["replicatedJobs"][0]["template"])
    ours = {**template["metadata"]["labels"]}
    batch = _object("batch/v1", "Job", parts.train_job(rendered.id), made, ours)
    batch = api.create({**batch, "spec": {**template["spec"], "managedBy": "example.com/none"}})
    for index in range(2):
        pod = _object(
            "v1",
            "Pod",
            f"{parts.train_job(rendered.id)}-{index}-abcde",
            batch,
            template["spec"]["template"]["metadata"]["labels"],
        )
        pod["metadata"]["labels"] |= {parts.INDEX_LABEL: str(index)}
        pod = api.create({**pod, "spec": {**template["spec"]["template"]["spec"], "schedulerName": "none"}})
        code = {"exitCode": failed, "startedAt": "2026-11-23T21:00:00Z", "finishedAt": "2026-11-23T22:00:00Z"}
        state = {
            "name": "train",
            "image": "x",
            "imageID": "x",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": code},
        }
        phase = {"phase": "Failed" if failed else "Succeeded", "containerStatuses": [state]}
        api.patch_status(
            path_of("v1", "Pod", pod["metadata"]["name"], backend.cluster.namespace), pod["metadata"]["uid"], phase
        )


def _object(version: str, kind: str, name: str, owner: Object, labels: dict[str, str]) -> Any:
    of = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "controller": True,
    }
    metadata = {"name": name, "namespace": owner["metadata"]["namespace"], "labels": dict(labels)}
    owners = [{**of, "uid": owner["metadata"]["uid"]}]
    return {"apiVersion": version, "kind": kind, "metadata": {**metadata, "ownerReferences": owners}}


def requests(backend: KubernetesBackend, ask: str) -> tuple[int, int]:
    """How many requests a question takes, and how many jobs are the answer."""
    api, count = backend.api, [0]
    send = api._send

    def counted(*positional: Any, **named: Any) -> Any:
        count[0] += 1
        return send(*positional, **named)

    api._send = counted  # type: ignore[method-assign]
    try:
        return len(getattr(backend, ask)()), count[0]
    finally:
        api._send = send  # type: ignore[method-assign]


@pytest.mark.parametrize("size", swept([60, 2000], 60))
def test_jobs_that_wait_and_that_have_ended(
    crowd: KubernetesBackend, running: Running, size: int, tmp_path: Path
) -> None:
    """Half of them wait. No request is added when there are more."""
    api, half = running.kubernetes.api(), size // 2
    for number in (*range(10), *range(size - 10, size)):
        job(api, crowd, number, waits=number >= half)
    few = {ask: requests(crowd, ask) for ask in ("list", "active")}
    assert {ask: jobs for ask, (jobs, _) in few.items()} == {"list": 20, "active": 10}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: job(api, crowd, n, waits=n >= half), range(10, size - 10)))
    many = {ask: requests(crowd, ask) for ask in ("list", "active")}
    assert {ask: jobs for ask, (jobs, _) in many.items()} == {"list": 50, "active": half}
    # ended jobs beyond the first 50 are not asked about
    assert all(many[ask][1] <= few[ask][1] for ask in few), (few, many)
    reasons = [re.split("[:,]", row.stages[0].reason)[0] for row in crowd.list() if not row.done]
    assert reasons == [f"position {n} in its queue" for n in range(1, min(half, 50) + 1)]
    assert status.ended(crowd.api.get("JobSet", "j0-t"))
    file = tmp_path / "cluster.json"
    file.write_text(crowd.cluster.model_dump_json())
    trn = Path(sys.executable).with_name("trn")
    command = [sys.executable, "-c", _MEASURED, str(trn), "list", "--cluster", str(file)]
    done = completed(command, env={**running.variables, "PATH": f"{trn.parent}:/usr/bin:/bin"}, check=True)
    megabytes, cpu = done.stderr.split()[-2:]
    print("trn list beside", size, "jobs:", megabytes, "MB,", cpu, "s of CPU")
    assert len(done.stdout.splitlines()) == 51
    assert int(megabytes) < 100
    assert float(cpu) < 1

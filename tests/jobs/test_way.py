"""Through how many files somebody follows a submission, or a metric from a log. What is imported or loaded once is no part of it."""

from __future__ import annotations

import base64
import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

import trainium_cdk
from tests.jobs.conftest import make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.jobs.kubernetes.conftest import script
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.cli.filters import Stream
from trainium_cdk.client.jobs.kubernetes import Api, KubernetesBackend, parts
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.client.jobs.slurm.backend import seen_by_runner
from trainium_cdk.client.jobs.status import JobStatus, Stage
from trainium_cdk.errors import ApiError
from trainium_cdk.jobs import Backend, BertLarge, Job, SlurmBackend, SsmTransport
from trainium_cdk.runner import head as runner_head
from trainium_cdk.runner.requests import Log, LogPiece, Outcome, write_request
from trainium_cdk.runner.spec import Packed, to_json

PACKAGE = Path(trainium_cdk.__file__).parent
WAY = {
    *("client/jobs/slurm/ssm.py", "client/jobs/slurm/transport.py", "client/jobs/quote.py"),
    *("client/jobs/kubernetes/api.py", "client/jobs/runner.py"),
}
"""The way to the cluster, which is the same for every request."""
SAFE = {"runner/records.py"}
"""What makes one line of a text that others may have written."""
TOKEN = "20261127-0a1b2c"
LOG = b"".join(json.dumps({"step": i, "loss": 3 - i / 100, "lr": 1e-4}).encode() + b"\n" for i in range(50))


def passed(run: Callable[[], object], rooms: tuple[str, ...] = ("client/jobs/", "runner/")) -> set[str]:
    """The files of these rooms in which something is called. What a stand-in here calls is none of it."""
    found: set[str] = set()

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(cast("Any", called))
    try:
        run()
    finally:
        sys.setprofile(before)
    ours = {Path(file).relative_to(PACKAGE).as_posix() for file in found if Path(file).is_relative_to(PACKAGE)}
    return {file for file in ours if file.startswith(rooms)}


class RunCommand:
    """boto3's clients of Systems Manager and S3, for a head node whose runner answers this."""

    meta = SimpleNamespace(region_name="us-east-1")

    def __init__(self, answer: Any):
        self._text = base64.b64encode(gzip.compress(json.dumps({"answer": to_json(answer)}).encode())).decode()

    def send_command(self, **_: Any) -> Any:
        return {"Command": {"CommandId": "c"}}

    def get_command_invocation(self, **_: Any) -> Any:
        text = f"trn-ssm 0 {len(self._text)} /tmp/trn-ssm-x\n\n{self._text}"
        return {"Status": "Success", "StandardOutputContent": text}

    def put_object(self, **_: Any) -> Any:
        return {}

    def delete_object(self, **_: Any) -> None:
        """Nothing is stored."""


def slurm(answer: Any) -> SlurmBackend:
    aws: Any = RunCommand(answer)
    return SlurmBackend(make_cluster(), SsmTransport(aws, "i-1", "ubuntu", s3=aws, bucket="b", sleep=lambda _: None))


class Kept(Api):
    """An API with a queue, which keeps what it is given."""

    def __init__(self) -> None:
        self.namespace = "training"
        self.kept: dict[str, Any] = {}

    def _send(self, method: str, path: str, body: Any = None, *, query: Any = None, raw: bool = False, **_: Any) -> Any:
        profile = sys.getprofile()
        sys.setprofile(None)
        try:
            return self._answer(method, path, body, query) if not raw else _Log(LOG)
        finally:
            sys.setprofile(profile)

    def _answer(self, method: str, path: str, body: Any, query: Any) -> Any:
        found: Any
        if method == "POST":
            found = {**body, "metadata": {**body["metadata"], "uid": f"u{len(self.kept)}"}}
            self.kept[f"{path}/{found['metadata']['name']}"] = found
        elif query is not None:
            kept = [one for name, one in self.kept.items() if name.rpartition("/")[0] == path]
            found = {"items": kept, "metadata": {}, "columnDefinitions": [], "rows": []}
        elif method == "PATCH" or "localqueues" in path:
            found = self.kept.get(path, {"metadata": {"uid": "u"}})
            found["metadata"].setdefault("labels", {}).update(((body or {}).get("metadata") or {}).get("labels") or {})
        elif path in self.kept:
            found = self.kept[path]
        else:
            raise ApiError(404, "NotFound", "it is not there")
        return SimpleNamespace(data=json.dumps(found))


class _Log(io.BytesIO):
    def release_conn(self) -> None:
        """There is no connection."""


def kubernetes() -> KubernetesBackend:
    return KubernetesBackend(make_eks(image="x/y:z"), Kept)


def with_ended_job() -> tuple[KubernetesBackend, str]:
    """A job that has completed, and whose pod is still there."""
    backend = kubernetes()
    id = backend.submit(script(b"true"), TOKEN).id
    kept = cast("Kept", backend.api).kept
    jobset = next(one for one in kept.values() if one["kind"] == "JobSet")
    jobset["spec"]["suspend"] = False
    completed = {"type": "Completed", "status": "True", "lastTransitionTime": "2026-11-27T00:10:00Z"}
    jobset["status"] = {"terminalState": "Completed", "conditions": [completed]}
    job = jobset["spec"]["replicatedJobs"][0]["template"]
    batch = _owned("Job", parts.train_job(id), jobset, job)
    pod = _owned("Pod", f"{parts.train_job(id)}-0-abcde", batch, job["spec"]["template"])
    pod["metadata"]["labels"] |= {parts.INDEX_LABEL: "0"}
    ended = {"exitCode": 0, "startedAt": "2026-11-27T00:00:00Z", "finishedAt": "2026-11-27T00:10:00Z"}
    pod["status"] = {
        "phase": "Succeeded",
        "containerStatuses": [{"name": "train", "state": {"terminated": ended}}],
    }
    for path, one in (("/apis/batch/v1/namespaces/training/jobs", batch), ("/api/v1/namespaces/training/pods", pod)):
        kept[f"{path}/{one['metadata']['name']}"] = one
    return backend, id


def _owned(kind: str, name: str, owner: Any, template: Any) -> Any:
    owners = [{"uid": owner["metadata"]["uid"], "kind": owner["kind"], "controller": True}]
    metadata = {"name": name, "uid": name, "labels": dict(template["metadata"]["labels"]), "ownerReferences": owners}
    return {"kind": kind, "metadata": metadata, "spec": template["spec"]}


OWN: Callable[[], Job] = lambda: script(b"true", env={"A": "1"}, args=("x",))  # noqa: E731
BERT: Callable[[], Job] = lambda: BertLarge(nodes=2)  # noqa: E731
SENT = [Outcome({"train": "1"})]


@pytest.mark.parametrize(
    ("make", "backend", "most"),
    [
        (OWN, lambda: slurm(SENT), 14),
        (OWN, kubernetes, 13),
        (BERT, lambda: slurm(SENT), 17),
        (BERT, kubernetes, 16),
    ],
    ids=["script on Slurm", "script on Kubernetes", "bert-large on Slurm", "bert-large on Kubernetes"],
)
def test_a_submission_passes_few_files(make: Callable[[], Job], backend: Callable[[], Backend], most: int) -> None:
    """From the job to its last request; on Slurm through Run Command. A kind of ours adds what it fetches, corrects and installs."""
    there = backend()
    there.render(make())
    pyz.cache_clear()
    files = passed(lambda: there.send(there.render(make(), TOKEN)))
    assert {"client/jobs/job_spec.py", "client/jobs/plan.py", "client/jobs/runner.py", "runner/spec.py"} <= files
    assert len(files) <= most, sorted(files)


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head node with a sbatch that takes everything."""
    for folder in ("efs", "bin", "aws_neuron_venv_pytorch/bin"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "aws_neuron_venv_pytorch/bin/activate").touch()
    for name, line in (("sbatch", "echo 7"), ("squeue", "true"), ("scancel", "true"), ("scontrol", "true")):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("TRN_SHARED_ROOT", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "runner.pyz").write_bytes(pyz().content)  # a job gets a copy of the program that answers
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "runner.pyz")])


@pytest.mark.usefixtures("head")
def test_the_runner_takes_a_submission_in_few_files() -> None:
    """The other half of a submission to Slurm, on its head node: from the request to the last sbatch."""
    found: list[str] = []

    class Head(SlurmBackend):
        def ask(self, given: Any, **_: Any) -> Any:
            found.append(json.dumps(write_request(seen_by_runner(self.cluster), given)))
            return SENT

    for token in ("first", TOKEN):
        Head(make_cluster(), slurm(SENT).transport).submit(OWN(), token)
    answer = [runner_head.answer(found[0])]
    files = passed(lambda: answer.append(runner_head.answer(found[1])))
    assert answer[1]["answer"][0]["stages"] == {"train": "7"}, answer
    assert len(files) <= 8, sorted(files)


def ended_on_slurm() -> tuple[SlurmBackend, str]:
    id = f"a-{TOKEN}"
    job = JobStatus(id, "script", "q", "trn1.32xlarge", 1, None, (Stage("train", "1", "COMPLETED"),))
    return slurm(Log(job, "train", LogPiece(len(LOG), data=Packed(LOG)))), id


@pytest.mark.parametrize(
    ("made", "most"), [(ended_on_slurm, 10), (with_ended_job, 12)], ids=["on Slurm", "on Kubernetes"]
)
def test_a_metric_passes_few_files(made: Callable[[], tuple[Backend, str]], most: int) -> None:
    """`trn logs --metrics`, from `Backend.logs` to the JSON of a record. Not counted: `client/cli/follow.py` and `client/cli/filters.py`, which print it, and
    `WAY`. The lines are those that the docs recommend for your own script. A vendor's lines add their kind's reader, a failed job its reason."""
    backend, id = made()
    printed: list[bytes] = []

    def logs() -> None:
        stream = Stream(None, metrics=True, last=None)
        printed.extend(stream.feed(chunk.stage, chunk.data) for chunk in backend.logs(id))
        printed.append(stream.end_stage())

    logs()
    assert b'"loss": 2.51' in b"".join(printed)
    files = passed(logs) - WAY - SAFE
    assert {"runner/readers/log.py", "runner/readers/step_lines.py"} <= files
    assert len(files) <= most, sorted(files)


@pytest.mark.parametrize(
    ("environment", "most"), [("login-and-accounting", 25), ("eks/all-settings", 25), ("pcs/all-settings", 24)]
)
def test_a_dry_run_passes_few_files(
    environment: str, most: int, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the command line to the text of the job, by an environment file."""
    file = Path(__file__).parents[1] / "environments" / f"{environment}.yaml"
    monkeypatch.chdir(tmp_path)
    Path("t.py").write_text("print(1)\n")

    def submit() -> None:
        app(["submit", "t.py", "--environment", str(file), "--dry-run"], standalone_mode=False)

    submit()
    files = passed(submit, ("",))
    assert "t.py" in capfd.readouterr().out
    assert {
        "client/cli/submit.py",
        "description/settings/load.py",
        "description/outputs/read.py",
        "client/jobs/plan.py",
    } <= files
    assert len(files) <= most, sorted(files)

"""The Kubernetes path: deploy `TrnEksStack`, run a job on two virtual nodes, destroy everything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ruamel.yaml import YAML

from sandbox import kubernetes
from sandbox.demo.narrator import Narrator, StepFailed
from sandbox.kubernetes import eks, image, kueue, running, schemas
from sandbox.local_aws import LocalAws
from trainium_cdk import settings

STACK = "TrnEksStack"
HERE = Path(__file__).parent
ENVIRONMENT = HERE / "eks.yaml"
ON = ("--environment", str(ENVIRONMENT))
NODES = 2
SUBMIT = ("--nodes", str(NODES), "--image", "registry.example/train:1", *ON)
"""The sandbox pulls no image. It runs the job's programs on this machine."""


def unavailable() -> str | None:
    """Why jobs cannot run on a real Kubernetes API here, or None if they can."""
    return kubernetes.available() or running.cannot_run()


def run(narrator: Narrator, aws: LocalAws, directory: Path) -> None:
    """Run the path; without jobs where this machine cannot run them.

    Raises:
        StepFailed: a command failed.
    """
    context = ("-c", f"env={ENVIRONMENT}")
    reason = unavailable()
    with ExitStack() as stack:
        cluster = None if reason else stack.enter_context(_kubernetes(narrator, aws, directory))
        narrator.step(f"deploy {STACK} with the CDK's command line")
        narrator.cdk("deploy", STACK, *context, "--require-approval", "never")
        if cluster:
            with _minutes(cluster, aws):
                _jobs(narrator)
        else:
            _validate(narrator)
        narrator.step(f"destroy {STACK}")
        narrator.cdk("destroy", STACK, *context, "--force")


def _kubernetes(narrator: Narrator, aws: LocalAws, directory: Path) -> kubernetes.LocalKubernetes:
    narrator.step("start a real Kubernetes API with Kueue and JobSet for the cluster")
    name, secret = settings.load(ENVIRONMENT).eks_cluster_name, eks.new_secret()
    started = kubernetes.LocalKubernetes.start(
        directory / "kubernetes",
        name=name,
        token_webhook=eks.webhook_url(aws.endpoint, name, secret, region=aws.region),
        run_jobs=True,
        job_environment=image.environment(),
        kueue_configuration=kueue.of_both_forms(),
    )
    image.make(started.directory)
    eks.attach(aws.directory, started, secret)
    narrator.print(f"{started.endpoint}, which the local EKS returns as the endpoint of {name}")
    return started


@contextmanager
def _minutes(cluster: kubernetes.LocalKubernetes, aws: LocalAws) -> Iterator[None]:
    """The deployed function that starts nodes runs again and again, as EventBridge starts it each minute, and AWS does what it wants.

    Raises:
        StepFailed: it failed.
    """
    functions, ended, failed = aws.client("lambda"), threading.Event(), list[str]()
    named = f"Starts and stops the Trainium nodes of {cluster.name} "
    [name] = [f["FunctionName"] for f in functions.list_functions()["Functions"] if f["Description"].startswith(named)]

    def run() -> None:
        while not ended.is_set():
            eks.sync_nodes(cluster, aws.client)
            answer = functions.invoke(FunctionName=name)
            if "FunctionError" in answer:
                failed.append(answer["Payload"].read().decode(errors="replace"))
            ended.wait(1)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    if failed:
        raise StepFailed(f"the function that starts nodes failed: {failed[0][-1000:]}")


def _jobs(narrator: Narrator) -> None:
    narrator.step(f"submit a job on {NODES} nodes. None runs yet: AWS starts all together, or none")
    narrator.run("trn", "submit", str(HERE / "gang.sh"), *SUBMIT, "--token", "demo")
    narrator.run("trn", "logs", "gang-demo", "--follow", *ON)
    narrator.run("trn", "status", "gang-demo", *ON)
    narrator.step("submit another job and cancel it")
    narrator.run("trn", "submit", str(HERE / "hold.sh"), *SUBMIT, "--token", "cancelled")
    narrator.run("trn", "cancel", "hold-cancelled", *ON)
    narrator.run("trn", "list", *ON)


def _validate(narrator: Narrator) -> None:
    """Without an API server: validate the job's objects with the official schemas."""
    narrator.step("no local Kubernetes: validate the job's objects with the official schemas")
    command = ("trn", "submit", str(HERE / "gang.sh"), *SUBMIT, "--dry-run")
    sent = narrator.run(*command, on_line=lambda _: None, errors=None)
    job, *objects = YAML(typ="safe", pure=True).load_all(sent)  # what the runner gets, then what Kubernetes gets
    wrong = [problem for o in objects for problem in schemas.validate(o)]
    if wrong or not (job and objects):
        raise StepFailed(f"the job's objects are not valid: {'; '.join(wrong) or 'there are none'}")
    narrator.print(f"{len(objects)} objects, all valid: {', '.join(o['kind'] for o in objects)}")

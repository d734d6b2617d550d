"""The Slurm paths: deploy `TrnPclusterStack` or `TrnPcsStack`, train on virtual nodes, look at a job that fails, destroy everything."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ruamel.yaml import YAML

from sandbox import processes, slurm
from sandbox.demo.narrator import Narrator
from sandbox.local_aws import LocalAws
from sandbox.paths import HOME
from trainium_cdk.description.outputs import SlurmCluster, parse

HERE = Path(__file__).parent
REPORT = HOME / ".cache/demo/report.html"
"""The page about the job: it stays after the demo."""
TOKEN = "demo"  # noqa: S105  no secret: it names the job


@dataclass(frozen=True)
class Training:
    """A cluster, and the job that trains on it.

    Attributes:
        engine: name of the engine, for `trn init`. stack: id of its stack.
        region: of the cluster.
        kind, options: the job, with the option for its number of steps last. nodes: how many it has.
        file: the environment file. Default: the one that `trn init` writes.
    """

    engine: str
    stack: str
    region: str
    kind: str
    options: tuple[str, ...]
    nodes: int
    file: Path | None = None


_FINETUNE = ("finetune", ("--model", "Qwen/Qwen3-8B", "--run-steps"), 2)
SLURM = Training("slurm", "TrnPclusterStack", "sa-east-1", *_FINETUNE)
PCS = Training("pcs", "TrnPcsStack", "ap-southeast-4", *_FINETUNE)
TUTORIAL = Training(
    "slurm", "TrnPclusterStack", "us-east-1", "bert-large", ("--steps",), 16, HOME / "examples/tutorial.yaml"
)
"""AWS's tutorial for Trn1."""


def run(narrator: Narrator, aws: LocalAws, directory: Path, training: Training, nodes: int, steps: int) -> None:
    """Run the path; without training where this machine cannot run Slurm.

    Raises:
        StepFailed: a command failed.
    """
    if training.file:
        narrator.step("name the environment file of the tutorial's cluster")
        narrator.run("trn", "use", str(training.file.relative_to(HOME)))
    else:
        narrator.step("describe a cluster in a file: the cheapest nodes that run `finetune`")
        narrator.run("trn", "init", "--engine", training.engine, "--nodes", str(nodes))
    narrator.step(f"deploy {training.stack} with the CDK's command line")
    narrator.cdk("deploy", training.stack, "--require-approval", "never")

    narrator.step("the stack's outputs for jobs")
    cluster = _outputs(aws, training.stack)
    for fleet in cluster.fleets:
        narrator.print(
            f"queue {fleet.queue}: up to {fleet.nodes} x {fleet.instance_type} "
            f"({fleet.cores} NeuronCores, {fleet.efa} EFA interfaces each)"
        )
    narrator.print(
        f"head node {cluster.head_node_id or 'none: AWS runs the controller'}, shared {cluster.shared_dir}, Neuron SDK {cluster.neuron_release}"
    )

    with ExitStack() as running:
        if slurm.available():
            narrator.step("no local Slurm: render the job instead of running it")
            narrator.run("trn", "submit", *_job(training, nodes, steps), "--dry-run", on_line=lambda _: None)
        else:
            running.enter_context(_slurm(narrator, aws, cluster, directory))
            _train(narrator, aws, cluster, training, nodes, steps)
        narrator.step(f"destroy {training.stack}, with what it leaves")
        narrator.run("trn", "destroy", "--yes")


def _slurm(narrator: Narrator, aws: LocalAws, cluster: SlurmCluster, directory: Path) -> slurm.LocalSlurm:
    narrator.step("start a real Slurm with virtual nodes for the cluster")
    home = aws.directory / "clusters" / cluster.cluster_name
    config = YAML(typ="safe", pure=True).load(home / "config.yaml")
    local = slurm.LocalSlurm.start(directory / "slurm", config, environment=aws.variables, idle_seconds=5)
    local.attach(home)
    narrator.print(f"{len(local.node_names)} virtual nodes, {local.node_names[0]} to {local.node_names[-1]}")
    for notice in local.notices:
        narrator.print(notice)
    return local


def _job(training: Training, nodes: int, steps: int) -> tuple[str, ...]:
    return (training.kind, *training.options, str(steps), "--nodes", str(nodes))


def _train(
    narrator: Narrator, aws: LocalAws, cluster: SlurmCluster, training: Training, nodes: int, steps: int
) -> None:
    if training.engine == "pcs":
        narrator.print(f"{_instances(aws, cluster)} EC2 instances of the queue: they start when a job needs them")

    narrator.step(f"submit {training.kind} on {nodes} nodes: its stages, and its training")
    narrator.run("trn", "submit", *_job(training, nodes, steps), "--token", TOKEN)
    job = f"{training.kind}-{TOKEN}"

    narrator.step("follow it until it ends")
    narrator.run("trn", "logs", job, "--follow", "--node", "0")
    narrator.run("trn", "status", job)
    narrator.step("its report: curves, times, cost")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    narrator.run("trn", "report", job, "--output", str(REPORT))

    narrator.step("a script that asks for more device memory than there is: why it failed, and what to do")
    narrator.run("trn", "submit", str(HERE / "too_large.py"), "--nodes", str(nodes), "--token", TOKEN)
    narrator.run("trn", "status", f"too-large-{TOKEN}", "--wait", fails=True)

    if training.engine == "pcs":
        narrator.step("idle nodes stop, and their instances end (after 5 s here, 10 minutes by default)")
        processes.wait_until(lambda: not _instances(aws, cluster), 120, 0.5)
        narrator.print(f"{_instances(aws, cluster)} EC2 instances of the queue; the login node stays")


def _instances(aws: LocalAws, cluster: SlurmCluster) -> int:
    """Running instances of the types that train."""
    filters = [
        {"Name": "instance-type", "Values": sorted({fleet.instance_type for fleet in cluster.fleets})},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    return sum(len(r["Instances"]) for r in aws.client("ec2").describe_instances(Filters=filters)["Reservations"])


def _outputs(aws: LocalAws, stack: str) -> SlurmCluster:
    found = aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
    cluster = parse(stack, aws.region, {o["OutputKey"]: o["OutputValue"] for o in found})
    if not isinstance(cluster, SlurmCluster):
        raise TypeError(f"{stack} does not export a Slurm cluster")
    return cluster

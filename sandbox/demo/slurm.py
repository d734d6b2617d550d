"""The Slurm paths: deploy `TrnPclusterStack` or `TrnPcsStack`, train BERT-Large on virtual nodes, destroy everything."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from sandbox import processes, slurm
from sandbox.demo.narrator import Narrator
from sandbox.local_aws import LocalAws
from sandbox.paths import HOME
from trainium_cdk.outputs import SlurmCluster, parse

STACK = "TrnPclusterStack"
REPORT = HOME / ".cache/demo/report.html"
"""The page about the job: it stays after the demo."""
TOKEN = "demo"  # noqa: S105  no secret: it names the job


def run(narrator: Narrator, aws: LocalAws, directory: Path, nodes: int, steps: int, stack: str = STACK) -> None:
    """Run the path; without training where this machine cannot run Slurm.

    Raises:
        StepFailed: a command failed.
    """
    narrator.step(f"deploy {stack} with the CDK's command line")
    narrator.cdk("deploy", stack, "--require-approval", "never")

    narrator.step("the stack's outputs for jobs")
    cluster = _outputs(aws, stack)
    for fleet in cluster.fleets:
        narrator.print(
            f"queue {fleet.queue}: up to {fleet.nodes} x {fleet.instance_type} "
            f"({fleet.cores} NeuronCores, {fleet.efa} EFA interfaces each)"
        )
    narrator.print(
        f"head node {cluster.head_node_id or 'none: AWS runs the controller'}, shared {cluster.shared_dir}, Neuron SDK {cluster.neuron_release}"
    )

    if slurm.available():
        narrator.step("no local Slurm: render the job instead of running it")
        narrator.run(
            "trn", "submit", "bert-large", "--nodes", str(nodes), "--stack", stack, "--dry-run", on_line=lambda _: None
        )
    else:
        _train(narrator, aws, cluster, directory, nodes, steps)

    narrator.step(f"destroy {stack}")
    narrator.cdk("destroy", stack, "--force")


def _train(narrator: Narrator, aws: LocalAws, cluster: SlurmCluster, directory: Path, nodes: int, steps: int) -> None:
    narrator.step("start a real Slurm with virtual nodes for the cluster")
    home = aws.directory / "clusters" / cluster.cluster_name
    config = YAML(typ="safe", pure=True).load(home / "config.yaml")
    with slurm.LocalSlurm.start(directory / "slurm", config, environment=aws.variables, idle_seconds=5) as local:
        local.attach(home)
        narrator.print(f"{len(local.node_names)} virtual nodes, {local.node_names[0]} to {local.node_names[-1]}")
        for notice in local.notices:
            narrator.print(notice)
        if "Pcs" in config:
            narrator.print(f"{_instances(aws, cluster)} EC2 instances of the queue: they start when a job needs them")

        narrator.step(f"submit BERT-Large on {nodes} nodes, through SSM: prepare, precompile, then train")
        of = ("--stack", cluster.stack)
        narrator.run("trn", "submit", "bert-large", "--nodes", str(nodes), "--steps", str(steps), "--token", TOKEN, *of)
        job = f"bert-large-{TOKEN}"

        narrator.step("follow it until it ends")
        narrator.run("trn", "logs", job, "--follow", "--node", "0", *of)
        narrator.run("trn", "status", job, *of)
        if "Pcs" in config:
            narrator.step("idle nodes stop, and their instances end (after 5 s here, 10 minutes by default)")
            processes.wait_until(lambda: not _instances(aws, cluster), 120, 0.5)
            narrator.print(f"{_instances(aws, cluster)} EC2 instances of the queue; the login node stays")
        narrator.step("its report: curves, times, cost")
        REPORT.parent.mkdir(parents=True, exist_ok=True)
        narrator.run("trn", "report", job, "--output", str(REPORT), *of)


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

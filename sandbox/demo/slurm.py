"""The Slurm path: `TrnPclusterStack`, BERT-Large on 16 virtual nodes, and back to nothing."""

from __future__ import annotations

from pathlib import Path

from ruamel.yaml import YAML

from sandbox import slurm
from sandbox.demo.narrator import Narrator
from sandbox.local_aws import LocalAws
from trainium_cdk.outputs import SlurmCluster, parse

STACK = "TrnPclusterStack"
TOKEN = "demo"  # noqa: S105  no secret: it names the job


def tell(narrator: Narrator, aws: LocalAws, directory: Path, nodes: int, steps: int) -> None:
    """Run the path; without training where there is no local Slurm.

    Raises:
        StepFailed: a command failed.
    """
    narrator.step(f"deploy {STACK} with the CDK's own command line")
    narrator.cdk("deploy", STACK, "--require-approval", "never")

    narrator.step("what the stack tells the jobs")
    cluster = _outputs(aws)
    for fleet in cluster.fleets:
        narrator.say(
            f"queue {fleet.queue}: up to {fleet.nodes} x {fleet.instance_type} "
            f"({fleet.cores} NeuronCores, {fleet.efa} EFA interfaces each)"
        )
    narrator.say(f"head node {cluster.head_node_id}, shared {cluster.shared_dir}, Neuron SDK {cluster.neuron_release}")

    if slurm.available():
        narrator.step("no local Slurm: the job is rendered, not run")
        narrator.run("trn", "submit", "bert-large", "--nodes", str(nodes), "--dry-run", on_line=lambda _: None)
    else:
        _train(narrator, aws, cluster, directory, nodes, steps)

    narrator.step(f"destroy {STACK}")
    narrator.cdk("destroy", STACK, "--force")


def _train(narrator: Narrator, aws: LocalAws, cluster: SlurmCluster, directory: Path, nodes: int, steps: int) -> None:
    narrator.step("a real Slurm stands in for the cluster's nodes")
    home = aws.directory / "clusters" / cluster.cluster_name
    config = YAML(typ="safe", pure=True).load(home / "config.yaml")
    with slurm.LocalSlurm.start(directory / "slurm", config, environment=aws.variables) as local:
        local.attach(home)
        narrator.say(f"{len(local.node_names)} virtual nodes, {local.node_names[0]} to {local.node_names[-1]}")
        for notice in local.notices:
            narrator.say(notice)

        narrator.step(f"submit BERT-Large on {nodes} nodes, through SSM: prepare, precompile, then train")
        narrator.run("trn", "submit", "bert-large", "--nodes", str(nodes), "--steps", str(steps), "--token", TOKEN)
        job = f"bert-large-{TOKEN}"

        narrator.step("follow it to its end")
        narrator.run("trn", "logs", job, "--follow", "--node", "0")
        narrator.run("trn", "status", job)


def _outputs(aws: LocalAws) -> SlurmCluster:
    found = aws.client("cloudformation").describe_stacks(StackName=STACK)["Stacks"][0]["Outputs"]
    cluster = parse(STACK, aws.region, {o["OutputKey"]: o["OutputValue"] for o in found})
    if not isinstance(cluster, SlurmCluster):
        raise TypeError(f"{STACK} does not export a Slurm cluster")
    return cluster

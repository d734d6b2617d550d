"""The EC2 instances of a local Slurm's compute nodes: what is terminated in the local AWS is dead in Slurm.

ParallelCluster's nodes have an instance here while a job holds them, and for a moment after it; on AWS they start with it. Those of AWS PCS are
started by `slurm_power`. A node whose instance was terminated is killed, and comes back as a new machine, as both services do it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from sandbox.attach import NODE_TAG
from sandbox.slurm import LocalSlurm
from sandbox.slurm_config import ClusterPlan

_IDLE_SECONDS = 5.0
_PAUSE = 1.0


class Instances:
    """Those of one cluster.

    Args:
        client: service name -> boto3 client.
        config: the cluster's configuration, for the subnets of ParallelCluster's queues.
    """

    def __init__(self, client: Callable[[str], Any], name: str, config: Mapping[str, Any], plan: ClusterPlan) -> None:
        self._client, self._name = client, name
        queues = (config.get("Scheduling") or {}).get("SlurmQueues") or []
        self._subnets = {str(q["Name"]): q["Networking"]["SubnetIds"][0] for q in queues}
        self._nodes = {node.name: node for node in plan.nodes}
        self._has: dict[str, str] = {}
        self._idle: dict[str, float] = {}
        self._next = 0.0

    def refresh(self, slurm: LocalSlurm) -> None:
        """Follow what Slurm and EC2 have done; about once a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _PAUSE
        alive = self._alive()
        for node in [node for node, id in self._has.items() if alive.get(node) != id]:
            del self._has[node]
            self._die(slurm, node)
        self._has |= alive
        if self._subnets:
            self._follow(slurm)

    def end(self) -> None:
        """Terminate those that this has started: their cluster is gone."""
        if self._subnets and (ids := list(self._alive().values())):
            self._client("ec2").terminate_instances(InstanceIds=ids)

    def _alive(self) -> dict[str, str]:
        """Node -> instance."""
        filters = [
            {"Name": "tag-key", "Values": [NODE_TAG]},
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ]
        found: dict[str, str] = {}
        for reservation in self._client("ec2").describe_instances(Filters=filters)["Reservations"]:
            for instance in reservation["Instances"]:
                tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
                ours = tags.get("parallelcluster:cluster-name", self._name if not self._subnets else "") == self._name
                if ours and tags[NODE_TAG] in self._nodes:
                    found[tags[NODE_TAG]] = instance["InstanceId"]
        return found

    def _follow(self, slurm: LocalSlurm) -> None:
        for node, state in slurm.node_states().items():
            if state.rstrip("*").startswith(("alloc", "mix", "comp")):
                self._idle.pop(node, None)
                if node not in self._has:
                    self._has[node] = self._launch(node)
            elif node in self._has and time.monotonic() > self._idle.setdefault(node, time.monotonic() + _IDLE_SECONDS):
                self._client("ec2").terminate_instances(InstanceIds=[self._has.pop(node)])
                del self._idle[node]

    def _launch(self, node: str) -> str:
        tags = {
            "Name": "Compute",
            "parallelcluster:cluster-name": self._name,
            "parallelcluster:node-type": "Compute",
            NODE_TAG: node,
        }
        made = self._client("ec2").run_instances(
            InstanceType=self._nodes[node].instance_type,
            SubnetId=self._subnets[self._nodes[node].queue],
            MinCount=1,
            MaxCount=1,
            TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}],
        )
        return str(made["Instances"][0]["InstanceId"])

    def _die(self, slurm: LocalSlurm, node: str) -> None:
        """As when EC2 has ended an instance. One that Slurm itself has stopped is not killed."""
        if slurm.node_states().get(node, "").rstrip("*").endswith(("~", "%", "#")):
            return
        print(f"{self._name}: the instance of {node} was terminated", flush=True)
        slurm.kill_node(node)
        update = ["scontrol", "update", f"nodename={node}", "reason=its instance was terminated"]
        slurm.run([*update, "state=down"])
        if self._subnets:
            slurm.replace_node(node)
        else:
            slurm.run([*update, "state=POWER_DOWN_FORCE"])  # Slurm starts it when a job needs it

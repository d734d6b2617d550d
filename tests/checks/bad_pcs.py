"""Environments for AWS PCS that must be refused: (YAML, key, part of the message), as in `bad_environments`."""

from __future__ import annotations

TABLE = [
    (
        "pcs: {os: ubuntu2004}  # <-",
        "pcs.os",
        "Neuron cannot be installed on this operating system. Fix: write ubuntu2404",
    ),
    (
        "pcs: {os: ubuntu2204}  # <-",
        "pcs.os",
        "AWS publishes no PCS-ready image of it, only of ubuntu2404. Fix: write ubuntu2404, or give pcs.custom_ami",
    ),
    (
        "pcs: {version: '23.11'}  # <-",
        "pcs.version",
        "PCS creates no cluster with this Slurm. Fix: write 25.05, 25.11 or 26.05",
    ),
    (
        "pcs: {queues: [{name: a1}]}  # <-",
        "pcs.queues[0].name",
        "it has 2 characters, PCS needs 3. Fix: write a1q",
    ),
    (
        "pcs: {queues: [{name: pretraining-large, compute_resources: [{name: reserved-a}]}]}  # <-",
        "pcs.queues[0].compute_resources[0].name",
        "its node group is named pretraining-large-reserved-a: 28 characters, and PCS accepts 25",
    ),
    (
        "pcs: {queues: [{name: a-b, compute_resources: [{name: c}]}, {name: abc}, {name: a-b-c, compute_resources: [{name: d}]}, "
        "{name: a-b-x, compute_resources: [{name: e}, {name: e-f}]}, {name: a-b-x-e, compute_resources: [{name: f, max_nodes: 1}]}], "
        "size: medium}  # <-",
        "pcs.queues[4].compute_resources[0].name",
        "its node group is named a-b-x-e-f, as that of a-b-x/e-f. Fix: choose another name",
    ),
    (
        "pcs: {size: medium, queues: ["
        + ", ".join(f"{{name: q{i:02}, compute_resources: [{{max_nodes: 1}}]}}" for i in range(10))
        + "]}  # <-",
        "pcs.queues",
        "a cluster has at most 10 node groups: one for the login node and, here, 10 for compute resources",
    ),
    (
        "pcs: {queues: [{compute_resources: [{max_nodes: 32}]}]}  # <-",
        "pcs.size",
        "it has at most 32 nodes, and this cluster up to 33, the login node included. Fix: write size: medium, or lower max_nodes",
    ),
    (
        "pcs: {cpu_queue: {max_nodes: 16}}  # <-",
        "pcs.size",
        "this cluster up to 33, the login node and the CPU queue included",
    ),
    ("pcs: {cpu_queue: {name: login}}  # <-", "pcs.cpu_queue.name", "PCS cannot have a node group of this name"),
    (
        "pcs: {cpu_queue: {instance_type: trn1.2xlarge}}  # <-",
        "pcs.cpu_queue.instance_type",
        "this node does not train: its accelerators would cost money",
    ),
    (
        "pcluster: {cpu_queue: {instance_type: c7g.xlarge}}  # <-",
        "pcluster.cpu_queue.instance_type",
        "this is an Arm type",
    ),
    (
        "pcs: {slurm_settings: {SuspendTime: 60}}  # <-",
        "pcs.slurm_settings.SuspendTime",
        "PCS does not let a cluster set this",
    ),
    (
        "pcs: {custom_ami: ami-0123456789abcdef0}\nnetwork: {nat: none}  # <-",
        "network.interface_endpoints",
        "without a NAT gateway nodes cannot reach pcs, ssm and ssmmessages",
    ),
    (
        "network: {nat: none, interface_endpoints: [pcs, ssm, ssmmessages]}\npcs: {}",
        "pcs.custom_ami",
        "without access to the internet nodes cannot install Neuron, and AWS's image does not contain it",
    ),
    (
        "pcs: {login: {instance_type: trn1.2xlarge}}  # <-",
        "pcs.login.instance_type",
        "this node does not train",
    ),
]
SHAPE = [
    ("pcluster: {cpu_queue: {name: compute1}}  # <-", "pcluster", "2 queues are named compute1"),
    ("pcs: {cpu_queue: {min_nodes: 3}}  # <-", "pcs.cpu_queue", "min_nodes 3 is more than max_nodes 2"),
]

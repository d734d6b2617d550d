"""Which nodes are near each other: the network nodes above their instances, from EC2's DescribeInstanceTopology."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from trainium_cdk._aws import client, describe_error
from trainium_cdk.catalog.plain import counted
from trainium_cdk.errors import JobError
from trainium_cdk.jobs.status import Node
from trainium_cdk.outputs import Cluster

_AT_ONCE = 100
"""Instance ids of one request (EC2's API reference, 2026-11)."""
_ADDRESSES = 200
"""Values of one filter (the same)."""


def known(nodes: Iterable[Node], cluster: Cluster) -> tuple[Node, ...]:
    """The nodes with `Node.network`, where EC2 tells one: of running Trainium instances. Labels of Kubernetes are the same, and not asked for.

    Raises:
        JobError: EC2 cannot be asked, for example without the permission.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    found = tuple(nodes)
    asked = [n for n in found if n.on and not n.network and n.instance_type.startswith("trn")]
    if not asked:
        return found
    try:
        ec2 = client("ec2", cluster.region)
        instances = _instances(ec2, asked, cluster)
        paths = _paths(ec2, sorted(set(instances.values())))
    except ClientError as e:
        code = e.response["Error"].get("Code", "")
        denied = f". Request the permission ec2:{e.operation_name}" if "Unauthorized" in code else ""
        raise JobError(f"cannot look up the topology of the network: {e}{denied}") from None
    except BotoCoreError as e:
        raise JobError(f"cannot look up the topology of the network: {describe_error(e)}") from None
    return tuple(replace(n, network=n.network or paths.get(instances.get(n.name, ""), ())) for n in found)


def _instances(ec2: Any, nodes: Sequence[Node], cluster: Cluster) -> dict[str, str]:
    """The id of each node's instance, by the node's name: where the scheduler does not know it, by its address in the cluster."""
    there = {node.name: node.instance for node in nodes if node.instance}
    names = {node.address: node.name for node in nodes if not node.instance and node.address != node.name}
    addresses = sorted(names) if cluster.instance_tag else []
    for at in range(0, len(addresses), _ADDRESSES):
        wanted = {
            **cluster.instance_tag,
            "private-ip-address": addresses[at : at + _ADDRESSES],
            "instance-state-name": ["running"],
        }
        filters = [{"Name": name, "Values": values} for name, values in wanted.items()]
        for page in ec2.get_paginator("describe_instances").paginate(Filters=filters):
            for instance in (i for r in page["Reservations"] for i in r["Instances"]):
                there[names[instance["PrivateIpAddress"]]] = instance["InstanceId"]
    return there


def _paths(ec2: Any, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Network nodes by instance, from the highest layer on. One that has just ended is left out."""
    found: dict[str, tuple[str, ...]] = {}
    for at in range(0, len(ids), _AT_ONCE):
        some = list(ids[at : at + _AT_ONCE])
        while some:
            try:
                response = ec2.describe_instance_topology(InstanceIds=some)
            except ec2.exceptions.ClientError as e:
                gone = set(re.findall(r"i-[0-9a-f]+", str(e))) & set(some)
                if e.response["Error"].get("Code") != "InvalidInstanceID.NotFound" or not gone:
                    raise
                some = [id for id in some if id not in gone]
                continue
            found |= {i["InstanceId"]: tuple(i.get("NetworkNodes") or ()) for i in response["Instances"]}
            break
    return found


def tree(nodes: Iterable[Node]) -> Iterator[str]:
    """The nodes below their network nodes, as indented lines; those without one last."""
    above: tuple[str, ...] = ()
    for node in sorted(nodes, key=lambda n: (not n.network, n.network, n.name)):
        path = node.network or ("network node not known",)
        common = next(
            (i for i, (a, b) in enumerate(zip(path, above, strict=False)) if a != b), min(len(path), len(above))
        )
        for layer, name in enumerate(path[common:], common):
            yield f"{'  ' * layer}{name}"
        yield f"{'  ' * len(path)}{node.name}{f'  {node.job}' if node.job else ''}"
        above = path


def described(nodes: Sequence[Node]) -> str:
    """How near these nodes are to each other, in a sentence.

    >>> describe = lambda *paths: described([Node(str(i), "q", "t", "s", network=p) for i, p in enumerate(paths)])
    >>> describe(("a", "b", "c"), ("a", "b", "d"), ("a", "b", "c"))
    '3 nodes below 2 network nodes of layer 3 (c has 2, d has 1), and below one of layer 2 (b)'
    >>> describe(("a", "b", "c"), ("a", "b", "c"), ())
    '3 nodes below one network node of layer 3 (c); of 1 it is not known'
    """
    paths = [node.network for node in nodes if node.network]
    count, depth = counted(len(nodes), "node"), min(map(len, paths), default=0)
    if not depth:
        return f"{count}, below network nodes that are not known"
    unknown = f"; of {len(nodes) - len(paths)} it is not known" if len(paths) < len(nodes) else ""
    text = list[str]()
    for layer in range(depth, 0, -1):
        has = Counter(path[layer - 1] for path in paths)
        several = ", ".join(f"{name} has {number}" for name, number in sorted(has.items()))
        if len(has) == 1:
            text.append(f"one{'' if text else ' network node'} of layer {layer} ({next(iter(has))})")
            break
        text.append(f"{len(has)}{'' if text else ' network nodes'} of layer {layer} ({several})")
    return f"{count} below {', and below '.join(text)}{unknown}"


def of_job(nodes: Iterable[Node], id: str) -> list[Node]:
    """The nodes on which a job runs."""
    return [node for node in nodes if node.job and _word(node.job.partition(":")[0]) == _word(id)]


def _word(id: str) -> str:
    """Kubernetes has hyphens for all other signs of an id."""
    return re.sub(r"[^a-z0-9]+", "-", id.lower())

"""The instances on which commands run, by tags that only AWS can set: a stack's outputs may name any instance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from trainium_cdk._aws import client, credentials_error, describe_error
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import TransportError

HEAD_NODE = {"aws:cloudformation:logical-id": "HeadNode"}
"""A tag that CloudFormation sets on the head node of ParallelCluster's own stack, whose name is the cluster's (its templates/cluster_stack.py,
3.16.1)."""


def find(region: str, what: str, filters: Mapping[str, str]) -> list[dict[str, Any]]:
    """The instances with these filters of EC2.

    Raises:
        TransportError: EC2 cannot be queried. `what`: is looked up.
    """
    wanted: Any = [{"Name": name, "Values": [value]} for name, value in filters.items()]
    try:
        found = client("ec2", region).describe_instances(Filters=wanted)["Reservations"]
    except ClientError as e:
        code = e.response["Error"].get("Code", "")
        denied = ". Request the permission ec2:DescribeInstances" if "Unauthorized" in code else ""
        ended = credentials_error(e)
        raise TransportError(f"cannot look up {what}: {ended or e}{denied}", again=not (denied or ended)) from None
    except BotoCoreError as e:
        raise TransportError(f"cannot look up {what}: {describe_error(e)}") from None
    return [dict(instance) for reservation in found for instance in reservation["Instances"]]


def check_head_node(cluster: SlurmCluster) -> None:
    """Raises TransportError: AWS does not say that the instance of a stack's outputs is the head node of its cluster."""
    tags = {**HEAD_NODE, "aws:cloudformation:stack-name": cluster.cluster_name}
    filters = {"instance-id": cluster.head_node_id, **{f"tag:{key}": value for key, value in tags.items()}}
    if not find(cluster.region, "the head node", filters):
        raise TransportError(
            f"nothing was run on {cluster.head_node_id}: by AWS's own tags it is not the head node of {cluster.cluster_name}. If stack "
            f"{cluster.stack} was deployed just now, try again. Else ask who has made it",
            again=False,
        )

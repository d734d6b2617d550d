"""Existing resources of an account, by kind, for tests that a destroy leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Client = Callable[[str], Any]
Names = Iterable[str]

_ENDED = ("terminated", "shutting-down", "deleted", "deleting", "cancelled", "DELETE_COMPLETE")


def _listed(service: str, action: str, key: str, name: str, **arguments: Any) -> Callable[[Client], Names]:
    def read(client: Client) -> Names:
        answer = getattr(client(service), action)(**arguments)
        return [str(item[name]) for item in answer.get(key, [])]

    return read


def _paged(service: str, action: str, key: str, name: str, **arguments: Any) -> Callable[[Client], Names]:
    def read(client: Client) -> Names:
        pages = client(service).get_paginator(action).paginate(**arguments)
        return [str(item[name]) for page in pages for item in page.get(key, [])]

    return read


def _alive(service: str, action: str, key: str, name: str, state: str) -> Callable[[Client], Names]:
    """Like `_listed`, without resources that AWS still lists for a while after their deletion."""

    def read(client: Client) -> Names:
        found = []
        for item in getattr(client(service), action)().get(key, []):
            value = item.get(state)
            code = value.get("Code", value.get("Name")) if isinstance(value, dict) else value
            if code not in _ENDED:
                found.append(str(item[name]))
        return found

    return read


def _instances(client: Client) -> Names:
    pages = client("ec2").get_paginator("describe_instances").paginate()
    return [
        instance["InstanceId"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
        if instance["State"]["Name"] not in _ENDED
    ]


def _vpcs(client: Client) -> Names:
    return [vpc["VpcId"] for vpc in client("ec2").describe_vpcs()["Vpcs"] if not vpc.get("IsDefault")]


def _keys(client: Client) -> Names:
    kms = client("kms")
    found = []
    for key in kms.list_keys()["Keys"]:
        described = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]
        if described["KeyManager"] == "CUSTOMER" and described["KeyState"] != "PendingDeletion":
            found.append(key["KeyId"])
    return found


def _clusters(client: Client) -> Names:
    return list(client("eks").list_clusters()["clusters"])


def _prefix_lists(client: Client) -> Names:
    found = client("ec2").describe_managed_prefix_lists()["PrefixLists"]
    return [entry["PrefixListId"] for entry in found if entry.get("OwnerId") != "AWS"]


KINDS: dict[str, Callable[[Client], Names]] = {
    "CloudFormation stacks": _alive("cloudformation", "describe_stacks", "Stacks", "StackName", "StackStatus"),
    "VPCs": _vpcs,
    "subnets": _paged("ec2", "describe_subnets", "Subnets", "SubnetId"),
    "route tables": _paged("ec2", "describe_route_tables", "RouteTables", "RouteTableId"),
    "internet gateways": _paged("ec2", "describe_internet_gateways", "InternetGateways", "InternetGatewayId"),
    "NAT gateways": _alive("ec2", "describe_nat_gateways", "NatGateways", "NatGatewayId", "State"),
    "elastic addresses": _listed("ec2", "describe_addresses", "Addresses", "AllocationId"),
    "network interfaces": _paged("ec2", "describe_network_interfaces", "NetworkInterfaces", "NetworkInterfaceId"),
    "security groups": _paged("ec2", "describe_security_groups", "SecurityGroups", "GroupId"),
    "VPC endpoints": _alive("ec2", "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId", "State"),
    "VPC peerings": _alive(
        "ec2", "describe_vpc_peering_connections", "VpcPeeringConnections", "VpcPeeringConnectionId", "Status"
    ),
    "prefix lists": _prefix_lists,
    "flow logs": _listed("ec2", "describe_flow_logs", "FlowLogs", "FlowLogId"),
    "instances": _instances,
    "volumes": _listed("ec2", "describe_volumes", "Volumes", "VolumeId"),
    "launch templates": _listed("ec2", "describe_launch_templates", "LaunchTemplates", "LaunchTemplateName"),
    "key pairs": _listed("ec2", "describe_key_pairs", "KeyPairs", "KeyName"),
    "placement groups": _listed("ec2", "describe_placement_groups", "PlacementGroups", "GroupName"),
    "capacity reservations": _alive(
        "ec2", "describe_capacity_reservations", "CapacityReservations", "CapacityReservationId", "State"
    ),
    "EFS file systems": _listed("efs", "describe_file_systems", "FileSystems", "FileSystemId"),
    "FSx file systems": _listed("fsx", "describe_file_systems", "FileSystems", "FileSystemId"),
    "FSx data repository associations": _listed(
        "fsx", "describe_data_repository_associations", "Associations", "AssociationId"
    ),
    "ECR repositories": _paged("ecr", "describe_repositories", "repositories", "repositoryName"),
    "S3 buckets": _listed("s3", "list_buckets", "Buckets", "Name"),
    "SSM parameters": _paged("ssm", "describe_parameters", "Parameters", "Name"),
    "secrets": _paged("secretsmanager", "list_secrets", "SecretList", "Name"),
    "KMS keys": _keys,
    "log groups": _paged("logs", "describe_log_groups", "logGroups", "logGroupName"),
    "alarms": _paged("cloudwatch", "describe_alarms", "MetricAlarms", "AlarmName"),
    "dashboards": _listed("cloudwatch", "list_dashboards", "DashboardEntries", "DashboardName"),
    "Lambda functions": _paged("lambda", "list_functions", "Functions", "FunctionName"),
    "IAM roles": _paged("iam", "list_roles", "Roles", "RoleName"),
    "IAM policies": _paged("iam", "list_policies", "Policies", "PolicyName", Scope="Local"),
    "instance profiles": _paged("iam", "list_instance_profiles", "InstanceProfiles", "InstanceProfileName"),
    "OIDC providers": _listed("iam", "list_open_id_connect_providers", "OpenIDConnectProviderList", "Arn"),
    "SNS topics": _paged("sns", "list_topics", "Topics", "TopicArn"),
    "event rules": _listed("events", "list_rules", "Rules", "Name"),
    "state machines": _listed("stepfunctions", "list_state_machines", "stateMachines", "name"),
    "EKS clusters": _clusters,
    "PCS clusters": _listed("pcs", "list_clusters", "clusters", "name"),
}
"""Kind of resource -> function that lists its names. Add an entry when a stack creates a new kind."""


GLOBAL = frozenset({"S3 buckets", "IAM roles", "IAM policies", "instance profiles", "OIDC providers"})
"""Kinds that are global, not regional."""


def inventory(client: Client, *, regional_only: bool = False) -> dict[str, list[str]]:
    """All resources in the client's region and account, kind -> sorted names; empty kinds are omitted."""
    found = {kind: sorted(read(client)) for kind, read in KINDS.items() if not (regional_only and kind in GLOBAL)}
    return {kind: names for kind, names in found.items() if names}


def beyond(now: Mapping[str, list[str]], baseline: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """The resources in `now` that are not in `baseline`."""
    more = {kind: [name for name in names if name not in baseline.get(kind, [])] for kind, names in now.items()}
    return {kind: names for kind, names in more.items() if names}

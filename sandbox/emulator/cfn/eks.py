"""EKS types: add-ons, access entries, pod identities; node groups with the instance type of their launch template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from ministack.services import ec2, eks
from ministack.services.cloudformation import provisioners

from sandbox import attach, replacing
from sandbox.emulator.cfn.registry import Made, Properties, camel, handlers, resource
from sandbox.emulator.eks import wait_for_api
from sandbox.emulator.eks_scaling import reconcile
from sandbox.emulator.eks_scaling import update as update_config

Answer = tuple[int, dict[str, str], bytes]


def _body(properties: Properties, *names: str) -> dict[str, Any]:
    """The API's request: the named properties, if set, and tags as a map."""
    body = {name[:1].lower() + name[1:]: camel(properties[name]) for name in names if name in properties}
    return {**body, "tags": {tag["Key"]: tag["Value"] for tag in properties.get("Tags") or []}}


def _ask(call: Callable[..., Answer], *arguments: Any) -> dict[str, Any]:
    """Call the EKS API inside the emulator; an API error fails the resource with the same message."""
    status, _, raw = call(*arguments)
    answer: dict[str, Any] = json.loads(raw)
    if status >= 400:
        raise ValueError(f"{answer.get('message')} ({answer.get('__type')})")
    return answer


# --- clusters: created when their API server responds ---

_cluster = handlers("AWS::EKS::Cluster")
_cluster_create = _cluster["create"]


def _create_cluster(logical_id: str, properties: Properties, stack: str) -> Made:
    support = properties.get("UpgradePolicy", {}).get("SupportType", "EXTENDED")
    if support not in ("STANDARD", "EXTENDED"):
        raise ValueError(f"{support} is not a support type of an upgrade policy (InvalidParameterException)")
    name, _ = _cluster_create(logical_id, properties, stack)
    try:
        wait_for_api(name)
    except attach.AttachFailed as problem:
        raise ValueError(str(problem)) from None
    return name, provisioners._eks_cluster_attrs(eks._clusters[name])


_cluster["create"] = _create_cluster

# --- add-ons ---

_ADDON = ("AddonName", "AddonVersion", "ConfigurationValues", "PodIdentityAssociations", "ServiceAccountRoleArn")


def _addon_create(_logical: str, properties: Properties, _stack: str) -> Made:
    cluster = properties["ClusterName"]
    made = _ask(eks._create_addon, cluster, _body(properties, *_ADDON))["addon"]
    return f"{cluster}|{made['addonName']}", {"Arn": made["addonArn"]}


def _addon_update(physical_id: str, _old: Properties, new: Properties) -> Made:
    cluster, name = physical_id.split("|")
    _ask(eks._update_addon, cluster, name, _body(new, *_ADDON))
    return physical_id, {"Arn": eks._addons[f"{cluster}/{name}"]["addonArn"]}


def _addon_delete(physical_id: str, _properties: Properties) -> None:
    eks._delete_addon(*physical_id.split("|"))


resource(
    "AWS::EKS::Addon",
    create=_addon_create,
    update=_addon_update,
    delete=_addon_delete,
)


# --- access entries ---


def _associate(cluster: str, principal: str, properties: Properties) -> None:
    wanted = {policy["PolicyArn"]: policy for policy in properties.get("AccessPolicies") or []}
    prefix = f"{cluster}\0{principal}\0"
    for key in [key for key in eks._access_policies if key.startswith(prefix)]:
        if (policy := key.removeprefix(prefix)) not in wanted:
            _ask(eks._disassociate_access_policy, cluster, principal, policy)
    for policy in wanted.values():
        if not re.fullmatch(r"arn:[^:]+:eks::aws:cluster-access-policy/AmazonEKS\w+Policy", policy["PolicyArn"]):
            raise ValueError(f"{policy['PolicyArn']} is not an access policy of EKS (InvalidParameterException)")
        _ask(eks._associate_access_policy, cluster, principal, camel(policy))


def _entry_create(_logical: str, properties: Properties, _stack: str) -> Made:
    cluster, principal = properties["ClusterName"], properties["PrincipalArn"]
    body = _body(properties, "PrincipalArn", "KubernetesGroups", "Username", "Type")
    made = _ask(eks._create_access_entry, cluster, body)["accessEntry"]
    _associate(cluster, principal, properties)
    return f"{principal}|{cluster}", {"AccessEntryArn": made["accessEntryArn"]}


def _entry_update(physical_id: str, _old: Properties, new: Properties) -> Made:
    principal, cluster = physical_id.split("|")
    _ask(eks._update_access_entry, cluster, principal, _body(new, "KubernetesGroups", "Username"))
    _associate(cluster, principal, new)
    return physical_id, {"AccessEntryArn": eks._access_entries[eks._ae_key(cluster, principal)]["accessEntryArn"]}


def _entry_delete(physical_id: str, _properties: Properties) -> None:
    principal, cluster = physical_id.split("|")
    eks._delete_access_entry(cluster, principal)


resource(
    "AWS::EKS::AccessEntry",
    create=_entry_create,
    update=_entry_update,
    delete=_entry_delete,
)


# --- pod identities ---

_IDENTITY = ("Namespace", "ServiceAccount", "RoleArn", "TargetRoleArn", "DisableSessionTags", "Policy")


def _identity_made(association: dict[str, Any]) -> Made:
    names = {"AssociationArn": "associationArn", "AssociationId": "associationId", "ExternalId": "externalId"}
    return association["associationArn"], {name: association.get(key, "") for name, key in names.items()}


def _identity_create(_logical: str, properties: Properties, _stack: str) -> Made:
    body = _body(properties, *_IDENTITY)
    return _identity_made(_ask(eks._create_pod_identity_association, properties["ClusterName"], body)["association"])


def _identity_update(physical_id: str, _old: Properties, new: Properties) -> Made:
    number = physical_id.rpartition("/")[2]
    body = _body(new, *_IDENTITY)
    return _identity_made(_ask(eks._update_pod_identity_association, new["ClusterName"], number, body)["association"])


def _identity_delete(physical_id: str, properties: Properties) -> None:
    eks._delete_pod_identity_association(properties["ClusterName"], physical_id.rpartition("/")[2])


resource(
    "AWS::EKS::PodIdentityAssociation",
    create=_identity_create,
    update=_identity_update,
    delete=_identity_delete,
)


# --- node groups: ministack ignores the launch template's instance type and the capacity type, and starts no instances ---

_group = handlers("AWS::EKS::Nodegroup")
_group_create, _group_update = _group["create"], _group["update"]
_VERSIONS = {"Version", "ReleaseVersion", "LaunchTemplate"}


def _create_node_group(logical_id: str, properties: Properties, stack: str) -> Made:
    made: Made = _group_create(logical_id, properties, stack)
    record = eks._nodegroups[f"{properties['ClusterName']}/{made[0]}"]
    record["capacityType"] = properties.get("CapacityType", "ON_DEMAND")
    if "InstanceTypes" not in properties and properties.get("LaunchTemplate"):
        record["instanceTypes"] = []
    reconcile()
    return made


def _with_data(properties: Properties) -> Properties:
    """With what is in the version of its launch template: a rollback makes a new version of the template, to which CloudFormation takes back the
    group, and ministack does not."""
    template = properties.get("LaunchTemplate") or {}
    versions = ec2._launch_templates.get(template.get("Id"), {}).get("Versions", ())
    data = [v["LaunchTemplateData"] for v in versions if str(v["VersionNumber"]) == str(template.get("Version"))]
    return {**properties, "LaunchTemplate": data or template}


def _refuse_pairs(old: Properties, new: Properties) -> None:
    """CloudFormation's handler makes one kind of update at a time, the version's or another one (aws-cdk issue 16644,
    containers-roadmap issue 1258). Tags of the stack are among the group's tags."""
    old, new = _with_data(old), _with_data(new)
    changed = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    if changed & _VERSIONS and changed - _VERSIONS:
        raise ValueError("Version and ReleaseVersion updates cannot be combined with other updates")


def _update_node_group(physical_id: str, old: Properties, new: Properties, stack: str, *rest: Any, **more: Any) -> Made:
    if not replacing.changed("AWS::EKS::Nodegroup", old, new):
        _refuse_pairs(old, new)
    if (sizes := new.get("ScalingConfig")) and sizes != old.get("ScalingConfig"):
        _ask(update_config, old["ClusterName"], physical_id, {"scalingConfig": camel(sizes)})
    made: Made = _group_update(physical_id, old, new, stack, *rest, **more)
    reconcile()
    return made


_group.update(create=_create_node_group, update=_update_node_group)

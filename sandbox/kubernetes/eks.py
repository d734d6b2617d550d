"""Connects the local EKS and the local Kubernetes: endpoint and authority one way, tokens the other.

secret = new_secret()
kubernetes = LocalKubernetes.start(folder, name="trn", token_webhook=webhook_url(aws.endpoint, "trn", secret))
attach(aws.directory, kubernetes, secret)
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from sandbox import paths
from sandbox.kubernetes import build, claims, installed
from sandbox.kubernetes.cluster import KubernetesFailed, LocalKubernetes
from trainium_cdk.description.catalog import Catalog

ACCOUNT = "000000000000"
NODE_GROUP = "eks.amazonaws.com/nodegroup"
"""EKS's label with the node group of a node."""
CLAIMS = "neuron-claims"
"""The release with the driver of devices that are given by claims. It brings their class."""
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


def new_secret() -> str:
    """A secret that the API server sends to the emulator, so that no other client can verify tokens."""
    return secrets.token_urlsafe(32)


def webhook_url(aws_endpoint: str, cluster: str, secret: str, *, region: str = "us-east-1") -> str:
    """The URL at which the local AWS verifies the tokens of an EKS cluster.

    Args:
        aws_endpoint: for example http://127.0.0.1:4566
    """
    return f"{aws_endpoint}/_ministack/eks-auth/{ACCOUNT}/{region}/{cluster}/{secret}"


def attach(sandbox: Path, kubernetes: LocalKubernetes, secret: str) -> Path:
    """Set the API server of the EKS cluster `kubernetes.name` in the local AWS; returns the file with the setting.

    Args:
        sandbox: the directory of the local AWS; the cluster can be created there before or after.
    """
    (sandbox / "eks").mkdir(parents=True, exist_ok=True)
    settings = {
        "endpoint": kubernetes.endpoint,
        "ca": kubernetes.ca_data,
        "kubeconfig": str(kubernetes.kubeconfig),
        "kubectl": _link(sandbox, build.program("kubectl")),
        "secret": secret,
    }
    return _write(sandbox / "eks" / f"{kubernetes.name}.json", settings)


def attach_own(sandbox: Path, name: str, kubeconfig: Path) -> Path:
    """Use the user's own cluster (kind, a real one, ...) for the EKS cluster `name`.

    It does not know EKS tokens: the CDK's provider applies objects with that kubeconfig.

    Raises:
        KubernetesFailed: kubectl is not available, or cannot read the file.
    """
    kubectl = shutil.which("kubectl") or str(build.program("kubectl"))
    command = [kubectl, f"--kubeconfig={kubeconfig}", "config", "view", "--raw", "--minify", "--flatten", "-o", "json"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError:
        raise KubernetesFailed(f"kubectl is neither installed nor built ({paths.KUBERNETES})") from None
    except subprocess.CalledProcessError as problem:
        raise KubernetesFailed(f"{kubeconfig} cannot be used: {problem.stderr.strip()}") from None
    cluster = json.loads(shown)["clusters"][0]["cluster"]
    (sandbox / "eks").mkdir(parents=True, exist_ok=True)
    link = sandbox / "eks/kubeconfig"
    link.unlink(missing_ok=True)
    link.symlink_to(kubeconfig.resolve())
    settings = {
        "endpoint": cluster["server"],
        "ca": cluster.get("certificate-authority-data", ""),
        "kubeconfig": str(kubeconfig),
        "kubectl": _link(sandbox, kubectl),
        "secret": new_secret(),
    }
    return _write(sandbox / "eks" / f"{name}.json", settings)


def _write(file: Path, settings: Mapping[str, str]) -> Path:
    part = file.with_suffix(".part")
    part.touch(mode=0o600)
    part.write_text(json.dumps(settings, indent=1))
    part.replace(file)
    return file


def _link(sandbox: Path, kubectl: str | Path) -> str:
    """The link to kubectl with which `shims/kubectl` finds it."""
    link = sandbox / "eks/kubectl"
    part = link.with_suffix(".part")
    part.unlink(missing_ok=True)
    part.symlink_to(kubectl)
    return str(part.replace(link))


def detach(sandbox: Path, name: str) -> None:
    """Remove the setting of a cluster's API server."""
    folder = sandbox / "eks"
    for file in (folder / "kubeconfig", folder / f"{name}.json"):
        file.unlink(missing_ok=True)
    if not [*folder.glob("*.json")]:
        (folder / "kubectl").unlink(missing_ok=True)


def sync_nodes(
    kubernetes: LocalKubernetes,
    client: Callable[[str], Any],
    *,
    devices: bool = True,
    absent: Collection[str] = (),
) -> dict[str, list[str]]:
    """Create nodes for the instances of the local EKS cluster's node groups; returns names by node group.

    A node's type, labels, taints and zone come from its group and the group's launch template. Nodes whose instance or group was
    deleted are removed. Call it after a deployment and after scaling a group.

    Args:
        client: service name -> boto3 client (`LocalAws.client`).
        devices: whether new Trainium nodes announce their devices immediately.
        absent: instances that do not join, as a kubelet does not whose node was deleted.
    """
    known = Catalog.load()
    eks, ec2, scaling = client("eks"), client("ec2"), client("autoscaling")
    has: dict[str, dict[str, str]] = {}
    for node in kubernetes.api().get("/api/v1/nodes", labelSelector=NODE_GROUP)["items"]:
        id = node["spec"]["providerID"].rpartition("/")[2]
        has.setdefault(node["metadata"]["labels"][NODE_GROUP], {})[id] = node["metadata"]["name"]
    try:
        names = eks.list_nodegroups(clusterName=kubernetes.name)["nodegroups"]
    except eks.exceptions.ResourceNotFoundException:
        names = []
    if parts := _parts(eks, kubernetes.name) if names else set():
        driver = {CLAIMS} if claims.installed(kubernetes.api()) else set()
        installed.install(kubernetes.api(), {*parts, *driver})
    for name in names:
        group = eks.describe_nodegroup(clusterName=kubernetes.name, nodegroupName=name)["nodegroup"]
        if not (groups := group["resources"].get("autoScalingGroups")):
            continue  # it is being created
        asg = groups[0]["name"]
        [found] = scaling.describe_auto_scaling_groups(AutoScalingGroupNames=[asg])["AutoScalingGroups"]
        running = [i["InstanceId"] for i in found["Instances"] if i["LifecycleState"] == "InService"]
        running = [id for id in running if id not in absent]
        have = has.setdefault(name, {})
        for id in [id for id in have if id not in running]:
            kubernetes.remove_node(have.pop(id))
        if new := [id for id in running if id not in have]:
            have |= zip(new, _add(kubernetes, ec2, group, new, known, devices=devices), strict=True)
    for name in [name for name in has if name not in names]:
        for node in has.pop(name).values():
            kubernetes.remove_node(node)
    return {name: list(nodes.values()) for name, nodes in has.items()}


def _parts(eks: Any, cluster: str) -> set[str]:
    """What brings pods to the nodes of a deployed cluster: its add-ons, and the charts that every cluster of ours has."""
    parts = set(eks.list_addons(clusterName=cluster)["addons"])
    return {*parts, "neuron", "node_problem_detector", "efa", "jobset", "kueue", "metrics"} if parts else set()


def _add(
    kubernetes: LocalKubernetes,
    ec2: Any,
    group: Mapping[str, Any],
    instances: Sequence[str],
    catalog: Catalog,
    *,
    devices: bool,
) -> list[str]:
    instance_type = _instance_type(ec2, group)
    [subnet, *_] = ec2.describe_subnets(SubnetIds=group["subnets"][:1])["Subnets"]
    own = {NODE_GROUP: group["nodegroupName"], "eks.amazonaws.com/capacityType": group.get("capacityType", "ON_DEMAND")}
    taints = [
        {"key": taint["key"], "value": taint.get("value", ""), "effect": _EFFECTS[taint["effect"]]}
        for taint in group.get("taints", [])
    ]
    common: dict[str, Any] = {
        "zone": subnet["AvailabilityZone"],
        "labels": {**group.get("labels", {}), **own},
        "taints": taints,
        "instances": instances,
    }
    if instance_type in catalog.instances:
        instance, zone_id = catalog.instance(instance_type), subnet.get("AvailabilityZoneId", "")
        return kubernetes.add_nodes(instance, len(instances), zone_id=zone_id, devices=devices, **common)
    return kubernetes.add_system_nodes(len(instances), instance_type=instance_type, **common)


def _instance_type(ec2: Any, group: Mapping[str, Any]) -> str:
    if group.get("instanceTypes"):
        return str(group["instanceTypes"][0])
    template = group["launchTemplate"]
    versions = ec2.describe_launch_template_versions(
        LaunchTemplateId=template["id"], Versions=[str(template["version"])]
    )["LaunchTemplateVersions"]
    return str(versions[0]["LaunchTemplateData"]["InstanceType"])

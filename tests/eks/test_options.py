"""Options of the constructs for EKS, and what each leaves out or adds, in an app of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App, CfnParameter, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from tests.foreign.foreign import cluster, errors, stack, template, vpc, warnings
from trainium_cdk import TrnAddons, TrnEksCluster, TrnNodeGroup, TrnNodeRole, TrnPlugins, TrnStorage
from trainium_cdk.cdk.eks.identities import detector_statements
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.settings import NodeGroup, Plugins, SettingsError, TeamQueue

REGION = "us-east-2"
"""Where trn2.48xlarge is."""


def plugins(scope: Stack, **options: Any) -> TrnPlugins:
    return TrnPlugins(scope, "Plugins", cluster=cluster(scope, kubectl=True), node_groups=[], **options)


@pytest.mark.parametrize(("options", "roles"), [({}, 1), ({"plugins": Plugins(node_problem_detector=False)}, 0)])
def test_the_node_problem_detector_has_a_role_where_it_is_installed(options: dict[str, Any], roles: int) -> None:
    found = template(lambda s: plugins(s, **options)).find_resources("AWS::EKS::PodIdentityAssociation")
    assert sum("detector" in one["Properties"]["ServiceAccount"] for one in found.values()) == roles


def test_a_broken_node_is_replaced_only_in_its_own_cluster() -> None:
    found = [s.to_statement_json() for s in detector_statements(Stack(App(), "S"), "lab", recovery=True)]
    [replace] = [s for s in found if s["Action"] == "autoscaling:SetInstanceHealth"]
    assert replace["Condition"] == {"StringEquals": {"aws:ResourceTag/eks:cluster-name": "lab"}}


def test_rules_are_checked_unless_they_are_switched_off() -> None:
    wrong = {"namespace": "kube-system"}
    [found] = errors(lambda s: plugins(s, **wrong))
    assert found.startswith(
        "Plugins] namespace = kube-system: this namespace is reserved for the system or a plug-in. Fix: write"
    )
    template(lambda s: plugins(s, rules=False, **wrong))
    with pytest.raises(
        SettingsError, match=r"^Foreign/Plugins: error: job_networks\[0\] = 10\.0\.0\.0/40: not an IPv4 network"
    ):
        plugins(stack(), job_networks=["10.0.0.0/40"])


def with_plugins(*nodes: NodeGroup, **options: Any) -> Callable[[Stack], object]:
    def made(scope: Stack) -> object:
        own = cluster(scope, kubectl=True)
        found = [TrnNodeGroup(scope, f"Group{each.name}", cluster=own, nodes=each, version="1.36") for each in nodes]
        return TrnPlugins(scope, "Plugins", cluster=own, node_groups=found, plugins=Plugins(**options))

    return made


def test_claims_are_checked_in_other_apps_too() -> None:
    """By each node group: `plugins` alone changes none that is made before it."""
    parts = NodeGroup(name="parts", instance_type="trn2.48xlarge", devices="claims", share=True)
    whole = NodeGroup(name="whole", instance_type="trn2.48xlarge")
    found = template(with_plugins(parts, whole, devices="claims"), REGION)
    labels = [g["Properties"]["Labels"] for g in found.find_resources("AWS::EKS::Nodegroup").values()]
    assert {of["trainium-cdk/node-group"]: of.get("trainium-cdk/devices") for of in labels} == {
        "parts": "claims",
        "whole": None,
    }
    charts = [c["Properties"]["Release"] for c in found.find_resources("Custom::AWSCDK-EKS-HelmChart").values()]
    assert {"neuron", "neuron-claims"} <= set(charts)
    [refused] = errors(with_plugins(whole.model_copy(update={"share": True})), REGION)
    assert refused.startswith("Groupwhole] nodes.share = true: with the device plug-in jobs take whole nodes")
    [refused] = errors(with_plugins(parts.model_copy(update={"lnc": 1})), REGION)
    assert refused.startswith("Groupparts] nodes.lnc = 1: where pods claim devices, each job chooses its LNC")
    [refused] = errors(with_plugins(parts, volcano=True), REGION)
    assert refused.startswith("Plugins] plugins.volcano = true: Volcano's queues count the device plug-in's devices")
    [told] = [each for each in warnings(with_plugins(whole, devices="claims"), REGION) if "plugins.devices" in each]
    assert "each node group has its own value of devices" in told


def test_claims_need_a_cluster_of_their_version() -> None:
    nodes = NodeGroup(instance_type="trn2.48xlarge", devices="claims", share=True)

    def of(version: str) -> Callable[[Stack], object]:
        return lambda s: TrnNodeGroup(s, "Trn", cluster=cluster(s), nodes=nodes, version=version)

    template(of("1.36"), REGION)
    assert [told.partition(": ")[0] for version in ("1.33", "1.35") for told in errors(of(version), REGION)] == [
        "Trn] nodes.devices = claims", "Trn] nodes.share = true",
    ]  # fmt: skip
    [told] = errors(lambda s: TrnNodeGroup(s, "Trn", cluster=cluster(s), nodes=nodes), REGION)
    assert told.startswith("Trn] nodes.devices = claims: Kubernetes 1.33 does not have the API of claims")


def test_networks_of_jobs_are_checked_in_other_apps_too() -> None:
    def of(*networks: str) -> Callable[[Stack], object]:
        return lambda s: plugins(s, job_networks=[*networks, CfnParameter(s, "Net").value_as_string])

    template(of("10.9.0.0/24"))
    [wide] = errors(of("0.0.0.0/0"))
    assert wide.startswith("Plugins] job_networks[0] = 0.0.0.0/0: jobs could connect to every machine of your networks")
    [node] = errors(of("10.9.0.0/24", "169.254.169.254/32"))
    assert "job_networks[1]" in node
    assert "where its credentials are" in node


def test_the_network_add_on_keeps_addresses_and_enforces_policies() -> None:
    found = template(lambda s: TrnAddons(s, "Addons", cluster=cluster(s)))
    [cni] = [
        a["Properties"] for a in found.find_resources("AWS::EKS::Addon").values()
        if a["Properties"]["AddonName"] == "vpc-cni"
    ]  # fmt: skip
    addresses = Catalog.load().eks.pod_addresses
    env = {"MINIMUM_IP_TARGET": str(addresses.minimum), "WARM_IP_TARGET": str(addresses.warm)}
    assert json.loads(cni["ConfigurationValues"]) == {"env": env, "enableNetworkPolicy": "true"}


def test_the_first_unknown_add_on_is_named() -> None:
    with pytest.raises(ValueError, match=re.escape("addon_versions names a; add-ons are ")):
        TrnAddons(own := stack(), "Addons", cluster=cluster(own), addon_versions={"b": "1", "a": "1"})


def test_a_cluster_takes_connections_and_manifests_that_are_never_pruned() -> None:
    own = stack()
    within = vpc(own)
    mine = TrnEksCluster(own, "Lab", vpc=within)
    other = ec2.SecurityGroup(own, "Other", vpc=within)
    ec2.Connections(security_groups=[other]).allow_to_default_port(mine)
    TrnPlugins(own, "Plugins", cluster=mine, node_groups=[])
    found = Template.from_stack(own)
    sources = {"SourceSecurityGroupId": own.resolve(other.security_group_id), "FromPort": 443, "ToPort": 443}
    found.has_resource_properties("AWS::EC2::SecurityGroupIngress", sources)
    manifests = found.find_resources("Custom::AWSCDK-EKS-KubernetesResource")
    assert manifests
    assert [name for name, one in manifests.items() if "PruneLabel" in one["Properties"]] == []


@pytest.mark.parametrize("policy", [RemovalPolicy.DESTROY, RemovalPolicy.RETAIN])
def test_logs_and_the_key_that_reads_them_stay_or_go_together(policy: RemovalPolicy) -> None:
    found = template(lambda s: TrnEksCluster(s, "Lab", vpc=vpc(s), removal_policy=policy))
    expected = {RemovalPolicy.DESTROY: "Delete", RemovalPolicy.RETAIN: "Retain"}[policy]
    groups = [g for g in found.find_resources("AWS::Logs::LogGroup").values() if "/aws/eks" in str(g["Properties"])]
    for one in (*groups, *found.find_resources("AWS::KMS::Key").values()):
        assert one["DeletionPolicy"] == expected
    assert groups


def files_of(scope: Stack) -> s3.Bucket:
    return s3.Bucket(scope, "Files")


@pytest.mark.parametrize("new", [True, False])
def test_each_namespace_has_a_folder_of_its_own_on_efs_and_in_the_bucket(new: bool) -> None:
    """All volumes were the root of one file system, and all pods one user: a team could replace the programs of another. Where the file
    system is somebody's own, the jobs' namespace has its files, and teams have not."""

    def build(scope: Stack) -> None:
        within = vpc(scope)
        mine = cluster(scope, within=within, kubectl=True)
        files = TrnStorage(scope, "Storage", vpc=within) if new else efs.FileSystem(scope, "Theirs", vpc=within)
        TrnNodeRole(scope, "Nodes", storage=files)
        teams = [TeamQueue(namespace="speech"), TeamQueue(namespace="vision")]
        TrnPlugins(
            scope,
            "Plugins",
            cluster=mine,
            node_groups=[],
            storage=files,
            queues=teams,
            rules=False,
            bucket=files_of(scope),
        )

    found = template(build)
    points = found.find_resources("AWS::EFS::AccessPoint")
    user = {"Uid": "10001", "Gid": "10001"}
    owner = {"OwnerUid": "10001", "OwnerGid": "10001", "Permissions": "0700"}
    own = ("training", "speech", "vision")[0 if new else 1 :]
    assert [p["Properties"]["PosixUser"] for p in points.values()] == [user] * len(own)
    assert [p["Properties"]["RootDirectory"] for p in points.values()] == [
        {"Path": f"/trn-teams/{name}", "CreationInfo": owner} for name in own
    ]
    made = json.dumps(found.find_resources("Custom::AWSCDK-EKS-KubernetesResource"))
    assert [made.count(f'"Ref": "{name}"') for name in points] == [1] * len(own), "each is the volume of one namespace"
    statements = [
        s
        for policy in found.find_resources("AWS::IAM::Policy").values()
        for s in policy["Properties"]["PolicyDocument"]["Statement"]
    ]
    [nodes] = [s for s in statements if "elasticfilesystem:ClientMount" in s["Action"]]
    by_point = {"Null": {"elasticfilesystem:AccessPointArn": "false"}} if new else None
    assert (nodes.get("Condition"), "elasticfilesystem:ClientRootAccess" in nodes["Action"]) == (by_point, not new)
    assert made.count('enforce\\":\\"restricted') == 2, "no pod of a team is root"
    policies = json.dumps([p["Properties"] for p in found.find_resources("AWS::IAM::ManagedPolicy").values()])
    files = "jobs/${aws:PrincipalTag/kubernetes-namespace}/*"
    assert (policies.count(files), policies.count("jobs/*")) == (2, 0), "EKS says which namespace a pod is in"
    assert policies.count("/jobs/code/*") == 2, "workdirs: all may read, and none write"

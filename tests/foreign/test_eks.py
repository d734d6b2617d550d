"""The parts of an EKS cluster in a VPC, and on clusters, that are not ours."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import BootstraplessSynthesizer, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks as eks_v1
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template
from aws_cdk.lambda_layer_kubectl_v35 import KubectlV35Layer

from tests.cdk import app, findings, needs, only, properties, resources
from tests.foreign.foreign import cluster, cluster_v1, template, vpc, warnings
from trainium_cdk import (
    TrnAddons,
    TrnBastionHost,
    TrnBucket,
    TrnEks,
    TrnEksCluster,
    TrnNodeGroup,
    TrnOutputs,
    TrnPlugins,
    TrnScaler,
    TrnStorage,
    outputs,
)
from trainium_cdk.description.outputs.contract import UNKNOWN
from trainium_cdk.description.settings import NodeGroup, Scaling, TeamQueue


def whole(scope: Stack, mine: TrnEksCluster | eks.ICluster | eks_v1.ICluster, within: ec2.IVpc) -> None:
    """Everything that training needs, on a cluster."""
    storage = TrnStorage(scope, "S", vpc=within)
    trn = TrnEks(scope, "Trn", cluster=mine, storage=storage, scaling=Scaling(idle_minutes=3))
    assert s3.Bucket(scope, "Corpus", enforce_ssl=True).grant_read(trn.plugins).success
    assert iam.Grant.add_to_principal(grantee=trn.node_groups[0], actions=["s3:GetObject"], resource_arns=["*"]).success
    trn.plugins.grant_access("Users", "arn:aws:iam::111122223333:role/Users", "edit")


def of_theirs(scope: Stack) -> None:
    within = vpc(scope)
    whole(scope, cluster(scope, within=within, kubectl=True), within)


def of_v1(scope: Stack) -> None:
    within = vpc(scope)
    whole(scope, cluster_v1(scope, within), within)


def of_ours(scope: Stack) -> None:
    within = vpc(scope)
    mine = TrnEksCluster(scope, "Cluster", vpc=within)
    mine.connections.allow_default_port_from(TrnBastionHost(scope, "Bastion", vpc=within))
    mine.grant_access("Platform", iam.Role(scope, "Role", assumed_by=iam.AccountRootPrincipal()), "cluster-admin")
    whole(scope, mine, within)


@pytest.fixture(scope="module", params=[of_theirs, of_v1, of_ours])
def built(request: pytest.FixtureRequest) -> tuple[Callable[[Stack], None], Template]:
    return request.param, template(request.param, "")


def reference(found: Template) -> dict[str, str]:
    """The cluster, which waits for nothing of ours."""
    kinds = found.find_resources("AWS::EKS::Cluster") or found.find_resources("Custom::AWSCDK-EKS-Cluster")
    return {"Ref": next(iter(kinds))}


def test_any_cluster_becomes_one_for_training(built: tuple[Any, Template]) -> None:
    _, found = built
    assert findings(found) == []
    addons = properties(found, "EKS::Addon")
    assert {a["AddonName"] for a in addons} == {
        "vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns", "aws-efs-csi-driver", "eks-node-monitoring-agent",
    }  # fmt: skip
    assert all(a["ClusterName"] == reference(found) for a in addons)
    charts = {
        c["Properties"]["Release"]: key for key, c in found.find_resources("Custom::AWSCDK-EKS-HelmChart").items()
    }
    assert set(charts) == {"neuron", "efa", "jobset", "kueue"}
    system = next(k for k, g in resources(found, "EKS::Nodegroup").items() if g["Properties"]["Labels"]["trainium-cdk/role"] == "system")  # fmt: skip
    assert all(system in needs(found, charts[name]) for name in ("jobset", "kueue"))
    early = {k for k, a in resources(found, "EKS::Addon").items() if a["Properties"]["AddonName"] == "vpc-cni"}
    assert early <= needs(found, system)
    for key, addon in resources(found, "EKS::Addon").items():
        assert (system in needs(found, key)) is (addon["Properties"]["AddonName"] in {"coredns", "aws-efs-csi-driver", "eks-node-monitoring-agent"}), key  # fmt: skip


def test_the_scaler_reaches_the_api_and_sets_its_groups_alone(built: tuple[Any, Template]) -> None:
    _, found = built
    [function] = (f for f in properties(found, "Lambda::Function") if "SETTINGS" in str(f.get("Environment")))
    variable = text(function["Environment"]["Variables"]["SETTINGS"])
    assert '"reserve":true' in variable
    assert '"limits":{"idle":180,"capacity":600,"start":1200}' in variable
    assert function["Timeout"] == 55, "a run has ended when the next begins, a minute later"
    [group] = function["VpcConfig"]["SecurityGroupIds"]
    into = [r for r in properties(found, "EC2::SecurityGroupIngress") if r.get("SourceSecurityGroupId") == group]
    assert {(r["FromPort"], r["ToPort"]) for r in into} == {(443, 443)}
    assert [e for e in properties(found, "EKS::AccessEntry") if e.get("KubernetesGroups") == ["trainium:scaler"]]


def test_users_may_submit_jobs(built: tuple[Any, Template]) -> None:
    """EKS's policies do not cover Volcano's jobs: the group does, in the namespace of the jobs."""
    _, found = built
    [entry] = [e for e in properties(found, "EKS::AccessEntry") if str(e["PrincipalArn"]).endswith(":role/Users")]
    assert entry["ClusterName"] == reference(found)
    [policy] = entry["AccessPolicies"]
    assert policy["AccessScope"] == {"Type": "namespace", "Namespaces": ["training"]}
    assert "AmazonEKSEditPolicy" in str(policy["PolicyArn"])
    installed = str(found.find_resources("Custom::AWSCDK-EKS-KubernetesResource"))
    assert [group in installed for group in entry["KubernetesGroups"]] == [True]


def test_trn_understands_the_stack(built: tuple[Any, Template]) -> None:
    build, found = built
    values = {k: v["Value"] if isinstance(v["Value"], str) else UNKNOWN for k, v in found.to_json()["Outputs"].items()}
    read = outputs.parse("Foreign", "us-west-2", values)
    assert isinstance(read, outputs.EksCluster)
    assert (read.namespace, read.service_account) == ("training", "trn-job")
    claims = found.to_json()["Outputs"]["Claims"]["Value"]
    assert text(claims) in text(found.find_resources("Custom::TrnOwnedObjects"))
    assert (read.shared_dir, read.mount_dirs) == ("/efs", ("/efs",))
    assert [(f.queue, f.instance_type, f.nodes, f.efa) for f in read.fleets] == [("trn", "trn1.32xlarge", 2, 8)]
    assert read.endpoint == ("private" if build is of_ours else "public")
    assert read.access_role == UNKNOWN
    assert read.image.startswith("public.ecr.aws/neuron/")


def test_a_cluster_of_ours_is_closed_and_encrypted() -> None:
    def build(scope: Stack) -> None:
        mine = TrnEksCluster(
            scope, "Cluster", vpc=vpc(scope), control_plane={"endpoint": "public", "public_cidrs": ["203.0.113.0/24"]}
        )
        nodes = NodeGroup(custom_ami="ami-0123456789abcdef0")
        TrnNodeGroup(scope, "Trn", cluster=mine, nodes=nodes, service_cidr="172.20.0.0/16")

    found = template(build)
    given = only(found, "EKS::Cluster")
    assert given["Name"] == "Foreign-Cluster" + given["Name"][15:]
    assert given["ResourcesVpcConfig"]["PublicAccessCidrs"] == ["203.0.113.0/24"]
    assert given["EncryptionConfig"]
    assert [s["Ref"][:16] for s in given["ResourcesVpcConfig"]["SubnetIds"]] == ["VpcPrivateSubnet"] * 2
    [group] = resources(found, "EKS::Nodegroup")
    assert next(iter(resources(found, "EKS::Cluster"))) in needs(found, group)
    assert findings(found) == []


def test_additions_to_the_cluster_wait_for_its_endpoint() -> None:
    def build(scope: Stack) -> None:
        mine = TrnEksCluster(scope, "Cluster", vpc=vpc(scope)).cluster
        mine.add_manifest("Theirs", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}})
        mine.add_helm_chart("Chart", chart="theirs", repository="https://charts.example.com")

    found = template(build)
    assert findings(found) == []
    [deployer] = (k for k in resources(found, "EKS::AccessEntry") if "Deployer" in k)
    required = {*resources(found, "EC2::Route"), *resources(found, "EC2::SecurityGroupIngress"), deployer}
    for kind in ("KubernetesResource", "HelmChart"):
        [added] = found.find_resources(f"Custom::AWSCDK-EKS-{kind}")
        assert required <= needs(found, added), kind
    # the function with the network interfaces does not wait for the cluster, which takes ten minutes
    [handler] = (k for k in resources(found, "Lambda::Function") if "Handler" in k)
    assert not set(resources(found, "EKS::Cluster")) & needs(found, handler)


def text(value: Any) -> str:
    """JSON as CloudFormation sends it, with 40 characters for each generated name."""
    if isinstance(value, dict) and "Fn::Join" in value:
        return "".join(part if isinstance(part, str) else text(part) for part in value["Fn::Join"][1])
    if isinstance(value, dict) and next(iter(value), "") in {"Ref", "Fn::GetAtt"}:
        return "x" * 40
    if isinstance(value, dict):
        return "{" + ",".join(f'"{key}":{text(each)}' for key, each in value.items()) + "}"
    return "[" + ",".join(map(text, value)) + "]" if isinstance(value, list) else json.dumps(value)


def of_groups(scope: Stack, number: int, name: str = "group") -> None:
    mine = cluster(scope, kubectl=True)
    groups = [
        TrnNodeGroup.from_nodegroup_attributes(
            cluster=mine,
            nodegroup_name=f"{name}-{i}".ljust(50, "x"),
            nodes=NodeGroup(name=f"{name}-{i}", max_nodes=4),
        )
        for i in range(number)
    ]
    TrnScaler(scope, "Scaler", cluster=mine, node_groups=groups, plugins=TrnPlugins(scope, "P", cluster=mine, node_groups=groups))  # fmt: skip


def test_fifty_groups_fit_the_limits_of_iam_and_lambda() -> None:
    found = template(lambda scope: of_groups(scope, 50))
    policies = resources(found, "IAM::ManagedPolicy")
    assert max(len(text(p["Properties"]["PolicyDocument"])) for p in policies.values()) <= 6144
    [role] = (r for key, r in resources(found, "IAM::Role").items() if key.startswith("ScalerRole"))
    attached = [p for p in policies.values() if "ScalerRole" in str(p["Properties"].get("Roles"))]
    assert len(role["Properties"]["ManagedPolicyArns"]) + len(attached) <= 10
    changed = json.dumps([p["Properties"]["PolicyDocument"] for p in policies.values() if "SetDesired" in str(p)])
    assert all(f"/eks-group-{i}" in changed for i in range(50))
    [function] = (f for f in properties(found, "Lambda::Function") if "SETTINGS" in str(f.get("Environment")))
    assert len("SETTINGS" + text(function["Environment"]["Variables"]["SETTINGS"])) <= 4096


def test_more_groups_than_the_scaler_has_room_for() -> None:
    with pytest.raises(ValueError, match=r"Foreign/Scaler: node_groups: .* are 4,343 characters .* fewer node groups"):
        template(lambda scope: of_groups(scope, 50, "a-long-name-of-a-group"))


def test_impossible_clusters_are_refused_with_the_fix() -> None:
    def without_kubectl(scope: Stack) -> None:
        TrnPlugins(scope, "P", cluster=cluster(scope), node_groups=[])

    def without_role(scope: Stack, **role: str) -> None:
        imported = eks_v1.Cluster.from_cluster_attributes(
            scope, "V1", cluster_name="theirs", vpc=vpc(scope), cluster_security_group_id="sg-0123456789abcdef0", **role
        )
        TrnPlugins(scope, "P", cluster=imported, node_groups=[])

    def without_layer(scope: Stack) -> None:
        without_role(scope, kubectl_role_arn="arn:aws:iam::111122223333:role/Kubectl")

    def without_storage(scope: Stack) -> None:
        mine = cluster(scope)
        TrnOutputs(scope, "O", cluster=mine, node_groups=[TrnNodeGroup(scope, "T", cluster=mine)], bucket=TrnBucket(scope, "B").bucket)  # fmt: skip

    def one_subnet(scope: Stack) -> None:
        TrnEksCluster(scope, "C", vpc=ec2.Vpc(scope, "Vpc", max_azs=1))

    def twice(scope: Stack) -> None:
        mine = cluster(scope, kubectl=True)
        for id in ("P", "Q"):
            TrnPlugins(scope, id, cluster=mine, node_groups=[])

    def ipv6(scope: Stack) -> None:
        within = ec2.Vpc(scope, "Vpc", ip_protocol=ec2.IpProtocol.DUAL_STACK)
        TrnAddons(scope, "A", cluster=eks.Cluster(scope, "C", version=eks.KubernetesVersion.V1_33, vpc=within, ip_family=eks.IpFamily.IP_V6))  # fmt: skip

    def imported_twice(scope: Stack) -> None:
        """Two stacks of one app, each with its own import of one cluster."""
        other = Stack(scope.node.root, "Other", env=Environment(account=scope.account, region=scope.region))
        for stack in (scope, other):
            imported = eks_v1.Cluster.from_cluster_attributes(
                stack,
                "Theirs",
                cluster_name="theirs",
                vpc=vpc(stack),
                cluster_security_group_id="sg-0123456789abcdef0",
                kubectl_role_arn="arn:aws:iam::111122223333:role/Kubectl",
                kubectl_layer=KubectlV35Layer(stack, "Layer"),
            )
            TrnPlugins(stack, "P", cluster=imported, node_groups=[])

    def config_map(scope: Stack) -> None:
        mine = cluster_v1(scope, vpc(scope), authentication_mode=None)
        group = TrnNodeGroup(scope, "T", cluster=mine)
        TrnScaler(scope, "S", cluster=mine, node_groups=[group], plugins=TrnPlugins(scope, "P", cluster=mine, node_groups=[group]))  # fmt: skip

    def config_map_users(scope: Stack) -> None:
        mine = cluster_v1(scope, vpc(scope), authentication_mode=eks_v1.AuthenticationMode.CONFIG_MAP)
        plugins = TrnPlugins(scope, "P", cluster=mine, node_groups=[])
        plugins.grant_access("Users", "arn:aws:iam::111122223333:role/Users", "edit")

    for build, expected in (
        (imported_twice, "Other/P: the cluster has a TrnPlugins already, Foreign/P"),
        (config_map, "Foreign/S: the cluster Foreign/.* from a ConfigMap alone .*API_AND_CONFIG_MAP"),
        (config_map_users, "Foreign/P: the cluster Foreign/.* from a ConfigMap alone"),
        (twice, "Foreign/Q: the cluster has a TrnPlugins already, Foreign/P, and both would install the same"),
        (ipv6, "Foreign/A: the cluster's pods have IPv6 addresses, .*ip_family is IP_V4"),
        (without_kubectl, "no kubectl provider.*kubectl_provider_options"),
        (without_role, "no role for kubectl.*kubectl_role_arn and kubectl_layer"),
        (without_layer, "no layer for kubectl.*kubectl_role_arn and kubectl_layer"),
        (without_storage, "shared file system: give node_groups"),
        (one_subnet, "subnets in two zones, but got 1"),
    ):
        with pytest.raises(ValueError, match=expected):
            template(build)


def test_what_a_cluster_has_already_gets_our_queues_and_is_not_installed_again() -> None:
    def build(scope: Stack) -> None:
        mine = cluster(scope, kubectl=True)
        group = TrnNodeGroup(scope, "T", cluster=mine)
        existing = ("jobset", "kueue", "provisioning-requests", "neuron")
        TrnPlugins(scope, "P", cluster=mine, node_groups=[group], existing=existing)

    found = template(build)
    charts = found.find_resources("Custom::AWSCDK-EKS-HelmChart")
    assert [c["Properties"]["Release"] for c in charts.values()] == ["efa"]
    applied = {k: str(o) for k, o in found.find_resources("Custom::AWSCDK-EKS-KubernetesResource").items()}
    assert not [key for key, text in applied.items() if "CustomResourceDefinition" in text]
    [queues] = [key for key, text in applied.items() if '"kind":"ClusterQueue"' in text]
    [base] = [key for key, text in applied.items() if '"kind":"Namespace"' in text]
    assert base in needs(found, queues)


def test_teams_have_namespaces_identities_and_groups_of_their_own() -> None:
    def build(scope: Stack) -> None:
        mine = cluster(scope, kubectl=True)
        group = TrnNodeGroup(scope, "T", cluster=mine, nodes=NodeGroup(max_nodes=8))
        queues = [TeamQueue(namespace="speech", nodes={"trn": 6})]
        plugins = TrnPlugins(scope, "P", cluster=mine, node_groups=[group], queues=queues)
        plugins.grant_access("Speech", "arn:aws:iam::111122223333:role/Speech", "edit", team="speech")

    found = template(build)
    [entry] = [e for e in properties(found, "EKS::AccessEntry") if str(e["PrincipalArn"]).endswith(":role/Speech")]
    assert entry["KubernetesGroups"] == ["trainium:edit:speech"]
    assert entry["AccessPolicies"][0]["AccessScope"] == {"Type": "namespace", "Namespaces": ["speech"]}
    identities = {(a["Namespace"], a["ServiceAccount"]) for a in properties(found, "EKS::PodIdentityAssociation")}
    assert identities >= {("training", "trn-job"), ("speech", "trn-job")}

    def too_many(scope: Stack) -> None:
        mine = cluster(scope, kubectl=True)
        group = TrnNodeGroup(scope, "T", cluster=mine, nodes=NodeGroup(max_nodes=4))
        queues = [TeamQueue(namespace="speech", nodes={"trn": 6})]
        TrnPlugins(scope, "P", cluster=mine, node_groups=[group], queues=queues)

    assert warnings(too_many) == ["queues[0].nodes.trn = 6: node group trn has at most 4 nodes: jobs would wait for others that never start. Fix: write at most 4, or raise max_nodes of the group. [ack: trn:queue-shares]"]  # fmt: skip


def test_a_cluster_of_ours_is_one_of_the_cdk() -> None:
    def build(scope: Stack) -> None:
        mine = TrnEksCluster(scope, "Cluster", vpc=vpc(scope))
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}}
        eks.KubernetesManifest(scope, "Theirs", cluster=mine, manifest=[space])
        eks.HelmChart(scope, "Chart", cluster=mine, chart="theirs", repository="https://charts.example.com")
        eks.Nodegroup(scope, "Nodes", cluster=mine, instance_types=[ec2.InstanceType("m5.large")])
        mine.add_service_account("Account", identity_type=eks.IdentityType.POD_IDENTITY)
        assert mine.vpc.node.path == "Foreign/Vpc"

    found = template(build)
    assert findings(found) == []
    [deployer] = (k for k in resources(found, "EKS::AccessEntry") if "Deployer" in k)
    for name in ("KubernetesResource", "HelmChart"):
        for made in found.find_resources(f"Custom::AWSCDK-EKS-{name}"):
            assert deployer in needs(found, made)
    [control_plane] = resources(found, "EKS::Cluster")
    [nodes] = resources(found, "EKS::Nodegroup")
    assert control_plane in needs(found, nodes)


@pytest.mark.parametrize(
    ("build", "path"),
    [
        (lambda s, mine: TrnEksCluster(s, "Cluster", vpc=mine.vpc), "Foreign/Cluster"),
        (lambda s, mine: TrnNodeGroup(s, "Trn", cluster=mine), "Foreign/Trn"),
        (lambda s, mine: TrnPlugins(s, "Plugins", cluster=mine, node_groups=[]), "Foreign/Plugins"),
        (
            lambda s, mine: TrnEks(s, "Training", cluster=mine, storage=TrnStorage(s, "S", vpc=mine.vpc)),
            "Foreign/Training",
        ),
    ],
)
def test_a_stack_that_takes_no_assets_names_the_construct(
    build: Callable[[Stack, eks.ICluster], object], path: str
) -> None:
    scope = Stack(app(), "Foreign", synthesizer=BootstraplessSynthesizer())
    provider = eks.KubectlProvider.from_kubectl_provider_attributes(
        scope, "Kubectl", service_token="arn:aws:lambda:us-west-2:111122223333:function:kubectl", role=iam.Role.from_role_name(scope, "R", "R")
    )  # fmt: skip
    mine = eks.Cluster.from_cluster_attributes(
        scope, "Theirs", cluster_name="theirs", vpc=ec2.Vpc(scope, "Given", max_azs=2), cluster_security_group_id="sg-0123456789abcdef0",
        kubectl_provider=provider,
    )  # fmt: skip
    with pytest.raises(RuntimeError, match=f"{path}.*: Cannot add assets"):
        build(scope, mine)


def test_who_may_submit() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        mine = cluster(scope, within=within, kubectl=True)
        queues = [TeamQueue(namespace="speech")]
        training = TrnEks(scope, "Trn", cluster=mine, storage=TrnStorage(scope, "S", vpc=within), queues=queues)
        training.grant_submit(iam.Role.from_role_name(scope, "One", "one"))
        training.grant_submit(iam.Role.from_role_name(scope, "Other", "other"), team="speech")

    found = template(build)
    assert findings(found) == []
    entries = {str(e.get("KubernetesGroups")) for e in properties(found, "EKS::AccessEntry")}
    assert {"['trainium:edit']", "['trainium:edit:speech']"} <= entries
    own = [p for p in properties(found, "IAM::ManagedPolicy") if "cloudformation:DescribeStacks" in str(p)]
    assert [p["Roles"] for p in own] == [["one"], ["other"]]
    for policy in own:
        assert "eks:DescribeCluster" in str(policy)
        assert "/jobs/*" in str(policy)
    [assuming] = [p for p in properties(found, "IAM::Policy") if "sts:AssumeRole" in str(p)]
    assert assuming["Roles"] == ["one"]


def test_a_role_of_another_account_gets_no_policy_of_a_role_with_its_name_here() -> None:
    def build(scope: Stack) -> None:
        within = vpc(scope)
        mine, storage = cluster(scope, within=within, kubectl=True), TrnStorage(scope, "S", vpc=within)
        training = TrnEks(scope, "Trn", cluster=mine, storage=storage, queues=[TeamQueue(namespace="speech")])
        people = iam.Role.from_role_arn(scope, "People", "arn:aws:iam::444455556666:role/People")
        for team in (None, "speech"):
            with pytest.raises(ValueError, match=r"People is of account 444455556666, .* make a role in 111122223333"):
                training.grant_submit(people, team=team)
        training.grant_submit(iam.Role(scope, "Own", assumed_by=people))  # as the message says

    found = template(build)
    [[role]] = (p["Roles"] for p in properties(found, "IAM::ManagedPolicy") if "DescribeStacks" in str(p))
    assert "444455556666" in str(resources(found, "IAM::Role")[role["Ref"]])


def test_one_principal_is_one_access_entry() -> None:
    """However often it is granted, and by whatever construct: EKS refuses a second entry."""
    arn = "arn:aws:iam::111122223333:role/Lead"

    def build(scope: Stack) -> None:
        within = vpc(scope)
        mine = TrnEksCluster(scope, "Cluster", vpc=within)
        queues = [TeamQueue(namespace="speech"), TeamQueue(namespace="vision")]
        training = TrnEks(scope, "Trn", cluster=mine, storage=TrnStorage(scope, "S", vpc=within), queues=queues)
        lead, own = (
            iam.Role.from_role_arn(scope, "Lead", arn),
            iam.Role(scope, "Own", assumed_by=iam.AccountRootPrincipal()),
        )
        for role in (lead, own):
            for team in ("speech", "vision", "speech"):
                training.grant_submit(role, team=team)
            mine.grant_access(f"Again{role.node.id}", role, "cluster-admin")
        training.plugins.grant_access("Text", arn, "view", team="vision")
        training.plugins.grant_access("Role", own.role_arn, "edit")
        assert training.scaler
        mine.grant_access("Scaler", training.scaler.function.role, "view")  # type: ignore[arg-type]

    found = template(build)
    assert findings(found) == []
    entries = properties(found, "EKS::AccessEntry")
    assert len({str(e["PrincipalArn"]) for e in entries}) == len(entries)

    def of(group: str) -> list[tuple[str, list[str], dict[str, list[str]]]]:
        return [
            (
                str(e["PrincipalArn"]),
                e["KubernetesGroups"],
                {str(p["PolicyArn"]).partition("AmazonEKS")[2].partition("'")[0]: p["AccessScope"].get("Namespaces", []) for p in e.get("AccessPolicies", [])},
            )
            for e in entries
            if group in e.get("KubernetesGroups", ())
        ]  # fmt: skip

    teams, both = ["trainium:edit:speech", "trainium:edit:vision"], ["speech", "vision"]
    [theirs, ours] = sorted(of("trainium:edit:vision"), key=lambda entry: entry[0] != arn)
    assert theirs == (
        arn,
        [*teams, "trainium:view:vision"],
        {"EditPolicy": both, "ClusterAdminPolicy": [], "ViewPolicy": ["vision"]},
    )
    assert ours[1:] == ([*teams, "trainium:edit"], {"EditPolicy": [*both, "training"], "ClusterAdminPolicy": []})
    assert [entry[1:] for entry in of("trainium:scaler")] == [
        (["trainium:scaler", "trainium:view"], {"ViewPolicy": ["training"]})
    ]
    own = [p for p in properties(found, "IAM::ManagedPolicy") if "cloudformation:DescribeStacks" in str(p)]
    assert len(own) == 2, "one policy of each role"

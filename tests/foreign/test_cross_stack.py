"""What belongs to another stack, or was imported with little: clusters, VPCs, route tables, buckets with keys, lists of parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import (
    BootstraplessSynthesizer,
    CfnParameter,
    Environment,
    Fn,
    NestedStack,
    PhysicalName,
    RemovalPolicy,
    Stack,
    Stage,
)
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations as AssertedAnnotations
from aws_cdk.assertions import Match, Template
from constructs import Construct

from tests.cdk import app, properties, resources
from tests.foreign.foreign import REGIONS, cluster, stack, template, vpc
from trainium_cdk import (
    TrnAddons,
    TrnBootstrap,
    TrnBucket,
    TrnEksCluster,
    TrnImageBuilder,
    TrnNodeGroup,
    TrnOutputs,
    TrnPcluster,
    TrnPeering,
    TrnPlugins,
    TrnRegistry,
    TrnScaler,
    TrnStorage,
    TrnSystemNodes,
    settings,
)
from trainium_cdk.client.cli.init import flags
from trainium_cdk.description.settings import Fsx, Peering


def imported_vpc(scope: Stack, **attributes: list[str]) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        scope, "Theirs", vpc_id="vpc-0123456789abcdef0", vpc_cidr_block="10.0.0.0/16",
        availability_zones=["us-west-2a", "us-west-2b"], private_subnet_ids=["subnet-1", "subnet-2"], **attributes,
    )  # fmt: skip


def scaled(scope: Stack, mine: eks.ICluster) -> None:
    group = TrnNodeGroup(scope, "Trn", cluster=mine)
    plugins = TrnPlugins(scope, "Plugins", cluster=mine, node_groups=[group])
    TrnScaler(scope, "Scaler", cluster=mine, node_groups=[group], plugins=plugins)


def api_rules(made: Template) -> list[dict[str, Any]]:
    return [r for r in properties(made, "EC2::SecurityGroupIngress") if r["Description"] == "Kubernetes API"]


def test_a_scaler_in_another_stack_than_the_cluster() -> None:
    made = app()
    theirs, ours = (Stack(made, name, env=REGIONS["us-west-2"]) for name in ("Theirs", "Ours"))
    mine = cluster(theirs, kubectl=True)
    scaled(ours, mine)
    rules = api_rules(Template.from_stack(ours))
    assert {(rule["FromPort"], rule["ToPort"]) for rule in rules} == {(443, 443)}
    assert all("Fn::ImportValue" in rule["GroupId"] for rule in rules)


def test_a_value_of_another_stack_cannot_change_while_it_is_used() -> None:
    """With the flags of our cdk.json: CloudFormation holds exports. A weak reference would keep the old value, and nobody would see it."""
    made = app(flags())
    theirs, ours = (Stack(made, name, env=REGIONS["us-west-2"]) for name in ("Theirs", "Ours"))
    storage = TrnStorage(theirs, "Storage", vpc=vpc(theirs))
    storage.allow_clients(ec2.SecurityGroup(ours, "Clients", vpc=vpc(ours)))
    text = json.dumps(Template.from_stack(ours).to_json())
    assert "Fn::ImportValue" in text
    assert "Fn::GetStackOutput" not in text


def test_a_scaler_of_an_imported_cluster() -> None:
    def build(scope: Stack) -> None:
        role = iam.Role.from_role_arn(scope, "Kubectl", "arn:aws:iam::111122223333:role/kubectl")
        function = "arn:aws:lambda:us-west-2:111122223333:function:kubectl"
        provider = eks.KubectlProvider.from_kubectl_provider_attributes(
            scope, "Provider", service_token=function, role=role
        )
        mine = eks.Cluster.from_cluster_attributes(
            scope, "Mine", cluster_name="theirs", vpc=imported_vpc(scope), kubectl_provider=provider,
            cluster_security_group_id="sg-0123456789abcdef0",
        )  # fmt: skip
        scaled(scope, mine)

    rules = api_rules(template(build))  # of the scaler, and of what removes objects
    assert {(rule["GroupId"], rule["FromPort"]) for rule in rules} == {("sg-0123456789abcdef0", 443)}


def test_stages_without_an_account_each_have_a_cluster_of_one_name() -> None:
    made = app()
    for name in ("Test", "Production"):
        stage = Stage(made, name)
        stacks = Stack(stage, "One"), Stack(stage, "Two")
        one, two = (eks.Cluster.from_cluster_attributes(each, "Mine", cluster_name="training") for each in stacks)
        TrnAddons(stacks[0], "Addons", cluster=one)
        with pytest.raises(ValueError, match=f"{name}/Two/Addons: the cluster has a TrnAddons already, {name}/One/Add"):
            TrnAddons(stacks[1], "Addons", cluster=two)


def test_a_peering_with_tokens() -> None:
    def build(scope: Stack) -> None:
        theirs = {name: Fn.import_value(name) for name in ("vpc", "table")}
        peer = Peering(vpc_id=theirs["vpc"], cidr=("10.9.0.0/16",))
        routed = peer.model_copy(update={"route_tables": (theirs["table"],)})
        TrnPeering(scope, "Peering", vpc=vpc(scope), peer=routed)
        TrnPeering(scope, "ByHand", vpc=ec2.Vpc(scope, "Second"), peer=peer)

    made = template(build)
    back = [r["Properties"]["RouteTableId"] for r in resources(made, "EC2::Route").values()]
    assert {"Fn::ImportValue": "table"} in back
    assert all(isinstance(each["Description"], str) for each in made.to_json()["Outputs"].values())


@pytest.mark.parametrize(
    ("attributes", "tables"),
    [
        ({"private_subnet_route_table_ids": ["rtb-1", "rtb-2"]}, ["rtb-1", "rtb-2"]),
        ({"private_subnet_route_table_ids": ["rtb-1", "rtb-1"]}, ["rtb-1"]),  # a second route would already exist
        ({}, []),
    ],
)
def test_a_peering_of_an_imported_vpc(attributes: dict[str, list[str]], tables: list[str]) -> None:
    peer = Peering(vpc_id="vpc-0123456789abcdef9", cidr=("10.9.0.0/16",))
    made = template(lambda scope: TrnPeering(scope, "P", vpc=imported_vpc(scope, **attributes), peer=peer))
    assert sorted(r["Properties"]["RouteTableId"] for r in resources(made, "EC2::Route").values()) == tables
    assert ("route tables are not known" in json.dumps(made.to_json().get("Outputs", {}))) is (not tables)


def test_a_bucket_with_a_key_is_used_with_its_key() -> None:
    def build(scope: Stack) -> None:
        bucket = s3.Bucket(scope, "Bucket", encryption=s3.BucketEncryption.KMS)
        network = vpc(scope)
        mine = cluster(scope, within=network, kubectl=True)
        group = TrnNodeGroup(scope, "Trn", cluster=mine)
        TrnPlugins(scope, "Plugins", cluster=mine, node_groups=[group], bucket=bucket)
        TrnImageBuilder(scope, "Images", bucket=bucket, repository=TrnRegistry(scope, "Registry").repository)
        scripts = TrnBootstrap(scope, "Scripts", bucket=bucket)
        TrnPcluster(scope, "Slurm", vpc=network, bootstrap=scripts).grant_bucket(bucket)

    made = template(build)
    policies = {**resources(made, "IAM::Policy"), **resources(made, "IAM::ManagedPolicy")}
    used = [name for name, policy in policies.items() if "kms:Decrypt" in json.dumps(policy)]
    for part in ("PluginsJob", "ImagesRole", "TrnNodeScripts", "SlurmNodePolicy", "SlurmHeadPolicy"):
        assert [name for name in used if name.startswith(part)], (part, used)


def test_a_selection_without_subnets_is_an_error() -> None:
    nowhere = ec2.SubnetSelection(availability_zones=["us-west-2d"])
    with pytest.raises(
        ValueError, match="Foreign/Vpc has no subnet in us-west-2d that the selection allows: give anoth"
    ):
        template(lambda scope: TrnStorage(scope, "S", vpc=vpc(scope), vpc_subnets=nowhere))
    with pytest.raises(ValueError, match="has no subnet in us-west-2d"):
        template(lambda scope: TrnNodeGroup(scope, "G", cluster=cluster(scope), vpc_subnets=nowhere))


def test_networks_of_a_parameter_may_reach_the_api() -> None:
    def build(scope: Stack) -> None:
        networks = CfnParameter(scope, "Networks", type="CommaDelimitedList")
        TrnEksCluster(
            scope, "Eks", vpc=vpc(scope), control_plane={"endpoint": "public", "public_cidrs": networks.value_as_list}
        )

    [made] = resources(template(build), "EKS::Cluster").values()
    assert made["Properties"]["ResourcesVpcConfig"]["PublicAccessCidrs"] == {"Ref": "Networks"}


def test_jobs_are_in_the_clusters_namespace() -> None:
    def build(scope: Stack) -> None:
        mine = TrnEksCluster(scope, "Eks", vpc=vpc(scope), control_plane=settings.ControlPlane(namespace="team-a"))
        assert (
            TrnPlugins(scope, "P", cluster=mine, node_groups=[TrnNodeGroup(scope, "G", cluster=mine)]).namespace
            == "team-a"
        )

    [job] = [r for r in properties(template(build), "EKS::PodIdentityAssociation") if r["ServiceAccount"] == "trn-job"]
    assert job["Namespace"] == "team-a"


@pytest.mark.parametrize("nodes", [TrnNodeGroup, TrnSystemNodes])
def test_a_role_of_the_users_own_may_mount(nodes: type[TrnNodeGroup | TrnSystemNodes]) -> None:
    def build(scope: Stack) -> None:
        network = vpc(scope)
        role = iam.Role(scope, "Own", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        for name in ("First", "Second"):
            mine = cluster(scope, name, within=network)
            nodes(scope, f"{name}Nodes", cluster=mine, storage=storage(scope, network), node_role=role)

    def storage(scope: Stack, network: ec2.IVpc) -> TrnStorage:
        found = scope.node.try_find_child("Storage")
        return found if isinstance(found, TrnStorage) else TrnStorage(scope, "Storage", vpc=network)

    [policy] = [r for r in properties(template(build), "IAM::Policy") if r["PolicyName"].startswith("Own")]
    assert json.dumps(policy).count("elasticfilesystem:ClientMount") == 1


def test_two_groups_of_system_nodes_keep_their_own_sizes() -> None:
    def build(scope: Stack) -> None:
        mine = cluster(scope)
        for name in ("A", "B"):
            TrnSystemNodes(scope, name, cluster=mine, name=name.lower())

    found = template(build)
    assert len({r["Properties"]["Group"] for r in found.find_resources("Custom::TrnNodeGroupSize").values()}) == 2
    assert len({r["Labels"]["trainium-cdk/node-group"] for r in properties(found, "EKS::Nodegroup")}) == 2


def test_clients_in_a_stack_that_uses_the_storage() -> None:
    """With Lustre there is no default port, which the CDK's own way from the clients' side needs."""
    made = app()
    theirs, ours = (Stack(made, name, env=REGIONS["us-west-2"]) for name in ("Data", "Compute"))
    network = vpc(theirs)
    storage = TrnStorage(theirs, "Storage", vpc=network, lustre=Fsx())
    client = ec2.SecurityGroup(ours, "Client", vpc=network, allow_all_outbound=False)
    storage.allow_clients(client)
    rules = properties(Template.from_stack(ours), "EC2::SecurityGroupIngress")
    assert {rule["FromPort"] for rule in rules} == {988, 1018, 2049}
    assert all("Fn::ImportValue" in rule["GroupId"] or "Client" in str(rule["GroupId"]) for rule in rules)


@pytest.mark.parametrize("policy", [RemovalPolicy.RETAIN, RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE])
def test_a_retained_lustre_file_system_keeps_what_its_interfaces_are_in(policy: RemovalPolicy) -> None:
    made = template(lambda scope: TrnStorage(scope, "S", vpc=vpc(scope), efs=None, lustre=Fsx(), removal_policy=policy))
    kept = {
        r["Type"].rpartition("::")[2]
        for r in made.to_json()["Resources"].values()
        if "Retain" in r.get("DeletionPolicy", "")
    }
    assert kept >= {"FileSystem", "VPC", "Subnet", "SecurityGroup"}


def test_arguments_that_would_be_ignored_are_errors() -> None:
    with pytest.raises(
        ValueError, match="Foreign/P: queue_subnets names 'tnr', which is not a queue; queues are compute1"
    ):
        template(
            lambda scope: TrnPcluster(scope, "P", vpc=(v := vpc(scope)), queue_subnets={"tnr": v.private_subnets[0]})
        )
    with pytest.raises(ValueError, match="addon_versions names aws-fsx-csi-driver"):
        template(
            lambda scope: TrnAddons(
                scope, "A", cluster=cluster(scope, kubectl=True), addon_versions={"aws-fsx-csi-driver": "v1.2.3"}
            )
        )
    public = ec2.SubnetConfiguration(name="P", subnet_type=ec2.SubnetType.PUBLIC)
    with pytest.raises(ValueError, match="Foreign/V has no private subnets, and nodes get no public address"):
        template(lambda scope: TrnPcluster(scope, "P", vpc=ec2.Vpc(scope, "V", subnet_configuration=[public])))


def test_a_role_customizing_app_has_no_role_to_change() -> None:
    def build(scope: Stack) -> None:
        iam.Role.customize_roles(scope)
        TrnBucket(scope, "Files")

    made = stack()
    build(made)
    assert resources(Template.from_stack(made), "S3::Bucket")


def test_a_bucket_of_another_account() -> None:
    made = app()
    theirs = Stack(made, "Data", env=Environment(account="111122223333", region="us-west-2"))
    ours = Stack(made, "Compute", env=Environment(account="444455556666", region="us-west-2"))
    key = kms.Key(theirs, "Key", alias="data")
    bucket = TrnBucket(theirs, "Bucket", bucket_name=PhysicalName.GENERATE_IF_NEEDED, encryption_key=key)
    role = iam.Role(
        ours,
        "Role",
        role_name=PhysicalName.GENERATE_IF_NEEDED,
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
    )
    bucket.grant_read_write(role)
    made = Template.from_stack(theirs)
    assert any("444455556666" in str(p) for p in properties(made, "S3::BucketPolicy"))
    [policy] = properties(made, "KMS::Key")
    assert "444455556666" in str(policy)


@pytest.mark.parametrize(
    "build",
    [lambda s, v: TrnEksCluster(s, "It", vpc=v), lambda s, v: TrnStorage(s, "It", vpc=v, lustre=Fsx())],
)
def test_a_network_of_public_subnets_alone(build: Callable[[Stack, ec2.IVpc], Any]) -> None:
    scope = stack()
    public = ec2.SubnetConfiguration(name="Public", subnet_type=ec2.SubnetType.PUBLIC)
    network = ec2.Vpc(scope, "Vpc", max_azs=2, nat_gateways=0, subnet_configuration=[public])
    with pytest.raises(
        ValueError, match="Foreign/Vpc has no private subnets, and nodes get no public address: add private"
    ):
        build(scope, network)


def test_an_imported_network_without_subnets() -> None:
    scope = stack()
    network = ec2.Vpc.from_vpc_attributes(scope, "Vpc", vpc_id="vpc-1", availability_zones=["us-west-2a"])
    with pytest.raises(ValueError, match=r"Foreign/Vpc has no private subnets.* give private_subnet_ids to Vpc.from_"):
        TrnStorage(scope, "It", vpc=network)


@pytest.mark.parametrize(
    ("build", "private", "endpoint", "warned"),
    [
        (lambda s, v: TrnEksCluster(s, "It", vpc=v), False, False, True),
        (lambda s, v: TrnPcluster(s, "It", vpc=v), False, False, True),
        (lambda s, v: TrnEksCluster(s, "It", vpc=v), False, True, False),
        (lambda s, v: TrnEksCluster(s, "It", vpc=v), True, False, False),
        (lambda s, v: TrnEksCluster(s, "It", vpc=v, vpc_subnets=isolated(v)), False, False, False),  # meant
        (lambda s, v: TrnStorage(s, "It", vpc=v), False, False, False),  # file systems reach nothing
    ],
)
def test_a_network_of_isolated_subnets_alone(
    build: Callable[[Stack, ec2.IVpc], Any], private: bool, endpoint: bool, warned: bool
) -> None:
    """A warning that can be acknowledged: the CDK does not know the endpoints of an imported VPC."""
    scope = stack()
    kind = ec2.SubnetType.PRIVATE_WITH_EGRESS if private else ec2.SubnetType.PRIVATE_ISOLATED
    names = [ec2.SubnetConfiguration(name="P", subnet_type=ec2.SubnetType.PUBLIC)] * private
    inner = ec2.SubnetConfiguration(name="Inner", subnet_type=kind)
    network = ec2.Vpc(scope, "Vpc", max_azs=2, subnet_configuration=[*names, inner])
    if endpoint:
        network.add_interface_endpoint("Ec2", service=ec2.InterfaceVpcEndpointAwsService.EC2)
    build(scope, network)
    found = AssertedAnnotations.from_stack(scope).find_warning(
        "*", Match.string_like_regexp("its subnets are isolated")
    )
    assert [each.id for each in found][:1] == ["/Foreign/Vpc"] * warned
    assert all("acknowledge this warning [ack: trn:isolated-subnets]" in str(each.entry.data) for each in found)


def isolated(vpc: ec2.IVpc) -> ec2.SubnetSelection:
    return ec2.SubnetSelection(subnets=vpc.isolated_subnets)


def test_a_construct_around_may_have_the_name_of_the_outputs() -> None:
    scope = stack()
    around = Construct(scope, "TrnOutputs")
    cluster = TrnPcluster(scope, "Slurm", vpc=vpc(scope))
    TrnOutputs(around, "Of", cluster=cluster, bucket=s3.Bucket(scope, "Bucket"))
    Template.from_stack(scope)


def test_outputs_of_a_nested_stack_are_refused() -> None:
    scope = stack()
    cluster, bucket = TrnPcluster(scope, "Slurm", vpc=vpc(scope)), s3.Bucket(scope, "Bucket")
    with pytest.raises(ValueError, match=r"Foreign/Inner/Outputs: .* Fix: make TrnOutputs in the parent stack"):
        TrnOutputs(NestedStack(scope, "Inner"), "Outputs", cluster=cluster, bucket=bucket)


def test_a_stack_without_assets_names_the_construct_and_keeps_no_half() -> None:
    scope = Stack(app(), "Foreign", synthesizer=BootstraplessSynthesizer())
    for id in ("First", "Second"):
        with pytest.raises(RuntimeError, match=f"Foreign/{id}.*Cannot add assets"):
            TrnBucket(scope, id)

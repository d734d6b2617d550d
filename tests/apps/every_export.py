"""A foreign CDK app that uses everything the package exports, for type checkers: `mypy --strict`, pyright."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_efs as efs
from aws_cdk import aws_eks as eks_v1
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk.lambda_layer_kubectl_v35 import KubectlV35Layer
from constructs import Construct

from trainium_cdk import (
    FileSystemMount,
    TrnAddons,
    TrnBastionHost,
    TrnBootstrap,
    TrnBucket,
    TrnEfaSecurityGroup,
    TrnEks,
    TrnEksCluster,
    TrnImageBuilder,
    TrnJobNotices,
    TrnKey,
    TrnNetwork,
    TrnNodeGroup,
    TrnNodeRole,
    TrnObservability,
    TrnOutputs,
    TrnPcluster,
    TrnPclusterProvider,
    TrnPcsCluster,
    TrnPeering,
    TrnPlugins,
    TrnRegistry,
    TrnScaler,
    TrnStorage,
    TrnSystemNodes,
    encrypt,
    encrypt_operations,
    settings,
)
from trainium_cdk.jobs import BertLarge, Script, TrnError, connect


def a_role(scope: Construct, id: str) -> iam.Role:
    service = iam.ServicePrincipal("ec2.amazonaws.com")
    return iam.Role(scope, id, assumed_by=service)  # pyright: ignore[reportArgumentType]  the CDK's own class and interface


class Training(Construct):
    """Everything for EKS, on a cluster of the CDK's or of the library's."""

    def __init__(
        self, scope: Construct, id: str, *, cluster: eks.ICluster | TrnEksCluster, vpc: ec2.IVpc, bucket: s3.IBucket
    ) -> None:
        super().__init__(scope, id)
        key = kms.Key(self, "Key")
        person = a_role(self, "Person")
        storage = TrnStorage(self, "Storage", vpc=vpc, efs=settings.Efs(backups=False), encryption_key=key)
        addons = TrnAddons(self, "Addons", cluster=cluster, storage=storage)
        system = TrnSystemNodes(self, "System", cluster=cluster, storage=storage, node_role=person)
        system.wait_for(addons.before_nodes)
        addons.run_on(system)
        role = TrnNodeRole(self, "Role", storage=storage)
        efa = TrnEfaSecurityGroup(self, "Efa", vpc=vpc)
        group = TrnNodeGroup(
            self,
            "Trn",
            cluster=cluster,
            nodes=settings.NodeGroup(instance_type="trn1.32xlarge", capacity_type="spot"),
            node_role=role.role,
            vpc_subnets=ec2.SubnetSelection(subnets=vpc.private_subnets[:1]),
            efa_security_group=efa.security_group,
            security_groups=[ec2.SecurityGroup(self, "More", vpc=vpc)],
            placement_group=ec2.PlacementGroup(self, "Place"),
            storage=storage,
        )
        group.connections.allow_from(ec2.Peer.ipv4("10.9.0.0/16"), ec2.Port.tcp(22))
        granted: iam.Grant = bucket.grant_read(group)
        assert granted.success
        plugins = TrnPlugins(
            self, "Plugins", cluster=cluster, node_groups=[group], storage=storage, system_nodes=[system], bucket=bucket
        )
        bucket.grant_read(plugins)
        plugins.grant_access("Users", person, "edit")
        plugins.grant_access("Others", "arn:aws:iam::111122223333:role/Others", "view")
        TrnScaler(
            self,
            "Scaler",
            cluster=cluster,
            node_groups=[group],
            plugins=plugins,
            scaling=settings.Scaling(idle_minutes=3),
        )
        registry = TrnRegistry(self, "Registry", removal_policy=cdk.RemovalPolicy.DESTROY, encryption_key=key)
        for pulling in (group, person, system, role):
            registry.grant_pull(pulling)
        builder = TrnImageBuilder(self, "Images", bucket=bucket, repository=registry.repository)
        host = TrnBastionHost(self, "Host", vpc=vpc, security_group=ec2.SecurityGroup(self, "HostGroup", vpc=vpc))
        storage.connections.allow_default_port_from(host)
        storage.connections.allow_default_port_from(ec2.BastionHostLinux(self, "Bastion", vpc=vpc))
        storage.grant_read_write(person)
        TrnOutputs(
            self,
            "Outputs",
            cluster=cluster,
            bucket=bucket,
            repository=registry.repository,
            node_groups=[group],
            image_builder=builder,
            bastion_host=host,
            access_role=person,
        )


app = cdk.App()
stack = cdk.Stack(app, "Kubernetes")
network = TrnNetwork(stack, "Network", removal_policy=cdk.RemovalPolicy.DESTROY)
files = TrnBucket(stack, "Files")
platform = a_role(stack, "Platform")
ours = TrnEksCluster(
    stack,
    "Ours",
    vpc=network.vpc,
    secrets_encryption_key=kms.Key(stack, "Secrets"),
    users=iam.ArnPrincipal("arn:aws:iam::111122223333:role/People"),
    control_plane=settings.ControlPlane(version=eks.KubernetesVersion.V1_34.version),
)
ours.connections.allow_default_port_from(TrnBastionHost(stack, "Host", vpc=network.vpc))
ours.grant_access("Platform", platform, "cluster-admin")
ours.grant_access("Others", "arn:aws:iam::111122223333:role/Others", "view")
Training(stack, "OnOurs", cluster=ours, vpc=network.vpc, bucket=files.bucket)

theirs = cdk.Stack(app, "Theirs")
vpc = ec2.Vpc(theirs, "Vpc", max_azs=2)
cluster = eks.Cluster(
    theirs,
    "Cluster",
    version=eks.KubernetesVersion.V1_33,
    vpc=vpc,
    kubectl_provider_options=eks.KubectlProviderOptions(kubectl_layer=KubectlV35Layer(theirs, "Kubectl")),
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
)
role = a_role(theirs, "Role")
group = TrnNodeGroup(theirs, "Trn", cluster=cluster, storage=TrnStorage(theirs, "Storage", vpc=vpc), node_role=role)
system = TrnSystemNodes(theirs, "System", cluster=cluster)
TrnAddons(theirs, "Addons", cluster=cluster).run_on(system)
bucket = s3.Bucket(theirs, "Bucket")
plugins = TrnPlugins(theirs, "Plugins", cluster=cluster, node_groups=[group], bucket=bucket)
TrnScaler(theirs, "Scaler", cluster=cluster, node_groups=[group], plugins=plugins)
images = ecr.Repository(theirs, "Images")
TrnImageBuilder(theirs, "Builder", bucket=bucket, repository=images)
TrnOutputs(theirs, "Outputs", cluster=cluster, node_groups=[group], bucket=bucket, repository=images, access_role=role)
older = eks_v1.Cluster(
    theirs,
    "Older",
    version=eks_v1.KubernetesVersion.V1_33,
    vpc=vpc,
    kubectl_layer=KubectlV35Layer(theirs, "OlderKubectl"),
    authentication_mode=eks_v1.AuthenticationMode.API,
    default_capacity=0,
)
TrnNodeGroup(theirs, "OlderTrn", cluster=older)
imported = eks.Cluster.from_cluster_attributes(
    theirs, "Imported", cluster_name="theirs", vpc=vpc, cluster_security_group_id="sg-0123456789abcdef0"
)
TrnNodeGroup(theirs, "ImportedTrn", cluster=imported)

facade = cdk.Stack(app, "Facade")
network = TrnNetwork(facade, "Network")
mine = TrnEksCluster(facade, "Cluster", vpc=network.vpc, control_plane=settings.ControlPlane(namespace="research"))
training = TrnEks(
    facade,
    "Trn",
    cluster=mine,
    storage=TrnStorage(facade, "Storage", vpc=network.vpc),
    node_groups=[settings.NodeGroup(max_nodes=4)],
    system=settings.SystemNodes(instance_type="m6i.large"),
)
training.grant_submit(a_role(facade, "User"))
s3.Bucket(facade, "Corpus").grant_read(training.plugins)

slurm = cdk.Stack(app, "Slurm")
network = TrnNetwork(slurm, "Network")
shared = TrnStorage(
    slurm,
    "Storage",
    vpc=network.vpc,
    efs=efs.FileSystem(slurm, "Efs", vpc=network.vpc),
    lustre=settings.Fsx(
        deployment="PERSISTENT_2",
        capacity_gib=2400,
        s3_links=(settings.DataRepository(uri=s3.Bucket(slurm, "Corpus").s3_url_for_object("train")),),
    ),
)
mounts: list[FileSystemMount] = list(shared.file_systems)
for mount in mounts:
    cdk.CfnOutput(slurm, f"{mount.kind.title()}Id", value=mount.id)
jobs = TrnBucket(slurm, "Jobs")
pcluster = TrnPcluster(
    slurm,
    "Cluster",
    vpc=network.vpc,
    storage=shared,
    bootstrap=TrnBootstrap(
        slurm,
        "Bootstrap",
        bucket=jobs.bucket,
        mount_dirs=["/efs", "/fsx"],
        bootstrap=settings.Bootstrap(framework="torch-xla"),
    ),
    queues=[
        settings.Queue.of("trn1.2xlarge", 4, name="small"),
        settings.Queue(name="large"),
    ],
)
jobs.grant_read_write(pcluster)
TrnPclusterProvider(slurm, "Provider")
TrnPcluster(slurm, "OnEfs", vpc=network.vpc, storage=efs.FileSystem(slurm, "Own", vpc=network.vpc))
fast = fsx.LustreFileSystem.from_lustre_file_system_attributes(
    slurm,
    "Fast",
    dns_name="fast.example.com",
    file_system_id="fs-0123456789abcdef0",
    security_group=ec2.SecurityGroup(slurm, "FastGroup", vpc=network.vpc),
)
lustre = TrnStorage(slurm, "FastStorage", vpc=network.vpc, efs=None, lustre=fast, lustre_mount_name="fsxabcde")
TrnPcluster(slurm, "OnLustre", vpc=network.vpc, storage=lustre, head_node_subnet=network.public_subnet())
TrnPeering(
    slurm,
    "Peering",
    vpc=network.vpc,
    peer=settings.Peering(
        vpc_id="vpc-0123456789abcdef0",
        cidr=("10.1.0.0/16",),
        account="111122223333",
        accepter_role=a_role(slurm, "Accepter").role_arn,
    ),
)
TrnOutputs(slurm, "Outputs", cluster=pcluster, bucket=jobs.bucket)
watched = TrnObservability(slurm, "Watched", cluster=pcluster, storage=shared)
watched.grant_write(a_role(slurm, "Sender"))
if watched.log_group:
    TrnJobNotices(slurm, "Notices", log_group=watched.log_group, topic=sns.Topic(slurm, "Topic"))
pcs = TrnPcsCluster(slurm, "Pcs", vpc=network.vpc, storage=efs.FileSystem(slurm, "OfPcs", vpc=network.vpc))
jobs.grant_read_write(pcs)
logs = TrnKey(theirs, "LogsKey", description="Logs", grants=False)
encrypt_operations(theirs, logs.key)
own = TrnKey(slurm, "Key", description="Data", removal_policy=cdk.RemovalPolicy.RETAIN)
encrypt(slurm, own.key, users=[pcluster])
app.synth()


def train(name: str) -> bool:
    """Submit two jobs to a stack and wait for them."""
    try:
        backend = connect(name, "us-west-2")
        first = backend.submit(BertLarge(nodes=2))
        second = backend.submit(Script(filename="run.sh", content=b"#!/bin/bash", nodes=1))
        return all(backend.wait(job.id).ok for job in (first, second))
    except TrnError as e:
        print(e)
        return False

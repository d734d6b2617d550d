"""`TrnEksStack`: a complete Kubernetes cluster, from the VPC to the jobs' queues."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk._cdk.default_environment import default_environment
from trainium_cdk._cdk.removal import removal_policy
from trainium_cdk._cdk.stack_functions import place_functions
from trainium_cdk.bucket import TrnBucket
from trainium_cdk.efa import TrnEfaSecurityGroup
from trainium_cdk.eks.addons import TrnAddons
from trainium_cdk.eks.bastion_host import TrnBastionHost
from trainium_cdk.eks.cluster import TrnEksCluster
from trainium_cdk.eks.images import TrnImageBuilder
from trainium_cdk.eks.node_group import TrnNodeGroup
from trainium_cdk.eks.node_role import TrnNodeRole
from trainium_cdk.eks.plugins import TrnPlugins
from trainium_cdk.eks.scaling import TrnScaler
from trainium_cdk.eks.system_nodes import TrnSystemNodes
from trainium_cdk.hardening.encryption import encrypt, encrypt_operations, stack_key
from trainium_cdk.hardening.failed_calls import TrnFailedCalls
from trainium_cdk.hardening.managed_policies import manage_policies
from trainium_cdk.network import TrnNetwork
from trainium_cdk.observability import TrnObservability
from trainium_cdk.outputs import claim_of, eks_outputs, next_step
from trainium_cdk.outputs.contract import JOB_FILES, KEPT_DAYS
from trainium_cdk.registry import TrnRegistry
from trainium_cdk.settings import Environment
from trainium_cdk.settings.inventory import inventory
from trainium_cdk.storage import TrnStorage


class TrnEksStack(Stack):
    """An EKS cluster with Trainium node groups, and everything it needs.

    Example:
        stack = TrnEksStack(app, "Training")
        stack.bucket.grant_read(role)
        ec2.SecurityGroup(stack, "Mine", vpc=stack.vpc)

    Args:
        environment: what to build. Default: the defaults of this engine, in the stack's region. Its tags go on every resource.
        kwargs: of a Stack of the CDK.

    Raises:
        SettingsError: without an environment, in a region that does not offer what the defaults need.
    """

    vpc: ec2.IVpc
    """The VPC, for instances, functions and databases of yours."""
    cluster: TrnEksCluster
    """The cluster. Its methods grant access, and its attributes name its parts."""
    storage: TrnStorage
    """The file systems that all nodes mount."""
    bucket: s3.IBucket
    """The bucket for the jobs' files, which other principals can be granted access to."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment | None = None, **kwargs: Any):
        environment = environment or default_environment(scope, "eks", kwargs.get("env"))
        kwargs.setdefault("description", f"Trainium on EKS: cluster {environment.eks_cluster_name} (trainium-cdk)")
        super().__init__(scope, id, tags={**environment.tags, **kwargs.pop("tags", {})}, **kwargs)
        name, on_destroy, eks = environment.name, environment.on_destroy, environment.eks
        zones = inventory(environment, "eks").zone_ids
        data_key = stack_key(
            self, environment.encryption, description=f"Data of {name}", auto_scaling=True, on_destroy=on_destroy
        )
        network = TrnNetwork(
            self,
            "Network",
            network=environment.network.model_copy(update={"zone_ids": zones}),
            name=name,
            removal_policy=removal_policy(on_destroy),
            rules=False,  # the whole environment is checked
        )
        storage = TrnStorage(
            self,
            "Storage",
            vpc=network.vpc,
            vpc_subnets=ec2.SubnetSelection(subnets=[network.private_subnet(zone) for zone in zones]),
            efs=environment.storage.efs,
            lustre=environment.storage.fsx,
            removal_policy=removal_policy(on_destroy),
            rules=False,
        )
        bucket = TrnBucket(
            self,
            "Files",
            expiration={at: Duration.days(days) for at, days in KEPT_DAYS.items() if at.startswith(JOB_FILES)},
            removal_policy=removal_policy(on_destroy),
        ).bucket
        cluster = TrnEksCluster.from_settings(
            self, "Cluster", environment=environment, network=network, encryption_key=data_key
        )
        addons = TrnAddons.from_settings(self, "Addons", environment=environment, cluster=cluster, storage=storage)
        efa = TrnEfaSecurityGroup(self, "Efa", vpc=network.vpc)
        caches, after = [*eks.mirror.images.values()], [addons.before_nodes]
        role = TrnNodeRole(self, "Nodes", storage=storage, pull_through_caches=caches)
        system = TrnSystemNodes.from_settings(
            self,
            "System",
            environment=environment,
            cluster=cluster,
            network=network,
            storage=storage,
            role=role,
            after=after,
        )
        addons.run_on(system)
        groups = [
            TrnNodeGroup.from_settings(
                self,
                f"Group{group.name}",
                environment=environment,
                settings=group,
                cluster=cluster,
                network=network,
                storage=storage,
                role=role,
                efa_group=efa.security_group,
                after=after,
            )
            for group in eks.node_groups
        ]
        plugins = TrnPlugins.from_settings(
            self,
            "Plugins",
            environment=environment,
            cluster=cluster,
            node_groups=groups,
            system_nodes=system,
            storage=storage,
            bucket=bucket,
        )
        if eks.plugins.autoscaler:
            TrnScaler.from_settings(
                self,
                "Scaler",
                environment=environment,
                cluster=cluster,
                network=network,
                node_groups=groups,
                plugins=plugins,
            )
        TrnObservability.from_settings(self, "Observability", environment=environment, engine="eks", storage=storage)
        builder = bastion_host = None
        registry = (
            TrnRegistry(self, "Registry", registry=environment.registry, removal_policy=removal_policy(on_destroy))
            if environment.registry.enabled
            else None
        )
        if registry:
            builder = TrnImageBuilder(
                self,
                "Images",
                bucket=bucket,
                repository=registry.repository,
                removal_policy=removal_policy(on_destroy),
            )
        if eks.endpoint == "private" and eks.bastion_host:
            bastion_host = TrnBastionHost.from_settings(
                self,
                "BastionHost",
                eks.bastion_host,
                network=network,
                security_group=cluster.client_group,
                name=f"{name}-bastion-host",
            )
        failed = TrnFailedCalls(self, "Functions", encryption_key=data_key or cluster.key)
        # in the VPC, as the CDK's functions for Kubernetes are: a deletion waits for their network interfaces anyway
        place_functions(failed, network.vpc)
        if data_key:
            encrypt(self, data_key, users=[plugins.role, *([builder.role] if builder else [])])
        else:
            encrypt_operations(self, cluster.key)
        manage_policies(self)
        self.vpc, self.cluster, self.storage, self.bucket = network.vpc, cluster, storage, bucket
        outputs = eks_outputs(
            environment,
            bucket=bucket.bucket_name,
            claims=[claim_of(mount.kind, mount.id, mount.mount_name) for mount in storage.file_systems],
            registry_uri=registry.uri if registry else "",
            build_project=builder.project_name if builder else "",
            bastion_host_id=bastion_host.instance_id if bastion_host else "",
            access_role=cluster.access_role.role_arn,
        )
        left = {
            "Stays": (plugins.stays, "Kubernetes objects that were taken out, but stay for now, and why; - if none")
        }
        for key, (value, description) in {**outputs, **left, **next_step(self.stack_name, environment.region)}.items():
            CfnOutput(self, key, value=value, description=description)

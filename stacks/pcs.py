"""`TrnPcsStack`: a complete Slurm cluster on AWS PCS, from the VPC to the jobs' bucket."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainium_cdk._cdk.default_environment import chosen_software, default_environment
from trainium_cdk._cdk.removal import removal_policy
from trainium_cdk._cdk.retention import RETENTION
from trainium_cdk.bootstrap import TrnBootstrap
from trainium_cdk.bucket import TrnBucket
from trainium_cdk.hardening.encryption import TrnKey, encrypt, encrypt_operations, stack_key
from trainium_cdk.hardening.failed_calls import TrnFailedCalls
from trainium_cdk.hardening.managed_policies import manage_policies
from trainium_cdk.network import TrnNetwork
from trainium_cdk.observability import TrnObservability
from trainium_cdk.outputs import next_step, pcs_outputs
from trainium_cdk.outputs.contract import KEPT_DAYS
from trainium_cdk.pcs.cluster import TrnPcsCluster
from trainium_cdk.registry import TrnRegistry
from trainium_cdk.settings import Environment
from trainium_cdk.settings.inventory import inventory
from trainium_cdk.settings.observability import metrics_group
from trainium_cdk.storage import TrnStorage


class TrnPcsStack(Stack):
    """A cluster of AWS PCS with Trainium queues, and everything it needs.

    Example:
        stack = TrnPcsStack(app, "Training")
        stack.bucket.grant_read(role)
        ec2.SecurityGroup(stack, "Mine", vpc=stack.vpc)

    Args:
        environment: what to build. Default: the defaults of this engine, in the stack's region. Its tags go on every resource, and on the cluster's nodes.
        kwargs: of a Stack of the CDK.

    Raises:
        SettingsError: without an environment, in a region that does not offer what the defaults need.
    """

    vpc: ec2.IVpc
    """The VPC, for instances, functions and databases of yours."""
    cluster: TrnPcsCluster
    """The cluster. Its methods grant access, and its attributes name its parts."""
    storage: TrnStorage
    """The file systems that all nodes mount."""
    bucket: s3.IBucket
    """The bucket for the jobs' files, which other principals can be granted access to."""

    def __init__(self, scope: Construct, id: str, *, environment: Environment | None = None, **kwargs: Any):
        environment = environment or default_environment(scope, "pcs", kwargs.get("env"))
        kwargs.setdefault(
            "description", f"Trainium on Slurm (AWS PCS): cluster {environment.pcs_cluster_name} (trainium-cdk)"
        )
        super().__init__(scope, id, tags={**environment.tags, **kwargs.pop("tags", {})}, **kwargs)
        name, on_destroy = environment.name, environment.on_destroy
        data_key = stack_key(
            self, environment.encryption, description=f"Data of {name}", pcs=True, on_destroy=on_destroy
        )
        zones = inventory(environment, "pcs").zone_ids
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
            vpc_subnets=ec2.SubnetSelection(subnets=network.private_subnets),
            efs=environment.storage.efs,
            lustre=environment.storage.fsx,
            removal_policy=removal_policy(on_destroy),
            rules=False,
        )
        bucket = TrnBucket(
            self,
            "Files",
            expiration={prefix: Duration.days(days) for prefix, days in KEPT_DAYS.items()},
            removal_policy=removal_policy(on_destroy),
        )
        registry = (
            TrnRegistry(self, "Registry", registry=environment.registry, removal_policy=removal_policy(on_destroy))
            if environment.registry.enabled
            else None
        )
        p, cluster_name = environment.pcs, environment.pcs_cluster_name
        bootstrap = TrnBootstrap(
            self,
            "Bootstrap",
            bucket=bucket.bucket,
            cluster=p,
            bootstrap=chosen_software(environment),
            mount_dirs=environment.storage.mount_dirs,
            network=environment.network,
            metrics_log_group=metrics_group(cluster_name) if environment.observability else None,
            parameter_name=f"/trainium/{cluster_name}/node-scripts",
            catalog=environment.catalog,
            rules=False,
        )
        private = network.private_subnet
        cluster = TrnPcsCluster(
            self,
            "Cluster",
            vpc=network.vpc,
            cluster_name=cluster_name,
            cluster=p,
            storage=storage,
            bootstrap=bootstrap,
            vpc_subnets=ec2.SubnetSelection(subnets=network.private_subnets),
            queue_subnets={q.name: private(q.zone_id) for q in p.queues} | {q.name: private() for q in p.cpu_queues},
            catalog=environment.catalog,
            rules=False,
        )
        cluster.grant_bucket(bucket.bucket)
        if shown := environment.observability:
            topic = shown.alarm_topic
            watched = TrnObservability(
                self,
                "Observability",
                cluster=cluster,
                alarm_topic=sns.Topic.from_topic_arn(self, "ObservabilityTopic", topic) if topic else None,
                log_retention=RETENTION[shown.log_days],
            )
            for role in (cluster.node_role, cluster.login_role):
                watched.grant_write(role)
        if registry:
            registry.grant_pull(cluster.node_role)
        own_key = (
            data_key
            or TrnKey(
                self, "LogsKey", description=f"Logs of {name}", grants=False, removal_policy=removal_policy(on_destroy)
            ).key
        )
        TrnFailedCalls(self, "Functions", encryption_key=own_key)
        if data_key:
            encrypt(self, data_key, users=[cluster.node_role, cluster.login_role, bootstrap.publisher])
        else:
            encrypt_operations(self, own_key)
        manage_policies(self)
        self.vpc, self.cluster, self.storage, self.bucket = network.vpc, cluster, storage, bucket.bucket
        outputs = pcs_outputs(
            environment,
            cluster_id=cluster.cluster_id,
            login_group_id=cluster.login_group_id,
            bucket=bucket.bucket.bucket_name,
            registry_uri=registry.uri if registry else "",
        )
        for key, (value, description) in {**outputs, **next_step(self.stack_name, environment.region)}.items():
            CfnOutput(self, key, value=value, description=description)

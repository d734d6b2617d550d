"""`TrnPcsStack`: a complete Slurm cluster on AWS PCS, from the VPC to the jobs' bucket."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk.cdk.hardening.encryption import stack_key
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.pcs.cluster import TrnPcsCluster
from trainium_cdk.cdk.storage import TrnStorage
from trainium_cdk.description.outputs import next_step, pcs_outputs
from trainium_cdk.description.settings import Environment
from trainium_cdk.description.settings.inventory import inventory
from trainium_cdk.stacks.parts import add_bucket, add_network, add_registry, add_storage, default_environment
from trainium_cdk.stacks.slurm import add_bootstrap, add_observability, harden


class TrnPcsStack(Stack):
    """A cluster of AWS PCS with Trainium queues, and everything it needs.

    Example:
        stack = TrnPcsStack(app, "Training")
        stack.bucket.grant_read(role)
        ec2.SecurityGroup(stack, "Mine", vpc=stack.vpc)

    Args:
        environment: what to build. Default: the defaults of this engine, in the stack's region. Every resource gets its tags, and the cluster's nodes.
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
        network = add_network(self, environment, inventory(environment, "pcs").zone_ids)
        storage = add_storage(self, environment, network.vpc, network.private_subnets)
        bucket = add_bucket(self, environment)
        registry = add_registry(self, environment)
        p, cluster_name = environment.pcs, environment.pcs_cluster_name
        bootstrap = add_bootstrap(self, environment, p, cluster_name, bucket)
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
        cluster.grant_bucket(bucket)
        add_observability(self, environment, cluster, [cluster.node_role, cluster.login_role])
        if registry:
            registry.grant_pull(cluster)
        cluster.grant_addresses(*environment.jobs.addresses.values())
        harden(
            self, environment, data_key, [cluster.job_role, cluster.node_role, cluster.login_role, bootstrap.publisher]
        )
        self.vpc, self.cluster, self.storage, self.bucket = network.vpc, cluster, storage, bucket
        outputs = pcs_outputs(
            environment,
            cluster_id=cluster.cluster_id,
            login_group_id=cluster.login_group_id,
            bucket=once(bucket, "bucket_name"),
            registry_uri=registry.uri if registry else "",
        )
        for key, (value, description) in {
            **outputs,
            **next_step(self.stack_name, environment.region, "pcs", on_destroy),
        }.items():
            CfnOutput(self, key, value=value, description=description)

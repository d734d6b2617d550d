"""`TrnPclusterProvider` and `TrnPcluster`: AWS ParallelCluster inside a CloudFormation stack."""

from __future__ import annotations

from aws_cdk import CfnStack, CustomResource, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct, IDependable

from trainium_cdk.bootstrap import TrnBootstrap
from trainium_cdk.network import TrnNetwork
from trainium_cdk.pcluster.config import NOBODY, ClusterIds, render
from trainium_cdk.pcluster.name import TrnClusterName
from trainium_cdk.settings import Environment, Problem, SettingsError
from trainium_cdk.storage import TrnStorage

POLICY_PATH = "/parallelcluster/"
"""The provider's role attaches customer policies of this path (or of names that begin so), and no others."""


class TrnPclusterProvider(Construct):
    """AWS's own provider of `Custom::PclusterCluster`, from the template it publishes for each region and release.

    One for each cluster: the function keeps answers of the last call in memory, and would mix clusters up. Deploying it needs
    CAPABILITY_NAMED_IAM and CAPABILITY_AUTO_EXPAND, which the CDK's command line always gives. Its log group is kept for 90 days
    by that template when the stack is destroyed.

    Args:
        environment: its ParallelCluster version, or the catalogue's; its function's role and policies (`pcluster.provider`).
    """

    def __init__(self, scope: Construct, id: str, *, environment: Environment):
        super().__init__(scope, id)
        stack, facts = Stack.of(self), environment.catalog.parallelcluster
        url = facts.provider_template.format(
            region=stack.region, suffix=stack.url_suffix, version=environment.pcluster.version or facts.default
        )
        provider = environment.pcluster.provider
        parameters = {"CustomLambdaRole": provider.role or "", "AdditionalIamPolicies": ",".join(provider.policies)}
        given = {name: value for name, value in parameters.items() if value}
        self.stack = CfnStack(self, "Resource", template_url=url, timeout_in_minutes=15, parameters=given or None)
        self.service_token = self.stack.get_att("Outputs.ServiceToken").to_string()


class TrnPcluster(Construct):
    """A Slurm cluster.

    Args:
        environment: what the cluster is to be.
        network: where it lives. The cluster waits until its nodes can reach the internet.
        storage: what every node mounts. Nodes become members of its group of clients; EFA traffic needs no group of ours, as
            ParallelCluster's own lets everything through between the nodes.
        bootstrap: what every node runs at its start.

    Raises:
        SettingsError: the cluster is named as the stack is.
        ValueError: the network has no subnet where one is asked for.
    """

    head_node_id: str
    """EC2 instance id of the head node."""
    head_node_private_ip: str
    head_node_public_ip: str | None
    """None for a head node in a private subnet."""
    node_policy: iam.ManagedPolicy
    """What every node may do beside ParallelCluster's own permissions: grant to it as to a role."""
    key_pair: ec2.CfnKeyPair | None
    """The key pair made here: for SSH, where the environment names none of its own."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        environment: Environment,
        network: TrnNetwork,
        storage: TrnStorage,
        bootstrap: TrnBootstrap,
    ):
        super().__init__(scope, id)
        _refuse_the_stacks_name(environment, Stack.of(self).stack_name)
        p = environment.pcluster
        # Whatever belongs to one cluster is below its name, so that another name makes another cluster: beside this one, on the
        # same file systems, with its own provider (of another release, perhaps), before this one goes.
        self._own = Construct(self, environment.cluster_name)
        self.provider = TrnPclusterProvider(self._own, "Provider", environment=environment)
        self.node_policy = iam.ManagedPolicy(
            self,
            "NodePolicy",
            path=POLICY_PATH,
            description="What the nodes of the cluster may do beside ParallelCluster's own permissions",
            statements=bootstrap.read_statements(),
        )
        self.key_pair = self._key_pair(environment)
        ids = ClusterIds(
            head_subnet=_subnet(network, p.head.subnet, None),
            login_subnet=_subnet(network, p.login_nodes.subnet, None) if p.login_nodes else None,
            queue_subnets={q.name: _subnet(network, "private", q.zone_id) for q in p.queues},
            entry_url=bootstrap.entry_url,
            scripts_url=bootstrap.scripts_url,
            pointer=bootstrap.pointer.parameter_name,
            policies=(
                f"arn:{Stack.of(self).partition}:iam::aws:policy/AmazonSSMManagedInstanceCore",
                self.node_policy.managed_policy_arn,
            ),
            security_groups=(storage.client_security_group.security_group_id,),
            head_security_groups=_database_clients(environment),
            efs_id=_file_system(storage, "efs"),
            fsx_id=_file_system(storage, "fsx"),
            key_name=self.key_pair.ref if self.key_pair else p.head.ssh.key_name if p.head.ssh else None,
            ssh_source=self._ssh_source(environment),
        )
        self.configuration = render(environment, ids)
        self._name = TrnClusterName(
            self._own, "Name", cluster_name=environment.cluster_name, on_destroy=environment.on_destroy
        )
        # No ServiceTimeout: CloudFormation hands it to the provider, which passes what it does not know on to ParallelCluster,
        # and that refuses it. ParallelCluster gives up by itself: on the head node after 55 minutes.
        self.resource = CustomResource(
            self._own,
            "Resource",
            service_token=self.provider.service_token,
            resource_type="Custom::PclusterCluster",
            removal_policy=RemovalPolicy.DESTROY,
            properties={
                "ClusterName": environment.cluster_name,
                "ClusterConfiguration": self.configuration,
                "DeletionPolicy": "Delete",
            },
        )
        self.resource.node.add_dependency(self._name)
        self.wait_for(network.internet_ready, storage.ready, bootstrap)
        self.head_node_id = self.resource.get_att_string("headNode.instanceId")
        self.head_node_private_ip = self.resource.get_att_string("headNode.privateIpAddress")
        public = p.head.subnet == "public"  # else the attribute does not exist, and asking for it fails the deployment
        self.head_node_public_ip = self.resource.get_att_string("headNode.publicIpAddress") if public else None

    def wait_for(self, *others: IDependable) -> None:
        """The cluster is made after these, and removed before them. Its name is claimed after them too, so that nothing that
        takes time lies between the claim and the cluster."""
        self._name.resource.node.add_dependency(*others)
        self.resource.node.add_dependency(*others)

    def grant_bucket(self, bucket: s3.IBucket) -> None:
        """Lets every node read and write a bucket's objects, and nothing else of it: ParallelCluster's own S3Access with write
        access allows every action."""
        self.node_policy.add_statements(
            iam.PolicyStatement(
                sid="BucketObjects",
                actions=["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"],
                resources=[bucket.arn_for_objects("*")],
            ),
            iam.PolicyStatement(sid="BucketList", actions=["s3:ListBucket"], resources=[bucket.bucket_arn]),
        )

    def _key_pair(self, environment: Environment) -> ec2.CfnKeyPair | None:
        ssh = environment.pcluster.head.ssh
        if ssh is None or ssh.key_name:
            return None
        return ec2.CfnKeyPair(self._own, "Key", key_name=environment.cluster_name, key_type="ed25519")

    def _ssh_source(self, environment: Environment) -> str:
        ssh = environment.pcluster.head.ssh
        if ssh is None:
            return NOBODY
        if len(ssh.from_cidrs) == 1:
            return ssh.from_cidrs[0]
        networks = ec2.CfnPrefixList(
            self,
            "SshSources",
            prefix_list_name=f"{environment.cluster_name}-ssh",
            address_family="IPv4",
            # in tens: EC2 does not change the size and the entries in one go
            max_entries=-(-len(ssh.from_cidrs) // 10) * 10,
            entries=[ec2.CfnPrefixList.EntryProperty(cidr=cidr) for cidr in ssh.from_cidrs],
        )
        return networks.attr_prefix_list_id


def _subnet(network: TrnNetwork, kind: str, zone_id: str | None) -> str:
    found = network.public_subnet(zone_id) if kind == "public" else network.private_subnet(zone_id)
    return found.subnet_id


def _file_system(storage: TrnStorage, kind: str) -> str | None:
    return next((f.id for f in storage.file_systems if f.kind == kind), None)


def _database_clients(environment: Environment) -> tuple[str, ...]:
    accounting = environment.pcluster.accounting
    return (accounting.client_security_group,) if accounting and accounting.client_security_group else ()


def _refuse_the_stacks_name(environment: Environment, stack_name: str) -> None:
    if environment.cluster_name == stack_name:
        raise SettingsError(
            [
                Problem(
                    ("pcluster", "cluster_name"),
                    stack_name,
                    "the stack has this name, and ParallelCluster makes a stack of the cluster's name",
                    f"write another name, as {stack_name}-slurm",
                )
            ],
            environment.source,
        )

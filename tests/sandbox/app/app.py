"""A small environment with every resource type that the sandbox emulates; context selects its content."""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_efs as efs
from aws_cdk import aws_fsx as fsx
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_assets as assets
from aws_cdk import aws_ssm as ssm
from constructs import Construct

GONE = cdk.RemovalPolicy.DESTROY


class Network(Construct):
    """One public and one private subnet in a zone given by id, with everything a real network has."""

    def __init__(self, scope: Construct, name: str, zone: str) -> None:
        super().__init__(scope, name)
        self.vpc = ec2.CfnVPC(
            self, "Vpc", cidr_block="10.20.0.0/16", enable_dns_hostnames=True, enable_dns_support=True
        )
        gateway = ec2.CfnInternetGateway(self, "Igw")
        attachment = ec2.CfnVPCGatewayAttachment(
            self, "IgwAttachment", vpc_id=self.vpc.ref, internet_gateway_id=gateway.ref
        )
        self.public = ec2.CfnSubnet(
            self, "Public", vpc_id=self.vpc.ref, cidr_block="10.20.0.0/24", availability_zone_id=zone,
            map_public_ip_on_launch=True,
        )  # fmt: skip
        self.private = ec2.CfnSubnet(
            self, "Private", vpc_id=self.vpc.ref, cidr_block="10.20.16.0/20", availability_zone_id=zone
        )
        address = ec2.CfnEIP(self, "NatAddress", domain="vpc")
        nat = ec2.CfnNatGateway(self, "Nat", subnet_id=self.public.ref, allocation_id=address.attr_allocation_id)
        tables = [ec2.CfnRouteTable(self, f"{kind}Routes", vpc_id=self.vpc.ref) for kind in ("Public", "Private")]
        out = ec2.CfnRoute(
            self, "Out", route_table_id=tables[0].ref, destination_cidr_block="0.0.0.0/0", gateway_id=gateway.ref
        )
        out.add_dependency(attachment)
        through = ec2.CfnRoute(
            self, "Through", route_table_id=tables[1].ref, destination_cidr_block="0.0.0.0/0", nat_gateway_id=nat.ref
        )
        self.ready = [
            out,
            through,
            *(
                ec2.CfnSubnetRouteTableAssociation(self, f"Use{n}", subnet_id=subnet.ref, route_table_id=table.ref)
                for n, (subnet, table) in enumerate(zip((self.public, self.private), tables, strict=True))
            ),
        ]
        ec2.CfnVPCEndpoint(
            self, "S3", vpc_id=self.vpc.ref, vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{cdk.Aws.REGION}.s3", route_table_ids=[table.ref for table in tables],
        )  # fmt: skip
        other = ec2.CfnVPC(self, "Other", cidr_block="10.99.0.0/16")
        peering = ec2.CfnVPCPeeringConnection(self, "Peering", vpc_id=self.vpc.ref, peer_vpc_id=other.ref)
        ec2.CfnRoute(
            self, "ToOther", route_table_id=tables[1].ref, destination_cidr_block="10.99.0.0/16",
            vpc_peering_connection_id=peering.ref,
        )  # fmt: skip
        group = logs.LogGroup(self, "FlowLogs", removal_policy=GONE, retention=logs.RetentionDays.ONE_WEEK)
        role = iam.Role(self, "FlowRole", assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com"))
        group.grant_write(role)
        ec2.CfnFlowLog(
            self, "FlowLog", resource_id=self.vpc.ref, resource_type="VPC", traffic_type="REJECT",
            log_group_name=group.log_group_name, deliver_logs_permission_arn=role.role_arn,
        )  # fmt: skip
        self.group = ec2.CfnSecurityGroup(self, "Group", vpc_id=self.vpc.ref, group_description="all among us")
        for number, rule in enumerate((ec2.CfnSecurityGroupIngress, ec2.CfnSecurityGroupEgress)):
            key = ("source_security_group_id", "destination_security_group_id")[number]
            rule(self, f"Among{number}", group_id=self.group.ref, ip_protocol="-1", **{key: self.group.ref})


class Storage(Construct):
    """EFS and FSx for Lustre linked to a bucket that empties itself."""

    def __init__(self, scope: Construct, name: str, network: Network, throughput: int) -> None:
        super().__init__(scope, name)
        self.bucket = s3.Bucket(
            self, "Data", removal_policy=GONE, auto_delete_objects=True, enforce_ssl=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
        )  # fmt: skip
        self.efs = efs.CfnFileSystem(
            self, "Efs", encrypted=True, backup_policy={"status": "DISABLED"},
            file_system_tags=[{"key": "Name", "value": "shared"}],
        )  # fmt: skip
        target = efs.CfnMountTarget(
            self, "Target", file_system_id=self.efs.ref, subnet_id=network.private.ref,
            security_groups=[network.group.ref],
        )  # fmt: skip
        self.fsx = fsx.CfnFileSystem(
            self, "Fsx", file_system_type="LUSTRE", storage_capacity=1200, subnet_ids=[network.private.ref],
            security_group_ids=[network.group.ref],
            lustre_configuration={"deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": throughput},
        )  # fmt: skip
        link = fsx.CfnDataRepositoryAssociation(
            self, "Link", file_system_id=self.fsx.ref, file_system_path="/data",
            data_repository_path=f"s3://{self.bucket.bucket_name}/data",
        )  # fmt: skip
        self.ready = [target, link]


class Cluster(Construct):
    """ParallelCluster by its CloudFormation provider, with the smallest useful configuration."""

    def __init__(self, scope: Construct, name: str, network: Network, storage: Storage) -> None:
        super().__init__(scope, name)
        context = self.node.try_get_context
        url = (
            f"https://{cdk.Aws.REGION}-aws-parallelcluster.s3.{cdk.Aws.REGION}.{cdk.Aws.URL_SUFFIX}"
            f"/parallelcluster/{context('version')}/templates/custom_resource/cluster.yaml"
        )
        provider = cdk.CfnStack(self, "Provider", template_url=url)
        key = ec2.CfnKeyPair(self, "Key", key_name="sandbox-test", key_type="ed25519")
        script = assets.Asset(self, "Script", path=__file__)
        storage_settings = [
            {"Name": "efs", "MountDir": "/shared", "StorageType": "Efs",
             "EfsSettings": {"FileSystemId": storage.efs.ref}},
            {"Name": "fsx", "MountDir": "/fsx", "StorageType": "FsxLustre",
             "FsxLustreSettings": {"FileSystemId": storage.fsx.ref}},
        ]  # fmt: skip
        configuration = {
            "Image": {"Os": context("os") or "ubuntu2204"},
            "HeadNode": {
                "InstanceType": context("head") or "c5.4xlarge",
                "Networking": {
                    "SubnetId": network.public.ref,
                    "AdditionalSecurityGroups": [network.group.ref],
                },
                "Ssh": {"KeyName": key.ref},
                "Iam": {"S3Access": [{"BucketName": script.s3_bucket_name}]},
                "CustomActions": {"OnNodeConfigured": {"Script": script.s3_object_url}},
            },
            "Scheduling": {
                "Scheduler": "slurm",
                "SlurmQueues": [
                    {
                        "Name": "compute1",
                        "Networking": {
                            "SubnetIds": [network.private.ref],
                            "AdditionalSecurityGroups": [network.group.ref],
                            "PlacementGroup": {"Enabled": True},
                        },
                        "ComputeResources": [
                            {
                                "Name": "trn1",
                                "InstanceType": context("type") or "trn1.32xlarge",
                                "MinCount": 0,
                                "MaxCount": int(context("nodes") or 4),
                                "Efa": {"Enabled": True},
                            }
                        ],
                    }
                ],
            },
            "SharedStorage": storage_settings,
            "Monitoring": {"Logs": {"CloudWatch": {"DeletionPolicy": "Delete"}}},
        }
        self.cluster = cdk.CfnCustomResource(
            self, "Cluster", service_token=provider.get_att("Outputs.ServiceToken").to_string()
        )
        self.cluster.add_override("Type", "Custom::PclusterCluster")
        self.cluster.add_property_override("ClusterName", context("name") or "trn")
        self.cluster.add_property_override("ClusterConfiguration", configuration)
        for before in (*network.ready, *storage.ready):
            self.cluster.add_dependency(before)


app = cdk.App()
context = app.node.try_get_context
stack = cdk.Stack(app, "SandboxTest", env=cdk.Environment(account="000000000000", region="us-east-1"))
network = Network(stack, "Network", context("zone") or "use1-az6")
storage = Storage(stack, "Storage", network, int(context("throughput") or 250))
ecr.Repository(stack, "Images", removal_policy=GONE, empty_on_delete=True)
ec2.CfnPlacementGroup(stack, "Placement", strategy="cluster")
ssm.StringParameter(stack, "Note", parameter_name="/sandbox-test/note", string_value=context("note") or "first")
iam.CfnInstanceProfile(
    stack, "Profile", roles=[iam.Role(stack, "Node", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")).role_name]
)  # fmt: skip
outputs = {"Bucket": storage.bucket.bucket_name, "Vpc": network.vpc.ref, "Lustre": storage.fsx.ref,
           "LustreMount": storage.fsx.attr_lustre_mount_name}  # fmt: skip
if context("cluster") != "no":
    cluster = Cluster(stack, "Pcluster", network, storage).cluster
    outputs["HeadNode"] = cluster.get_att("headNode.instanceId").to_string()
    outputs["HeadAddress"] = cluster.get_att("headNode.publicIpAddress").to_string()
for name, value in outputs.items():
    cdk.CfnOutput(stack, name, value=value)
app.synth()

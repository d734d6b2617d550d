"""A Slurm cluster (AWS ParallelCluster) in an existing VPC, with an existing EFS file system.

    cdk deploy --app "python examples/slurm_existing_efs.py" \\
        -c vpc=vpc-... -c public=subnet-... -c private=subnet-...,subnet-... -c efs=fs-... -c group=sg-...

Each partition gets a private subnet whose zone offers its type. The file system has a mount target in each of these
zones; `group` is their security group, which then lets the nodes in.
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs

from trainium_cdk import TrnBucket, TrnOutputs, TrnPcluster, settings

app = cdk.App()
stack = cdk.Stack(app, "ExampleSlurm")
given = {key: app.node.try_get_context(key) for key in ("vpc", "public", "private", "efs", "group")}

# Yours
vpc = ec2.Vpc.from_vpc_attributes(
    stack,
    "Vpc",
    vpc_id=given["vpc"] or "vpc-0123456789abcdef0",
    availability_zones=["us-east-1a"],  # not read: the zones of the subnets are looked up on deployment
    public_subnet_ids=[given["public"] or "subnet-0123456789abcdef0"],
    private_subnet_ids=(given["private"] or "subnet-0123456789abcdef1,subnet-0123456789abcdef2").split(","),
)
home = efs.FileSystem.from_file_system_attributes(
    stack,
    "Home",
    file_system_id=given["efs"] or "fs-0123456789abcdef0",
    security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", given["group"] or "sg-0123456789abcdef0"),
)

# Ours
bucket = TrnBucket(stack, "Jobs")
slurm = TrnPcluster(
    stack,
    "Slurm",
    vpc=vpc,
    storage=home,
    cluster_name="example-slurm",
    queues=[
        settings.Queue(name="large"),
        settings.Queue.of("trn1.2xlarge", name="small"),
    ],
)
bucket.grant_read_write(slurm)
TrnOutputs(stack, "Outputs", cluster=slurm, bucket=bucket.bucket)  # `trn submit --stack ExampleSlurm` works
app.synth()

"""A Slurm cluster on AWS PCS in an existing VPC, with an existing EFS file system.

    cdk deploy --app "python examples/pcs_cluster.py" \\
        -c vpc=vpc-... -c private=subnet-...,subnet-... -c efs=fs-... -c group=sg-...

Each partition gets a private subnet whose zone offers its type; the controller and the login node are in the first. The file
system has a mount target in each of these zones; `group` is their security group, which then lets the nodes in.
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs

from trainium_cdk import TrnBucket, TrnOutputs, TrnPcsCluster, settings

app = cdk.App()
stack = cdk.Stack(app, "ExamplePcs")
given = {key: app.node.try_get_context(key) for key in ("vpc", "private", "efs", "group")}

# Yours
vpc = ec2.Vpc.from_vpc_attributes(
    stack,
    "Vpc",
    vpc_id=given["vpc"] or "vpc-0123456789abcdef0",
    availability_zones=["us-east-1a"],  # not read: the zones of the subnets are looked up on deployment
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
slurm = TrnPcsCluster(
    stack,
    "Slurm",
    vpc=vpc,
    storage=home,
    cluster_name="example-pcs",
    queues=[
        settings.PcsQueue(name="large"),
        settings.PcsQueue.of("trn1.2xlarge", 4, name="small"),
    ],
)
slurm.grant_bucket(bucket.bucket)
TrnOutputs(stack, "Outputs", cluster=slurm, bucket=bucket.bucket)  # `trn submit --stack ExamplePcs` works
app.synth()

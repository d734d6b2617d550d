"""A Slurm cluster (AWS ParallelCluster) in an existing VPC, with an existing EFS file system.

cdk deploy --app "python examples/slurm_existing_efs.py"
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs

from trainium_cdk import TrnBucket, TrnOutputs, TrnPcluster, settings

app = cdk.App()
stack = cdk.Stack(app, "ExampleSlurm")

# Yours
vpc = ec2.Vpc(stack, "Vpc", max_azs=3, nat_gateways=1)
home = efs.FileSystem(stack, "Home", vpc=vpc, removal_policy=cdk.RemovalPolicy.DESTROY)

# Ours: two partitions, each in a zone that offers its type
bucket = TrnBucket(stack, "Jobs")
slurm = TrnPcluster(
    stack,
    "Slurm",
    vpc=vpc,
    storage=home,
    cluster_name="example-slurm",
    queues=[
        settings.Queue(name="large"),
        settings.Queue(name="small", compute_resources=(settings.ComputeResource(instance_type="trn1.2xlarge"),)),
    ],
)
bucket.grant_read_write(slurm)
TrnOutputs(stack, "Outputs", cluster=slurm, bucket=bucket.bucket)  # `trn submit --stack ExampleSlurm` works
app.synth()

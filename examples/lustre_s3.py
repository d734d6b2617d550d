"""FSx for Lustre that presents the objects of a bucket as files, and exports new files to it.

cdk deploy --app "python examples/lustre_s3.py"
"""

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3

from trainium_cdk import TrnStorage, settings

app = cdk.App()
stack = cdk.Stack(app, "ExampleLustre")

vpc = ec2.Vpc(stack, "Vpc", max_azs=2, nat_gateways=1)
corpus = s3.Bucket(stack, "Corpus", removal_policy=cdk.RemovalPolicy.DESTROY, enforce_ssl=True)

storage = TrnStorage(
    stack,
    "Storage",
    vpc=vpc,
    efs=None,
    lustre=settings.Fsx(
        deployment="PERSISTENT_2",
        capacity_gib=2400,
        throughput=250,
        s3_links=(
            settings.DataRepository(uri=corpus.s3_url_for_object("train"), directory="/corpus", auto_export=True),
        ),
    ),
)
image = ec2.MachineImage.latest_amazon_linux2023()
bastion = ec2.BastionHostLinux(stack, "Bastion", vpc=vpc, machine_image=image)
storage.connections.allow_default_port_from(bastion)
app.synth()

"""A CDK app of somebody else's, which uses the constructs and none of our stacks.

Context: zones (comma-separated zone ids), on_destroy (delete or keep).
"""

import aws_cdk as cdk

from trainium_cdk import TrnBucket, TrnEfaSecurityGroup, TrnNetwork, TrnRegistry, TrnStorage
from trainium_cdk import settings as trn

app = cdk.App()
stack = cdk.Stack(app, "Alone")  # no account and no region: wherever the credentials lead
zones = (app.node.try_get_context("zones") or "use1-az6").split(",")
keep = app.node.try_get_context("on_destroy") == "keep"
on_destroy = "keep" if keep else "delete"

network = TrnNetwork(
    stack,
    "Network",
    settings=trn.Network(interface_endpoints=("ssm", "dynamodb")),
    zone_ids=zones,
    on_destroy=on_destroy,
)
storage = TrnStorage(
    stack, "Storage", settings=trn.Storage(efs=trn.Efs(), fsx=trn.Fsx()), network=network, on_destroy=on_destroy
)
bucket = TrnBucket(stack, "Bucket", expire_days={"payloads/": 30}, on_destroy=on_destroy)
registry = TrnRegistry(stack, "Registry", on_destroy=on_destroy)
efa = TrnEfaSecurityGroup(stack, "Efa", vpc=network.vpc)

for name, value in {
    "Vpc": network.vpc.vpc_id,
    "Bucket": bucket.bucket.bucket_name,
    "Registry": registry.uri,
    "EfaGroup": efa.security_group.security_group_id,
    "Clients": storage.client_security_group.security_group_id,
    **{m.kind.title(): m.id for m in storage.file_systems},
}.items():
    cdk.CfnOutput(stack, f"{name}Out", value=value)
app.synth()

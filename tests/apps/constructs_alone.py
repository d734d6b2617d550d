"""A foreign CDK app, which uses the constructs and none of our stacks.

Context: zones (comma-separated zone ids), on_destroy (delete or keep).
"""

import aws_cdk as cdk

from trainium_cdk import TrnBucket, TrnEfaSecurityGroup, TrnNetwork, TrnRegistry, TrnStorage, settings

app = cdk.App()
stack = cdk.Stack(app, "Alone")  # no account and no region: wherever the credentials lead
zones = (app.node.try_get_context("zones") or "use1-az6").split(",")
keep = app.node.try_get_context("on_destroy") == "keep"
removal_policy = cdk.RemovalPolicy.RETAIN if keep else cdk.RemovalPolicy.DESTROY

network = TrnNetwork(
    stack,
    "Network",
    network=settings.Network(interface_endpoints=("ssm", "dynamodb"), zone_ids=tuple(zones)),
    removal_policy=removal_policy,
)
storage = TrnStorage(stack, "Storage", vpc=network.vpc, lustre=settings.Fsx(), removal_policy=removal_policy)
bucket = TrnBucket(stack, "Bucket", expiration={"payloads/": cdk.Duration.days(30)}, removal_policy=removal_policy)
registry = TrnRegistry(stack, "Registry", removal_policy=removal_policy)
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

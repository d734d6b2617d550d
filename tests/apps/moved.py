"""A foreign CDK app whose stack moves below a stage, as CDK Pipelines asks for. Context: stage."""

import aws_cdk as cdk

from trainium_cdk import TrnEfaSecurityGroup, TrnNetwork, TrnStorage, settings

app = cdk.App()
scope = cdk.Stage(app, "Prod") if app.node.try_get_context("stage") else app
stack = cdk.Stack(scope, "Data", stack_name="Moved")
network = TrnNetwork(stack, "Network", network=settings.Network(zone_ids=("use1-az6",), flow_logs=False))
storage = TrnStorage(stack, "Storage", vpc=network.vpc)
TrnEfaSecurityGroup(stack, "Efa", vpc=network.vpc)
cdk.CfnOutput(stack, "Efs", value=storage.file_systems[0].id)
app.synth()

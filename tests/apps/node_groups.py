"""A foreign CDK app with a cluster and both kinds of node groups. `change.json` beside its cdk.json has its name and place, and may have tags,
stack_tags, version, labels and max_nodes."""

import json
from pathlib import Path

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks

from trainium_cdk import TrnNodeGroup, TrnSystemNodes, settings

change = json.loads(Path("change.json").read_text())
app = cdk.App(builtin_cloud_formation_validation=False)
stack = cdk.Stack(app, "Groups", stack_name=change["name"], tags=change.get("stack_tags"))
subnet, zone = change["subnet"], change["zone"]
vpc = ec2.Vpc.from_vpc_attributes(
    stack, "Vpc", vpc_id=change["vpc"], availability_zones=[zone], private_subnet_ids=[subnet]
)
role = "arn:aws:iam::000000000000:role/cluster"
made = eks.CfnCluster(
    stack,
    "Cluster",
    name=change["name"],
    role_arn=role,
    resources_vpc_config=eks.CfnCluster.ResourcesVpcConfigProperty(subnet_ids=[subnet]),
)
cluster = eks.Cluster.from_cluster_attributes(
    stack, "Mine", cluster_name=made.ref, vpc=vpc, cluster_security_group_id=made.attr_cluster_security_group_id
)
nodes = settings.NodeGroup(
    instance_type="trn1.2xlarge", labels=change.get("labels", {}), max_nodes=change.get("max_nodes", 2)
)
version = change.get("version", "1.34")
TrnNodeGroup(stack, "Trn", cluster=cluster, nodes=nodes, version=version)
TrnSystemNodes(stack, "System", cluster=cluster, version=version)
for key, value in change.get("tags", {}).items():
    cdk.Tags.of(app).add(key, value)
app.synth()

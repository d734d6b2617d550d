"""A small EKS cluster as the CDK makes one: kubectl provider, node group, add-on, access entry, manifests, a chart."""

import pathlib

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as functions

app = cdk.App()
name = app.node.get_context("name")
stack = cdk.Stack(app, name, env=cdk.Environment(account="000000000000", region="us-east-1"))
vpc = ec2.Vpc(stack, "Vpc", availability_zones=["us-east-1a", "us-east-1b"], nat_gateways=0, subnet_configuration=[
    ec2.SubnetConfiguration(name="nodes", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED),
], restrict_default_security_group=False)  # fmt: skip

# The tools are found on the emulator's PATH: what a layer holds does not matter here.
empty = functions.Code.from_asset(str(pathlib.Path(__file__).parent))
layer = functions.LayerVersion(stack, "Tools", code=empty)
cluster = eks.Cluster(
    stack,
    "Cluster",
    cluster_name=name,
    version=eks.KubernetesVersion.V1_35,
    vpc=vpc,
    vpc_subnets=[ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)],
    default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
    default_capacity=0,
    endpoint_access=eks.EndpointAccess.PUBLIC_AND_PRIVATE,
    kubectl_provider_options=eks.KubectlProviderOptions(kubectl_layer=layer, awscli_layer=layer),
    bootstrap_cluster_creator_admin_permissions=False,
)
template = ec2.CfnLaunchTemplate(
    stack,
    "Template",
    launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(instance_type="trn1.32xlarge"),
)
node_role = iam.Role(stack, "NodeRole", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
eks.CfnNodegroup(
    stack,
    "Trn",
    cluster_name=cluster.cluster_name,
    nodegroup_name="trn",
    node_role=node_role.role_arn,
    subnets=[vpc.isolated_subnets[1].subnet_id],
    ami_type="AL2023_x86_64_NEURON",
    launch_template=eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
        id=template.ref, version=template.attr_latest_version_number
    ),
    scaling_config=eks.CfnNodegroup.ScalingConfigProperty(min_size=0, desired_size=2, max_size=4),
    labels={"role": "training"},
    taints=[eks.CfnNodegroup.TaintProperty(effect="NO_SCHEDULE", key="aws.amazon.com/neuron", value="true")],
)
eks.Addon(stack, "Csi", cluster=cluster, addon_name="aws-fsx-csi-driver", addon_version="v1.9.0-eksbuild.1")
space = cluster.add_manifest(
    "Space",
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "training"}},
    {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "trn"},
        "spec": {"weight": 1, "capability": {"aws.amazon.com/neuron": app.node.get_context("devices")}},
    },
)
chart = eks.HelmChart(
    stack,
    "Neuron",
    cluster=cluster,
    chart="neuron-helm-chart",
    repository="oci://public.ecr.aws/neuron/neuron-helm-chart",
    version="1.10.0",
    namespace="kube-system",
    release="neuron",
    values={"scheduler": {"enabled": False}},
)
chart.node.add_dependency(space)
app.synth()

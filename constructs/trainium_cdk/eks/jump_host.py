"""`TrnJumpHost`: the way to a private Kubernetes API."""

from __future__ import annotations

from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk import settings as trn
from trainium_cdk.network import TrnNetwork

IMAGE_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
_ROOT_GIB = 8


class TrnJumpHost(Construct):
    """A small instance through which Session Manager forwards a port to the API. No key, no open port, no public address, and
    no permission but to be managed.

    Args:
        settings: its type. Default: t3.micro.
        security_group: a group whose members reach the API (`TrnEksCluster.client_group`).
        name: Name tag.
    """

    instance_id: str
    """What `aws ssm start-session --target` takes."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: trn.JumpHost | None = None,
        network: TrnNetwork,
        security_group: ec2.ISecurityGroup,
        name: str = "trn-jump-host",
    ) -> None:
        super().__init__(scope, id)
        settings = settings or trn.JumpHost()
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("AmazonSSMManagedInstanceCore")],
        )
        profile = iam.CfnInstanceProfile(self, "Profile", roles=[role.role_name])
        template = ec2.CfnLaunchTemplate(
            self,
            "Template",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(
                    http_tokens="required", http_put_response_hop_limit=1
                )
            ),
        )
        instance = ec2.CfnInstance(
            self,
            "Resource",
            instance_type=settings.instance_type,
            # read when the instance is made, and not at every deployment: that would replace it
            image_id=f"{{{{resolve:ssm:{IMAGE_PARAMETER}}}}}",
            subnet_id=network.private_subnet().subnet_id,
            security_group_ids=[security_group.security_group_id],
            iam_instance_profile=profile.ref,
            launch_template=ec2.CfnInstance.LaunchTemplateSpecificationProperty(
                launch_template_id=template.ref, version=template.attr_latest_version_number
            ),
            block_device_mappings=[
                ec2.CfnInstance.BlockDeviceMappingProperty(
                    device_name="/dev/xvda",
                    ebs=ec2.CfnInstance.EbsProperty(volume_size=_ROOT_GIB, volume_type="gp3", encrypted=True),
                )
            ],
        )
        Tags.of(instance).add("Name", name)
        instance.node.add_dependency(network.internet_ready)
        self.instance_id = instance.ref

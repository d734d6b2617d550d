"""`TrnBastionHost`: a bastion host for a private Kubernetes API."""

from __future__ import annotations

import jsii
from aws_cdk import Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.eks.rules import check_service_nodes
from trainium_cdk.cdk.helpers.acknowledged import acknowledge
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.groups import ClosedGroup, https_out
from trainium_cdk.cdk.helpers.permissions import session_manager_policy
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.helpers.subnets import routes_of, selected
from trainium_cdk.cdk.helpers.tags import InheritedTags
from trainium_cdk.description import settings

IMAGE_PARAMETER = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
_ROOT_GIB = 8


@jsii.implements(ec2.IConnectable, iam.IGrantable)
class TrnBastionHost(Checked):
    """A small instance through which Session Manager forwards a port to a private Kubernetes API. No key, no open port, no public
    address, and no permissions except Session Manager's.

    Example:
        host = TrnBastionHost(self, "Bastion", vpc=vpc)
        cluster.connections.allow_default_port_from(host)

    Args:
        vpc: The VPC of the host.
        vpc_subnets: It is in the first of them, which must reach Session Manager. Default: the private subnets.
        security_group: A group whose members reach the API. Default: a new one with HTTPS egress and no ingress.
        host: Its instance type, as in an environment file. Default: t3.micro.
        name: Name tag. Default: trn-bastion-host.
        rules: Whether to check the arguments with the rules of `trn check`. Default: True: errors fail the synthesis.

    Raises:
        ValueError: the VPC has no such subnet.
    """

    instance_id: str
    """The instance id, for `aws ssm start-session --target`."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        vpc: ec2.IVpc,
        vpc_subnets: ec2.SubnetSelection | None = None,
        security_group: ec2.ISecurityGroup | None = None,
        host: settings.BastionHost = settings.BastionHost.model_construct(),  # noqa: B008  frozen
        name: str = "trn-bastion-host",
        rules: bool = True,
    ) -> None:
        super().__init__(scope, id)
        if rules:
            check_service_nodes(self, "bastion_host", "host", host)
        subnet = selected(vpc, vpc_subnets)[0]
        if security_group is None:
            out, what = https_out("AWS, the API"), "Bastion host: HTTPS out, nothing in"
            security_group = ClosedGroup(self, "Group", vpc_id=once(vpc, "vpc_id"), description=what, egress=out).group
        self._security_group = security_group
        policy = session_manager_policy(self)
        role = iam.Role(self, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"), managed_policies=[policy])
        self.role: iam.IRole = role
        """The instance's role."""
        profile = iam.CfnInstanceProfile(self, "Profile", roles=[role.role_name])
        template = ec2.CfnLaunchTemplate(
            self,
            "Template",
            launch_template_data=ec2.CfnLaunchTemplate.LaunchTemplateDataProperty(
                metadata_options=ec2.CfnLaunchTemplate.MetadataOptionsProperty(
                    http_tokens="required", http_put_response_hop_limit=1
                ),
                monitoring=ec2.CfnLaunchTemplate.MonitoringProperty(enabled=True),
            ),
            tag_specifications=InheritedTags(self, kind="AWS::EC2::LaunchTemplate", rules=rules).of_template(),
        )
        instance = ec2.CfnInstance(
            self,
            "Resource",
            instance_type=host.instance_type,
            # read when the instance is created, not at every deployment, which would replace it
            image_id=f"{{{{resolve:ssm:{IMAGE_PARAMETER}}}}}",
            monitoring=True,
            propagate_tags_to_volume_on_creation=True,
            network_interfaces=[
                ec2.CfnInstance.NetworkInterfaceProperty(
                    device_index="0",
                    subnet_id=once(subnet, "subnet_id"),
                    group_set=[once(security_group, "security_group_id")],
                    associate_public_ip_address=False,
                )
            ],
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
        acknowledge(instance, "EC29", "termination protection would keep `cdk destroy` from deleting it")
        instance.node.add_dependency(*routes_of([subnet]))
        self.instance_id = instance.ref

    @property
    def connections(self) -> ec2.Connections:
        """Let it reach an API: `cluster.connections.allow_default_port_from(bastion_host)`."""
        return self._security_group.connections

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The instance's role: `bucket.grant_read(bastion_host)`."""
        return self.role.grant_principal

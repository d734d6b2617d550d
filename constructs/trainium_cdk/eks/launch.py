"""What both kinds of node groups are launched with."""

from __future__ import annotations

from collections.abc import Mapping

from aws_cdk import CfnTag, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from trainium_cdk import settings as trn
from trainium_cdk.eks.size import kept_size
from trainium_cdk.settings import Environment

_Data = ec2.CfnLaunchTemplate


def launch_template(
    scope: Construct, *, instance_type: str, root_gib: int, tags: Mapping[str, str], **data: object
) -> ec2.CfnLaunchTemplate:
    """A launch template (not the CDK's own construct for one, which knows no network interfaces)."""
    return ec2.CfnLaunchTemplate(
        scope,
        "Template",
        launch_template_data=_Data.LaunchTemplateDataProperty(
            instance_type=instance_type,
            block_device_mappings=[
                _Data.BlockDeviceMappingProperty(
                    device_name="/dev/xvda",
                    ebs=_Data.EbsProperty(
                        volume_size=root_gib, volume_type="gp3", encrypted=True, delete_on_termination=True
                    ),
                )
            ],
            # one hop: the node's own programs, and no pod but those on the node's own network
            metadata_options=_Data.MetadataOptionsProperty(http_tokens="required", http_put_response_hop_limit=1),
            tag_specifications=[
                _Data.TagSpecificationProperty(
                    resource_type=kind, tags=[CfnTag(key=k, value=v) for k, v in sorted(tags.items())]
                )
                for kind in ("instance", "volume")
            ],
            **data,  # type: ignore[arg-type]
        ),
    )


def latest(template: ec2.CfnLaunchTemplate) -> eks.CfnNodegroup.LaunchTemplateSpecificationProperty:
    """Its latest version: a changed template is a new version, which the group then takes."""
    return eks.CfnNodegroup.LaunchTemplateSpecificationProperty(
        id=template.ref, version=template.attr_latest_version_number
    )


def scaling(
    scope: Construct, environment: Environment, name: str, settings: trn.NodeGroup | trn.SystemNodes
) -> eks.CfnNodegroup.ScalingConfigProperty:
    """The group's size: the environment's, or what it has been scaled to since."""
    desired = kept_size(
        scope,
        "Size",
        cluster=environment.eks_cluster_name,
        group=name,
        nodes=settings.nodes,
        least=settings.min_nodes,
        most=settings.max_nodes,
    )
    return eks.CfnNodegroup.ScalingConfigProperty(
        min_size=settings.min_nodes, max_size=settings.max_nodes, desired_size=Token.as_number(desired)
    )

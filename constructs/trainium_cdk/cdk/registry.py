"""`TrnRegistry`: the ECR repository for training images."""

from __future__ import annotations

from typing import Any

import jsii
from aws_cdk import CfnDeletionPolicy, Duration, IStableAnyProducer, Lazy, RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.functions import l1
from trainium_cdk.cdk.helpers.stack_wide import once
from trainium_cdk.cdk.helpers.types import AnyKey
from trainium_cdk.description.settings import Registry

UNTAGGED_DAYS = 14


class TrnRegistry(Checked):
    """A private repository, scanned on push, that forgets its oldest images.

    Example:
        registry = TrnRegistry(self, "Registry", registry=settings.Registry(keep_images=20))
        registry.grant_pull(node_role)

    Args:
        registry: How many images it keeps, and whether a tag names one image for ever. Default: 50, and yes.
        repository_name: Default: CloudFormation gives one that is free; your own name that is already taken (by a
            repository that was retained, for example) fails the deployment.
        encryption_key: Default: the key that AWS manages for ECR in the account, which costs nothing.
        removal_policy: What becomes of the repository, images and all, on `cdk destroy`. Default: DESTROY.

    Raises:
        ValueError: `registry` is not enabled.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        registry: Registry = Registry.model_construct(),  # noqa: B008  frozen
        repository_name: str | None = None,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        super().__init__(scope, id)
        if not registry.enabled:
            raise ValueError(
                f"{self.node.path}: registry.enabled = false. Fix: make no TrnRegistry, or write enabled: true"
            )
        repository = ecr.Repository(
            self,
            "Resource",
            repository_name=repository_name,
            image_scan_on_push=True,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE if registry.immutable_tags else ecr.TagMutability.MUTABLE,
            encryption=ecr.RepositoryEncryption.KMS,
            encryption_key=encryption_key,
            lifecycle_rules=[
                ecr.LifecycleRule(
                    description="Layers that no tag points to",
                    tag_status=ecr.TagStatus.UNTAGGED,
                    max_image_age=Duration.days(UNTAGGED_DAYS),
                    rule_priority=1,
                ),
                ecr.LifecycleRule(
                    description="The oldest images",
                    tag_status=ecr.TagStatus.ANY,
                    max_image_count=registry.keep_images,
                    rule_priority=2,
                ),
            ],
            removal_policy=removal_policy,
        )
        made = l1(repository, ecr.CfnRepository)
        made.empty_on_delete = Lazy.any(_Emptied(made))
        self.repository: ecr.IRepository = repository
        """The repository, for any construct of the CDK."""
        self.uri = once(repository, "repository_uri")
        """Prefix of an image's name: `<account>.dkr.ecr.<region>.amazonaws.com/<name>`."""

    def grant_pull(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity (a node's role) pull images."""
        return self.repository.grant_pull(grantee)

    def grant_pull_push(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity push and pull images."""
        return self.repository.grant_pull_push(grantee)


@jsii.implements(IStableAnyProducer)
class _Emptied:
    """Flag whether ECR deletes the images too, resolved with the template. The app may have changed the removal policy since."""

    def __init__(self, repository: ecr.CfnRepository) -> None:
        self._repository = repository

    def produce(self) -> Any:
        return self._repository.cfn_options.deletion_policy == CfnDeletionPolicy.DELETE

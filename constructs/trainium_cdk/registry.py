"""`TrnRegistry`: the ECR repository for training images."""

from __future__ import annotations

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from constructs import Construct

from trainium_cdk import settings as trn
from trainium_cdk._cdk.removal import OnDestroy
from trainium_cdk._cdk.removal import removal_policy as policy_of
from trainium_cdk._cdk.types import AnyKey

UNTAGGED_DAYS = 14


class TrnRegistry(Construct):
    """A private repository, scanned on push, that forgets its oldest images.

    Example:
        registry = TrnRegistry(self, "Registry", max_image_count=20)
        registry.grant_pull(node_role)

    Args:
        repository_name: Default: CloudFormation gives one that is free; a name of your own that is already taken (by a
            repository that was retained, for example) fails the deployment.
        max_image_count: Older images beyond this number are removed. Default: 50.
        image_tag_mutability: Default: IMMUTABLE: a tag names one image for ever.
        encryption_key: Default: the key that AWS manages for ECR in the account, which costs nothing.
        removal_policy: What becomes of the repository, images and all, on `cdk destroy`. Default: DESTROY.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        repository_name: str | None = None,
        max_image_count: int = 50,
        image_tag_mutability: ecr.TagMutability = ecr.TagMutability.IMMUTABLE,
        encryption_key: AnyKey | None = None,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        super().__init__(scope, id)
        repository = ecr.Repository(
            self,
            "Resource",
            repository_name=repository_name,
            image_scan_on_push=True,
            image_tag_mutability=image_tag_mutability,
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
                    max_image_count=max_image_count,
                    rule_priority=2,
                ),
            ],
            empty_on_delete=removal_policy == RemovalPolicy.DESTROY,
            removal_policy=removal_policy,
        )
        self.repository: ecr.IRepository = repository
        """The repository, for any construct of the CDK."""
        self.uri = repository.repository_uri
        """What an image's name begins with: `<account>.dkr.ecr.<region>.amazonaws.com/<name>`."""

    @classmethod
    def from_settings(
        cls, scope: Construct, id: str, settings: trn.Registry | None = None, *, on_destroy: OnDestroy = "delete"
    ) -> TrnRegistry | None:
        """The repository of the `registry` part of an environment; None where it is not enabled."""
        settings = settings or trn.Registry()
        if not settings.enabled:
            return None
        mutability = ecr.TagMutability.IMMUTABLE if settings.immutable_tags else ecr.TagMutability.MUTABLE
        return cls(
            scope,
            id,
            max_image_count=settings.keep_images,
            image_tag_mutability=mutability,
            removal_policy=policy_of(on_destroy),
        )

    def grant_pull(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity (a node's role) pull images."""
        return self.repository.grant_pull(grantee)

    def grant_pull_push(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let an identity push and pull images."""
        return self.repository.grant_pull_push(grantee)

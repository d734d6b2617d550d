"""`TrnRegistry`: the ECR repository for training images."""

from __future__ import annotations

from aws_cdk import Duration
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from trainium_cdk import settings as trn
from trainium_cdk.removal import OnDestroy, removal_policy

UNTAGGED_DAYS = 14


class TrnRegistry(Construct):
    """A private repository, scanned on push, that forgets its oldest images.

    Whether to have one at all (`settings.enabled`) is the caller's to decide.

    Args:
        settings: The `registry` part of an environment. Default: 50 images, tags that cannot be moved.
        name: The repository's name. Default: CloudFormation gives one that is free; a name of your own that is already taken
            (kept by an earlier `on_destroy="keep"`, say) fails the deployment.
        encryption_key: Default: ECR's own AES-256.
        on_destroy: What becomes of the repository, images and all, on `cdk destroy`. Default: deleted.
    """

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        settings: trn.Registry | None = None,
        name: str | None = None,
        encryption_key: kms.IKey | None = None,
        on_destroy: OnDestroy = "delete",
    ) -> None:
        super().__init__(scope, id)
        settings = settings or trn.Registry()
        repository = ecr.Repository(
            self,
            "Resource",
            repository_name=name,
            image_scan_on_push=True,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE if settings.immutable_tags else ecr.TagMutability.MUTABLE,
            encryption=ecr.RepositoryEncryption.KMS if encryption_key else ecr.RepositoryEncryption.AES_256,
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
                    max_image_count=settings.keep_images,
                    rule_priority=2,
                ),
            ],
            empty_on_delete=on_destroy == "delete",
            removal_policy=removal_policy(on_destroy),
        )
        self.repository: ecr.IRepository = repository
        """The repository, for any construct of the CDK."""
        self.uri = repository.repository_uri
        """What an image's name begins with: `<account>.dkr.ecr.<region>.amazonaws.com/<name>`."""

    def grant_pull(self, grantee: iam.IGrantable) -> None:
        """Let an identity (a node's role) pull images."""
        self.repository.grant_pull(grantee)

    def grant_push(self, grantee: iam.IGrantable) -> None:
        """Let an identity push and pull images."""
        self.repository.grant_pull_push(grantee)

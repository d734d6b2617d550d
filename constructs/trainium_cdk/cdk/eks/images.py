"""`TrnImageBuilder`: training images built in the account, from any laptop."""

from __future__ import annotations

import jsii
from aws_cdk import RemovalPolicy
from aws_cdk import aws_codebuild as codebuild
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from constructs import Construct

from trainium_cdk.cdk.helpers.acknowledged import acknowledge, acknowledge_wildcards
from trainium_cdk.cdk.helpers.checked import Checked
from trainium_cdk.cdk.helpers.permissions import allow, grant_keys, objects_arn, public_registry, service_of_account
from trainium_cdk.cdk.helpers.stack_wide import once, stack_of
from trainium_cdk.description.outputs.contract import SOURCES

IMAGE = "aws/codebuild/amazonlinux-x86_64-standard:5.0"
_MINUTES = 120
_BUILD_SPEC = {
    "version": 0.2,
    "phases": {
        "pre_build": {
            "commands": [
                # user input comes as variables, and is never part of a command
                'aws ecr get-login-password | docker login --username AWS --password-stdin "${REPOSITORY_URI%%/*}"',
                "aws ecr-public get-login-password --region us-east-1 "
                "| docker login --username AWS --password-stdin public.ecr.aws",
            ]
        },
        "build": {
            "commands": [
                'docker build --platform linux/amd64 --file "$DOCKERFILE" --tag "$REPOSITORY_URI:$IMAGE_TAG" .'
            ]
        },
        "post_build": {
            "commands": [
                'if [ "$CODEBUILD_BUILD_SUCCEEDING" != 1 ]; then exit 1; fi',
                'docker push "$REPOSITORY_URI:$IMAGE_TAG"',
            ]
        },
    },
}


@jsii.implements(iam.IGrantable)
class TrnImageBuilder(Checked):
    """A CodeBuild project that builds a Dockerfile from a zip file in a bucket and pushes the image to a repository.

    x86_64, as Trainium nodes are, from any laptop, without Docker. A build is started with its source
    (`sourceTypeOverride: S3`, `sourceLocationOverride: <bucket>/images/<name>.zip`, `sourceVersion: <version of the object>`) and
    the variables IMAGE_TAG and, if it is not `Dockerfile`, DOCKERFILE.

    Example:
        TrnImageBuilder(self, "Images", bucket=bucket, repository=ecr.Repository(self, "Training"))

    Args:
        bucket: Bucket of the zip files, below `images/`.
        repository: Repository for the images.
        removal_policy: For the build logs on `cdk destroy`. Default: DESTROY.
    """

    project_name: str
    """The CodeBuild project that `trn image build` starts."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        bucket: s3.IBucket,
        repository: ecr.IRepository,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        super().__init__(scope, id)
        log = logs.LogGroup(self, "Logs", retention=logs.RetentionDays.ONE_YEAR, removal_policy=removal_policy)
        role = iam.Role(self, "Role", assumed_by=service_of_account(self, "codebuild.amazonaws.com"))
        may = [
            allow(log.log_group_arn, "logs:CreateLogStream", "logs:PutLogEvents"),
            allow(objects_arn(bucket, f"{SOURCES}*"), "s3:GetObject", "s3:GetObjectVersion"),
            *public_registry(),  # Neuron's images are public, but anonymous pulls are limited
        ]
        self.role: iam.IRole = role
        """The role of builds."""
        for statement in may:
            role.add_to_policy(statement)
        acknowledge_wildcards(role, may, self)
        repository.grant_pull_push(role)
        grant_keys(role, bucket)
        variable = codebuild.CfnProject.EnvironmentVariableProperty
        project = codebuild.CfnProject(
            self,
            "Resource",
            description="Builds training images; started by `trn image build`",
            service_role=role.role_arn,
            source=codebuild.CfnProject.SourceProperty(
                type="S3",
                location=f"{once(bucket, 'bucket_name')}/{SOURCES}source.zip",
                build_spec=stack_of(self).to_json_string(_BUILD_SPEC),
            ),
            artifacts=codebuild.CfnProject.ArtifactsProperty(type="NO_ARTIFACTS"),
            environment=codebuild.CfnProject.EnvironmentProperty(
                type="LINUX_CONTAINER",
                image=IMAGE,
                compute_type="BUILD_GENERAL1_LARGE",  # the disk must have space for Neuron's images, twice
                privileged_mode=True,  # docker build
                environment_variables=[
                    variable(name="REPOSITORY_URI", value=once(repository, "repository_uri")),
                    variable(name="IMAGE_TAG", value="latest"),
                    variable(name="DOCKERFILE", value="Dockerfile"),
                ],
            ),
            logs_config=codebuild.CfnProject.LogsConfigProperty(
                cloud_watch_logs=codebuild.CfnProject.CloudWatchLogsConfigProperty(
                    status="ENABLED", group_name=log.log_group_name
                )
            ),
            timeout_in_minutes=_MINUTES,
        )
        acknowledge(project, "CB4", "a build has no artifacts; it pushes to the repository, which has its own key")
        project.node.add_dependency(role)
        self.project_name = project.ref

    @property
    def grant_principal(self) -> iam.IPrincipal:
        """The role of builds: `secret.grant_read(builder)`."""
        return self.role.grant_principal

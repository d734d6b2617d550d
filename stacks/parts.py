"""The parts of an environment that are the same in every stack; and the environment of a stack that is given none."""

from __future__ import annotations

import os

from aws_cdk import Duration, Stack, Stage, Token
from aws_cdk import Environment as Place
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from trainium_cdk.cdk.bucket import TrnBucket
from trainium_cdk.cdk.helpers.removal import removal_policy
from trainium_cdk.cdk.helpers.retention import RETENTION
from trainium_cdk.cdk.network import TrnNetwork
from trainium_cdk.cdk.observability import TrnJobNotices
from trainium_cdk.cdk.registry import TrnRegistry
from trainium_cdk.cdk.storage import TrnStorage
from trainium_cdk.description import checks, engines, settings
from trainium_cdk.description.outputs.contract import KEPT_DAYS
from trainium_cdk.description.settings import Bootstrap, Environment


def default_environment(scope: Construct, engine: str, env: Place | None) -> Environment:
    """The defaults of one engine, in the region of the stack.

    A stack without a region is deployed to the region of the CDK's command line, which passes it in CDK_DEFAULT_REGION. Without that
    either, the region is us-east-1.

    Args:
        scope: of the stack, which may be in a stage with a region.
        engine: its name.
        env: as the stack was given it.

    Raises:
        SettingsError: the region does not offer what the defaults need.
    """
    stages = [parent.region for parent in reversed(scope.node.scopes) if isinstance(parent, Stage)]
    known = [env.region if env else None, *stages, os.environ.get("CDK_DEFAULT_REGION")]
    region = next((r for r in known if r and not Token.is_unresolved(r)), Environment().region)
    environment = settings.validate({"region": region, engines.get(engine).section: {}})
    checks.require(environment, engine)
    return environment


def chosen_software(environment: Environment) -> Bootstrap:
    """Return the software of an environment's nodes, with the release and the framework that fit all of its clusters."""
    chosen = {"neuron_release": environment.release.version, "framework": environment.framework}
    return environment.bootstrap.model_copy(update=chosen)


def add_network(stack: Stack, environment: Environment, zones: tuple[str, ...]) -> TrnNetwork:
    """The VPC, with subnets in these zones."""
    return TrnNetwork(
        stack,
        "Network",
        network=environment.network.model_copy(update={"zone_ids": zones}),
        name=environment.name,
        log_retention=RETENTION[environment.log_days],
        removal_policy=removal_policy(environment.on_destroy),
        rules=False,  # the whole environment is checked
    )


def add_storage(stack: Stack, environment: Environment, vpc: ec2.IVpc, subnets: list[ec2.ISubnet]) -> TrnStorage:
    """The file systems, with mount targets in these subnets."""
    return TrnStorage(
        stack,
        "Storage",
        vpc=vpc,
        vpc_subnets=ec2.SubnetSelection(subnets=subnets),
        efs=environment.storage.efs,
        lustre=environment.storage.fsx,
        removal_policy=removal_policy(environment.on_destroy),
        rules=False,
    )


def add_bucket(stack: Stack, environment: Environment, prefixes: tuple[str, ...] = ("",)) -> s3.IBucket:
    """The bucket of the jobs' files. What is below a prefix of the contract ends after its days.

    Args:
        prefixes: only outputs of the contract that begin with one of these. Default: all.
    """
    return TrnBucket(
        stack,
        "Files",
        expiration={at: Duration.days(days) for at, days in KEPT_DAYS.items() if at.startswith(prefixes)},
        removal_policy=removal_policy(environment.on_destroy),
    ).bucket


def add_registry(stack: Stack, environment: Environment) -> TrnRegistry | None:
    """The repository of images, if the environment has one."""
    if not environment.registry.enabled:
        return None
    return TrnRegistry(
        stack, "Registry", registry=environment.registry, removal_policy=removal_policy(environment.on_destroy)
    )


def alarm_topic(stack: Stack, environment: Environment) -> sns.ITopic | None:
    """Where alarms of the dashboard are sent, if anywhere."""
    topic = environment.observability and environment.observability.alarm_topic
    return sns.Topic.from_topic_arn(stack, "ObservabilityTopic", topic) if topic else None


def add_job_notices(stack: Stack, environment: Environment, lines: logs.ILogGroup) -> None:
    """Messages when jobs have ended, if the environment names a topic for them.

    Args:
        lines: the log group with a line for each.
    """
    if environment.observability and (topic := environment.observability.job_topic):
        TrnJobNotices(stack, "JobNotices", log_group=lines, topic=sns.Topic.from_topic_arn(stack, "JobTopic", topic))

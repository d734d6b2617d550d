"""Where alarms are sent."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.checks.rule import Rules, error
from trainium_cdk.problems import KeyPath
from trainium_cdk.settings import Environment, Problem
from trainium_cdk.settings.cdk_types import is_placeholder

RULES = Rules()


@RULES.add
def alarms_without_metrics(env: Environment) -> Iterator[Problem]:
    """The function that starts nodes counts the jobs on EKS: without it there are no alarms, and no dashboard."""
    if env.eks.plugins.autoscaler:
        return
    topics = {
        ("observability", "alarm_topic"): env.observability and env.observability.alarm_topic,
        ("eks", "scaling", "alarm_topic"): env.eks.scaling.alarm_topic,
    }
    for key, topic in topics.items():
        if topic:
            text = "it has no effect: without eks.plugins.autoscaler nothing counts jobs and nodes, and no alarm is created"
            yield error(key, text, "write eks.plugins.autoscaler: true, or remove it", engine="eks")


@RULES.add
def alarm_topic_of_another_region(env: Environment) -> Iterator[Problem]:
    topics: list[tuple[KeyPath, str | None]] = [(("eks", "scaling", "alarm_topic"), env.eks.scaling.alarm_topic)]
    if env.observability:
        topics.append((("observability", "alarm_topic"), env.observability.alarm_topic))
    for key, topic in topics:
        if not topic or is_placeholder(topic):
            continue
        _, _, service, region, *_ = topic.split(":")
        if service != "sns":
            yield error(key, f"this is an ARN of {service}", "give the ARN of an SNS topic")
        elif region != env.region:
            yield error(
                key,
                f"the topic is in {region}, but the alarms are in {env.region}: CloudWatch notifies topics of its region only",
                f"give a topic in {env.region}",
            )

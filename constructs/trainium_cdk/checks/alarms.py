"""Where alarms are sent."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.checks.rule import Rules, error
from trainium_cdk.problems import KeyPath
from trainium_cdk.settings import Environment, Problem
from trainium_cdk.settings.base import is_placeholder

RULES = Rules()


@RULES.add
def alarm_topics_are_of_the_region(env: Environment) -> Iterator[Problem]:
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

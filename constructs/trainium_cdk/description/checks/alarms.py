"""Rules for the topics of alarms."""

from __future__ import annotations

from collections.abc import Iterator

from trainium_cdk.description.checks.rule import Rules, error
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.description.settings.types import is_placeholder
from trainium_cdk.problems import KeyPath

RULES = Rules()


@RULES.refuse("CloudWatch user guide, Notify_Users_Alarm_Changes: a topic of the alarm's region")
def topic_of_another_region(env: Environment) -> Iterator[Problem]:
    for key, topic in _topics(env):
        if not topic or is_placeholder(topic):
            continue
        _, _, service, region, *_ = topic.split(":")
        if service != "sns":
            yield error(key, f"this is an ARN of {service}", "give the ARN of an SNS topic")
        elif region != env.region:
            why = f"the alarms are in {env.region}: CloudWatch notifies topics of its region only"
            if key[-1] == "job_topic":
                why = f"the cluster is in {env.region}, whose function sends to topics of its region only"
            yield error(key, f"the topic is in {region}, but {why}", f"give a topic in {env.region}")


def _topics(env: Environment) -> Iterator[tuple[KeyPath, str | None]]:
    if seen := env.observability:
        yield ("observability", "alarm_topic"), seen.alarm_topic
        yield ("observability", "job_topic"), seen.job_topic

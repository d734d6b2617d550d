"""Warnings and infos: reported once, and no reason to refuse the environment."""

from __future__ import annotations

import pytest

from tests.checks.tables import NOTICES
from trainium_cdk import settings
from trainium_cdk.description import checks


@pytest.mark.parametrize(
    ("text", "level", "key", "message"), NOTICES, ids=[f"{key}: {m[:40]}" for _, _, key, m in NOTICES]
)
def test_noticed(text: str, level: str, key: str, message: str) -> None:
    env = settings.parse(text, "environment.yaml")
    found = checks.require(env)
    assert [(p.level, p.dotted) for p in found] == [(level, key)]
    assert message in env.source.describe(found[0])


def test_kept_data_is_named_with_its_risk() -> None:
    env = settings.parse("on_destroy: keep\nstorage: {fsx: {deployment: SCRATCH_2}}\nregistry: {enabled: false}")
    warned, notice = checks.require(env)
    assert (warned.level, warned.dotted) == ("warning", "storage.fsx.deployment")
    assert "SCRATCH_2 is not replicated" in warned.reason
    assert (notice.level, notice.dotted) == ("info", "on_destroy")
    assert "leaves EFS, FSx for Lustre and the bucket and the logs" in notice.reason


def test_settings_of_scaling_need_the_autoscaler() -> None:
    """Each is named, beside what the missing autoscaler means; following the advice removes all of them."""
    text = "eks: {plugins: {autoscaler: %s}, scaling: {idle_minutes: 5, capacity_minutes: 5, start_minutes: 5, retry_minutes: 5, reserve: false}}"
    found = [p for p in checks.require(settings.parse(text % "false")) if "it has no effect" in p.reason]
    names = ["idle_minutes", "capacity_minutes", "start_minutes", "retry_minutes", "reserve"]
    assert [p.dotted for p in found] == [f"eks.scaling.{name}" for name in names]
    assert {p.fix for p in found} == {"remove it, or write eks.plugins.autoscaler: true"}
    assert checks.require(settings.parse(text % "true")) == []


def test_topics_of_eks_need_the_autoscaler() -> None:
    topic = "arn:aws:sns:us-east-1:111122223333:ops"
    text = f"region: us-east-1\nobservability: {{alarm_topic: {topic!r}, job_topic: {topic!r}}}\neks: {{plugins: {{autoscaler: %s}}}}"
    found = [p for p in checks.require(settings.parse(text % "false")) if "it has no effect" in p.reason]
    assert [p.dotted for p in found] == ["observability.alarm_topic", "observability.job_topic"]
    assert checks.require(settings.parse(text % "true")) == []


def test_what_one_of_several_engines_uses_has_an_effect() -> None:
    text = "pcluster: {}\neks: {}\nbootstrap: {pip_packages: [tomli]}"
    assert [p for p in checks.require(settings.parse(text)) if "no effect" in p.reason] == []

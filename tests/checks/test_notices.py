"""Warnings and infos: reported once, and no reason to refuse the environment."""

from __future__ import annotations

import pytest

from tests.checks.tables import NOTICES
from trainium_cdk import checks, settings


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

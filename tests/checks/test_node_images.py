"""The driver of EKS nodes and the runtime of their jobs: what is said, and that following it works."""

from __future__ import annotations

import pytest

from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.problems import Problem

TRN2 = "instance_type: trn2.48xlarge"
NATIVE = "bootstrap: {neuron_release: 2.33.0, framework: torch-native}\n"
CLOSED = "network: {nat: none}\n"


def found(text: str, *rules: str) -> list[Problem]:
    return [p for p in checks.check(settings.parse(f"region: us-east-2\n{text}")) if p.rule in rules]


def about(text: str) -> list[Problem]:
    return found(text, "missing-driver", "incompatible-versions")


@pytest.mark.parametrize(
    ("text", "level", "words", "advice", "followed"),
    [
        (
            NATIVE + "eks: {node_groups: [{instance_type: trn2.48xlarge}]}",
            "info",
            "the newest known image, 1.36.2-20260714, has Neuron driver 2.29.0.0, and the runtime 2.35.30.0 of Neuron 2.33.0 is for driver "
            "2.31.7.0. Each node of trn installs it when it starts",
            "node_groups[].custom_ami",
            NATIVE + "eks: {node_groups: [{instance_type: trn2.48xlarge, custom_ami: ami-0123456789abcdef0}]}",
        ),
        (
            CLOSED + NATIVE + "eks: {node_groups: [{instance_type: trn2.48xlarge}]}",
            "error",
            "is for driver 2.31.7.0, which nodes without access to the internet cannot install",
            "write nat: one, or give an image with driver 2.31.7.0: node_groups[].custom_ami",
            CLOSED + NATIVE + "eks: {node_groups: [{instance_type: trn2.48xlarge, custom_ami: ami-0123456789abcdef0}]}",
        ),
        (
            NATIVE + "eks: {ami_release: '20260714', node_groups: [{instance_type: trn2.48xlarge}]}",
            "warning",
            "driver 2.29.0.0 with runtime 2.35.30.0: it runs, but AWS does not support it",
            "remove eks.ami_release: nodes then have driver 2.31.7.0",
            NATIVE + "eks: {node_groups: [{instance_type: trn2.48xlarge, custom_ami: ami-0123456789abcdef0}]}",
        ),
        (
            NATIVE + "eks: {version: '1.35', ami_release: '20260403', node_groups: [{instance_type: trn2.48xlarge}]}",
            "error",
            "driver 2.26.10.0 and runtime 2.35.30.0 are not compatible",
            "remove eks.ami_release: nodes then have driver 2.31.7.0",
            NATIVE + "eks: {node_groups: [{instance_type: trn2.48xlarge, custom_ami: ami-0123456789abcdef0}]}",
        ),
        (
            "bootstrap: {neuron_release: 2.28.1, framework: torch-xla}\neks: {ami_release: '20260714'}",
            "error",
            "driver 2.29.0.0 and runtime 2.30.51.0 are not compatible",
            "write eks.ami_release: '20260625'",
            "bootstrap: {neuron_release: 2.28.1, framework: torch-xla}\neks: {ami_release: '20260625'}",
        ),
    ],
)
def test_both_versions_and_what_to_write(text: str, level: str, words: str, advice: str, followed: str) -> None:
    [problem] = about(text)
    assert problem.level == level
    assert words in problem.reason
    assert advice in problem.fix
    assert "whatever driver" not in problem.reason
    assert about(followed) == []


@pytest.mark.parametrize(
    "text",
    ["eks: {}", "bootstrap: {neuron_release: 2.31.1, framework: none}\neks: {}", "eks: {ami_release: '20260625'}"],
)
def test_where_an_image_fits_nothing_is_said(text: str) -> None:
    assert about(text) == []


def test_removing_the_image_leaves_the_note_alone() -> None:
    """The first half of the advice above."""
    [problem] = about(NATIVE + "eks: {node_groups: [{instance_type: trn2.48xlarge}]}")
    assert (problem.level, problem.rule) == ("info", "missing-driver")

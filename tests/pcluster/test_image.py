"""The configuration of an image build, as a readable golden file. ParallelCluster validates it in tests/cli/test_bake.py."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support import golden
from trainium_cdk import settings
from trainium_cdk.description.cluster_configuration import to_yaml
from trainium_cdk.description.node.image import bake

GOLDEN = Path(__file__).parent / "golden" / "image.yaml"
PRIVATE = """
network: {nat: none, interface_endpoints: [ssm, ssmmessages, ec2, logs, cloudformation, dynamodb]}
pcluster: {custom_ami: ami-0123456789abcdef0}
"""


def test_golden() -> None:
    env = settings.parse("tags: {team: speech}\npcluster: {version: 3.16.3}")
    made = bake(env, parent_image="ami-0123456789abcdef0", bucket="files")
    assert re.fullmatch(r"trn-neuron-2-28-1-ubuntu2404-[0-9a-f]{8}", made.image_id)
    text = to_yaml(made.configuration).replace(made.image_id, "IMAGE")
    assert text == golden(GOLDEN, text)


def test_another_release_or_base_is_another_image() -> None:
    env, other = settings.Environment(), settings.parse("bootstrap: {neuron_release: 2.29.1}")
    images = [bake(e, parent_image=p, bucket="files").image_id for e in (env, other) for p in ("ami-1", "ami-2")]
    assert len(set(images)) == 4
    assert bake(env, parent_image="ami-1", bucket="elsewhere").image_id == images[0]


def test_the_image_of_nodes_without_internet_has_the_packages() -> None:
    """Such nodes install nothing: what they need is on their image."""
    from trainium_cdk.description.node.env import render

    env = settings.parse(PRIVATE)
    assert "TRN_NEURON_DKMS" not in render(env)
    assert f"TRN_NEURON_DKMS={env.release.dkms}" in render(env, image=True)

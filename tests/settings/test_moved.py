"""An environment file in another region: each environment of the tests, and what cannot be moved."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trainium_cdk import settings
from trainium_cdk.errors import SettingsError
from trainium_cdk.settings.moved import move

FILES = sorted(Path("tests/environments").rglob("*.yaml"))
TIED = re.compile(r"\b(vpc|subnet|rtb|sg|fs|fsvol|cr|ami)-[0-9a-f]{8,17}\b")
NETWORK = """\
# ours
region: us-east-1   # first
network:
  existing:
    vpc_id: vpc-0123456789abcdef0
    cidr: 10.0.0.0/16
    private_subnets:
      - {id: subnet-0123456789abcdef0, zone_id: use1-az6}
  flow_logs: false   # stays
eks:
  node_groups:
    - {name: a, instance_type: trn1.32xlarge, reservation: cr-0123456789abcdef0, zone_id: use1-az6, max_nodes: 2}
    - {name: b, instance_type: trn1.32xlarge, custom_ami: ami-0123456789abcdef0}
"""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_nothing_of_the_first_region_is_left(file: Path) -> None:
    """With the values that are asked for; all the rest is as it was."""
    text, env = file.read_text(), settings.load(file)
    region = "us-west-2" if env.region != "us-west-2" else "us-east-2"
    try:
        moved = move(text, str(file), region)
    except SettingsError as e:
        values = [str(problem.value) for problem in e.problems]
        assert all(env.region in value for value in values), "what is refused names the region"
        moved = move(text, str(file), region, replace={value: value.replace(env.region, region) for value in values})
    assert moved.environment.region == region
    body = "\n".join(line.partition("#")[0] for line in moved.text.partition("\ncatalog:")[0].splitlines())
    assert TIED.search(body) is None, body
    assert env.region not in body
    zones = set(re.findall(r"\b[a-z]{3,5}[0-9]-az[0-9]+\b", body))
    assert {env.catalog.region_of(zone) for zone in zones} <= {region}
    same = {"name", "tags", "on_destroy", "bootstrap", "registry", "observability", "overrides", "functions"}
    assert moved.environment.model_dump(include=same) == env.model_dump(include=same)
    types = [n.resource.instance_type for section in env.sections.values() for n in section.nodes()]
    assert [n.resource.instance_type for s in moved.environment.sections.values() for n in s.nodes()] == types


def test_comments_stay_and_each_part_is_told() -> None:
    moved = move(NETWORK, "e.yaml", "us-west-2", zone="usw2-az4", name="west")
    assert moved.text.splitlines() == [
        "# ours",
        "name: west",
        "region: us-west-2   # first",
        "network:",
        "  flow_logs: false   # stays",
        "  zone_ids: [usw2-az4]",
        "eks:",
        "  node_groups:",
        "    - {name: a, instance_type: trn1.32xlarge, max_nodes: 2}",
        "    - {name: b, instance_type: trn1.32xlarge}",
    ]
    assert moved.left_out == (
        "network.existing (vpc-0123456789abcdef0 belongs to us-east-1): the stack creates its own, which is empty",
        "eks.node_groups[1].custom_ami (ami-0123456789abcdef0 belongs to us-east-1): copy the image (aws ec2 copy-image), and write the id of the copy",
        "eks.node_groups[0].reservation (cr-0123456789abcdef0 belongs to us-east-1): reserve or buy capacity there, and write its id (trn capacity)",
        "eks.node_groups[0].zone_id (use1-az6 belongs to us-east-1): the default is a zone that offers the type",
    )


KEY = "arn:aws:kms:us-east-1:111122223333:key/0123"


@pytest.mark.parametrize(
    ("text", "replace", "message"),
    [
        (f"encryption: {KEY}", {}, f"encryption = {KEY}: it belongs to us-east-1. Fix: give --replace '{KEY}=...' with the value of us-west-2"),
        (f"encryption: {KEY}", {KEY: "nonsense"}, "neither an encryption mode nor the ARN of a KMS key"),
        ("name: mine", {"a": "b"}, "--replace = a: e.yaml has no such value"),
        ("nonsense: 1", {}, "nonsense"),
    ],
)  # fmt: skip
def test_refused(text: str, replace: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(message)):
        move(text, "e.yaml", "us-west-2", replace=replace)


def test_what_may_be_of_the_first_region_is_noted() -> None:
    text = (
        "storage: {fsx: {deployment: PERSISTENT_2, capacity_gib: 2400, s3: {uri: 's3://corpus/text'}}}\n"
        'bootstrap: {scripts: [{name: mine, script: "#!/bin/sh\\naws --region us-east-1 s3 ls"}]}\n'
        "pcluster: {head: {subnet: public, ssh: {key_name: laptop, from_cidrs: [203.0.113.0/24]}}}\n"
    )
    assert move(text, "e.yaml", "us-west-2").notes == (
        "storage.fsx.s3.uri = s3://corpus/text must be in us-west-2",
        "bootstrap.scripts[0].script names us-east-1",
        "pcluster.head.ssh.key_name = laptop must be in us-west-2",
    )
    assert move("", "e.yaml", "us-west-2", zone="usw2-az4").environment.network.zone_ids == ("usw2-az4",)


def test_groups_belong_to_one_region() -> None:
    """A group of reservations is left out; a placement group's name stays, and is told."""
    text = """\
region: us-east-1
eks:
  node_groups:
    - {name: a, placement_group: near, reservation: 'arn:aws:resource-groups:us-east-1:111122223333:group/mine'}
"""
    moved = move(text, "e.yaml", "us-west-2")
    assert moved.environment.eks.node_groups[0].reservation is None
    assert "reserve or buy capacity there" in moved.left_out[0]
    assert moved.notes == ("eks.node_groups[0].placement_group = near must be in us-west-2",)

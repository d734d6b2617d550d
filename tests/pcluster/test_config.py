"""The rendered cluster configuration: readable golden files, and the rules behind it. ParallelCluster validates it in test_validators.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pcluster.examples import IDS, ids_for
from tests.support import golden
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.checks import overrides
from trainium_cdk.description.checks.cluster_configuration import schema_faults, slurm_faults, slurm_release
from trainium_cdk.description.cluster_configuration import BOOTSTRAP_SECONDS, NO_ADDRESS, merged, render, to_yaml

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / "environments"


@pytest.mark.parametrize("name", ["default", "many-queues", "trn2-capacity-block", "login-and-accounting"])
def test_golden(name: str) -> None:
    env = settings.load(None if name == "default" else ENVIRONMENTS / f"{name}.yaml")
    text = to_yaml(render(env, ids_for(env)))
    assert text == golden(HERE / "golden" / f"{name}.yaml", text)


@pytest.mark.parametrize(
    ("queue", "resource", "together"),
    [
        ({}, {}, True),
        ({"capacity_type": "spot"}, {}, True),
        ({}, {"efa": "off"}, False),
        ({}, {"instance_type": "trn1.2xlarge"}, False),
        ({}, {"reservation": "cr-0123456789abcdef0"}, False),
        ({"capacity_type": "capacity-block"}, {"reservation": "cr-0123456789abcdef0", "min_nodes": 16}, False),
        ({"placement_group": "off"}, {}, False),
        ({"placement_group": "on"}, {"efa": "off"}, True),
    ],
)
def test_placement_group(queue: dict[str, Any], resource: dict[str, Any], together: bool) -> None:
    env = settings.validate({"pcluster": {"queues": [{**queue, "compute_resources": [resource]}]}})
    rendered, cpu = render(env, ids_for(env))["Scheduling"]["SlurmQueues"]
    assert (rendered["Name"], cpu["Name"]) == ("compute1", "cpu")
    assert "PlacementGroup" not in cpu["Networking"]
    assert rendered["Networking"]["PlacementGroup"] == {"Enabled": together}
    assert "Networking" not in rendered["ComputeResources"][0]


def test_a_reserved_resource_beside_others_keeps_out_of_the_placement_group() -> None:
    resources = [{"name": "free"}, {"name": "reserved", "reservation": "cr-0123456789abcdef0"}]
    env = settings.validate({"pcluster": {"queues": [{"compute_resources": resources}]}})
    queue, cpu = render(env, ids_for(env))["Scheduling"]["SlurmQueues"]
    assert (queue["Name"], cpu["Name"]) == ("compute1", "cpu")
    assert queue["Networking"]["PlacementGroup"] == {"Enabled": True}
    free, reserved = queue["ComputeResources"]
    assert "Networking" not in free
    # and is used first: 1000 is ParallelCluster's default
    assert (free["DynamicNodePriority"], reserved.get("DynamicNodePriority")) == (2000, None)
    assert reserved["Networking"] == {"PlacementGroup": {"Enabled": False}}


@pytest.mark.parametrize("file", sorted(ENVIRONMENTS.glob("*.yaml")), ids=lambda f: f.stem)
def test_every_configuration_is_one_of_parallelclusters_schema(file: Path) -> None:
    env = settings.load(file)
    config = render(env, ids_for(env))
    assert [*schema_faults(config), *slurm_faults(config, slurm_release(env))] == []


@pytest.mark.parametrize("file", sorted(ENVIRONMENTS.glob("*.yaml")), ids=lambda f: f.stem)
def test_every_environment_follows_the_rules(file: Path) -> None:
    env = settings.load(file)
    config = render(env, ids_for(env))
    head, queues = config["HeadNode"], config["Scheduling"]["SlurmQueues"]
    nodes = [head, *queues, *config.get("LoginNodes", {}).get("Pools", [])]
    assert config["Imds"] == {"ImdsSupport": "v2.0"}
    volumes = [n["LocalStorage"] for n in [head]] + [q["ComputeSettings"]["LocalStorage"] for q in queues]
    assert all(v["RootVolume"]["Encrypted"] and v["RootVolume"]["VolumeType"] == "gp3" for v in volumes)
    for node in nodes:
        policies = [p["Policy"].rpartition("/")[2] for p in node["Iam"]["AdditionalIamPolicies"]]
        own = [arn.rpartition("/")[2] for arn in env.pcluster.node_policies]
        assert policies == ["nodes", *own, *(["head"] if node is head else [] if node in queues else ["login"])]
        assert "AssignPublicIp" not in node["Networking"]
        if "Ssh" in node:
            source = node["Ssh"]["AllowedIps"]
            assert source == (env.pcluster.head.ssh.from_cidrs[0] if env.pcluster.head.ssh else NO_ADDRESS)
    assert ("KeyName" in head["Ssh"]) is (env.pcluster.head.ssh is not None)
    assert ("ElasticIp" in head["Networking"]) is (env.pcluster.head.subnet == "public")
    for queue in queues:
        assert len(queue["Networking"]["SubnetIds"]) == 1
        assert queue["JobExclusiveAllocation"] is True


@pytest.mark.parametrize(
    ("network", "dns"),
    [
        ({}, None),
        ({"nat": "none", "interface_endpoints": ["route53"]}, None),
        ({"nat": "none"}, {"DisableManagedDns": True, "UseEc2Hostnames": True}),
    ],
)
def test_nodes_keep_ec2s_names_where_route_53_is_out_of_reach(network: dict[str, Any], dns: object) -> None:
    env = settings.validate({"network": network})
    assert render(env, ids_for(env))["Scheduling"]["SlurmSettings"].get("Dns") == dns


def test_overrides_come_last_and_find_queues_by_name() -> None:
    given_overrides = {
        "DevSettings": {"Timeouts": {"HeadNodeBootstrapTimeout": 2400}},
        "Scheduling": {
            "SlurmSettings": {"QueueUpdateStrategy": "TERMINATE"},
            "SlurmQueues": [
                {"Name": "compute1", "HealthChecks": {"Gpu": {"Enabled": False}}, "JobExclusiveAllocation": None}
            ],
        },
    }
    env = settings.validate({"pcluster": {"overrides": given_overrides}})
    config = render(env, ids_for(env))
    assert config["DevSettings"]["Timeouts"] == {**BOOTSTRAP_SECONDS, "HeadNodeBootstrapTimeout": 2400}
    assert config["Scheduling"]["SlurmSettings"] == {"ScaledownIdletime": 10, "QueueUpdateStrategy": "TERMINATE"}
    queue, cpu = config["Scheduling"]["SlurmQueues"]
    assert (queue["Name"], cpu["Name"]) == ("compute1", "cpu")
    assert cpu["JobExclusiveAllocation"] is True
    assert queue["HealthChecks"] == {"Gpu": {"Enabled": False}}
    assert queue["ComputeResources"][0]["MaxCount"] == 16
    assert "JobExclusiveAllocation" not in queue


def test_policies_security_groups_and_slurm_settings_are_added_to_ours() -> None:
    """The nodes cannot start without the stack's own: their scripts, their file systems, Session Manager."""
    nodes = {
        "Iam": {"AdditionalIamPolicies": [{"Policy": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}]},
        "Networking": {"AdditionalSecurityGroups": ["sg-0000000000000000b"]},
    }
    queues = {
        "SlurmQueues": [{"Name": "compute1", **nodes}],
        "SlurmSettings": {"CustomSlurmSettings": [{"PriorityType": "priority/basic"}]},
    }
    data = {"slurm_settings": [{"MaxJobCount": 20000}], "overrides": {"HeadNode": nodes, "Scheduling": queues}}
    env = settings.validate({"pcluster": data})
    assert checks.check(env, "slurm") == []
    config = render(env, ids_for(env))
    for node, own in ((config["HeadNode"], ["nodes", "head"]), (config["Scheduling"]["SlurmQueues"][0], ["nodes"])):
        policies = [p["Policy"].rpartition("/")[2] for p in node["Iam"]["AdditionalIamPolicies"]]
        assert policies == [*own, "AmazonS3ReadOnlyAccess"]
        assert node["Networking"]["AdditionalSecurityGroups"] == [*IDS.security_groups, "sg-0000000000000000b"]
    assert config["Scheduling"]["SlurmSettings"]["CustomSlurmSettings"] == [
        {"MaxJobCount": 20000},
        {"PriorityType": "priority/basic"},
    ]


def test_slurms_topology_plugin_can_be_switched_on() -> None:
    """docs/guides/capacity.md, "Near each other"."""
    env = settings.validate({"pcluster": {"slurm_settings": [{"TopologyPlugin": "topology/tree"}]}})
    [problem] = checks.check(env, "slurm")
    assert (problem.level, "topology.conf must be in the folder of slurm.conf" in problem.reason) == ("warning", True)
    slurm = render(env, ids_for(env))["Scheduling"]["SlurmSettings"]
    assert {"TopologyPlugin": "topology/tree"} in slurm["CustomSlurmSettings"]


def test_a_directory_of_overrides_is_parallelclusters_section() -> None:
    """docs/guides/several-users.md, "From a directory": the section, in ParallelCluster's spelling."""
    env = settings.load(ENVIRONMENTS / "login-and-accounting.yaml")
    config = render(env, ids_for(env))
    assert config["DirectoryService"] == {
        "DomainName": "corp.example.com",
        "DomainAddr": "ldaps://corp.example.com",
        "PasswordSecretArn": "arn:aws:secretsmanager:us-east-1:111122223333:secret:directory-AbCdEf",
        "DomainReadOnlyUser": "cn=ReadOnly,ou=Users,ou=CORP,dc=corp,dc=example,dc=com",
        "LdapTlsReqCert": "hard",
        "GenerateSshKeysForUsers": True,
        "LdapTlsCaCert": "/etc/ssl/corp.pem",
        "LdapAccessFilter": "memberOf=cn=Speech,ou=Users,ou=CORP,dc=corp,dc=example,dc=com",
        "AdditionalSssdConfigs": {"debug_level": "0x1ff"},
    }
    assert list(schema_faults(config)) == []
    assert [p for p in checks.check(env, "slurm") if "DirectoryService" in p.key] == []
    assert env.pcluster.several_users == "directory"


# What no setting controls: overrides may change it, and the rules of `checks.cluster_configuration` look at what is unsafe.
FREE = {
    "Imds.ImdsSupport", "HeadNode.Imds.Secured", "Monitoring.Logs.CloudWatch.Enabled", "Monitoring.Logs.CloudWatch.DeletionPolicy",
    "HeadNode.LocalStorage.RootVolume.VolumeType", "HeadNode.LocalStorage.RootVolume.Encrypted",
    "Scheduling.SlurmSettings.QueueUpdateStrategy", "Scheduling.SlurmSettings.Dns",
    "Scheduling.SlurmQueues.*.JobExclusiveAllocation", "Scheduling.SlurmQueues.*.ComputeResources.*.DynamicNodePriority",
    "Scheduling.SlurmQueues.*.ComputeSettings.LocalStorage.RootVolume.VolumeType",
    "Scheduling.SlurmQueues.*.ComputeSettings.LocalStorage.RootVolume.Encrypted",
    "LoginNodes.Pools.*.Count", "LoginNodes.Pools.*.Ssh.AllowedIps", "SharedStorage", "DevSettings.Timeouts",
}  # fmt: skip
LISTS = (
    "Iam.AdditionalIamPolicies",
    "Networking.AdditionalSecurityGroups",
    "SlurmSettings.CustomSlurmSettings",
    "*.Name",
)


def leaves(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {leaf for key, item in value.items() for leaf in leaves(item, f"{path}.{key}".removeprefix("."))}
    named = isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "Name" in value[0]
    return {leaf for item in value for leaf in leaves(item, f"{path}.*")} if named else {path}


def test_every_key_that_we_render_is_controlled_added_to_or_free() -> None:
    """A key that a setting controls is not forgotten in the table of the rule."""
    known = {*overrides.CONTROLLED, *overrides.CANNOT, f"{overrides.RESOURCE}.InstanceType", *FREE}
    rendered: set[str] = set()
    for file in (None, *ENVIRONMENTS.glob("*.yaml")):
        env = settings.load(file)
        env = env.model_copy(update={"pcluster": env.pcluster.model_copy(update={"overrides": {}})})
        rendered |= leaves(render(env, ids_for(env)))
    forgotten = {
        leaf for leaf in rendered if not leaf.endswith(LISTS) and not any(f"{leaf}.".startswith(f"{k}.") for k in known)
    }
    assert forgotten == set()


TREES = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ABCD"), inner, max_size=3),
    max_leaves=12,
)
MAPPINGS = st.dictionaries(st.sampled_from("ABCD"), TREES, max_size=4)


@given(MAPPINGS, MAPPINGS)
def test_merging_is_idempotent_and_changes_neither_side(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    before = repr((ours, theirs))
    once = merged(ours, theirs)
    assert repr((ours, theirs)) == before
    assert merged(once, theirs) == once
    assert merged(ours, {}) == ours
    assert {k: v for k, v in once.items() if k not in theirs} == {k: v for k, v in ours.items() if k not in theirs}

"""What a deployment would do: tables over the stacks' own templates, and over small ones."""

from __future__ import annotations

import copy
import functools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stacks import synthesis
from tests.stacks.synthesis import Stacks
from tests.support import ROOT, need
from trainium_cdk import settings
from trainium_cdk.client.operations.updates import Change, Spec, compare, dangerous
from trainium_cdk.client.operations.updates.spec import VERSION, command, find, installed, variables
from trainium_cdk.description.catalog.updates import updates
from trainium_cdk.errors import TrnError

Data = dict[str, Any]
METRICS = ("loses", "Observability/Metrics", "LogGroupName")
"""The records of the old cluster's metrics; the metrics themselves stay in CloudWatch."""
FULL: Data = {
    "storage": {"efs": {}, "fsx": {"deployment": "PERSISTENT_2", "capacity_gib": 2400}},
    "pcluster": {"head": {"subnet": "public", "ssh": {"from_cidrs": ["203.0.113.0/24"]}}},
}


@pytest.fixture(scope="module")
def spec() -> Spec:
    need((ROOT / "node_modules/aws-cdk").is_dir(), "the CDK command line is not installed: make setup")
    return Spec.load(ROOT / "node_modules/aws-cdk/db.json.gz")


def synth(data: Data, stacks: Stacks = synthesis.SLURM) -> Data:
    return _synth(json.dumps(data), stacks)


@functools.cache
def _synth(data: str, stacks: Stacks) -> Data:
    env = settings.validate({"account": "111122223333", **json.loads(data)})
    found: Data = stacks.template_of(env, "Trn", **{"aws:cdk:enable-path-metadata": True}).to_json()
    return found


def merged(ours: Data, theirs: Data) -> Data:
    both = {
        k: merged(ours[k], v) if isinstance(v, dict) and isinstance(ours.get(k), dict) else v for k, v in theirs.items()
    }
    return {**ours, **both}


def summary(changes: list[Change], *levels: str) -> set[tuple[str, str, str]]:
    return {(c.level, c.name, c.property) for c in changes if c.level in (levels or ("loses", "refused"))}


CHANGES = yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text("utf-8"))


def test_the_cpu_queue_is_added_to_a_running_cluster(spec: Spec) -> None:
    """Clusters of an older release get it with their next deployment."""
    found = compare(synth(merged(FULL, {"pcluster": {"cpu_queue": None}})), synth(FULL), spec)
    [added] = [c for c in found if c.property == "Scheduling.SlurmQueues"]
    assert (added.level, added.new, added.meaning) == (
        "safe",
        "cpu",
        "the running cluster is updated without interruption",
    )
    assert summary(found) == set()


@pytest.mark.parametrize("what", CHANGES["slurm"])
def test_changes_of_the_slurm_environment(what: str, spec: Spec) -> None:
    change, expected = CHANGES["slurm"][what].values()
    found = compare(synth(FULL), synth(merged(FULL, change)), spec)
    assert summary(found) == {tuple(each) for each in expected}
    assert bool(found) == bool(change)
    assert all(c.advice for c in dangerous(found))


def test_a_network_change_is_followed_to_its_consequences(spec: Spec) -> None:
    found = compare(synth(FULL), synth(merged(FULL, {"network": {"cidr": "10.9.0.0/16"}})), spec)
    lost = {(level, name) for level, name, _ in summary(found)}
    targets = {c.name for c in found if c.type == "AWS::EFS::MountTarget"}  # they would be in two VPCs
    assert targets
    assert lost == {("loses", "Storage/Fsx"), ("refused", "Cluster/trn-slurm"), *(("refused", t) for t in targets)}
    assert "EFS::FileSystem" not in str(dangerous(found))
    replaced = {c.type for c in found if c.level == "replaces"}
    assert {"AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::NatGateway", "AWS::EFS::MountTarget"} <= replaced


ENGINES = {"slurm": synthesis.SLURM, "eks": synthesis.EKS, "pcs": synthesis.PCS}


@pytest.mark.parametrize("what", CHANGES["rejected"])
def test_changes_that_aws_rejects(what: str, spec: Spec) -> None:
    """CloudFormation creates what is new, of the same name or addresses, before it deletes the old."""
    engine, old, change, expected = CHANGES["rejected"][what].values()
    stacks = ENGINES[engine]
    found = compare(synth(old, stacks), synth(merged(old, change), stacks), spec)
    refused = [c for c in found if c.level == "refused"]
    assert sorted({f"{c.name} {c.property}: {c.meaning}. {c.advice}" for c in refused}) == sorted(expected)


def test_kept_resources_are_reported_as_kept(spec: Spec) -> None:
    kept = {**FULL, "on_destroy": "keep"}
    for change in ({"storage": {"fsx": None}}, {"storage": {"fsx": {"throughput": 250}}}):
        [found] = [c for c in compare(synth(kept), synth(merged(kept, change)), spec) if c.level == "loses"]
        assert "is kept in the account with its files" in found.meaning


@pytest.mark.parametrize(
    ("deletion", "replacement", "after", "meaning"),
    [
        ("Retain", "Delete", "b", "it is replaced; lost with it: its objects"),  # on_destroy: keep -> delete, and a replacement
        ("Delete", "Retain", "b", "it is replaced by a new, empty one; the old one is kept in the account with its objects"),
        ("Delete", "Retain", "", "it is deleted; lost with it: its objects"),
        ("RetainExceptOnCreate", "Delete", "", "it is removed from the stack, but is kept in the account with its objects, and costs money"),
    ],
)  # fmt: skip
def test_what_is_kept_depends_on_how_it_goes(
    deletion: str, replacement: str, after: str, meaning: str, spec: Spec
) -> None:
    def bucket(name: str) -> Data:
        properties = {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": name}}
        return {"Resources": {"B": {**properties, "DeletionPolicy": deletion, "UpdateReplacePolicy": replacement}}}

    [change] = compare(bucket("a"), bucket(after) if after else {}, spec)
    assert (change.level, change.meaning) == ("loses", meaning)


def test_a_new_cluster_stands_on_the_same_file_systems(spec: Spec) -> None:
    """The way on from whatever ParallelCluster cannot change: another name."""
    change = {"pcluster": {"cluster_name": "second", "os": "ubuntu2204", "version": "3.15.0"}}
    found = compare(synth(FULL), synth(merged(FULL, change)), spec)
    assert summary(found) == {("loses", "Cluster/trn-slurm", ""), METRICS}
    assert ("safe", "Cluster/second", "") in summary(found, "safe")
    assert dangerous(found, ["Cluster/trn-slurm", "Observability/Metrics"]) == []


ACCOUNTS: Data = {
    "accounting": {"uri": "db:3306", "user": "slurm", "password_secret": "arn:aws:secretsmanager:us-east-1:111122223333:secret:s"}
}  # fmt: skip
LIMITS = "`sacctmgr dump trn-slurm file=limits.cfg`, then `sacctmgr load file=limits.cfg cluster=second`; `sacct -M trn-slurm` shows old jobs"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ({}, {"cluster_name": "second"}, None),
        (ACCOUNTS, {}, None),
        # another cluster has another database
        (
            ACCOUNTS,
            {"cluster_name": "second"},
            ("loses", "trn_slurm", "second", f"Set pcluster.accounting.database: trn_slurm, and copy the limits: {LIMITS}"),
        ),
        (
            ACCOUNTS,
            {"cluster_name": "second", "accounting": {"uri": "new:3306"}},
            ("loses", "trn_slurm", "second",
             f"Set pcluster.accounting.database: trn_slurm, with the uri as it was, and copy the limits: {LIMITS}"),
        ),
        # the advice followed
        (
            ACCOUNTS,
            {"cluster_name": "second", "accounting": {"database": "trn_slurm"}},
            ("interrupts", "trn-slurm", "second", f"Copy the limits: {LIMITS}"),
        ),
        # in place: ParallelCluster itself takes the change for harmless
        (ACCOUNTS, {"accounting": {"database": "other"}}, ("loses", "trn_slurm", "other", "Set pcluster.accounting.database: trn_slurm")),
        (ACCOUNTS, {"accounting": {"database": "trn_slurm"}}, None),
    ],
)  # fmt: skip
def test_accounting_is_kept_by_its_database(old: Data, new: Data, expected: tuple[str, ...] | None, spec: Spec) -> None:
    before = merged(FULL, {"pcluster": old})
    found = compare(synth(before), synth(merged(before, {"pcluster": new})), spec)
    about = [c for c in found if c.property == "Scheduling.SlurmSettings.Database"]
    assert [(c.level, c.old, c.new, str(c).rpartition(". ")[2]) for c in about] == ([expected] if expected else [])


def test_a_stopped_fleet_allows_what_needs_it(spec: Spec) -> None:
    fewer = {"pcluster": {"queues": [{"compute_resources": [{"max_nodes": 8}]}]}}
    old, new = synth(FULL), synth(merged(FULL, fewer))
    assert dangerous(compare(old, new, spec, fleet_running=True))
    [change] = [c for c in compare(old, new, spec, fleet_running=False) if c.level != "safe"]
    assert (change.level, change.old, change.new) == ("interrupts", "16", "8")


EKS: Data = {
    "eks": {"version": "1.34"},
    "storage": {"efs": {}, "fsx": {}},
    "network": {"zone_ids": ["use1-az4", "use1-az5"]},
}


@pytest.mark.parametrize("what", CHANGES["eks"])
def test_changes_of_the_eks_environment(what: str, spec: Spec) -> None:
    change, expected = CHANGES["eks"][what].values()
    found = compare(synth(EKS, synthesis.EKS), synth(merged(EKS, change), synthesis.EKS), spec)
    assert {tuple(each) for each in expected} <= summary(found)
    assert {name for _, name, _ in summary(found)} == {name for _, name, _ in expected}


def test_replaced_nodes_are_reported(spec: Spec) -> None:
    change = {"eks": {"node_groups": [{"root_volume_gib": 600}]}}
    found = compare(synth(EKS, synthesis.EKS), synth(merged(EKS, change), synthesis.EKS), spec)
    [nodes] = [c for c in found if c.level == "interrupts"]
    assert (nodes.name, nodes.property) == ("Grouptrn", "LaunchTemplate.Version")
    assert "every running node of the group is replaced" in nodes.meaning


def test_nodes_above_a_lower_maximum_are_reported(spec: Spec) -> None:
    old, new = (synth(merged(EKS, {"eks": {"node_groups": [{"max_nodes": n}]}}), synthesis.EKS) for n in (4, 2))
    [ended] = [c for c in compare(old, new, spec) if c.level == "interrupts"]
    assert (ended.name, ended.property, ended.old, ended.new) == ("Grouptrn", "ScalingConfig.MaxSize", "4", "2")
    assert not [c for c in compare(new, old, spec) if c.level == "interrupts"]


def test_zones_changed_by_a_new_node_group_are_reported_with_the_fix(spec: Spec) -> None:
    """Where an environment names no zones they follow the instance types, and the file systems would follow the zones."""
    old: Data = {"eks": {}, "storage": {"fsx": {}}}
    new: Data = {
        "eks": {"node_groups": [{}, {"name": "small", "instance_type": "trn1.2xlarge"}]},
        "storage": {"fsx": {}},
    }
    lost = dangerous(compare(synth(old, synthesis.EKS), synth(new, synthesis.EKS), spec))
    assert {("Storage/Fsx", "SubnetIds.0"), ("Cluster", "ResourcesVpcConfig.SubnetIds.0")} <= {
        (c.name, c.property) for c in lost
    }
    fix = {"network": {"zone_ids": ["use1-az4", "use1-az1"]}}
    assert {c.advice for c in lost if c.property.startswith("Subnet")} == {
        "keep the zones as they are: network: {zone_ids: [use1-az4, use1-az1]}"
    }
    new["eks"]["node_groups"][1]["zone_id"] = "use1-az4"  # and the zone has no such type: a check reports that
    assert dangerous(compare(synth(old, synthesis.EKS), synth(merged(new, fix), synthesis.EKS), spec)) == []


def test_a_service_range_changed_by_a_new_peering_is_reported_with_the_fix(spec: Spec) -> None:
    """The cluster would go with its network of services, which is chosen where none is named."""
    peer = {"vpc_id": "vpc-0123456789abcdef0", "cidr": "172.20.0.0/16", "route_tables": ["rtb-0123456789abcdef0"]}
    new: Data = {"eks": {}, "network": {"peerings": [peer]}}
    lost = dangerous(compare(synth({"eks": {}}, synthesis.EKS), synth(new, synthesis.EKS), spec))
    [cluster] = [c for c in lost if c.property == "KubernetesNetworkConfig.ServiceIpv4Cidr"]
    assert (cluster.level, cluster.old, cluster.new) == ("refused", "172.20.0.0/16", "10.100.0.0/16")
    assert cluster.advice == "keep the services' network as it is: eks: {service_cidr: 172.20.0.0/16}"
    new["eks"] = {"service_cidr": "172.20.0.0/16"}
    assert dangerous(compare(synth({"eks": {}}, synthesis.EKS), synth(new, synthesis.EKS), spec)) == []


@pytest.mark.sweep
def test_a_redeploy_is_no_change(spec: Spec) -> None:
    cases = [(synthesis.SLURM, n) for n in synthesis.SLURM.names] + [(synthesis.EKS, n) for n in synthesis.EKS.names]
    for kind, name in cases:
        env = settings.load(None if name == "default" else ROOT / f"tests/environments/{name}.yaml")
        data = json.loads(env.model_dump_json(by_alias=True, exclude_unset=True))
        old = synth(data, kind)
        assert compare(old, copy.deepcopy(old), spec) == []
        as_text = json.loads(json.dumps(old), parse_int=str)
        assert compare(old, as_text, spec) == []


def held(template: Data, spec: Spec) -> Iterator[tuple[str, Data]]:
    for key, resource in template["Resources"].items():
        provider = resource["Type"] == "AWS::CloudFormation::Stack"
        if resource["Type"] in updates().holds or (spec.stateful(resource["Type"]) and not provider):
            yield key, resource


@pytest.mark.parametrize("kind", [synthesis.SLURM, synthesis.EKS])
def test_replacements_of_stateful_resources_are_reported(kind: Stacks, spec: Spec) -> None:
    """Whatever property replaces it, on whatever level: the change is called dangerous, and so is its removal."""
    old = synth(FULL if kind is synthesis.SLURM else EKS, kind)
    tried = 0
    for key, resource in held(old, spec):
        without = copy.deepcopy(old)
        del without["Resources"][key]
        assert [c for c in dangerous(compare(old, without, spec)) if c.resource == key], key
        if resource["Type"] == "Custom::PclusterCluster":
            continue
        for path in list(paths(resource.get("Properties", {}))):
            if spec.impact(resource["Type"], path) == "yes":
                new = copy.deepcopy(old)
                put(new["Resources"][key]["Properties"], path, "something-else")
                assert [c for c in dangerous(compare(old, new, spec)) if c.resource == key], (key, path)
                tried += 1
    assert tried >= 8


def paths(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and not (len(value) == 1 and next(iter(value)).startswith(("Ref", "Fn::"))):
        for key, inner in value.items():
            yield from paths(inner, (*at, key))
    elif at:
        yield at


def put(properties: Any, path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        properties = properties[step]
    properties[path[-1]] = value


def cluster(version: str | None) -> Data:
    return {"Type": "AWS::EKS::Cluster", "Properties": {"RoleArn": "r", **({"Version": version} if version else {})}}


def group(version: str | None) -> Data:
    properties = {"ClusterName": {"Ref": "C"}, **({"Version": version} if version else {})}
    return {"Type": "AWS::EKS::Nodegroup", "Properties": properties}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (("1.33", "1.33"), ("1.34", "1.34"), ""),
        (("1.33", "1.33"), ("1.34", "1.33"), ""),
        (("1.33", "1.33"), ("1.35", "1.33"), "deploy 1.34 first"),
        (("1.34", "1.33"), ("1.33", "1.33"), "stay at 1.34"),
        (("1.33", "1.33"), ("1.33", "1.34"), "nodes may not be ahead of their control plane, which is 1.33"),
        (("1.35", "1.32"), ("1.36", "1.32"), "nodes may be at most 3 minor versions behind"),
        (("1.35", None), ("1.36", None), ""),
        ((None, None), (None, "1.33"), ""),
    ],
)
def test_incompatible_versions(old: Any, new: Any, message: str, spec: Spec) -> None:
    before, after = ({"Resources": {"C": cluster(c), "G": group(g)}} for c, g in (old, new))
    refused = [str(c).lower() for c in compare(before, after, spec) if c.level == "refused"]
    assert len(refused) == bool(message)
    assert message in "".join(refused)


@pytest.mark.parametrize(("before", "after", "lost"), [("a", "a", []), ("a", "b", ["BucketName"])])
def test_the_default_of_a_parameter_is_followed_where_it_changes(
    before: str, after: str, lost: list[str], spec: Spec
) -> None:
    old, new = (
        {
            "Parameters": {"Name": {"Type": "String", "Default": name}},
            "Resources": {"B": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": {"Ref": "Name"}}}},
        }
        for name in (before, after)
    )
    assert [c.property for c in compare(old, new, spec)] == lost


def test_a_launch_template_that_is_another_one_is_refused(spec: Spec) -> None:
    def with_template(name: str) -> Data:
        resource = group("1.33")
        resource["Properties"]["LaunchTemplate"] = {"Id": {"Ref": "T"}, "Version": "1"}
        template = {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateName": name}}
        return {"Resources": {"C": cluster("1.33"), "G": resource, "T": template}}

    [refused] = dangerous(compare(with_template("a"), with_template("b"), spec))
    assert (refused.resource, refused.property) == ("G", "LaunchTemplate.Id")


def test_an_update_of_the_cdk_function_that_empties_buckets_is_reported(spec: Spec) -> None:
    def with_token(token: str) -> Data:
        properties = {"ServiceToken": token, "BucketName": "mine"}
        return {"Resources": {"E": {"Type": "Custom::S3AutoDeleteObjects", "Properties": properties}}}

    [lost] = dangerous(compare(with_token("a"), with_token("b"), spec))
    assert "its objects" in lost.meaning


def test_a_missing_database_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TRN_CDK", raising=False)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(TrnError, match="there is no `cdk`, and no npm to install it with"):
        find()
    (tmp_path / "cdk").write_text("")
    (tmp_path / "cdk").chmod(0o755)
    with pytest.raises(TrnError, match="no resource database"):
        find()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("TRN_CDK", str(tmp_path / "cdk"))
    (tmp_path / "db.json.gz").write_bytes(b"no gzip")
    with pytest.raises(TrnError, match="is not the CDK's resource database"):
        Spec.load()


def test_a_foreign_folder_does_not_choose_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRN_CDK", raising=False)
    ours, theirs = tmp_path / "bin/cdk", tmp_path / "node_modules/.bin/cdk"
    for file in (ours, theirs):
        file.parent.mkdir(parents=True)
        file.write_text("#!/bin/sh\n")
        file.chmod(0o755)
    monkeypatch.setenv("PATH", str(ours.parent))
    assert command() == ours
    (tmp_path / "cdk.json").write_text("{}")
    assert command() == ours
    monkeypatch.setenv("PATH", "/nowhere")
    assert command().resolve() == theirs
    (tmp_path / "cdk.json").unlink()
    assert installed() is None


def test_a_cdk_of_the_tested_version_is_installed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the npm of the extra `node`, into the user's cache; later without a network."""
    assert json.loads((ROOT / "package.json").read_text())["devDependencies"]["aws-cdk"] == VERSION
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRN_CDK", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    programs = tmp_path / "environment/bin"
    programs.mkdir(parents=True)
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    npm = programs / "npm"
    npm.write_text('#!/bin/sh\necho "$@" >&2; exit 1\n')
    npm.chmod(0o755)
    with pytest.raises(
        TrnError, match=f"npm could not install aws-cdk@{VERSION}:\ninstall --prefix .*aws-cdk@{VERSION}"
    ):
        command()
    npm.write_text(
        "#!/bin/sh\nPATH=/usr/bin:/bin; mkdir -p $3/node_modules/.bin $3/node_modules/aws-cdk/bin\n"
        "echo > $3/node_modules/aws-cdk/bin/cdk; echo > $3/node_modules/aws-cdk/db.json.gz\n"
        "ln -s ../aws-cdk/bin/cdk $3/node_modules/.bin/cdk\n"
    )
    cdk = command()
    assert cdk == tmp_path / f"cache/trainium-cdk/aws-cdk-{VERSION}/node_modules/.bin/cdk"
    assert find() == cdk.resolve().parents[1] / "db.json.gz"
    npm.unlink()
    assert command() == cdk
    assert capsys.readouterr().err.count("(once)") == 2
    assert variables()["PATH"] == f"/nowhere:{programs}"

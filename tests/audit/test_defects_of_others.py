"""Defects reported in other projects (with the source), which ours must not have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.audit.conftest import Templates, whole
from tests.support import completed
from tools.audit.render import ROOT, values
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.node.scripts import scripts_dir

EVERYWHERE = {"0.0.0.0/0", "::/0"}
Rule = dict[str, Any]


def kind(template: dict[str, Any], name: str) -> dict[str, dict[str, Any]]:
    return {k: r.get("Properties", {}) for k, r in template["Resources"].items() if r["Type"] == f"AWS::{name}"}


def rules(template: dict[str, Any], way: str) -> list[Rule]:
    """Every rule of every security group, inline or separate; `way` is Ingress or Egress."""
    inside = [r for g in kind(template, "EC2::SecurityGroup").values() for r in g.get(f"SecurityGroup{way}", [])]
    return [*inside, *kind(template, f"EC2::SecurityGroup{way}").values()]


def each(templates: Templates) -> Iterator[tuple[str, dict[str, Any]]]:
    assert templates
    yield from templates.items()


def scripts(audited: Path) -> list[Path]:
    """Those of jobs."""
    return [file for file in (audited / "jobs").rglob("*") if file.is_file()]


def test_ports_are_valid(templates: Templates) -> None:
    """The Neuron EKS samples' security groups have port 65536. ICMP's types and codes are separate numbers."""
    for subject, template in each(templates):
        for rule in [*rules(template, "Ingress"), *rules(template, "Egress")]:
            if str(rule["IpProtocol"]) not in {"icmp", "icmpv6"}:
                for port in (rule.get("FromPort", 0), rule.get("ToPort", 0)):
                    assert -1 <= port <= 65535, (subject, rule)


def test_nothing_is_open_to_every_address(templates: Templates) -> None:
    """The Neuron EKS samples allow SSH from anywhere. Checked: security groups, ParallelCluster's settings, the API server."""
    for subject, template in each(templates):
        for rule in rules(template, "Ingress"):
            assert rule.get("CidrIp") not in EVERYWHERE, subject
            assert rule.get("CidrIpv6") not in EVERYWHERE, subject
        assert not EVERYWHERE & {a for a in values(template, "AllowedIps") if isinstance(a, str)}, subject
        for cluster in kind(template, "EKS::Cluster").values():
            network = cluster["ResourcesVpcConfig"]
            if network["EndpointPublicAccess"]:
                assert not EVERYWHERE & set(network["PublicAccessCidrs"]), subject


def test_subnets_give_no_public_addresses(templates: Templates) -> None:
    """Instances with several network interfaces cannot have an automatic public address."""
    for subject, template in each(templates):
        for subnet in kind(template, "EC2::Subnet").values():
            assert subnet["MapPublicIpOnLaunch"] is False, subject


@whole
def test_lustre_has_all_of_its_ports(templates: Templates) -> None:
    """988 and 1018 to 1023, both ways, with clients and among servers: the EKS samples lack the second range."""
    seen = 0
    for subject, template in each(templates):
        for file_system in kind(template, "FSx::FileSystem").values():
            [group] = file_system["SecurityGroupIds"]
            for way, far in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
                own = [r for r in kind(template, f"EC2::SecurityGroup{way}").values() if r["GroupId"] == group]
                ports: dict[str, set[tuple[int, int]]] = {}
                for rule in own:
                    assert rule["IpProtocol"] == "tcp"
                    ports.setdefault(json.dumps(rule[far]), set()).add((rule["FromPort"], rule["ToPort"]))
                assert json.dumps(group) in ports, (subject, way)
                assert len(ports) >= 2, (subject, way)  # servers and clients
                assert all(p == {(988, 988), (1018, 1023)} for p in ports.values()), (subject, way, ports)
            seen += 1
    assert seen > 2


@whole
def test_efa_has_rules_to_itself_both_ways(templates: Templates) -> None:
    """All protocols; an allow-all rule for addresses is not sufficient (gardener 1832, awsome-distributed-ai 546). And no group has
    the tag of the cluster's own one: a second one breaks the load balancer controller."""
    seen = 0
    for subject, template in each(templates):
        assert "kubernetes.io/cluster/" not in json.dumps(kind(template, "EC2::SecurityGroup")), subject
        for data in values(template, "LaunchTemplateData"):
            cards = [n for n in data.get("NetworkInterfaces", []) if "efa" in str(n.get("InterfaceType"))]
            if not cards:
                continue
            [groups] = {json.dumps(n["Groups"]) for n in cards}  # all in the same groups
            fabric = json.loads(groups)
            for way, far in (("Ingress", "SourceSecurityGroupId"), ("Egress", "DestinationSecurityGroupId")):
                to_itself = [
                    r for r in kind(template, f"EC2::SecurityGroup{way}").values()
                    if r["IpProtocol"] == "-1" and r["GroupId"] == r.get(far) and r["GroupId"] in fabric
                ]  # fmt: skip
                assert len(to_itself) == 1, (subject, way)
            seen += 1
    assert seen > 5


@whole
def test_an_efa_fleet_is_in_one_subnet(templates: Templates) -> None:
    """EFA does not cross subnets (eks-ml-terraform 77)."""
    seen = 0
    for subject, template in each(templates):
        for name, group in kind(template, "EKS::Nodegroup").items():
            if name.startswith("Group"):
                assert len(group["Subnets"]) == 1, subject
                seen += 1
        for queues in values(template, "SlurmQueues"):
            for queue in queues:
                assert len(queue["Networking"]["SubnetIds"]) == 1, subject
                seen += 1
    assert seen > 20


def test_instances_require_imdsv2_everywhere(templates: Templates) -> None:
    """`required` beside `Secured: false`: awsome-distributed-training."""
    for subject, template in each(templates):
        for found in values(template, "LaunchTemplateData"):
            assert found["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}, subject
        for config in values(template, "ClusterConfiguration"):
            assert config["Imds"] == {"ImdsSupport": "v2.0"}, subject
            assert (
                "Secured" not in config["HeadNode"].get("Imds", {"Secured": True})
                or config["HeadNode"]["Imds"]["Secured"]
            )
        for name, instance in kind(template, "EC2::Instance").items():
            assert "LaunchTemplate" in instance, (subject, name)  # the only place to set it for an instance


def test_no_subnet_is_chosen_by_a_zones_name(templates: Templates) -> None:
    """A zone's name is another zone in each account (aws-cdk 8972)."""
    for subject, template in each(templates):
        for subnet in kind(template, "EC2::Subnet").values():
            assert "AvailabilityZone" not in subnet, subject
            assert re.fullmatch(r"[a-z0-9]+-az\d", subnet["AvailabilityZoneId"]), subject


MOVING = re.compile(
    r"raw\.githubusercontent\.com|/(?:blob|tree|raw)/(?:main|master)\b|/archive/(?:refs/heads/)?(?:main|master)\b"
    r"|(?:curl|wget)[^\n|]*\|\s*(?:sudo\s+)?(?:ba|z)?sh\b|[\"']?:latest\b"
)
OLD = {
    "apt-key": "keys valid for every repository; use signed-by",
    "neurondevice": "the deprecated resource that TorchX requests",
}


def test_nothing_is_fetched_from_a_moving_branch(audited: Path, templates: Templates) -> None:
    """Scripts from `main`: awsome-distributed-training, cdk-eks-blueprints, the Neuron EKS samples."""
    shipped = [p for p in scripts_dir().rglob("*") if p.suffix in {".py", ".sh"}]
    shipped += [p for p in (ROOT / "constructs").rglob("*") if p.suffix in {".py", ".sh", ".yaml", ".yml"}]
    texts = {str(p): p.read_text("utf-8") for p in [*shipped, *scripts(audited)]}
    texts |= {subject: json.dumps(template) for subject, template in templates.items()}
    assert len(texts) > 100
    assert {name: found[0] for name, text in texts.items() if (found := MOVING.search(text))} == {}
    models = (ROOT / "constructs/trainium_cdk/description/catalog/data/models.yaml").read_text("utf-8")
    assert models.count("url: https://github.com/") == len(re.findall(r"commit: [0-9a-f]{40}\b", models)) > 0


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ("curl https://raw.githubusercontent.com/a/b/v1/x.sh", True),
        ("https://github.com/a/b/archive/refs/heads/main.zip", True),
        ("https://github.com/a/b/tree/master/x", True),
        ("curl -fsSL https://x | sudo bash", True),
        ("image: public.ecr.aws/x/y:latest", True),
        ("curl -fsSL https://x/v1.2/x.tgz -o x.tgz", False),
        ("https://github.com/a/b/archive/v1.0.0.zip", False),
        ("git checkout 10c93cba78228781af013a7177eab862af901d97", False),
    ],
)
def test_moving_branches_are_detected(line: str, moves: bool) -> None:
    assert bool(MOVING.search(line)) is moves


@pytest.mark.parametrize("word", OLD)
def test_nothing_deprecated_is_used(word: str, audited: Path, templates: Templates) -> None:
    listed = completed(["git", "ls-files", "bootstrap", "constructs", "stacks"], cwd=ROOT, check=True).stdout.split()
    ours = [ROOT / name for name in listed if not name.endswith(".md") and (ROOT / name).is_file()]
    texts = {str(p): p.read_text("utf-8") for p in [*ours, *scripts(audited)]}
    texts |= {subject: json.dumps(template) for subject, template in templates.items()}
    use = re.compile(rf"(?<![\w-]){word}(?![\w-])")
    used = {n for n, t in texts.items() if any(use.search(line.partition("#")[0]) for line in t.splitlines())}
    assert used == set(), OLD[word]


def test_versions_are_pinned() -> None:
    """EFA and Neuron without versions: the ParallelCluster samples. A chart without one crashes the CDK's handler."""
    catalog = Catalog.load()
    assert re.fullmatch(r"\d+\.\d+\.\d+", catalog.efa_installer)
    assert re.fullmatch(r"\d+\.\d+\.\d+b\d+", catalog.cloudwatch_agent.version)
    assert re.fullmatch(r"[0-9a-f]{64}", catalog.cloudwatch_agent.sha256)
    for release in catalog.releases.values():
        assert all(re.fullmatch(r"[\d.]+", v) for v in (release.dkms, release.runtime, release.tools))
    assert all(re.fullmatch(r"v?\d+\.\d+\.\d+", chart.version) for chart in catalog.eks.charts.values())


@whole
def test_charts_in_templates_have_their_version(templates: Templates) -> None:
    charts = [
        r["Properties"]
        for template in templates.values()
        for r in template["Resources"].values()
        if r["Type"].startswith("Custom::AWSCDK-EKS-HelmChart")
    ]
    assert len(charts) > 10
    for chart in charts:
        assert chart.get("Version"), chart["Release"]
        assert int(str(chart["Timeout"]).removesuffix("s")) < 900  # Lambda's limit is 15 minutes, and Helm ends with it

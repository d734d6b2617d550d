"""Failures of each resource type at each phase: nothing is left, nothing is lost, and the next attempt finishes.

For each resource type of the three stacks: its creation fails, its deletion fails, its update fails. The stacks' own templates, deployed
by the emulated CloudFormation, with one failure injected.

What comes before the cluster is tried without what takes longest: the Slurm cluster, the charts and the Kubernetes objects, which have tests of their own.
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.leftovers import beyond, inventory
from tests.faults.changes import EKS, NEVER_DELETED, PCS, SLURM, Edits, edit
from tests.faults.driver import Driver, Template, assemble, publish
from trainium_cdk import settings

pytestmark = pytest.mark.sweep

REASON = "no such luck (injected)"
HEAVY = {"Custom::PclusterCluster", "Custom::AWSCDK-EKS-HelmChart", "Custom::AWSCDK-EKS-KubernetesResource"}


@dataclass
class Stack:
    """A stack to be broken.

    Attributes:
        whole: its template.
        lean: the same without what takes long.
    """

    name: str
    whole: Template
    edits: Edits
    lean: Template = field(init=False)

    def __post_init__(self) -> None:
        self.lean = without(self.whole, HEAVY)

    def template(self, kind: str) -> Template:
        """What to deploy in order to break a type."""
        return self.whole if kind in HEAVY or kind == "AWS::CloudFormation::Stack" else self.lean


def without(template: Template, kinds: set[str]) -> Template:
    """The template without the resources of some types, and without the outputs, which may speak of them."""
    dropped = {key for key, r in template["Resources"].items() if r["Type"] in kinds}
    kept = copy.deepcopy({key: r for key, r in template["Resources"].items() if key not in dropped})
    for resource in kept.values():
        waits = resource.get("DependsOn", [])
        resource["DependsOn"] = [key for key in ([waits] if isinstance(waits, str) else waits) if key not in dropped]
    return {"Parameters": template.get("Parameters", {}), "Resources": kept}


@pytest.fixture(scope="module")
def around(local_aws: LocalAws) -> Iterator[dict[str, str]]:
    """What the environment refers to and does not make: a VPC to be peered with, and a bucket of data."""
    ec2, s3 = local_aws.client("ec2"), local_aws.client("s3")
    vpc = ec2.create_vpc(CidrBlock="172.20.0.0/16")["Vpc"]["VpcId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    s3.create_bucket(Bucket="faults-corpus")
    yield {"vpc": vpc, "table": table}
    ec2.delete_route_table(RouteTableId=table)
    ec2.delete_vpc(VpcId=vpc)
    s3.delete_bucket(Bucket="faults-corpus")


@pytest.fixture(scope="module")
def slurm(local_aws: LocalAws, around: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Stack:
    from trainium_cdk.stacks.pcluster import TrnPclusterStack

    env = settings.validate(environment(around) | {
        "pcluster": {
            "head": {"subnet": "public", "ssh": {"from_cidrs": ["203.0.113.0/24", "198.51.100.7/32"]}},
            "queues": [{"compute_resources": [{"max_nodes": 4}]}],
        }
    })  # fmt: skip
    folder = tmp_path_factory.mktemp("slurm")
    template = assemble(env, TrnPclusterStack, "Slurm", folder)
    publish(local_aws, folder)
    return Stack("TrnPclusterStack", template, SLURM)


@pytest.fixture(scope="module")
def eks(local_aws: LocalAws, around: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Stack:
    from trainium_cdk.stacks.eks import TrnEksStack

    folder = tmp_path_factory.mktemp("eks")
    template = assemble(settings.validate(environment(around)), TrnEksStack, "Eks", folder)
    publish(local_aws, folder)
    return Stack("TrnEksStack", template, EKS)


@pytest.fixture(scope="module")
def pcs(local_aws: LocalAws, around: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Stack:
    from trainium_cdk.stacks.pcs import TrnPcsStack

    queues = {"pcs": {"queues": [{"name": "trn", "compute_resources": [{"max_nodes": 2}]}]}}
    folder = tmp_path_factory.mktemp("pcs")
    template = assemble(settings.validate(environment(around) | queues), TrnPcsStack, "Pcs", folder)
    publish(local_aws, folder)
    return Stack("TrnPcsStack", template, PCS)


def environment(around: dict[str, str]) -> dict[str, Any]:
    lustre = {
        "deployment": "PERSISTENT_2",
        "capacity_gib": 1200,
        "s3_links": [{"uri": "s3://faults-corpus/train/", "directory": "/corpus"}],
    }
    peering = {"vpc_id": around["vpc"], "cidr": "172.20.0.0/16", "route_tables": [around["table"]]}
    return {"name": "faults", "storage": {"efs": {}, "fsx": lustre}, "network": {"peerings": [peering]}}


def cases(but: Collection[str] = ()) -> Iterator[Any]:
    for which, kinds in (("slurm", SLURM), ("eks", EKS), ("pcs", PCS)):
        for kind in sorted(set(kinds) - set(but)):
            yield pytest.param(which, kind, id=f"{which}-{kind}")


@pytest.fixture
def driver(local_aws: LocalAws) -> Iterator[Driver]:
    """A stack of the test's own; neither it nor a fault outlives the test."""
    made = Driver(local_aws, f"faults-{uuid.uuid4().hex[:8]}")
    yield made
    made.clear()


def nothing_left(aws: LocalAws, before: dict[str, list[str]]) -> None:
    assert beyond(inventory(aws.client), before) == {}


def test_every_type_of_each_stack_is_tried(slurm: Stack, eks: Stack, pcs: Stack) -> None:
    for stack in (slurm, eks, pcs):
        kinds = {r["Type"] for r in stack.whole["Resources"].values()} - {"AWS::CDK::Metadata"}
        assert kinds == set(stack.edits)
        never = [r for r in stack.whole["Resources"].values() if r["Type"] in NEVER_DELETED]
        assert all(r["DeletionPolicy"] == "Retain" for r in never)


@pytest.mark.parametrize(("which", "kind"), [*cases()])
def test_a_creation_that_fails_leaves_nothing(
    which: str, kind: str, local_aws: LocalAws, driver: Driver, request: pytest.FixtureRequest
) -> None:
    stack: Stack = request.getfixturevalue(which)
    before = inventory(local_aws.client)
    local_aws.set_faults([{"type": kind, "phase": "create", "reason": REASON}])
    assert driver.create(stack.template(kind)) == "ROLLBACK_COMPLETE"
    assert REASON in driver.failures()
    left = beyond(inventory(local_aws.client), before)
    assert left == {"CloudFormation stacks": [driver.name]}
    assert driver.delete() == "DELETE_COMPLETE"
    nothing_left(local_aws, before)


@pytest.mark.parametrize(("which", "kind"), [*cases(NEVER_DELETED)])
def test_a_deletion_that_fails_is_finished_by_the_next(
    which: str, kind: str, local_aws: LocalAws, driver: Driver, request: pytest.FixtureRequest
) -> None:
    stack: Stack = request.getfixturevalue(which)
    before = inventory(local_aws.client)
    assert driver.create(stack.template(kind)) == "CREATE_COMPLETE", driver.failures()
    local_aws.set_faults([{"type": kind, "phase": "delete", "times": 1, "reason": REASON}])
    assert driver.delete() == "DELETE_FAILED"
    assert REASON in driver.failures()
    assert driver.delete() == "DELETE_COMPLETE"
    nothing_left(local_aws, before)


@pytest.mark.parametrize("which", ["slurm", "eks", "pcs"])
def test_an_update_that_fails_changes_nothing(
    which: str, local_aws: LocalAws, driver: Driver, request: pytest.FixtureRequest
) -> None:
    """All types one after another on one stack, whose state is the same after each: the last still finds what the first found."""
    stack: Stack = request.getfixturevalue(which)
    before = inventory(local_aws.client)
    base = stack.whole
    assert driver.create(base) == "CREATE_COMPLETE", driver.failures()
    made, serving = driver.physical(), state(local_aws, driver)
    wrong = {}
    for kind in sorted(stack.edits):
        local_aws.set_faults(
            [{"type": kind, "phase": p, "reason": f"{REASON} {kind}", "times": 1} for p in ("create", "update")]
        )
        status = driver.update(edited(base, stack.edits, kind))
        local_aws.set_faults([])
        happened = f"{REASON} {kind}" in driver.failures()
        if (status, happened, driver.physical(), state(local_aws, driver)) != (
            "UPDATE_ROLLBACK_COMPLETE",
            True,
            made,
            serving,
        ):
            wrong[kind] = (status, happened, changed(made, driver.physical()), driver.failures()[-300:])
    assert wrong == {}
    assert driver.delete() == "DELETE_COMPLETE"
    nothing_left(local_aws, before)


def edited(base: Template, edits: Edits, kind: str) -> Template:
    """The template with one resource of the type changed, and with a harmless change that is made before and has to be undone."""
    template = copy.deepcopy(base)
    resources = template["Resources"].values()
    edit(next(r for r in resources if r["Type"] == kind).setdefault("Properties", {}), edits[kind])
    vpc = next(r for r in resources if r["Type"] == "AWS::EC2::VPC")
    vpc["Properties"]["Tags"] = [*vpc["Properties"].get("Tags", []), {"Key": "undone", "Value": "1"}]
    return template


def state(aws: LocalAws, driver: Driver) -> dict[str, Any]:
    """What can be seen of the stack from outside: tags of its VPC, its head node or cluster, its file systems."""
    made = driver.physical().values()
    ec2 = aws.client("ec2")
    vpcs = ec2.describe_vpcs(VpcIds=[v for v in made if v.startswith("vpc-")])["Vpcs"]
    files = aws.client("fsx").describe_file_systems()["FileSystems"]
    record = aws.directory / "clusters/faults-slurm/cluster.json"
    clusters = aws.client("eks").list_clusters()["clusters"]
    groups = [
        aws.client("eks").describe_nodegroup(clusterName=c, nodegroupName=g)["nodegroup"]["labels"]
        for c in clusters for g in aws.client("eks").list_nodegroups(clusterName=c)["nodegroups"]
    ]  # fmt: skip
    pcs = aws.directory / "clusters/faults-pcs/config.yaml"
    return {
        "tags": sorted((t["Key"], t["Value"]) for v in vpcs for t in v.get("Tags", [])),
        "lustre": [(f["FileSystemId"], f["Lifecycle"]) for f in files],
        "slurm": json.loads(record.read_text())["config"] if record.is_file() else None,
        "eks": (clusters, groups),
        "pcs": pcs.read_text() if pcs.is_file() else None,
    }


def changed(old: dict[str, str], new: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    return {k: (old.get(k), new.get(k)) for k in old.keys() | new.keys() if old.get(k) != new.get(k)}

"""Service quotas compared with what the Trainium nodes, the head node and the network need."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainium_cdk.description.catalog import CapacityType, Catalog
from trainium_cdk.description.checks.live.account import stack
from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Found, counted, join_words
from trainium_cdk.problems import KeyPath

QUOTA = ("servicequotas:GetServiceQuota", "servicequotas:GetAWSDefaultServiceQuota")
STANDARD = frozenset("acdhimrtz")
"""Families that share one quota: `Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances`. Trainium is not `T`."""
NOT_STANDARD = ("trn", "inf", "dl", "hpc", "mac")
STACK_TAG = "aws:cloudformation:stack-name"
LIVE = {"Name": "instance-state-name", "Values": ["pending", "running"]}


@dataclass(frozen=True)
class Quota:
    """One service quota (codes from Service Quotas, 2026-11)."""

    name: str
    service: str
    code: str
    unit: str


TRN: dict[CapacityType, Quota] = {
    "on-demand": Quota("Running On-Demand Trn instances", "ec2", "L-2C3B7624", "vCPU"),
    "spot": Quota("All Trn Spot Instance Requests", "ec2", "L-6B0D517C", "vCPU"),
}
"""A capacity block is not counted. Its own limits apply when it is bought."""
STANDARD_VCPUS = Quota("Running On-Demand Standard instances", "ec2", "L-1216C47A", "vCPU")
ADDRESSES = Quota("EC2-VPC Elastic IPs", "ec2", "L-0263D0A3", "address")
VPCS = Quota("VPCs per Region", "vpc", "L-F678F1CE", "VPC")


@dataclass(frozen=True)
class QuotaUse:
    """The use of one quota.

    Attributes:
        limit: the quota's value in this account and region.
        used: current use outside this stack.
        wanted: the maximum that this environment needs, in addition to what its own stack already uses.
        parts: `wanted` as text.
        each: need of one unit of the largest part, if lowering its number is a fix.
        key: the key of that part.
        running: current use by this stack's own parts; included in `wanted`.
        instead: another fix, as a setting to write; empty if there is none.
    """

    quota: Quota
    limit: float
    used: int
    wanted: int
    parts: str
    each: int = 0
    key: KeyPath = ()
    running: int = 0
    instead: str = ""


def evaluate(target: CheckTarget, need: QuotaUse) -> Found:
    quota, limit = need.quota, int(need.limit)
    subject = target.about(f"quota {quota.name} ({quota.code})", *need.key)
    used = f", and {need.used:,} are in use" if need.used else ""
    own = f", {need.running:,} of them running now" if need.running else ""
    reason = f"{need.parts}: {counted(need.wanted, quota.unit)}{own}{used}"
    total = need.wanted + need.used
    if total <= limit:
        yield subject.ok(f"{limit:,}", reason)
        return
    raise_it = (
        f"aws service-quotas request-service-quota-increase --service-code {quota.service} --quota-code {quota.code} "
        f"--desired-value {total} --region {target.env.region}"
    )
    room = max(0, limit - need.used)
    fits = f", or lower max_nodes: {room // need.each} fit now" if need.each else ""
    instead = f", or write {need.instead}" if need.instead else ""
    yield subject.error(f"{limit:,}", reason, raise_it + fits + instead)


def applied(aws: Aws, quota: Quota) -> float:
    """The applied quota; for an account that never requested an increase, the default."""
    code = {"ServiceCode": quota.service, "QuotaCode": quota.code}
    answer = aws.find("servicequotas:GetServiceQuota", **code)
    answer = answer or aws("servicequotas:GetAWSDefaultServiceQuota", **code)
    return float(answer["Quota"]["Value"])


def _bought(target: CheckTarget, capacity_type: CapacityType) -> list[Any]:
    return [f for f in target.nodes if f.queue.capacity_type == capacity_type]


def _trn(capacity_type: CapacityType) -> Check[QuotaUse]:
    def fetch(target: CheckTarget, aws: Aws) -> QuotaUse:
        bought = _bought(target, capacity_type)
        wanted = sum(f.resource.max_nodes * f.kind.vcpus for f in bought)
        parts = join_words(f"{f.resource.max_nodes} x {f.kind.name}" for f in bought)
        most = max(bought, key=lambda f: f.resource.max_nodes * f.kind.vcpus)
        used = trn_vcpus(aws, target.env.catalog, spot=capacity_type == "spot", without=target)
        return QuotaUse(
            TRN[capacity_type],
            applied(aws, TRN[capacity_type]),
            used,
            wanted,
            parts,
            most.kind.vcpus,
            (*most.at, "max_nodes"),
        )

    actions = (*QUOTA, "ec2:DescribeInstances", "ec2:DescribeInstanceTypes")
    return Check(f"trn-quota-{capacity_type}", actions, fetch, evaluate, lambda t: bool(_bought(t, capacity_type)))


def trn_vcpus(aws: Aws, catalog: Catalog, *, spot: bool, without: CheckTarget | None = None) -> int:
    """vCPUs of the running Trainium instances that count for a quota, without the stack's cluster."""
    running = _running(aws, lambda t: t.startswith("trn"), spot=spot, without=without)
    known = {kind.name: kind.vcpus for kind in catalog.instances.values()}
    known |= _vcpus(aws, [t for t in running if t not in known])
    return sum(n * known.get(t, 0) for t, n in running.items())


def _running(aws: Aws, of: Callable[[str], bool], *, spot: bool, without: CheckTarget | None) -> Counter[str]:
    """Number of running instances by type, without a stack and its cluster."""
    running = _instances(aws, of, spot=spot)
    return Counter(kind for kind, tags in running if without is None or not _of_stack(without, tags))


def _of_stack(target: CheckTarget, tags: Mapping[str, str]) -> bool:
    """Return whether an instance belongs to the target's cluster, or CloudFormation created it for the target's stack (a bastion host)."""
    return target.cluster == tags.get(target.inventory.instance_tag) or target.stack == tags.get(STACK_TAG)


def _instances(aws: Aws, of: Callable[[str], bool], *, spot: bool) -> Iterator[tuple[str, dict[str, str]]]:
    """The running instances that count for a quota: type and tags of each."""
    answer = aws("ec2:DescribeInstances", Filters=[LIVE])
    for instance in (i for r in answer.get("Reservations", []) for i in r.get("Instances", [])):
        tags = {t["Key"]: t["Value"] for t in instance.get("Tags", [])}
        bought = instance.get("InstanceLifecycle", "on-demand")
        if bought == "capacity-block" or (bought == "spot") is not spot:
            continue
        if of(instance["InstanceType"]):
            yield instance["InstanceType"], tags


def _vcpus(aws: Aws, types: list[str]) -> dict[str, int]:
    """vCPUs by instance type, as EC2 reports them. Types that the region does not have are left out."""
    if not types:
        return {}
    filters = [{"Name": "instance-type", "Values": sorted(set(types))}]
    answer = aws("ec2:DescribeInstanceTypes", Filters=filters)
    return {t["InstanceType"]: int(t["VCpuInfo"]["DefaultVCpus"]) for t in answer.get("InstanceTypes", [])}


def is_standard(instance_type: str) -> bool:
    return instance_type[0] in STANDARD and not instance_type.startswith(NOT_STANDARD)


def fetch_standard(target: CheckTarget, aws: Aws) -> QuotaUse:
    """Read the quota of standard instances, and the stack's maximum use, deployed or not. An update may add servers, such as a CPU queue."""
    wanted = [s for s in target.servers if s.most and is_standard(s.instance_type)]
    running = list(_instances(aws, is_standard, spot=False))
    vcpus = _vcpus(aws, [*(kind for kind, _ in running), *(s.instance_type for s in wanted)])
    own = sum(vcpus.get(kind, 0) for kind, tags in running if _of_stack(target, tags))
    section = target.of.section
    cpu_queue = any(s.key[:2] == (section, "cpu_queue") for s in wanted)
    return QuotaUse(
        STANDARD_VCPUS,
        applied(aws, STANDARD_VCPUS),
        sum(vcpus.get(kind, 0) for kind, _ in running) - own,
        sum(s.most * vcpus.get(s.instance_type, 0) for s in wanted),
        join_words(f"{s.most} x {s.instance_type}" for s in wanted) if wanted else "no such instance",
        running=own,
        instead=f"{section}.cpu_queue: null" if cpu_queue else "",
    )


def addresses_wanted(target: CheckTarget) -> dict[str, int]:
    """Number of Elastic IP addresses of a new stack, by their use."""
    network = target.env.network
    nat = {"one": 1, "per-zone": len(target.zone_ids), "none": 0}[network.nat] if not network.existing else 0
    wanted = {"NAT gateways": nat, **{p.plural: p.most * p.public_addresses for p in target.inventory.parts}}
    return {what: n for what, n in wanted.items() if n}


def fetch_addresses(target: CheckTarget, aws: Aws) -> QuotaUse:
    wanted = {} if stack(target, aws) else addresses_wanted(target)
    used = len(aws("ec2:DescribeAddresses").get("Addresses", []))
    parts = join_words(f"{n} for {what}" for what, n in wanted.items()) if wanted else "the stack already has its own"
    return QuotaUse(ADDRESSES, applied(aws, ADDRESSES), used, sum(wanted.values()), parts)


def fetch_vpcs(target: CheckTarget, aws: Aws) -> QuotaUse:
    exists = stack(target, aws) is not None
    used = len(aws("ec2:DescribeVpcs").get("Vpcs", []))
    parts = "the stack already has its own" if exists else "a new VPC"
    return QuotaUse(VPCS, applied(aws, VPCS), used, 0 if exists else 1, parts)


STACK = "cloudformation:DescribeStacks"
STANDARD_CHECK: Check[QuotaUse] = Check(
    "standard-quota", (*QUOTA, "ec2:DescribeInstances", "ec2:DescribeInstanceTypes"), fetch_standard, evaluate
)
CHECKS: tuple[Check[Any], ...] = (
    _trn("on-demand"),
    _trn("spot"),
    STANDARD_CHECK,
    Check(
        "address-quota",
        (*QUOTA, STACK, "ec2:DescribeAddresses"),
        fetch_addresses,
        evaluate,
        lambda t: bool(addresses_wanted(t)),
    ),
    Check("vpc-quota", (*QUOTA, STACK, "ec2:DescribeVpcs"), fetch_vpcs, evaluate, lambda t: not t.env.network.existing),
)

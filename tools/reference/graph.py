"""A stack as a flowchart of Mermaid, from its template: machines, storage, services, and where data flows. What is not known is not drawn.
`python -m tools.reference.graph TEMPLATE...` prints the graph of a template in JSON (`cdk synth` writes them to cdk.out)."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from trainium_cdk.client.operations.updates import change

Area = Literal["public", "private", "storage", "region"]
"""Where a box is: machines in public or private subnets, file systems and ways out in the network, or services of the region."""
Resource = Mapping[str, Any]
_PORTS = {988: "Lustre, port 988", 2049: "NFS, port 2049"}
_SUFFIX = re.compile(r"(?:[0-9A-F]{8})+$")
_STORAGE = ("AWS::EFS::FileSystem", "AWS::FSx::FileSystem")


@dataclass(frozen=True)
class Box:
    """One part of the architecture.

    Attributes:
        id: its logical id in the template, with a suffix where one resource has several parts.
        lines: details, each short.
    """

    id: str
    area: Area
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Flow:
    """Data from one box to another, or both ways."""

    source: str
    target: str
    label: str


@dataclass(frozen=True)
class Architecture:
    """A stack.

    Attributes:
        network: title of the VPC; empty if the stack neither creates nor names one.
        subnets: title of the subnets of each area.
    """

    network: str
    subnets: dict[str, str]
    boxes: Sequence[Box]
    flows: Sequence[Flow]


def read(template: Mapping[str, Any]) -> Architecture:
    """The architecture of a stack."""
    return _Reader(template.get("Resources", {})).architecture()


def mermaid(found: Architecture) -> str:
    """The flowchart."""
    names = {box.id: f"n{i}" for i, box in enumerate(found.boxes)}
    lines = ["flowchart LR", f"  subgraph vpc[{_quoted(found.network)}]"] if found.network else ["flowchart LR"]
    for area in ("public", "private", "storage"):
        boxes = [box for box in found.boxes if box.area == area]
        if boxes:
            title = found.subnets.get(area, "file systems and endpoints")
            lines.append(f"    subgraph {area}[{_quoted(title)}]")
            lines += [f"      {names[box.id]}[{_box(box)}]" for box in boxes]
            lines.append("    end")
    lines += ["  end"] if found.network else []
    lines += [f"  {names[box.id]}[{_box(box)}]" for box in found.boxes if box.area == "region"]
    lines += [f"  {names[f.source]} -->|{_quoted(f.label)}| {names[f.target]}" for f in found.flows]
    return "\n".join(lines) + "\n"


def _box(box: Box) -> str:
    return f'"{"<br/>".join([f"<b>{_escaped(box.title)}</b>", *map(_escaped, box.lines)])}"'


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Letters that mean something to Mermaid are written as their codes."""
    return re.sub(r"[\"#<>&;`\\[\](){}|]", lambda found: f"#{ord(found[0])};", re.sub(r"\s+", " ", text).strip())


def references(node: Any) -> Iterator[str]:
    """The logical ids that a part of a template refers to, each once: `Ref` and `Fn::GetAtt` of one resource are one."""
    return iter(dict.fromkeys(id for id, _ in change.references(node)))


class _Reader:
    def __init__(self, resources: Mapping[str, Resource]):
        self.all = resources
        self.boxes: dict[str, Box] = {}
        self.uses: dict[str, set[str]] = {}
        """Box -> the resources that it refers to: subnets, groups, roles, policies."""

    def architecture(self) -> Architecture:
        for id, resource in self.all.items():
            if draw := _BOXES.get(resource["Type"]):
                for box, uses in draw(self, id, resource.get("Properties", {})):
                    self.boxes[box.id], self.uses[box.id] = box, set(uses)
        vpc = next((p for _, p in self._of("AWS::EC2::VPC")), None)
        network = "" if vpc is None else f"VPC {_text(vpc.get('CidrBlock'))}".strip()
        if not network and any(b.area != "region" for b in self.boxes.values()):
            network = "an existing VPC"
        flows = dict.fromkeys([*self._network_flows(), *self._permission_flows(), *self._other_flows()])
        first: dict[tuple[str, str], Flow] = {}
        for flow in flows:
            first.setdefault((flow.source, flow.target), flow)
        return Architecture(network, self._subnets(), list(self.boxes.values()), list(first.values()))

    def _of(self, *types: str) -> Iterator[tuple[str, Resource]]:
        return ((id, r.get("Properties", {})) for id, r in self.all.items() if r["Type"] in types)

    def type(self, id: str) -> str:
        return str(self.all.get(id, {}).get("Type", ""))

    def props(self, id: str) -> Resource:
        return self.all.get(id, {}).get("Properties", {})  # type: ignore[no-any-return]

    # Where things are

    def _public(self) -> set[str]:
        """The subnets with a route to an internet gateway."""
        tables = {
            t for _, p in self._of("AWS::EC2::Route") if "GatewayId" in p for t in references(p.get("RouteTableId"))
        }
        return {
            s
            for _, p in self._of("AWS::EC2::SubnetRouteTableAssociation")
            if tables & set(references(p.get("RouteTableId")))
            for s in references(p.get("SubnetId"))
        }

    def _subnets(self) -> dict[str, str]:
        public, titles = self._public(), {"public": "public subnets", "private": "private subnets"}
        for area in titles:
            found = [p for id, p in self._of("AWS::EC2::Subnet") if (id in public) == (area == "public")]
            zones = [_text(p.get("AvailabilityZoneId") or p.get("AvailabilityZone")) for p in found]
            ranges = [_text(p.get("CidrBlock")) for p in found]
            titles[area] += "".join(f"  {zone} {block}".rstrip() for zone, block in zip(zones, ranges, strict=True))
        return titles

    def area(self, subnets: Any) -> Any:
        return "public" if set(references(subnets)) & self._public() else "private"

    # Flows

    def _network_flows(self) -> Iterator[Flow]:
        """Who may reach which file system, by security groups."""
        guards = {}
        for id in (b for b in self.boxes if self.type(b) in _STORAGE):
            holders = [
                id,
                *(t for t, p in self._of("AWS::EFS::MountTarget") if id in references(p.get("FileSystemId"))),
            ]
            guards[id] = {
                r for h in holders for r in references(self.props(h)) if self.type(r) == "AWS::EC2::SecurityGroup"
            }
        for _, rule in self._of("AWS::EC2::SecurityGroupIngress"):
            label = _PORTS.get(rule.get("FromPort", 0))
            if label:
                sources = set(references(rule.get("SourceSecurityGroupId")))
                for target, groups in guards.items():
                    if groups & set(references(rule.get("GroupId"))):
                        yield from (
                            Flow(b, target, label) for b, uses in self.uses.items() if uses & sources and b != target
                        )

    def _permission_flows(self) -> Iterator[Flow]:
        """What roles may do with what is drawn."""
        for id, uses in self.uses.items():
            roles = {u for u in uses if self.type(u) == "AWS::IAM::Role"}
            policies = {u for u in uses if self.type(u) == "AWS::IAM::ManagedPolicy"}
            policies |= {p for r in roles for p in references(self.props(r).get("ManagedPolicyArns"))}
            policies |= {
                i
                for i, p in self._of("AWS::IAM::ManagedPolicy", "AWS::IAM::Policy")
                if roles & set(references(p.get("Roles")))
            }
            documents = [self.props(p).get("PolicyDocument", {}) for p in sorted(policies)]
            documents += [p.get("PolicyDocument", {}) for r in sorted(roles) for p in self.props(r).get("Policies", [])]
            may: dict[str, set[str]] = {}
            for statement in (s for d in documents for s in d.get("Statement", []) if s.get("Effect") == "Allow"):
                actions = statement.get("Action", [])
                for target in references(statement.get("Resource")):
                    may.setdefault(target, set()).update([actions] if isinstance(actions, str) else actions)
            for target, allowed in may.items():
                if target in self.boxes and target != id and (label := _label(allowed)):
                    yield Flow(id, target, label)

    def _other_flows(self) -> Iterator[Flow]:
        internet = "Internet"
        for id, _ in self._of("AWS::EC2::NatGateway"):
            self.boxes[internet] = Box(internet, "region", "Internet", ("package repositories, data sets",))
            yield Flow(id, internet, "out")
        registries = [b for b in self.boxes if self.type(b) == "AWS::ECR::Repository"]
        for id, uses in list(self.uses.items()):
            roles = (self.props(u).get("ManagedPolicyArns") for u in uses if self.type(u) == "AWS::IAM::Role")
            if any("AmazonEC2ContainerRegistry" in json.dumps(arns) for arns in roles):
                yield from (Flow(id, registry, "pulls images") for registry in registries)
        controls = [b for b in self.boxes if self.type(b) == "AWS::EKS::Cluster"]
        for id in (b for b in self.boxes if self.type(b) == "AWS::EKS::Nodegroup"):
            yield from (Flow(id, control, "Kubernetes API") for control in controls)
        for _, link in self._of("AWS::FSx::DataRepositoryAssociation"):
            buckets = [b for b in references(link.get("DataRepositoryPath")) if b in self.boxes]
            for system in references(link.get("FileSystemId")):
                yield from (Flow(system, bucket, "imports, exports") for bucket in buckets if system in self.boxes)

    # Boxes

    def cluster(self, id: str, p: Resource) -> Iterator[tuple[Box, Iterator[str]]]:
        """The machines of a ParallelCluster cluster."""
        config = p.get("ClusterConfiguration", {})
        head = config.get("HeadNode", {})
        lines: tuple[str, ...] = (_text(head.get("InstanceType")), "Slurm controller")
        area = self.area(head.get("Networking", {}))
        yield Box(f"{id}.head", area, "Head node", lines), references(head)
        for pool in config.get("LoginNodes", {}).get("Pools", []):
            lines = (f"{_text(pool.get('Count'))} x {_text(pool.get('InstanceType'))}",)
            yield Box(f"{id}.login", self.area(pool.get("Networking", {})), "Login nodes", lines), references(pool)
        for queue in config.get("Scheduling", {}).get("SlurmQueues", []):
            sizes = [_size(r) for r in queue.get("ComputeResources", [])]
            capacity = {"SPOT": "spot", "CAPACITY_BLOCK": "capacity block"}.get(queue.get("CapacityType", ""), "")
            name = _text(queue.get("Name"))
            title = f"Queue {name}" + (f" ({capacity})" if capacity else "")
            area = self.area(queue.get("Networking", {}))
            yield Box(f"{id}.queue.{name}", area, title, tuple(sizes)), references(queue)

    def node_group(self, id: str, p: Resource) -> Iterator[tuple[Box, set[str]]]:
        templates = [t for t in references(p.get("LaunchTemplate")) if self.type(t) == "AWS::EC2::LaunchTemplate"]
        data = [self.props(t).get("LaunchTemplateData", {}) for t in templates]
        kinds = [*p.get("InstanceTypes", []), *(d["InstanceType"] for d in data if "InstanceType" in d)]
        scaling = p.get("ScalingConfig", {})
        cards = [
            n for d in data for n in d.get("NetworkInterfaces", []) if str(n.get("InterfaceType", "")).startswith("efa")
        ]
        label = _text(p.get("Labels", {}).get("trainium-cdk/node-group")) or _name(id)
        capacity = {"SPOT": " (spot)", "CAPACITY_BLOCK": " (capacity block)"}.get(p.get("CapacityType", ""), "")
        lines = [
            f"{_text(scaling.get('MinSize', 0))} to {_text(scaling.get('MaxSize'))} x {', '.join(dict.fromkeys(map(_text, kinds)))}"
        ]
        lines += [f"{len(cards)} EFA interfaces each"] if cards else []
        lines += [f"role {_name(r)}" for r in references(p.get("NodeRole"))]
        uses = {*references(p), *references(data)}
        yield Box(id, self.area(p.get("Subnets")), f"Node group {label}{capacity}", tuple(lines)), uses

    def pcs_group(self, id: str, p: Resource) -> Iterator[tuple[Box, set[str]]]:
        scaling = p.get("ScalingConfiguration", {})
        kinds = ", ".join(_text(c.get("InstanceType")) for c in p.get("InstanceConfigs", []))
        lines = (f"{_text(scaling.get('MinInstanceCount'))} to {_text(scaling.get('MaxInstanceCount'))} x {kinds}",)
        templates = [self.props(t) for t in references(p.get("CustomLaunchTemplate"))]
        roles = {r for i in references(p.get("IamInstanceProfileArn")) for r in references(self.props(i))}
        uses = {*references(p), *references(templates), *roles}
        yield Box(id, self.area(p.get("SubnetIds")), f"Node group {_text(p.get('Name')) or _name(id)}", lines), uses

    def pods(self, id: str, p: Resource) -> Iterator[tuple[Box, Iterator[str]]]:
        lines = (f"namespace {_text(p.get('Namespace'))}", *(f"role {_name(r)}" for r in references(p.get("RoleArn"))))
        yield Box(id, "private", f"Pods of {_text(p.get('ServiceAccount'))}", lines), references(p)

    def instance(self, id: str, p: Resource) -> Iterator[tuple[Box, set[str]]]:
        roles = {r for i in references(p.get("IamInstanceProfile")) for r in references(self.props(i))}
        area = self.area([p.get("SubnetId"), p.get("NetworkInterfaces")])
        lines = (_text(p.get("InstanceType")), *(f"role {_name(r)}" for r in sorted(roles)))
        yield Box(id, area, _words(id).capitalize(), lines), {*references(p), *roles}

    def function(self, id: str, p: Resource) -> Iterator[tuple[Box, Iterator[str]]]:
        lines = (
            *(("in the VPC",) if p.get("VpcConfig") else ()),
            *(f"role {_name(r)}" for r in references(p.get("Role"))),
        )
        yield Box(id, "region", f"Lambda: {_words(id)}", lines), references(p)

    def control_plane(self, id: str, p: Resource) -> Iterator[tuple[Box, Iterator[str]]]:
        charts = [_text(c.get("Release") or c.get("Chart")) for _, c in self._of("Custom::AWSCDK-EKS-HelmChart")]
        addons = [_text(a.get("AddonName")) for _, a in self._of("AWS::EKS::Addon")]
        named = {"add-ons": addons, "charts": charts}
        lines = (f"{what}: {', '.join(names)}" for what, names in named.items() if names)
        yield Box(id, "region", "EKS control plane", (f"Kubernetes {_text(p.get('Version'))}", *lines)), references(p)

    def bucket(self, id: str, p: Resource) -> Iterator[tuple[Box, Iterator[str]]]:
        logs = {t for _, q in self._of("AWS::S3::Bucket") for t in references(q.get("LoggingConfiguration"))}
        if id not in logs:
            lines = ("its access logs in another one",) if "LoggingConfiguration" in p else ()
            yield Box(id, "region", f"S3 bucket {_words(id)}", lines), references(p)

    def storage(self, id: str, p: Resource) -> Iterator[tuple[Box, Iterator[str]]]:
        lustre = p.get("LustreConfiguration", {})
        if lustre or p.get("FileSystemType"):
            title, lines = (
                "FSx for Lustre",
                [f"{_text(p.get('StorageCapacity'))} GiB {_text(lustre.get('DeploymentType'))}".strip()],
            )
        else:
            title, lines = "EFS", [f"{_text(p.get('ThroughputMode')) or 'bursting'} throughput"]
            lines += ["encrypted"] if p.get("Encrypted") else []
        yield Box(id, "storage", title, tuple(lines)), references(p)

    def endpoint(self, id: str, p: Resource) -> Iterator[tuple[Box, Iterator[str]]]:
        service, kind = _text(p.get("ServiceName")).rpartition(".")[2], _text(p.get("VpcEndpointType", "Gateway"))
        yield Box(id, "storage", f"Endpoint of {service}", (kind.lower(),)), references(p)


Draw = Callable[[_Reader, str, Resource], Iterator[tuple[Box, Any]]]


def _plain(area: Any, title: str) -> Draw:
    return lambda _, id, p: iter(
        [(Box(id, area, title, tuple(f"role {_name(r)}" for r in references(p.get("ServiceRole")))), references(p))]
    )


_BOXES: Mapping[str, Draw] = {
    "Custom::PclusterCluster": _Reader.cluster,
    "AWS::EKS::Cluster": _Reader.control_plane,
    "AWS::EKS::Nodegroup": _Reader.node_group,
    "AWS::EKS::PodIdentityAssociation": _Reader.pods,
    "AWS::PCS::ComputeNodeGroup": _Reader.pcs_group,
    "AWS::EC2::Instance": _Reader.instance,
    "AWS::EC2::NatGateway": _plain("public", "NAT gateway"),
    "AWS::EC2::VPCEndpoint": _Reader.endpoint,
    "AWS::EFS::FileSystem": _Reader.storage,
    "AWS::FSx::FileSystem": _Reader.storage,
    "AWS::S3::Bucket": _Reader.bucket,
    "AWS::ECR::Repository": _plain("region", "ECR repository"),
    "AWS::CodeBuild::Project": _plain("region", "CodeBuild: images"),
    "AWS::PCS::Cluster": _plain("region", "PCS: Slurm controller"),
    "AWS::KMS::Key": _plain("region", "KMS key"),
    "AWS::Lambda::Function": _Reader.function,
}


def _label(actions: set[str]) -> str:
    """What a flow with these permissions is; empty for what is not data."""
    verbs = {a.partition(":")[2] for a in actions if a.startswith("s3:")}
    if verbs & {"GetObject", "PutObject", "*"}:
        reads = ["reads"] if verbs & {"GetObject", "*"} else []
        return ", ".join(reads + (["writes"] if verbs & {"PutObject", "*"} else []))
    if any(a.startswith("ecr:") for a in actions):
        return "pushes images" if "ecr:PutImage" in actions else "pulls images"
    if "elasticfilesystem:ClientMount" in actions:
        return "mounts"
    return "sets its size" if "autoscaling:SetDesiredCapacity" in actions else ""


def _size(resource: Resource) -> str:
    kinds = [resource.get("InstanceType"), *(i.get("InstanceType") for i in resource.get("Instances", []))]
    efa = ", EFA" if resource.get("Efa", {}).get("Enabled") else ""
    least, most = _text(resource.get("MinCount", 0)), _text(resource.get("MaxCount"))
    return f"{least} to {most} x {', '.join(dict.fromkeys(_text(k) for k in kinds if k))}{efa}"


def _text(value: Any) -> str:
    """A value that the template has; what is known at deployment only is `...`."""
    if isinstance(value, Mapping | list):
        return "..."
    return "" if value is None else str(value)


def _name(id: str) -> str:
    """A logical id without the CDK's hash."""
    return _SUFFIX.sub("", id)


def _words(id: str) -> str:
    """`BastionHost04D516A6` -> `bastion host`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", _name(id).removeprefix("Trn")).lower()


if __name__ == "__main__":
    for template in sys.argv[1:]:
        sys.stdout.write(mermaid(read(json.loads(Path(template).read_text("utf-8")))))

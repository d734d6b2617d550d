"""The flowchart of a stack: what is drawn comes from the template."""

from __future__ import annotations

import json
import re

import pytest

from tests.stacks import synthesis
from tests.support import swept
from tools.reference.graph import Architecture, mermaid, read


def flows(found: Architecture) -> set[tuple[str, str, str]]:
    titles = {box.id: box.title for box in found.boxes}
    return {(titles[f.source], titles[f.target], f.label) for f in found.flows}


def test_a_slurm_stack_with_lustre_and_s3() -> None:
    found = read(synthesis.SLURM.document("fsx-persistent-s3"))
    titles = {box.title: box for box in found.boxes}
    assert "FSx for Lustre" in titles
    machines = {box.title for box in found.boxes if box.area == "private"}
    assert len(machines) >= 2
    assert flows(found) >= {(title, "FSx for Lustre", "Lustre, port 988") for title in machines}
    assert {box.area for box in found.boxes if box.title.startswith("Queue ")} == {"private"}


def test_several_queues_and_a_public_head_node() -> None:
    found = read(synthesis.SLURM.document("many-queues"))
    env = synthesis.environment("many-queues")
    queues = [box for box in found.boxes if box.title.startswith("Queue ")]
    assert [box.title.split()[1] for box in queues] == env.pcluster.queue_names
    assert queues[-1].lines[0].split(",")[0] == "0 to 4 x c5.2xlarge"
    for box, queue in zip(queues[:-1], env.pcluster.queues, strict=True):
        assert [line.split(",")[0] for line in box.lines] == [
            f"{r.min_nodes} to {r.max_nodes} x {r.instance_type}" for r in queue.compute_resources
        ]
    public = read(synthesis.SLURM.document("public-ssh"))
    assert [b.area for b in public.boxes if b.title == "Head node"] == ["public"]


def test_an_eks_stack() -> None:
    found = read(synthesis.EKS.document("default"))
    assert flows(found) >= {
        ("Node group trn", "EFS", "NFS, port 2049"),
        ("Node group trn", "EKS control plane", "Kubernetes API"),
        ("Pods of trn-job", "S3 bucket files", "reads, writes"),
        ("CodeBuild: images", "ECR repository", "pushes images"),
        ("Lambda: scaler", "Node group trn", "sets its size"),
    }
    denied = json.dumps(synthesis.EKS.document("default")).replace('"Allow"', '"Deny"')
    assert not {"reads, writes", "pushes images"} & {f.label for f in read(json.loads(denied)).flows}
    [nodes] = [b for b in found.boxes if b.title == "Node group trn"]
    assert nodes.lines[0] == "0 to 2 x trn1.32xlarge"


@pytest.mark.parametrize("name", swept(synthesis.EKS.names, "default", "eks/all-settings"))
def test_efa_interfaces_are_counted_as_the_template_has_them(name: str) -> None:
    """Against the launch template that each node group names, not against another picture."""
    made = synthesis.EKS.document(name)["Resources"]
    shown = {box.id: box.lines for box in read({"Resources": made}).boxes}
    for id, group in made.items():
        if group["Type"] == "AWS::EKS::Nodegroup" and (named := group["Properties"].get("LaunchTemplate")):
            data = made[named["Id"]["Ref"]]["Properties"]["LaunchTemplateData"]
            efa = [i for i in data.get("NetworkInterfaces", []) if i.get("InterfaceType") in ("efa", "efa-only")]
            expected = [f"{len(efa)} EFA interfaces each"] if efa else []
            assert [line for line in shown[id] if "EFA" in line] == expected


def test_what_is_referred_to_twice_is_drawn_once() -> None:
    """By its name and an attribute: a template, a role, a subnet."""
    twice = {"A": {"Ref": "Template"}, "B": {"Fn::GetAtt": ["Template", "LatestVersionNumber"]}}
    role = {"Fn::Join": ["", [{"Fn::GetAtt": ["Role", "Arn"]}, {"Ref": "Role"}]]}
    interfaces = [{"InterfaceType": "efa"}, {"InterfaceType": "efa-only"}, {"InterfaceType": "interface"}]
    data = {"InstanceType": "trn1.32xlarge", "NetworkInterfaces": interfaces}
    made = {
        "Template": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}},
        "Role": {"Type": "AWS::IAM::Role"},
        "Group": {"Type": "AWS::EKS::Nodegroup", "Properties": {"LaunchTemplate": twice, "NodeRole": role}},
        "Code": {"Type": "AWS::Lambda::Function", "Properties": {"Role": role}},
        "Build": {"Type": "AWS::CodeBuild::Project", "Properties": {"ServiceRole": role}},
    }
    lines = {box.id: box.lines for box in read({"Resources": made}).boxes}
    assert lines["Group"][1:] == ("2 EFA interfaces each", "role Role")
    assert (lines["Code"], lines["Build"]) == (("role Role",), ("role Role",))


@pytest.mark.parametrize(
    ("capacity", "title"),
    [("SPOT", " (spot)"), ("CAPACITY_BLOCK", " (capacity block)"), ("ON_DEMAND", ""), (None, "")],
)
def test_how_a_node_group_is_paid_for(capacity: str | None, title: str) -> None:
    group = {"Type": "AWS::EKS::Nodegroup", "Properties": {"ScalingConfig": {"MaxSize": 2}, "CapacityType": capacity}}
    found = read({"Resources": {"NodesTrn": group}})
    assert [box.title.removeprefix("Node group NodesTrn") for box in found.boxes] == [title]
    queues = {"Scheduling": {"SlurmQueues": [{"Name": "q", "CapacityType": capacity or "ONDEMAND"}]}}
    cluster = {"Type": "Custom::PclusterCluster", "Properties": {"ClusterConfiguration": queues}}
    found = read({"Resources": {"Cluster": cluster}})
    assert [box.title.removeprefix("Queue q") for box in found.boxes if "Queue" in box.title] == [title]


def test_queues_may_have_the_names_of_other_nodes() -> None:
    names = ("head", "login")
    pools = {"Pools": [{"Name": "login", "Count": 1, "InstanceType": "c5.large"}]}
    config = {"Scheduling": {"SlurmQueues": [{"Name": name} for name in names]}, "LoginNodes": pools}
    cluster = {"Type": "Custom::PclusterCluster", "Properties": {"ClusterConfiguration": config}}
    found = read({"Resources": {"Cluster": cluster}})
    assert {box.title for box in found.boxes} == {"Head node", "Login nodes", "Queue head", "Queue login"}


@pytest.mark.parametrize("name", ["default", "existing-vpc", "no-internet", "login-and-accounting"])
def test_the_flowchart_has_each_box_and_flow(name: str) -> None:
    found = read(synthesis.SLURM.document(name))
    text = mermaid(found)
    assert text.count("<b>") == len(found.boxes) >= 4
    assert text.count("-->") == len(found.flows) >= 3
    assert text.count("subgraph") == len(re.findall(r"^ +end$", text, re.MULTILINE))


def test_words_of_a_template_do_not_end_a_label_of_mermaid() -> None:
    group = {"Type": "AWS::EKS::Nodegroup", "Properties": {"Labels": {"trainium-cdk/node-group": 'a"]; click x <b>'}}}
    text = mermaid(read({"Resources": {"Group": group}}))
    assert "click x" in text
    assert text.count('"') == 6  # network, subnets, box
    assert "<b>Node group a#34;#93;#59; click x #60;b#62;</b>" in text

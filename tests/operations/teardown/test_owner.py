"""What belongs to a stack, and above all what does not."""

from __future__ import annotations

import pytest

from trainium_cdk.client.operations.teardown import Owner

ID = "arn:aws:cloudformation:us-east-1:111122223333:stack/Trn/1"
SLURM = Owner(
    "Trn", ID, cluster="trn-slurm", engine="slurm", vpcs=frozenset({"vpc-1"}), functions=frozenset({"pcluster-cfn-1"})
)
EKS = Owner("Trn", ID, cluster="trn-eks", engine="eks", projects=frozenset({"build-1"}))
LAMBDA = "AWS Lambda VPC ENI-kubectl"


@pytest.mark.parametrize(
    ("owner", "tags"),
    [
        (SLURM, {"aws:cloudformation:stack-id": ID}),
        (SLURM, {"parallelcluster:cluster-name": "trn-slurm", "Name": "Compute"}),
        (EKS, {"kubernetes.io/cluster/trn-eks": "owned"}),
        (EKS, {"elbv2.k8s.aws/cluster": "trn-eks"}),
        (EKS, {"KubernetesCluster": "trn-eks"}),
    ],
)
def test_ours(owner: Owner, tags: dict[str, str]) -> None:
    key = next(k for k in tags if k != "Name")
    assert owner.why(tags) == f"it is tagged {key} = {tags[key]}"


@pytest.mark.parametrize(
    ("owner", "tags"),
    [
        (SLURM, {}),
        (SLURM, {"aws:cloudformation:stack-id": ID + "2"}),  # an earlier stack of the same name: what it kept is kept
        (SLURM, {"aws:cloudformation:stack-name": "Trn"}),
        (SLURM, {"parallelcluster:cluster-name": "trn-slurm-2"}),
        (SLURM, {"kubernetes.io/cluster/trn-slurm": "owned"}),
        (EKS, {"kubernetes.io/cluster/trn-eks": "shared"}),  # a subnet that several clusters use
        (EKS, {"kubernetes.io/cluster/trn-eks-2": "owned"}),
        (EKS, {"parallelcluster:cluster-name": "trn-eks"}),
        (EKS, {"trainium-cdk:cluster": "trn-eks"}),  # nodes of a cluster of AWS PCS that has the same name
        (Owner("Trn", ID), {"parallelcluster:cluster-name": ""}),
        (Owner("Trn", ID, engine="eks"), {"kubernetes.io/cluster/": "owned"}),
    ],
)
def test_not_ours(owner: Owner, tags: dict[str, str]) -> None:
    assert owner.why(tags) == ""


def test_reservations_of_the_scaler() -> None:
    assert EKS.why_reservation({"trainium-cdk:cluster": "trn-eks"}) == "it is tagged trainium-cdk:cluster = trn-eks"
    assert EKS.why_reservation({"eks:cluster-name": "trn-eks"}) == "it is tagged eks:cluster-name = trn-eks"
    assert EKS.why_reservation({"trainium-cdk:cluster": "trn-eks-2"}) == ""
    assert SLURM.why_reservation({"trainium-cdk:cluster": "trn-slurm"}) == ""


def test_interfaces_that_aws_left_in_our_own_vpc() -> None:
    assert "vpc-1" in SLURM.why_interface({}, "vpc-1", LAMBDA)
    assert SLURM.why_interface({}, "vpc-2", LAMBDA) == ""
    assert SLURM.why_interface({}, "vpc-1", "of another user") == ""
    kept = Owner("Trn", ID, vpcs=frozenset({"vpc-1"}), kept=frozenset({"vpc-1"}))
    assert kept.why_interface({}, "vpc-1", LAMBDA) == ""


@pytest.mark.parametrize(
    ("owner", "group", "ours"),
    [
        (SLURM, "/aws/lambda/pcluster-cfn-1", True),
        (SLURM, "/aws/lambda/pcluster-cfn-12", False),
        (SLURM, "/aws/parallelcluster/trn-slurm-202611011200", True),
        (SLURM, "/aws/parallelcluster/trn-slurm-2-202611011200", False),
        (SLURM, "/aws/parallelcluster/trn-slurm", False),
        (SLURM, "/aws/eks/trn-slurm/cluster", False),
        (EKS, "/aws/eks/trn-eks/cluster", True),
        (EKS, "/aws/eks/trn-eks-2/cluster", False),
        (EKS, "/aws/codebuild/build-1", True),
        (EKS, "/aws/codebuild/build-11", False),
        (EKS, "/aws/parallelcluster/trn-eks-202611011200", False),
    ],
)
def test_log_groups(owner: Owner, group: str, ours: bool) -> None:
    assert bool(owner.why_log(group)) is ours

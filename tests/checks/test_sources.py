"""Each error has a source: what AWS, Slurm and Kubernetes take is a warning at most."""

from __future__ import annotations

import re

import pytest

from tests.support import ROOT
from trainium_cdk.description.catalog.lookup import DATA
from trainium_cdk.description.checks.rule import SOURCES

AWS = "https://docs.aws.amazon.com"
PAGES = {
    "Bash manual": "https://www.gnu.org/software/bash/manual/html_node/{}.html",
    "CloudFormation": f"{AWS}/AWSCloudFormation/latest/TemplateReference/{{}}.html",
    "CloudWatch user guide": f"{AWS}/AmazonCloudWatch/latest/monitoring/{{}}.html",
    "EC2 API": f"{AWS}/AWSEC2/latest/APIReference/API_{{}}.html",
    "EC2 user guide": f"{AWS}/AWSEC2/latest/UserGuide/{{}}.html",
    "EFS user guide": f"{AWS}/efs/latest/ug/{{}}.html",
    "EKS API": f"{AWS}/eks/latest/APIReference/API_{{}}.html",
    "EKS user guide": f"{AWS}/eks/latest/userguide/{{}}.html",
    "IAM user guide": f"{AWS}/IAM/latest/UserGuide/{{}}.html",
    "KMS guide": f"{AWS}/kms/latest/developerguide/{{}}.html",
    "Kubernetes": "https://kubernetes.io/docs/{}/",
    "Kubernetes releases": "https://kubernetes.io/releases/{}/",
    "Kueue": "https://kueue.sigs.k8s.io/docs/{}/",
    "Linux manual": "https://man7.org/linux/man-pages/{}.html",
    "Neuron documentation": "https://awsdocs-neuron.readthedocs-hosted.com/en/latest/{}.html",
    "PCS API": f"{AWS}/pcs/latest/APIReference/API_{{}}.html",
    "PCS user guide": f"{AWS}/pcs/latest/userguide/{{}}.html",
    "ParallelCluster user guide": f"{AWS}/parallelcluster/latest/ug/{{}}.html",
    "RAM user guide": f"{AWS}/ram/latest/userguide/{{}}.html",
    "VPC peering guide": f"{AWS}/vpc/latest/peering/{{}}.html",
    "VPC user guide": f"{AWS}/vpc/latest/userguide/{{}}.html",
    "containers-roadmap": "https://github.com/aws/containers-roadmap/issues/{}",
}
"""The address of a page in each guide."""
_PAGE = re.compile(r"([^,:]+), ([\w./-]+)(: .+|$)")


@pytest.mark.parametrize("rule", sorted(SOURCES))
def test_a_source_can_be_found(rule: str) -> None:
    for part in SOURCES[rule].split("; "):
        kind, _, said = part.partition(": ")
        if kind == "promise":
            assert said.lower() in (ROOT / "docs/about/security.md").read_text("utf-8").lower()
        elif page := _PAGE.fullmatch(part):
            if page[1] == "catalogue":
                assert re.search("^source:|^# Written", (DATA / f"{page[2]}.yaml").read_text("utf-8"), re.MULTILINE)
            else:
                assert page[1] in {*PAGES, "ParallelCluster"}  # its validators: tests/pcluster/test_validators.py
        else:
            assert kind == "stack"
            assert said

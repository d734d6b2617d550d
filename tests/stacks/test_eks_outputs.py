"""What `TrnEksStack` exports."""

from __future__ import annotations

import json
import re

import pytest

from tests.stacks.synthesis import EKS, environment
from tests.stacks.test_eks import SHORT
from tests.support import swept
from trainium_cdk import outputs


@pytest.mark.parametrize("name", swept(EKS.names, *SHORT))
def test_outputs_are_what_the_jobs_read(name: str) -> None:
    env = environment(name)
    found = EKS.document(name)["Outputs"]
    values = {k: v["Value"] if isinstance(v["Value"], str) else "not-deployed" for k, v in found.items()}
    read = outputs.parse("TrnEksStack", env.region, values)
    assert isinstance(read, outputs.EksCluster)
    assert read.fleets == outputs.eks_fleets(env)
    assert read.cluster_name == env.eks_cluster_name
    [made] = (r for r in EKS.document(name)["Resources"].values() if r["Type"] == "Custom::TrnOwnedObjects")
    applied = json.dumps(made["Properties"]["Objects"].get("PersistentVolumeClaim", []))
    exported = found["Claims"]["Value"]
    references = re.findall(r'\{"(?:Ref|Fn::GetAtt)": [^}]*\}', json.dumps(exported))
    assert all(each in applied for each in references), "a job's claim is one that is applied"
    assert read.access_role
    assert all(len(json.dumps(v).encode()) <= 1024 for v in found.values())

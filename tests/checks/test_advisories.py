"""Known problems of ParallelCluster's releases: each is reported where the release and the cluster have it, and nowhere else."""

from __future__ import annotations

import json

import pytest

from trainium_cdk import settings
from trainium_cdk.description import checks

STATIC = {"queues": [{"compute_resources": [{"min_nodes": 1}]}]}


@pytest.mark.parametrize(
    ("version", "section", "issues"),
    [
        ("3.15.0", {}, {7601, 7265}),
        ("3.15.1", STATIC, {7601, 7265, 7470}),
        ("3.15.1", {"login_nodes": {}}, {7601, 7265, 7491}),
        ("3.15.1", {"login_nodes": {}, **STATIC}, {7601, 7265, 7491, 7470}),
        ("3.16.0", {"login_nodes": {}, **STATIC}, {7601}),
        ("3.16.1", {"login_nodes": {}, **STATIC}, set()),
    ],
)
def test_each_problem_is_reported_where_it_is(version: str, section: dict[str, object], issues: set[int]) -> None:
    env = settings.parse(json.dumps({"region": "us-east-1", "pcluster": {"version": version, **section}}))
    found = [p for p in checks.check(env, "slurm") if p.rule == "release-advisory"]
    assert {
        number for number in (7265, 7470, 7491, 7601) if any(f"issue {number}" in p.reason for p in found)
    } == issues
    assert len(found) == len(issues)
    for problem in found:
        assert "write 3.16.1" in problem.fix

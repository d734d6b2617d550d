"""Which node of a job has a rank: from the job's own record."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainium_cdk.runner import layout, requests
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.head import answers
from trainium_cdk.runner.spec import JobSpec, NodeEnvironment, Program, StageSpec
from trainium_cdk.runner.status import JobStatus

JOB = JobStatus("j-1", "script", "q", "t", 2, None, ())


@pytest.mark.parametrize(
    ("cores", "processes", "spmd", "last"),
    [
        (128, 1, False, 127),
        (64, 1, False, 63),
        (64, 4, False, 3),
        (0, 1, False, 0),
        (-5, 1, False, 0),
        (64, 1, True, 0),
    ],
)
def test_a_node_has_as_many_ranks_as_neuroncores_or_copies(
    cores: int, processes: int, spmd: bool, last: int, tmp_path: Path
) -> None:
    stage = StageSpec("train", 2, Program(("true",), "/"), processes=processes, spmd=spmd)
    layout.lay_out(
        tmp_path / "trn/jobs/j-1", JobSpec("j-1", "script", (stage,), environment=NodeEnvironment(cores=cores))
    )
    cluster = requests.Cluster(str(tmp_path), "trn", "", "c")
    assert [answers.node_of(cluster, JOB, rank) for rank in (last, last + 1)] == [0, 1]


def test_a_damaged_record_has_no_ranks(tmp_path: Path) -> None:
    with pytest.raises(Refused, match=r"job\.json, is damaged: .* Give the node instead of the rank"):
        answers.node_of(requests.Cluster(str(tmp_path), "trn", "", "c"), JOB, 0)

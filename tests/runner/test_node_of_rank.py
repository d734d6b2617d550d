"""Which node of a job has a rank: from the job's own record."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from trainium_cdk.runner import layout, requests
from trainium_cdk.runner.errors import Refused
from trainium_cdk.runner.head import step
from trainium_cdk.runner.spec import Environment, Job, Program, Stage


@pytest.mark.parametrize(
    ("cores", "processes", "last"), [(128, 1, 127), (64, 1, 63), (64, 4, 3), (0, 1, 0), (-5, 1, 0)]
)
def test_a_node_has_as_many_ranks_as_neuroncores_or_copies(
    cores: int, processes: int, last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage("train", 2, Program(("true",), "/"), processes=processes)
    layout.lay_out(tmp_path / "trn/jobs/j-1", Job("j-1", "script", (stage,), environment=Environment(cores=cores)))
    monkeypatch.setattr(step, "own_job", lambda *_: SimpleNamespace(id="j-1", nodes=2))
    cluster = requests.Cluster(str(tmp_path), "trn", "", "c")
    found = [step.node_of_rank(cluster, requests.NodeOfRank("j-1", rank)) for rank in (last, last + 1)]
    assert found == [{"node": 0}, {"node": 1}]


def test_a_damaged_record_has_no_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "own_job", lambda *_: SimpleNamespace(id="j-1", nodes=2))
    with pytest.raises(Refused, match=r"job\.json, is damaged: .* Give the node instead of the rank"):
        step.node_of_rank(requests.Cluster(str(tmp_path), "trn", "", "c"), requests.NodeOfRank("j-1", 0))

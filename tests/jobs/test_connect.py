"""Where commands go: to SSM from anywhere, to this machine where it is the head node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.jobs.conftest import make_cluster
from trainium_cdk.jobs import Backend, LocalTransport, SsmTransport, connect, is_head_node

HEAD = "stack_name=trn-slurm\ncfn_node_type=HeadNode\ncfn_cluster_user=ubuntu\n"


@pytest.mark.parametrize(
    ("text", "here"),
    [
        (HEAD, True),
        ('stack_name="trn-slurm"\ncfn_node_type="HeadNode"\n', True),
        (HEAD.replace("trn-slurm", "other"), False),
        (HEAD.replace("HeadNode", "ComputeFleet"), False),
        ("", False),
        ("\xff", False),
        (None, False),
    ],
)
def test_the_head_node_is_detected_by_parallelclusters_files(tmp_path: Path, text: str | None, here: bool) -> None:
    file = tmp_path / "cfnconfig"
    if text is not None:
        file.write_text(text, encoding="latin-1")
    assert is_head_node(make_cluster(), file) is here


def test_transports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    assert isinstance(connect(cluster=make_cluster(), local=True).transport, LocalTransport)
    assert isinstance(connect(cluster=make_cluster()).transport, SsmTransport)


def test_a_backend_without_all_operations_is_refused() -> None:
    class Mine(Backend[Any]):
        ordered_logs = True

    with pytest.raises(TypeError, match=r"abstract methods .*cancel.*nodes"):
        Mine()  # type: ignore[abstract]

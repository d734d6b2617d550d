"""Running on this machine: a script's output, its end, and the error when it does not end."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from tests.jobs.conftest import make_cluster
from tests.support import ROOT
from trainium_cdk.client.jobs.slurm.transport import is_head_node
from trainium_cdk.jobs import LocalTransport, TransportError


def test_a_script_runs_and_returns_its_output() -> None:
    done = LocalTransport().run("echo out; printf '\\xff'; echo err >&2; read -r x; echo \"<$x>\"; exit 3")
    assert (done.stdout, done.stderr, done.code) == ("out\n\N{REPLACEMENT CHARACTER}<>\n", "err\n", 3)


def test_a_script_may_be_longer_than_a_command_line() -> None:
    done = LocalTransport().run("x='" + "a" * 3_000_000 + "'; echo ${#x}")
    assert (done.stdout, done.code) == ("3000000\n", 0)


def test_a_script_that_does_not_end_is_stopped() -> None:
    with pytest.raises(TransportError, match=r"did not end within 1 s. Is Slurm's controller up"):
        LocalTransport().run("sleep 60; echo", timeout=1)


@pytest.mark.parametrize(
    ("record", "here"),
    [
        ("cfn_node_type=HeadNode\nstack_name=trn-slurm", True),
        ("cfn_node_type=LoginNode\nstack_name=trn-slurm", True),
        ("cfn_node_type='LoginNode'\ncfn_cluster_name='trn-slurm'", True),
        ("cfn_node_type=LoginNode\nstack_name=another", False),
        ("cfn_node_type=ComputeFleet\nstack_name=trn-slurm", False),
        ("", False),
    ],
)
def test_head_and_login_nodes_need_no_ssm(record: str, here: bool, tmp_path: Path) -> None:
    (tmp_path / "cfnconfig").write_text(record)
    named = make_cluster().model_copy(update={"cluster_name": "trn-slurm"})
    assert is_head_node(named, tmp_path / "cfnconfig") is here


def test_a_machine_without_bash() -> None:
    with pytest.raises(TransportError, match="cannot run bash on this machine"):
        LocalTransport(env={"PATH": "/nowhere"}).run("true")


def test_a_home_that_is_not_there() -> None:
    with pytest.raises(TransportError, match=r"HOME is /nonexistent: No such file or directory\. Set it to a folder"):
        LocalTransport(env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}).run("true")


def test_no_file_can_be_left_by_a_killed_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert LocalTransport().run(f"ls -A {tmp_path}; echo looked").stdout == "looked\n"


def test_no_command_passes_through_a_login_shell() -> None:
    """It would read files that a job of that user can write."""
    login = re.compile(r"runuser -l|runuser - |sudo -i|sudo --login|\bsu -|\b(ba)?sh (-l|--login)\b|\bbash -[a-z]*l")
    files = [f for f in (ROOT / "constructs/trainium_cdk").rglob("*") if f.suffix in (".py", ".sh", ".yaml")]
    assert len(files) > 100
    assert [f.name for f in files if login.search(f.read_text("utf-8"))] == []

"""Exit codes of command lines that name no cluster: docs/guides/jobs.md, "Exit codes"."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.conftest import fleet, make_cluster

CLUSTER = make_cluster(fleet(nodes=4)).model_dump_json()


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("", 2, "Usage: trn"),
        ("frobnicate", 2, "No such command"),
        ("submit", 2, "Missing argument 'JOB'"),
        ("submit bert-large --speed", 2, "No such option: --speed"),
        ("submit bert-large --nodes", 2, "requires an argument"),
        ("submit bert-large --nodes five", 1, "trn: Invalid value for '--nodes' / '-N': 'five': write a whole number, without a unit"),
        ("submit bert-large --nodes 0", 1, "trn: nodes is 0: input should be greater than or equal to 1"),
        ("submit bert-large --nodes 5", 1, "trn: nodes is 5, but queue compute1 has at most 4"),
        ("submit bert-large --scaling sideways", 1, "trn: scaling is 'sideways'"),
        ("submit bert-large --name A_B", 1, "trn: name is 'A_B': not in the right format. Write small letters"),
        ("submit bert-large --array x", 1, "trn: array is 'x': not in the right format"),
        ("submit bert-large --time-limit x", 1, "trn: time_limit is 'x': not in the right format. Write minutes"),
        ("logs x --offset -1", 1, "trn: Invalid value for '--offset'"),
        ("logs x --since yesterday", 1, "trn: Invalid value for --since: 'yesterday' is neither a duration nor a time"),
        ("clusters --regions mars", 1, "trn: Invalid value for --regions: 'mars' is not a region"),
        ("forward x 0:0", 1, "trn: Invalid value: '0:0' is not PORT"),
    ],
)  # fmt: skip
def test_exit_code(words: str, code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(CLUSTER)
    env = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "AWS_DEFAULT_REGION": "us-east-1", "TRN_CLUSTER": "cluster.json"}  # fmt: skip
    command = [sys.executable, "-m", "trainium_cdk.client.cli", *words.split()]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stdout + done.stderr) == (code, True), done.stderr
    assert code == 2 or done.stderr.count("\n") == 1

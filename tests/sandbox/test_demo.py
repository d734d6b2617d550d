"""`make demo`: everything in it runs, nothing is skipped, nothing is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox.demo import eks
from sandbox.paths import HOME as ROOT
from tests.jobs.kubernetes.conftest import make_cluster, script
from tests.support import need_kubernetes, need_slurm
from trainium_cdk.client.jobs.kubernetes.objects import render, text

SHOWN = {
    "slurm": (
        "least to pay: 53.64 USD: a capacity block of 1 x trn2.3xlarge for a day, paid in full",
        "4 virtual nodes",  # 2 with Trainium, 2 without
        r"20 logged steps: loss \d\.\d+, from 3\.\d+",
        "SANDBOX fake of trl.scripts.sft: 2 processes",
        "too-large-demo: node 0: RuntimeError: NRT allocation failed .*does not fit into the device's memory",
        r"the report of the training: \S+/report.html",
    ),
    "eks": ("gang-demo: COMPLETED", "hold-cancelled.*CANCELLED"),
}
ALWAYS = (
    "nothing except the CDK's bootstrap",
    r"what you have seen.*\n(.*\n)*   trn init .*\n   trn check .*\n   docs/start/first-fine-tuning.md has ",
)


@pytest.mark.sweep
@pytest.mark.parametrize("path", SHOWN)
def test_the_demo(path: str) -> None:
    """`make demo`, and `make demo EKS=1`."""
    need_kubernetes() if path == "eks" else need_slurm()
    demo = [sys.executable, "-m", "sandbox.demo", *(["--path", path] if path == "eks" else [])]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "TRN_"))}
    with subprocess.Popen(demo, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            output, _ = run.communicate()
        except BaseException:  # the time is up: as it is interrupted, it stops all that it has started
            run.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(60)
            run.kill()
            raise
    assert run.returncode == 0, output[-6000:]
    for pattern in (*SHOWN[path], *ALWAYS):
        assert re.search(pattern, output), (pattern, output[-3000:])
    report = ROOT / ".cache/demo/report.html"
    assert path == "eks" or "sandbox: no real AWS" in report.read_text()
    assert "Skipped on this machine" not in output


def test_without_a_local_kubernetes_the_printed_objects_are_valid() -> None:
    """`--dry-run` prints what the runner gets first, which is no object of Kubernetes."""
    printed: list[str] = []
    narrator: Any = SimpleNamespace(
        step=printed.append,
        print=printed.append,
        run=lambda *_, **__: text(render(script(b"true"), make_cluster(), "t")),
    )
    eks._validate(narrator)
    assert printed[-1] == "5 objects, all valid: ConfigMap, JobSet, Secret, NetworkPolicy, ConfigMap"

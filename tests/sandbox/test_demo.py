"""The README's first command, each path of it: everything in it runs, nothing is skipped, nothing is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys

import pytest

from sandbox import kubernetes, slurm
from sandbox.paths import HOME as ROOT
from tests.support import need


@pytest.mark.parametrize(
    ("path", "available", "shown"),
    [
        (
            "slurm",
            slurm.available,
            ["16 virtual nodes", "compiled 6 graphs, 0 failed", r"step 20: loss \d\.\d+, from 3\.\d+"],
        ),
        ("eks", kubernetes.available, ["gang-demo: COMPLETED", "hold-cancelled.*CANCELLED"]),
    ],
)
def test_the_demo(path: str, available: object, shown: list[str]) -> None:
    assert callable(available)
    need(available() is None, str(available()))
    demo = [sys.executable, "-m", "sandbox.demo", "--path", path]
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "TRN_"))}
    with subprocess.Popen(demo, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as run:
        try:
            said, _ = run.communicate()
        except BaseException:  # the time is up: as it is interrupted, it stops all that it has started
            run.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.wait(60)
            run.kill()
            raise
    assert run.returncode == 0, said[-6000:]
    for pattern in [*shown, "nothing, beside the CDK's own bootstrap"]:
        assert re.search(pattern, said), (pattern, said[-3000:])
    assert "Skipped on this machine" not in said

"""docs/start/quick-start.md, as it is printed: from a clone, by `make sandbox`, to a followed job of one's own folder, its logs fetched, and back."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.paths import HOME as ROOT
from tests.support import completed, need_slurm


@pytest.mark.sweep
def test_every_line(tmp_path: Path) -> None:
    """In a clone with the environments of this checkout, which `make setup` would make. The shell sets what it needs, and leaving it stops all."""
    need_slurm()
    page = (ROOT / "docs/start/quick-start.md").read_text("utf-8")
    [first, inside] = re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert inside.endswith("exit\n")
    assert len(inside.splitlines()) <= 8
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".cache").mkdir()
    for name in (".venv", ".venvs", "node_modules", ".cache/slurm"):
        if (ROOT / name).exists():
            (clone / name).symlink_to(ROOT / name)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "TRN_", "CDK_", "PYTHON"))}
    folder = {"TRN_SANDBOX_DIR": str(tmp_path / "sandbox")}
    env = {**kept, **folder, "XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": "/usr/bin:/bin", "SHELL": "/bin/bash"}
    typed = re.sub(r"^(trn (?:launch|destroy))", r"\1 --yes", inside, flags=re.MULTILINE)
    env |= {"PYTHONPATH": str(ROOT / "constructs")}
    done = completed(["bash", "-c", f"{first.strip()} -o setup"], cwd=clone, env=env, input=f"set -e\n{typed}")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert {f"{rank}: node {rank} of 2" for rank in (0, 1)} <= set(done.stdout.splitlines())
    assert "step 10: loss 0.3, from 3" in done.stderr
    assert "node 1 of 2" in (clone / "results/train.1.log").read_text()
    assert "nothing is left" in done.stderr + done.stdout
    assert done.stdout.splitlines()[-1] == "stopped"
    assert LocalAws.attach(tmp_path / "sandbox") is None

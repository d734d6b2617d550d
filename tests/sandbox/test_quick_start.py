"""docs/start/quick-start.md, as it is printed: from a clone to a followed job of one's own folder, its logs fetched, and back."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT
from tests.support import completed, need_slurm


@pytest.mark.sweep
def test_every_line(tmp_path: Path) -> None:
    """In a clone with the environments of this checkout, which the first line would make. Only its last state is `stopped`."""
    need_slurm()
    page = (ROOT / "docs/start/quick-start.md").read_text("utf-8")
    lines = (re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL))[0].splitlines()
    assert lines[0].startswith("make setup")
    assert len(lines) <= 10
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
    (clone / ".cache").mkdir()
    for name in (".venv", ".venvs", "node_modules", ".cache/slurm"):
        if (ROOT / name).exists():
            (clone / name).symlink_to(ROOT / name)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "TRN_", "CDK_"))}
    env |= {"XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": f"{ROOT / 'node_modules/.bin'}:{env['PATH']}"}
    script = "\n".join(["set -e", f"trap {shlex.quote(lines[-1])} EXIT", *lines[1:-1]])
    done = completed(["bash", "-c", script], cwd=clone, env=env)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert {f"{rank}: node {rank} of 2" for rank in (0, 1)} <= set(done.stdout.splitlines())
    assert "step 10: loss 0.3, from 3" in done.stderr
    assert "node 1 of 2" in (clone / "results/train.1.log").read_text()
    assert "nothing is left" in done.stderr + done.stdout
    assert "stopped" in done.stderr + done.stdout

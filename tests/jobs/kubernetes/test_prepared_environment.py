"""Workers see the packages of the prepared environment: a real virtual environment over a real image's Python, as far as one fits here.

The image's packages are those of the system's Python; a user's own folder of packages (PYTHONUSERBASE) is the same to a virtual
environment with `--system-site-packages`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.jobs.kubernetes.conftest import make_cluster
from trainium_cdk.jobs import BertLarge
from trainium_cdk.jobs.kubernetes import render

# As in PyTorch: the program `torchrun`, and the module, start the workers with the Python that they run in themselves.
LAUNCHER = "import subprocess, sys\ndef main():\n    at = next(i for i, a in enumerate(sys.argv) if a.endswith('.py') and i)\n    sys.exit(subprocess.call([sys.executable, *sys.argv[at:]]))\nif __name__ == '__main__':\n    main()\n"  # fmt: skip
TRAINING = "import torch.distributed.run, prepared\nprint('packages of both')\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An image whose Python has torch, and the environment that `prepare` creates on top of it, with one package."""
    base, overlay = tmp_path_factory.mktemp("image"), tmp_path_factory.mktemp("venv") / "venv"
    python = getattr(sys, "_base_executable", sys.executable)
    env = {"PYTHONUSERBASE": str(base), "PATH": os.defpath, "HOME": str(base)}
    where = subprocess.run([python, "-m", "site", "--user-site"], env=env, capture_output=True, text=True, check=False)
    torch = Path(where.stdout.strip()) / "torch" / "distributed"
    torch.mkdir(parents=True)
    for folder in (torch.parent, torch):
        (folder / "__init__.py").touch()
    (torch / "run.py").write_text(LAUNCHER)
    torchrun = base / "bin" / "torchrun"
    torchrun.parent.mkdir(exist_ok=True)
    torchrun.write_text(f"#!{python}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    make = [python, "-m", "venv", "--system-site-packages", "--without-pip", str(overlay)]
    subprocess.run(make, env=env, check=True)
    (next(overlay.glob("lib/python*/site-packages")) / "prepared.py").touch()
    return {**env, "venv": str(overlay), "PATH": os.pathsep.join([str(torchrun.parent), os.defpath])}


def run(environment: dict[str, str], command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    lines = ['. "$venv/bin/activate"', "data=x output=y steps=1 resume=()", command, '"${command[@]}"']
    ranks = {"NPROC_PER_NODE": "2", "NNODES": "1", "NODE_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "2022"}
    return subprocess.run(
        ["bash", "-euc", "\n".join(lines)],
        env={**environment, **ranks}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_command_that_pods_run(environment: dict[str, str], tmp_path: Path) -> None:
    node = render(BertLarge(nodes=2), make_cluster(), "t").files["node.sh"].decode()
    command = f"command=({node.partition('command=(')[2].partition(chr(10) + ')')[0]}\n)"
    (tmp_path / "dp_bert_large_hf_pretrain_hdf5.py").write_text(TRAINING)
    done = run(environment, command, tmp_path)
    assert (done.returncode, done.stdout) == (0, "packages of both\n"), done.stderr


def test_torchrun_itself_would_not_see_them(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    done = run(environment, "command=(torchrun train.py)", tmp_path)
    assert done.returncode != 0
    assert "No module named 'prepared'" in done.stderr

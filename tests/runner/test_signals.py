"""What a stage on Slurm does with signals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from trainium_cdk import runner

STAGE = """
import subprocess
from runner.work.tasks import Signals, Stopped, held

END = "kill -TERM $$ $PPID; echo done"
signals = Signals()
signals.install()
with held():
    print(subprocess.run(["sh", "-c", END], capture_output=True, text=True).stdout.strip(), signals.told)
print(signals.told)
try:
    signals.pause(60)
except Stopped:
    print("stopped")
print(subprocess.run(["sh", "-c", END], capture_output=True, text=True).returncode)
"""


def test_what_must_be_done_first_is_done() -> None:
    """Slurm ends all processes of a job. While signals are held, a program is not ended, and the script notes them afterwards."""
    place = Path(runner.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", STAGE], cwd=place, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == ["done 0", "15", "stopped", "-15", ""]

"""What a stage on Slurm does with signals."""

from __future__ import annotations

import signal
import subprocess

import pytest

from trainium_cdk.runner.work.signals import Signals, Stopped, held


def test_what_must_be_done_first_is_done() -> None:
    """Slurm ends all processes of a job. The program that runs is not ended, and the script notes the signal afterwards."""
    before = signal.getsignal(signal.SIGTERM)
    signals = Signals()
    signal.signal(signal.SIGTERM, signals._note)
    try:
        with held():
            done = subprocess.run(
                ["sh", "-c", "kill -TERM $$ $PPID; echo done"], capture_output=True, text=True, check=False
            )
            assert (done.stdout, done.returncode) == ("done\n", 0)
            assert signals.told == 0
        assert signals.told == signal.SIGTERM
        with pytest.raises(Stopped):
            signals.pause(60)
    finally:
        signal.signal(signal.SIGTERM, before)
    done = subprocess.run(["sh", "-c", "kill -TERM $$; echo done"], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("", -signal.SIGTERM)

"""A log that is handed out until Ctrl-C: the count is that of the bytes that came."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import pytest

CHILD = """
import signal, sys
from trainium_cdk.client.cli.output import write_bytes
place = [0]
def count(size):
    place[0] += size
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts the tests in the background may ignore it
try:
    for _ in range(20_000):
        write_bytes(b"x" * 10_007, count)
except KeyboardInterrupt:
    print(place[0], file=sys.stderr)
"""


@pytest.mark.parametrize("seed", range(6))
def test_the_count_is_that_of_the_bytes_that_came(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  the same each time
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        came = len(child.stdout.read(dice.randrange(1, 300_000)))
        time.sleep(dice.random() / 20)  # the pipe is full, or has room
        child.send_signal(signal.SIGINT)
        came += len(child.stdout.read())
        assert int(child.stderr.read()) == came

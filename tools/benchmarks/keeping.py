"""What copying a checkpoint to S3 costs the training near it: its step, and memory. The S3 of the local AWS runs on another core than the training."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from sandbox import LocalAws
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.runner.spec import Checkpoints, HealthRules, JobSpec, to_json

FILES, BYTES = 8, 64 * 2**20
ROUNDS, SECONDS = 3, 20.0
STEPS = """
import os, sys, time
os.sched_setaffinity(0, {0})
end, times = time.monotonic() + float(sys.argv[1]), []
while time.monotonic() < end:
    began = time.perf_counter()
    sum(i * i for i in range(150_000))
    times.append(time.perf_counter() - began)
print(sum(times) / len(times))
"""


def measure(folder: Path) -> Iterator[tuple[str, float, float]]:
    """A checkpoint of 512 MiB, again and again, as long as the training runs; its mean step, to the mean step of rounds without."""
    with LocalAws.start() as aws:
        for thread in Path(f"/proc/{aws.pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {1})
        aws.client("s3").create_bucket(Bucket="kept")
        root = folder / "efs/trn/jobs/one"
        made = root / "output/checkpoint/step-1"
        for place in (root / "state", made):
            place.mkdir(parents=True)
        for number in range(FILES):
            (made / f"__{number}_0.distcp").write_bytes(os.urandom(BYTES))
        rules = Checkpoints("output", "checkpoint", pattern="step-*", last=".metadata", keep="s3://kept/one")
        job = JobSpec("one", "torchtitan", (), checkpoints=rules, health=HealthRules(every=0.1))
        (root / "job.json").write_text(json.dumps(to_json(job)))
        (folder / "runner.pyz").write_bytes(pyz().content)
        ratios, most, copied, log = [], 0, -1, root / "log"
        log.touch()
        words = [sys.executable, "-I", str(folder / "runner.pyz"), "keep", str(root), "", str(log)]
        for _ in range(ROUNDS):
            without = float(_start(STEPS).communicate()[0])
            training = _start(STEPS)
            with subprocess.Popen(words, env=aws.env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True) as keeper:  # fmt: skip
                while training.poll() is None:
                    if (done := log.stat().st_size) != copied:
                        copied = done
                        (made / ".metadata").write_text(str(done))  # another save by the same name
                    most = max(most, _memory(keeper.pid))
                    time.sleep(0.05)
                os.killpg(keeper.pid, signal.SIGKILL)
            ratios.append(float(training.communicate()[0]) / without)
        if (copies := log.read_text().count("kept: step-1")) < ROUNDS:
            raise SystemExit(f"it was copied {copies} times")
        yield "step of a training while its checkpoint is copied, to one without", statistics.median(ratios), 1.02
        yield "memory of copying a checkpoint, in MB, to 200", most / 200e6, 1


def _start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", program, str(SECONDS)], stdout=subprocess.PIPE, text=True)


def _memory(group: int) -> int:
    """Bytes of the processes of a group."""
    found = 0
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdigit() and os.getpgid(int(place.name)) == group:
                found += int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (OSError, IndexError):
            continue
    return found

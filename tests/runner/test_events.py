"""Numbers that a program writes for TensorBoard alone, read by the real library in the job's Python."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import slurm as slurm
from tests.runner.stages import Jobs, program
from tests.support import ROOT, need
from trainium_cdk.runner.readers import Evaluation, Step
from trainium_cdk.runner.readers.log import JobLog, Lines
from trainium_cdk.runner.work import events

PLACE = ROOT / ".venvs/tensorboard/bin"
WRITE = """
import sys, time
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util.tensor_util import make_tensor_proto

def write(folder, step, **values):
    of = writers.setdefault(folder, EventFileWriter(folder))
    summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])
    of.add_event(Event(wall_time=1_800_000_000 + 2 * step, step=step, summary=summary))

writers = {}
for step in range(1, 7):
    for worker in ("runs/a", "runs/b"):
        write(worker, step, **{"train/loss": 4 - step / 2 if step < 6 else float("nan"), "lr": 1e-4, "weights/mean": 3.0})
        if step == 4:
            write(worker, step, **{"eval/loss": 2.5})
as_tensor = Summary(value=[Summary.Value(tag="train/loss", tensor=make_tensor_proto(0.5))])
writers["runs/a"].add_event(Event(wall_time=1_800_000_014, step=7, summary=as_tensor))
for one in writers.values():
    one.close()
print(*sys.argv[1:], flush=True)
"""


@pytest.fixture
def jobs(slurm: LocalSlurm, tmp_path: Path) -> Iterator[Jobs]:
    need(PLACE.is_dir(), f"TensorBoard is not installed ({PLACE}): make .venvs/tensorboard/.done")
    yield Jobs(slurm, tmp_path)
    slurm.run(["scancel", f"--user={slurm.node_env()['USER']}"])


def write(jobs: Jobs, *prints: str, path: str = f"{PLACE}:/usr/bin:/bin") -> str:
    """The log of a job that writes event files, and prints a line."""
    words = (str(PLACE / "python3"), "-c", WRITE, *prints)
    job = jobs.train(program(*words, variables={"PATH": path}))
    assert job.ended().code == 0, job.log()
    assert job.log("train.0").count(events.BEGIN) == job.log().count(events.BEGIN)
    return job.log()


def test_numbers_that_a_program_writes_for_tensorboard_are_in_its_log(jobs: Jobs) -> None:
    log = JobLog(Lines())
    records = [one for _, one in log.feed("train", write(jobs, "training").encode()) + log.close()]
    steps = [one for one in records if isinstance(one, Step)]
    assert [(one.step, one.loss) for one in steps] == [
        (1, 3.5), (2, 3.0), (3, 2.5), (4, 2.0), (5, 1.5), (6, None), (7, 0.5),
    ]  # fmt: skip
    assert [one.seconds for one in steps] == [None, *6 * [2.0]]
    assert steps[0].learning_rate == pytest.approx(1e-4)
    assert [one for one in records if isinstance(one, Evaluation)] == [Evaluation(4, 2.5)]


def test_a_program_that_prints_its_steps_is_read_by_these(jobs: Jobs) -> None:
    assert events.BEGIN not in write(jobs, "step 7 loss 0.5")


def test_a_python_without_tensorboard_has_none(jobs: Jobs) -> None:
    assert events.BEGIN not in write(jobs, "training", path="/usr/bin:/bin")


def test_files_of_an_earlier_attempt_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old/events.out.tfevents.1.host").write_bytes(b"")
    assert not events.find(tmp_path, time.time() + 60)
    assert len(events.find(tmp_path, time.time() - 60)) == 1


def test_a_line_is_one_that_people_may_print(jobs: Jobs) -> None:
    line = next(one for one in write(jobs, "training").splitlines() if events.BEGIN in one)
    told = json.loads(line.partition(events.BEGIN)[2])
    assert set(told) == {"step", "time", "train/loss", "lr"}

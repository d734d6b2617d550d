"""Jobs on a real Slurm whose stages are the runner, with folders and records made by hand: no client, no submission."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox.slurm import LocalSlurm
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.runner import layout, records, slurm
from trainium_cdk.runner.records import State
from trainium_cdk.runner.spec import JobSpec, Place, Program, Slurm, StageSpec, Word

JOB, FILES = Place("job"), Place("files")
_NUMBERS = itertools.count()
SLURM = Slurm("compute1", "compute1", "i-1")


def program(*words: Word, **fields: Any) -> Program:
    return Program(words, (JOB, "/work"), **fields)


def shell(script: str, **fields: Any) -> Program:
    return program("sh", "-c", script, **fields)


@dataclass
class Sent:
    """A job that Slurm has."""

    slurm: LocalSlurm
    folder: Path
    numbers: dict[str, str]

    def state(self, stage: str = "train") -> State | None:
        return records.state(self.folder, stage)

    def running(self, stage: str = "train") -> State:
        return self._until(stage, records.RUNNING)

    def ended(self, stage: str = "train") -> State:
        return self._until(stage, records.ENDED)

    def left(self, stage: str = "train", patience: float = 120) -> str:
        """The state in which Slurm remembers a stage that it has ended."""
        until = time.monotonic() + patience
        while True:
            now = self.left_now(stage)
            if now not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
                return now
            assert time.monotonic() < until, (now, self.log(stage))
            time.sleep(0.1)

    def left_now(self, stage: str = "train") -> str:
        """The state in which Slurm has it now."""
        words = ["squeue", "-h", "-a", "-t", "all", "-j", self.numbers[stage], "-o", "%T"]
        return self.slurm.run(words).stdout.strip()

    def log(self, name: str = "train") -> str:
        try:
            return (self.folder / "logs" / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    def says(self, text: str, name: str = "train", patience: float = 120) -> None:
        until = time.monotonic() + patience
        while text not in self.log(name):
            assert time.monotonic() < until, self.log(name)
            time.sleep(0.05)

    def _until(self, stage: str, state: str, patience: float = 240) -> State:
        until = time.monotonic() + patience
        while True:
            now = self.state(stage)
            if now and now.state == state:
                return now
            assert time.monotonic() < until, (now, self.log(stage))
            time.sleep(0.05)


class Jobs:
    """Submits jobs to a real Slurm."""

    def __init__(self, slurm: LocalSlurm, place: Path) -> None:
        self.slurm = slurm
        self.runner = place / "runner.pyz"
        self.runner.write_bytes(pyz().content)
        self.trn = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs/trn"

    def job(self, *stages: StageSpec, **fields: Any) -> JobSpec:
        return JobSpec(f"run-{next(_NUMBERS)}", "script", stages, **{"slurm": SLURM, **fields})

    def train(self, program: Program, nodes: int = 1, **fields: Any) -> Sent:
        return self.submit(self.job(StageSpec("train", nodes, program), **fields))

    def submit(self, job: JobSpec, env: Mapping[str, str] = {}, record: bool = True) -> Sent:
        folder = self.trn / "jobs" / job.id
        layout.lay_out(folder, job)
        sent, before = Sent(self.slurm, folder, {}), ""
        for stages in slurm.batches(job.stages):
            after = f"afterok:{before}" if before else ""
            words = slurm.sbatch_options(job, stages, folder, after=after)
            script = folder / f"{stages[-1].name}.sh"
            text = slurm.batch_script(str(self.runner), folder, stages)
            script.write_text(text.replace("/usr/bin/python3", os.environ.get("TRN_TEST_PYTHON", "/usr/bin/python3")))
            done = self.slurm.run(["sbatch", "--parsable", *words, str(script)], env=env)
            assert done.returncode == 0, done.stderr
            before = done.stdout.strip()
            sent.numbers.update((one.name, before) for one in stages)
        if record:
            self.record(sent)
        return sent

    def record(self, sent: Sent, **numbers: str) -> None:
        made = records.SubmittedRecord({**sent.numbers, **numbers}, "digest", "i-1")
        (sent.folder / "submitted.json").write_text(json.dumps(dataclasses.asdict(made)))

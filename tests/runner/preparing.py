"""A cluster's folder, in which the runner itself, as the file that travels, prepares jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.jobs.vendor import CHECK, Site
from trainium_cdk.client.jobs.runner import pyz
from trainium_cdk.runner.spec import Checkpoints, JobSpec, NodeEnvironment, Place, PrepareStep, to_json

PYTHON = os.environ.get("TRN_TEST_RUNNER_PYTHON", sys.executable)
"""Runs the runner: another version can be tried."""


@dataclass
class Cluster:
    """A shared file system in a folder.

    Attributes:
        variables: of a node.
        venv: of the cluster; empty: the image's own Python.
    """

    root: Path
    variables: Mapping[str, str] = field(default_factory=lambda: {"PATH": os.environ["PATH"]})
    venv: str = ""

    @classmethod
    def of(cls, site: Site, engine: str) -> Cluster:
        return cls(site.root / "shared", site.variables(engine), str(site.base) if engine == "slurm" else "")

    @property
    def trn(self) -> Path:
        return self.root / "efs/trn"

    def folder(self, id: str) -> Path:
        return self.trn / "jobs" / id

    def write(
        self,
        steps: Sequence[PrepareStep] = (),
        id: str = "run-1",
        *,
        kind: str = "script",
        variables: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        checkpoints: Checkpoints | None = None,
        array: str = "",
    ) -> Path:
        """The folder of a job with these steps."""
        venv = self.venv.removeprefix(str(self.root))
        word = (Place("root"), venv) if venv != self.venv else self.venv
        job = JobSpec(
            id,
            kind,
            (),
            NodeEnvironment(word),
            prepare=tuple(steps),
            checkpoints=checkpoints,
            array=array,
            files=files or {},
        )
        folder = self.folder(id)
        for name in ("files", "state"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        for name, content in job.files.items():
            (folder / "files" / name).write_bytes(content)
        (folder / "job.json").write_text(json.dumps(to_json(job)))
        (folder / "env.json").write_text(json.dumps(dict(variables or {})))
        return folder

    def start(self, folder: Path, mode: str = "fetch", addresses: Mapping[str, str] | None = None, **more: str) -> subprocess.Popen[str]:  # fmt: skip
        """Start preparing a job, or a check of it."""
        program = self.root / f"{pyz().name}.pyz"
        if not program.exists():
            self.root.mkdir(exist_ok=True)
            program.write_bytes(pyz().content)
        words = [PYTHON, "-I", str(program), "prepare", str(folder), str(folder / "env.json")]
        if mode == "check":
            words = [PYTHON, "-c", CHECK, str(program), str(folder), json.dumps(dict(addresses or {}))]
        variables = {"TRN_SHARED_ROOT": str(self.root), **self.variables, **more}
        return subprocess.Popen(
            words, cwd="/", env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )  # fmt: skip

    def prepare(self, folder: Path, mode: str = "fetch", addresses: Mapping[str, str] | None = None, **more: str) -> tuple[int, str]:  # fmt: skip
        """Exit code and output."""
        with self.start(folder, mode, addresses, **more) as process:
            output, _ = process.communicate()
            return process.returncode, output

    def environment(self, folder: Path) -> Path:
        """The environment that a job's nodes activate."""
        return self.trn / "environments" / (folder / "environment").read_text().strip()

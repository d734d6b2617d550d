"""Checkpoints of JAX: which are complete, by files that Orbax has written, and by Orbax itself, killed while it saves."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from tests.runner.preparing import Cluster
from tests.runner.test_keep import Kept
from tests.runner.test_resume import SCRIPT, content, write
from tests.support import ROOT, need, table, until
from trainium_cdk.runner.prepare import checkpoints

PYTHON = ROOT / ".venvs/jax/bin/python"
PROGRAM = """
import sys
import jax, numpy, orbax.checkpoint as ocp
mode, folder, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
options = ocp.CheckpointManagerOptions(max_to_keep=3, atomicity_options=ocp.options.AtomicityOptions(mode=ocp.options.AtomicityMode[mode]))
manager = ocp.CheckpointManager(folder, options=options)
state = {"w": jax.numpy.asarray(numpy.random.default_rng(1).random((3000, 8000), dtype=numpy.float32)), "step": 0}
newest = manager.latest_step()
if newest is not None:
    found = manager.restore(newest, args=ocp.args.StandardRestore(state))
    assert found["step"] == newest and (found["w"] == state["w"]).all()
print(newest, flush=True)
for step in range((newest or 0) + 1, (newest or 0) + 1 + steps):
    manager.save(step, args=ocp.args.StandardSave({**state, "step": step}))
    manager.wait_until_finished()
manager.close()
"""


def started(mode: str, folder: Path, steps: int = 0) -> subprocess.Popen[str]:
    words = [str(PYTHON), "-c", PROGRAM, mode, str(folder), str(steps)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})


def newest_of(mode: str, folder: Path) -> str:
    """The step that Orbax restores there."""
    with started(mode, folder) as program:
        assert program.stdout
        return program.stdout.read().strip()


def killed(mode: str, folder: Path) -> set[Path]:
    """Checkpoints of a program that was killed while it saved: those that it had not finished."""

    def unfinished() -> set[Path]:
        with contextlib.suppress(OSError):
            names = {one for one in folder.iterdir() if one.name != "metadata"}
            whole = set(checkpoints.complete(SCRIPT, folder))
            return {one for one in names - whole if len(whole) > 1 and any(one.rglob("ocdbt.process_0*/*"))}
        return set()

    for _ in range(5):
        with started(mode, folder, 1000) as program:
            try:
                assert until(unfinished, 120)
            finally:
                program.kill()
        if found := unfinished():
            return found
    raise AssertionError(f"it always had finished: {[*folder.iterdir()]}")


@pytest.mark.parametrize("row", table(__file__, "layouts"), ids=lambda row: row["of"])
def test_which_are_complete(row: dict[str, Any], tmp_path: Path) -> None:
    for number, name in enumerate((*row["files"], *row["texts"])):
        file = write(tmp_path / name, row["texts"].get(name, ""))
        os.utime(file, (number, number))
    write(tmp_path / "trn-checkpoints")
    found = list(checkpoints.complete(SCRIPT, tmp_path))
    assert {one.name for one in found} == set(row["complete"])
    assert checkpoints.latest(SCRIPT, tmp_path) == next(iter(found), None)


@pytest.mark.parametrize("mode", ["ATOMIC_RENAME", "COMMIT_FILE"])
def test_a_job_continues_from_what_orbax_itself_restores(
    mode: str, tmp_path: Path, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the folder of a job that was killed while it saved, from S3, and from what its own next job has written."""
    need(PYTHON.exists(), "JAX is not installed (.venvs/jax): make setup")
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    variables = {"PATH": os.environ["PATH"], **local_aws.variables}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    place = f"s3://orbax-{mode.lower().replace('_', '-')}"
    local_aws.client("s3").create_bucket(Bucket=place.removeprefix("s3://"))
    job = Kept(Cluster(tmp_path, variables), SCRIPT, place)
    left = killed(mode, job.folder)
    found = next(checkpoints.complete(SCRIPT, job.folder))
    assert newest_of(mode, job.folder) == found.name
    assert job.look() == [f"kept: {found.name} in {place}/run-1"]
    for source in ("run-1", place):
        other = Cluster(tmp_path, variables)
        folder = other.write(id=f"next-{len(source)}", checkpoints=replace(SCRIPT, source=source))
        code, output = other.prepare(folder)
        assert code == 0, output
        made = folder / "checkpoints"
        assert content(made / found.name) == content(found)
        assert not [one for one in made.rglob("*") if checkpoints.TEMPORARY in one.name]
        assert newest_of(mode, made) == found.name
        with started(mode, made, 1) as program:
            assert program.wait() == 0
        assert next(checkpoints.complete(SCRIPT, made)).name == newest_of(mode, made) == str(int(found.name) + 1)
    assert all(one.exists() for one in left)

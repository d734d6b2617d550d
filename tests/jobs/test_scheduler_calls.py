"""Calls of a scheduler's launchers in scripts: found in the text, and refused or noted where each of several nodes would make them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.jobs.conftest import make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from trainium_cdk.client.jobs.job_spec import job_spec
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.scheduler_calls import calls_of, scheduler_calls
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import Script

CASES = yaml.safe_load(Path(__file__).with_name("scheduler_calls.yaml").read_text("utf-8"))


@pytest.mark.parametrize(("text", "lines"), CASES)
def test_calls(text: str, lines: str) -> None:
    assert " ".join(f"{call.line}{'s' if call.sure else 'u'}" for call in scheduler_calls(text)) == lines


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("a.sh", "srun x", 1), ("a", "srun x", 1), ("a.sbatch", "#!/bin/bash -l\nsrun x", 1), ("a.py", "#!/usr/bin/env bash\nsrun x", 1),
        ("a.py", "srun = 1", 0), ("a.sh", "#!/usr/bin/env python3\nsrun = 1", 0), ("a.pl", "#!/usr/bin/perl\nsrun x", 0),
    ],
)  # fmt: skip
def test_only_scripts_that_a_shell_runs_are_read(name: str, text: str, number: int) -> None:
    assert len(calls_of(name, text.encode())) == number


@pytest.mark.parametrize("command", ["srun", "mpirun", "mpiexec", "sbatch", "salloc"])
def test_a_call_on_each_of_several_nodes_is_refused(command: str) -> None:
    """Following the message works."""
    content = f"#!/bin/bash\necho hi\n{command} -n 1 hostname\n".encode()
    with pytest.raises(JobError) as caught:
        plan(Script(filename="a.sh", content=content, nodes=2), make_cluster())
    assert str(caught.value) == (
        f"a.sh calls {command} in line 3, but it starts on each of 2 nodes, and each would call it. Add --launcher batch, which starts it once, "
        f"or remove {command}"
    )
    made = plan(Script(filename="a.sh", content=content, nodes=2, launcher="batch"), make_cluster())
    assert (made.notes, job_spec("a", made).stages[-1].batch) == ((), True)
    assert plan(Script(filename="a.sh", content=content), make_cluster()).notes == ()  # once, as it is on one node


def test_a_call_that_may_not_be_reached_is_noted() -> None:
    content = b'#!/bin/bash\nif [ "$NODE_RANK" = 0 ]; then\n  srun -n 1 hostname\nfi\n'
    (note,) = plan(Script(filename="a.sh", content=content, nodes=2), make_cluster()).notes
    assert note.startswith("a.sh may call srun in line 3, but it starts on each of 2 nodes")


def test_what_batch_does_not_go_with() -> None:
    with pytest.raises(JobError, match=r"precompile .* Remove --precompile"):
        Script(filename="a.sh", content=b"srun x", launcher="batch", precompile=True)
    with pytest.raises(
        JobError, match=r"launcher is batch, but .* runs Kubernetes, which has no srun. Remove --launcher"
    ):
        plan(Script(filename="a.sh", content=b"srun x", nodes=2, launcher="batch"), make_eks())
    # Open MPI in a pod starts its processes there
    assert plan(Script(filename="a.sh", content=b"mpirun -np 8 x", nodes=2), make_eks())

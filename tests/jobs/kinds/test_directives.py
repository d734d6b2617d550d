"""Scripts with lines of a scheduler: refused with what to write instead, which is then accepted."""

from __future__ import annotations

import re
import shlex

import pytest

from trainium_cdk.client.jobs.kinds.script import Script
from trainium_cdk.client.jobs.words import refused_directives as refused
from trainium_cdk.errors import JobError

HAS = "has {} of a scheduler (#SBATCH or similar), which nothing reads here. Remove {}"
ONE, TWO = HAS.format("a line", "it"), HAS.format("2 lines", "them")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hi\n", ""),
        ("##SBATCH --nodes=3\necho hi\n", ""),
        ("echo hi\n#SBATCH --nodes=3\n", ""),  # sbatch would not read it either
        ("# SBATCH --nodes=3\n", ""),
        ("#SBATCH --nodes=3\n", f"{ONE}, and submit it with --nodes 3"),
        ("\n# a comment\n#SBATCH -N 3 # three\n", f"{ONE}, and submit it with --nodes 3"),
        ("#SBATCH -N3 -t 10\n", f"{ONE}, and submit it with --nodes 3 --time-limit 10"),
        ("#SBATCH --nodes=2-4\n", f"{ONE}, and submit it with --nodes 4"),
        ("#SBATCH --time=30:00\n", f"{ONE}, and submit it with --time-limit 00:30:00"),
        ("#SBATCH --time=1-12\n", f"{ONE}, and submit it with --time-limit 1-12:00:00"),
        ("#SBATCH --time=1-12:30\n", f"{ONE}, and submit it with --time-limit 1-12:30:00"),
        ("#SBATCH -J My_Run.v1\n", f"{ONE}, and submit it with --name my-run-v1"),
        ("#SBATCH -p compute1\n#SBATCH --array=0-7%2\n", f"{TWO}, and submit it with --queue compute1 --array 0-7%2"),
        ("#SBATCH -N 2 --ntasks-per-node=8\nsrun a\n", f"{ONE}, and submit it with --nodes 2 --tasks-per-node 8 --launcher batch"),
        ("#SBATCH --ntasks-per-node=32\n", f"{ONE}, and submit it with --tasks-per-node 32"),
        (
            "#SBATCH --nodes=3\n#SBATCH --signal=B:USR1@120\n",
            f"{TWO}, and submit it with --nodes 3. trn submit has no option for --signal",
        ),
        ("#SBATCH --gres=disk:1 -x a,b\n", f"{ONE}, and submit it with --sbatch --gres=disk:1 --sbatch --exclude=a,b"),
        ("#SBATCH --nice\n", f"{ONE}, and submit it with --sbatch --nice"),
        ("#SBATCH -z\n", f"{ONE}. trn submit has no option for -z"),
        ("#SBATCH --exclusive\n", f"{ONE}. --exclusive is not needed: a job has its nodes to itself"),
        ("#SBATCH --output=x.out\n#SBATCH -e x.err\n", f"{TWO}. --output is not needed: trn logs prints it. -e is not needed: trn logs prints it"),
        ("#PBS -l nodes=2\n", ONE),
        ("#SBATCH --comment='a b\n", f"{ONE}. trn submit has no option for --comment"),
    ],
)  # fmt: skip
def test_refused(text: str, message: str) -> None:
    assert refused(f"#!/bin/bash\n{text}".encode(), "t.sh") == message


def test_following_the_message_works() -> None:
    text = "#!/bin/bash\n#SBATCH --nodes=3 -t 1-2 -J 'A b' -A team -q high\n#SBATCH --partition=compute1\nsrun echo $NNODES\n"
    with pytest.raises(JobError, match="submit it with") as caught:
        Script(filename="t.sh", content=text.encode())
    (words,) = re.findall(r"submit it with ([^.]*)", str(caught.value))
    pairs = iter(shlex.split(words))
    fields = {name.removeprefix("--").replace("-", "_"): next(pairs) for name in pairs}
    without = re.sub(r"#SBATCH.*\n", "", text)
    job = Script(filename="t.sh", content=without.encode(), **{**fields, "nodes": int(fields["nodes"])})
    assert (job.nodes, job.time_limit, job.name, job.account, job.qos, job.queue, job.launcher) == (
        3, "1-2:00:00", "a-b", "team", "high", "compute1", "batch",
    )  # fmt: skip


def test_a_python_script_too() -> None:
    with pytest.raises(JobError, match="--nodes 2"):
        Script(filename="t.py", content=b"#!/usr/bin/env python3\n#SBATCH --nodes=2\nprint(1)\n")

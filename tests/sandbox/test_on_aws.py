"""Every command of docs/start/on-aws.md, as it is printed, in the sandbox's shell: a Slurm cluster and an EKS cluster of the
page's own environment, in its own region, from deployment to removal."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from sandbox import LocalAws, attach
from sandbox.testing import sandbox_up
from tests.sandbox import on_aws
from tests.support import need_kubernetes, need_slurm

NOT_RUN = {
    "trn launch JOB": "test_pages.py runs it",
    "trn status finetune-... --watch": "it ends with the job: tests/cli/test_watch.py",
    "trn nodes top JOB": "it needs the vendor's neuron-top",
    "trn shell": "it needs the vendor's session-manager-plugin: tests/jobs/test_slurm_inside.py",
    "trn forward JOB --tensorboard": "it needs TensorBoard in the image",
    "cdk destroy": "named beside trn destroy, which does that too",
    **dict.fromkeys(("trn --environment", "cdk -c env="), "options"),
}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[on_aws.Shell]:
    """`python -m sandbox up --slurm --kubernetes`, and a checkout with the page's environment file in it."""
    need_slurm()
    need_kubernetes()
    checkout = on_aws.checkout(tmp_path_factory.mktemp("checkout"))
    directory = tmp_path_factory.mktemp("sandbox")
    with sandbox_up(directory, "--slurm", "--kubernetes") as aws:
        client = aws.client("s3")
        client.create_bucket(Bucket="bucket")
        client.upload_file(str(checkout / "my-script.py"), "bucket", "set/part-0")
        yield on_aws.Shell(directory, checkout)
        client.delete_object(Bucket="bucket", Key="set/part-0")
        client.delete_bucket(Bucket="bucket")
        left = {kind: names for kind, names in aws.leftovers().items() if not kind.startswith("log groups")}
        assert left == {}
        assert [attach.requests(directory, kind) for kind in attach.KINDS] == [{}, {}]
    assert LocalAws.attach(directory) is None
    assert [attach.supervisor(directory, kind) for kind in attach.KINDS] == [None, None]


def printed() -> tuple[list[str], list[str]]:
    """The commands for Slurm and those for Kubernetes, each once, the destruction last."""
    found = on_aws.commands()
    cut = found.index("trn init eks.yaml --engine eks --nodes 2")
    parts = [[one for one in dict.fromkeys(part) if one not in NOT_RUN] for part in (found[:cut], found[cut:])]
    slurm_part, eks_part = (
        [*(p for p in part if "destroy" not in p), *(p for p in part if "destroy" in p)] for part in parts
    )
    return slurm_part, eks_part


@pytest.mark.sweep
def test_slurm_step_by_step(shell: on_aws.Shell) -> None:
    for command in printed()[0]:
        if command.startswith("trn logs -f"):
            shell.follow(command)
        elif command.endswith("--dry-run"):
            assert shell.run(command).startswith("#!/bin/bash")
        elif re.match("trn submit (bert-large|gpt-6.7b)", command):
            shell.refused(command, "TrnPclusterStack have torch-native" if "bert" in command else "runs on trn1, trn1n")
        elif command.startswith("trn submit"):
            job = shell.run(command.replace("COMMIT", "a" * 40)).strip()
            if "finetune" in command:
                shell.job = job
            elif "my-script.py" in command:
                assert "got: its arguments" in shell.run(f"trn logs -f {shlex.quote(job)}")
            elif "evaluate.sh" in command:
                assert "evaluated on cpu-" in shell.run(f"trn logs -f {shlex.quote(job)}")
            else:
                shell.run(f"trn cancel {shlex.quote(job)}")
        elif command.startswith("trn status"):
            assert "train" in shell.run(command)
        else:
            shell.run(command)


@pytest.mark.sweep
def test_kubernetes_step_by_step(shell: on_aws.Shell) -> None:
    init, *others = printed()[1]
    bootstrap = 'cdk bootstrap aws://ACCOUNT/ap-southeast-4 --app ""'  # where `trn init` puts it
    for command in [init, bootstrap, "export TRN_ENV=eks.yaml", *others]:
        if command.startswith("trn image build"):
            shell.image = shell.run(command).strip()
            assert shell.image
        elif command.startswith("trn submit"):
            shell.job = shell.run(f"{command} --run-steps 2000").strip()  # it still runs when a shell is opened
            shell.follow("trn logs -f JOB")
        elif command.startswith("trn shell"):
            assert "inside as node 0" in shell.run(command, stdin='echo "inside as node $JOB_COMPLETION_INDEX"; exit\n')
        else:
            shell.run(command)

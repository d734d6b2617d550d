"""What is sent: readable golden files, no finding of shellcheck, the same text each time."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.conftest import fleet, make_cluster
from tests.support import SHELLCHECK, completed, golden, swept
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt, JobError, Nccom, Script
from trainium_cdk.jobs.slurm.render import render

GOLDEN = Path(__file__).parent / "golden"
CLUSTER = make_cluster(neuron_release="2.28.1")
MIXED = make_cluster(
    fleet(nodes=2, resource="a"), fleet("trn2.48xlarge", 4, resource="b"), fleet("trn1.2xlarge", queue="cheap")
)
SCRIPT = b'#!/bin/bash\ntorchrun --nnodes "$NNODES" --node_rank "$NODE_RANK" train.py "$@"\n'
JOBS: dict[str, AnyJob] = {
    "bert-large": BertLarge(nodes=16),
    "gpt-6.7b": Gpt(nodes=16),
    "script": Script(filename="run.sh", content=SCRIPT, nodes=2, args=("--name", "it's $HOME")),
}
MORE: dict[str, AnyJob] = {
    "phase-2": BertLarge(nodes=2, phase=2, checkpoint="bert-large-20261120-4f3a9c", time_limit="2-00:00:00"),
    "phase-2-file": BertLarge(
        phase=2, checkpoint="/efs/it's/ckpt_28125.pt", optimizer="adamw", data="s3://bucket/my data.tar"
    ),
    "own-data": Gpt(nodes=2, data="/efs/corpus", precompile=False, env={"A": "x y\n$z"}),
    "prefix": Gpt(nodes=2, data="s3://bucket/corpus"),
    "python": Script(filename="train.py", content=b"print(1)", tasks_per_node=4, precompile=True, args=("a\nb", "")),
    "nccom": Nccom(nodes=2),
    "binary": Script(filename="tool", content=b"#!/bin/true\n\xff\x00", queue="compute1"),
    "resume": Script(filename="run.sh", content=SCRIPT, array="0-1", resume_from="/efs/it's"),
}
WORDS = {"script", "phase-2-file", "own-data"}


def without_library(text: str) -> str:
    """The text with the files left out that are sent as they are: the library, and corrections."""
    return re.sub(
        r"""^write ("\$job/"?(?:stage\.sh|fetch\.sh)"|"\$job/script/"\w+\.py) <<.*?\nEOF$""",
        r"[\1]",
        text,
        flags=re.M | re.S,
    )


def test_a_submission_in_a_traceback_does_not_show_its_files() -> None:
    submission = render(JOBS["script"], CLUSTER, "t")
    assert "torchrun" in submission.text
    assert "torchrun" not in repr(submission)


COMMON = re.compile(r"^die\(\) .*?(?=^venv=)", re.MULTILINE | re.DOTALL)
"""How a submission talks to Slurm: the same for all jobs of several stages, but for the lock."""


def test_a_checkpoint_must_be_there_before_anything_is_submitted() -> None:
    of_a_job, file = (render(MORE[name], CLUSTER, "t").text for name in ("phase-2", "phase-2-file"))
    assert "job bert-large-20261120-4f3a9c has written no checkpoint yet" in of_a_job
    assert "has written no checkpoint" not in file
    assert """|| die "there is no" '/efs/it'"'"'s/ckpt_28125.pt' "on the cluster.""" in file


@pytest.mark.parametrize("name", JOBS)
def test_golden(name: str) -> None:
    text, bert = (without_library(render(JOBS[each], CLUSTER, "20261120-4f3a9c").text) for each in (name, "bert-large"))
    if name == "gpt-6.7b":
        common, of_bert = (re.sub(r"/\.locks/\w\w", "", COMMON.findall(each)[0]) for each in (text, bert))
        assert common == of_bert
        text = COMMON.sub("[as in bert-large.sh]\n", text)
    assert text == golden(GOLDEN / f"{name}.sh", text)


@pytest.mark.parametrize("name", swept([*JOBS, *MORE], "phase-2", "resume"))
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    cluster = MIXED if name == "phase-2" else CLUSTER
    job = {**JOBS, **MORE}[name]
    submission = render(job, cluster, "20261120-4f3a9c")
    (tmp_path / "submit.sh").write_text(submission.text)
    files = ["submit.sh"]
    for path, content in submission.files.items():
        target = tmp_path / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
        if path.endswith((".sh", ".sbatch")) and not path.startswith("script/"):
            files.append(path)
    # SC1090/SC1091: files found only on the cluster. SC2154, SC2034: variables that a sourced file sets or uses.
    # Arguments of users that look like shell syntax are literal: SC2016, SC2089, SC2090.
    apart = "SC1090,SC1091,SC2154,SC2034" + (",SC2016,SC2089,SC2090" if name in WORDS else "")
    if isinstance(job, Gpt):  # its `steps` are called by that name in the subshell that sets PIP_CONSTRAINT
        apart += ",SC2031"
    found = completed([SHELLCHECK, "-s", "bash", "-e", apart, *files], cwd=tmp_path)
    assert found.stdout + found.stderr == ""
    assert len(files) >= 4


def test_a_plan_is_printed_and_stored() -> None:
    submission = render(BertLarge(nodes=16), CLUSTER, "t")
    assert submission.plan.describe() == [
        "16 nodes of trn1.32xlarge in queue compute1, 32 NeuronCores each",
        "global batch size 65536 = 16 sequences x 8 accumulation steps x 512 data-parallel",
        "packages of its own, on top of Neuron SDK 2.28.1 with Python 3.12: h5py==3.15.1, huggingface-hub==0.24.5, requests==2.31.0, "
        "tensorboard==2.21.0, transformers==4.44.0 (installed once in /efs, about 160 MB; trn environments)",
        "prepare runs on one c5.2xlarge of queue cpu (0.34 USD an hour), unless nothing must be fetched",
    ]
    kept = json.loads(submission.files["job.json"])
    assert (kept["global_batch_size"], kept["workers"], kept["nodes"]) == (65536, 512, 16)
    assert (submission.directory, submission.log_dir) == (
        "/efs/trn/jobs/bert-large-t",
        "/efs/trn/jobs/bert-large-t/logs",
    )


@pytest.mark.parametrize(
    ("restarts", "requeue", "line"),
    [
        (None, "--requeue", "stage=train"),
        (0, "--no-requeue", "stage=train"),
        (5, "--requeue", "stage=train restarts=5"),
    ],
)
def test_restarts(restarts: int | None, requeue: str, line: str) -> None:
    submission = render(BertLarge(restarts=restarts), CLUSTER, "t")
    train = submission.files["train.sbatch"].decode().splitlines()
    assert f"#SBATCH {requeue}" in train
    assert f"job=$1 {line}" in train
    prepare = submission.files["prepare.sbatch"].decode().splitlines()
    assert "#SBATCH --requeue" in prepare
    assert "job=$1 stage=prepare" in prepare


def test_the_environment_of_a_user_is_only_in_the_scripts_that_need_it() -> None:
    submission = render(BertLarge(env={"TOKEN": "s3cret"}), CLUSTER, "t")
    assert [path for path, content in submission.files.items() if b"s3cret" in content] == [
        "node.sh",
        "prepare.sh",
    ]
    assert "umask 077" in submission.text


def test_a_different_job_with_the_same_token_renders_differently() -> None:
    one, other = (render(BertLarge(nodes=n), CLUSTER, "t") for n in (1, 2))
    assert one.id == other.id
    digests = [next(line for line in s.text.splitlines() if line.startswith("digest=")) for s in (one, other)]
    assert digests[0] != digests[1]


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=30)
@given(st.lists(words, max_size=4), st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), words, max_size=3), st.binary(min_size=1, max_size=200))  # fmt: skip
def test_rendering_any_input_gives_a_valid_and_stable_script(
    args: list[str], env: dict[str, str], content: bytes
) -> None:
    try:
        job = Script(filename="run.sh", content=content, args=tuple(args), env=env)
    except JobError:
        return  # empty, or a name of Slurm's
    text = render(job, CLUSTER, "t").text
    assert text == render(job, CLUSTER, "t").text
    checked = subprocess.run(["bash", "-n"], input=text.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")
    options = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert all("run.sh" not in o and not set(args) & set(o.split()) - {"", "#SBATCH"} for o in options)

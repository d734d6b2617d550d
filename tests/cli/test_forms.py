"""What every command prints: in a pipe, without colours, and on a terminal of 80 columns; and the commands of the docs, on the same Slurm."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
import termios
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster, slurm  # noqa: F401  a fixture
from tests.tools.reference.test_blocks import commands
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.cli.output import clean
from trainium_cdk.errors import TrnError

NAME = "finetune-of-a-model-long-name"
JOB = f"{NAME}-20261124-0123ab"
WAITS = f"after-{NAME}-20261124-0123ac"
ARRAY = "train-20261124-0123ae"
STEPS = "LOG Tue Nov 24 20:59:42 2026 - (0, 1) step_loss : 3.4 learning_rate : 3.0e-06 throughput : 268958.2"
ENVIRONMENT = "region: us-east-1\npcluster:\n  queues: [{name: compute1, compute_resources: [{name: trn, instance_type: trn1.32xlarge}]}]\n"

COMMANDS = [
    ("list --local", [JOB, WAITS, "train COMPLETED"]),
    (f"status {JOB} {WAITS} --local", [JOB, WAITS, "COMPLETED", "PENDING"]),
    (f"status {JOB} --local --json", [f'"{JOB}"', '"COMPLETED"']),
    (f"logs {JOB} --local", ["trn: train: Slurm job 1 on compute1-dy-trn-1"]),
    (f"logs -f {ARRAY}/0 --local", [f"0: {STEPS}"]),
    (f"logs -f {ARRAY} --local", [f"[0] 0: {STEPS}", f"[1] 0: {STEPS}"]),
    (f"status --wait {JOB} --local", [JOB]),
    (f"cancel {JOB} --local", [JOB]),
    (f"report {JOB} --local", [f"report-{JOB}.html"]),
    (f"report {JOB} -o {NAME}-and-its-loss.html --local", []),
    ("nodes --local", ["compute1-dy-trn-1", "holds-20261124-0123ad:train"]),
    ("submit job.sh --nodes 1 --dry-run --cluster cluster.json", ['"--nodes=1"']),
    ("submit bert-large --nodes 4 --dry-run --environment environment.yaml", ["4 nodes of trn1.32xlarge", "65536 = 16 sequences x ", "86.00 USD an hour"]),
    ("cost --environment environment.yaml", ["compute1/trn: 0 to 16 x trn1.32xlarge"]),
    ("check --offline --environment environment.yaml", []),
    ("submit --list", ["gpt-6.7b", "trn submit KIND"]),
    ("submit bert-large --help", ["bert-large", "--batch-size"]),
    ("show schema", ['"$defs"']),
    ("use", []),
    ("cancel no-such-job-20261124-0123ab --local", ["no-such-job-20261124-0123ab"]),
    ("submit gpt-6.7b --help", ["--global-batch-size <int>", "--environment <path>"]),
    ("--help", ["trn COMMAND [OPTIONS]", "capacity"]),
]  # fmt: skip
"""A command line, and what must be in one piece in its answer."""


@pytest.fixture(scope="module")
def folder(slurm: LocalSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:  # noqa: F811
    """A head node with a job that has ended, and one that waits for a job."""
    made = tmp_path_factory.mktemp("forms")
    (made / "cluster.json").write_text(make_cluster(fleet(nodes=4)).model_dump_json())
    (made / "environment.yaml").write_text(ENVIRONMENT)
    (made / "job.sh").write_text("printf '\\e[31mstep\\e[0m loss\\n'\n")
    (made / "hold.sh").write_text("sleep 3600\n")
    (made / "values.csv").write_text("lr\n1e-4\n3e-4\n")
    for name in ("train.py", "train.sh", "my-script.py"):
        (made / name).write_text(f"#!/bin/bash\necho '{STEPS}'\n")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **slurm.node_env(),
            "TRN_CLUSTER": str(made / "cluster.json"),
            "TERM": "xterm-256color",
            "HF_TOKEN": "hf_x",
        }.items():
            patch.setenv(name, value)
        patch.chdir(made)
        patch.setenv("COLUMNS", "80")
        for words in (
            f"job.sh --nodes 1 --name {NAME} --token 20261124-0123ab --follow",
            "train.sh --nodes 1 --array 0-1 --token 20261124-0123ae",
            "hold.sh --nodes 4 --name holds --token 20261124-0123ad",
            f"job.sh --nodes 4 --name after-{NAME} --token 20261124-0123ac",
        ):
            said = run(f"submit {words} --local", terminal=False)
            assert re.search(r"-20261124-0123a[bcde]", said), said
            if "--array" in words:
                run(f"status --wait {ARRAY} --local", terminal=False)
        yield made


def run(command: str, *, terminal: bool) -> str:
    """All that a command prints, on a terminal of 80 columns or in a pipe; in this process, as starting one takes longer."""
    ours, its = pty.openpty() if terminal else os.pipe()
    if terminal:
        termios.tcsetwinsize(its, (40, 80))
        settings = termios.tcgetattr(its)
        settings[1] &= ~termios.OPOST  # line ends as they were written
        termios.tcsetattr(its, termios.TCSANOW, settings)
    came = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(ours, 65536):
                came.extend(piece)

    reader = threading.Thread(target=read)
    reader.start()
    out = os.fdopen(its, "w", encoding="utf-8")
    with out, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        try:
            app(command.split(), prog_name="trn", standalone_mode=False)
        except (TrnError, SystemExit) as e:
            print(clean(str(e)), file=sys.stderr)
        out.flush()
    reader.join(60)
    os.close(ours)
    return came.decode()


@pytest.mark.parametrize(("command", "whole"), COMMANDS, ids=[command[:60] for command, _ in COMMANDS])
def test_all_forms(command: str, whole: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    piped = run(command, terminal=False)
    if not command.startswith("logs"):  # which hands on the job's own bytes
        assert re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", piped) == [], "no control characters in a pipe"
    monkeypatch.setenv("NO_COLOR", "1")
    shown = run(command, terminal=True)
    assert not re.search(r"\x1b\[[\d;]*(3[0-8]|4[0-8]|9\d|10\d)[\d;]*m", shown), "NO_COLOR"
    text = re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", shown)
    for word in whole:
        assert any(word in line for line in piped.splitlines()), (word, piped)
        assert any(word in line for line in text.splitlines()), (word, text)
    assert "\u2026" not in text, "nothing is cut"


def test_a_terminal_has_colours(folder: Path) -> None:
    assert folder.is_dir()
    assert "\x1b[32mtrain COMPLETED" in run("list --local", terminal=True)


def of_the_docs() -> list[str]:
    """Each printed command that a Slurm cluster alone can answer: without AWS, Session Manager, a browser, a framework, an index
    of packages or a reservation."""
    verbs = ("list", "status", "logs", "cancel", "nodes", "report", "submit")
    lines = []
    for _, words in commands():
        if (
            words[0] != "trn"
            or words[1] not in verbs
            or {"top", "status", "stop", "start"} & {*words[2:]}  # of `trn nodes`
            or {"--follow", "--watch", "--workdir", "--requirements", "--sbatch", "--devices", "--image", "TrnEksStack"}
            & {*words}
        ):
            continue
        if words[1] != "submit" or words[2] in ("train.py", "train.sh", "my-script.py"):
            lines.append(" ".join(words))
    return list(dict.fromkeys(lines))


@pytest.mark.parametrize("printed", of_the_docs())
def test_each_of_the_docs(printed: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It is run as it is printed, on this cluster's jobs."""
    for pattern, here in (
        (r"\btrain-\d{8}-\w{6}(/7)?", lambda found: f"{ARRAY}/1" if found[1] else ARRAY),
        (r"\b(bert-large|finetune|prepare)-(\d{8}-\w{6}|\.\.\.)", JOB),
        (r"\bJOB-1 JOB-2 JOB-3\b", f"{JOB} {ARRAY}/0 {ARRAY}/1"),
        (r"\bJOB(\.\.\.)?", f"{ARRAY}/0"),
        (r"\bARRAY\b", ARRAY),
        (r"\blatest\b", JOB),  # the latest of these jobs has no output, and does not end
        (r" finetune$", f" {NAME[:9]}"),
    ):
        printed = re.sub(pattern, here, printed)
    options, dashes, arguments = printed.removeprefix("trn ").partition(" -- ")
    words = [*f"{options} --local".split(), *dashes.split(), *arguments.split()]
    assert app(words, prog_name="trn", standalone_mode=False) in (None, 0)
    said = capfd.readouterr().out
    assert said or "list" in options
    if options.startswith("report"):
        assert (folder / said.splitlines()[-1]).exists()

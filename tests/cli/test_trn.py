"""The command as people type it, on a real Slurm's head node."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from sandbox.slurm import LocalSlurm
from tests import command
from tests.jobs.conftest import fleet, make_cluster, slurm  # noqa: F401  a fixture
from tests.support import TRN, completed, table
from trainium_cdk.client.cli.options import Target, user
from trainium_cdk.client.jobs import forward
from trainium_cdk.client.jobs.job_spec import render, text
from trainium_cdk.jobs import BertLarge

Run = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture(scope="module")
def cluster_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("cluster") / "cluster.json"
    file.write_text(make_cluster(fleet(nodes=4)).model_dump_json())
    return file


@pytest.fixture
def trn(slurm: LocalSlurm, cluster_file: Path, tmp_path: Path) -> Run:  # noqa: F811
    """Run `trn` on the head node."""
    env = {**slurm.node_env(), "TRN_CLUSTER": str(cluster_file)}

    def run(verb: str, *argv: str | bytes) -> subprocess.CompletedProcess[bytes]:
        done = command.trn([verb, *map(os.fsdecode, argv), "--local"], env, tmp_path)
        return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.encode(), done.stderr.encode())

    return run


def bare(*argv: str | bytes, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `trn` where there is no cluster and no AWS."""
    full = {
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "AWS_EC2_METADATA_DISABLED": "true",
        "LC_ALL": "C.UTF-8",
        **env,
    }
    return command.trn([os.fsdecode(word) for word in argv], full)


def test_a_job_from_submit_to_its_end(trn: Run, tmp_path: Path) -> None:
    (tmp_path / "hello.sh").write_text(
        'echo "LOG Wed Dec 21 00:12:27 2022 - (0, 7) step_loss : 2.5 learning_rate : 1e-3 throughput : 100.0"; printf "<%s>" "$@"\n'
    )
    sent = trn("submit", "hello.sh", "--nodes", "2", "--token", "t1", "--env", "A=b=c", "a b", "$(id)")
    assert (sent.returncode, sent.stdout) == (0, b"hello-t1\n"), sent.stderr.decode()
    assert b"2 nodes of trn1.32xlarge in queue compute1, 32 NeuronCores each" in sent.stderr
    assert b"follow it with: trn logs -f hello-t1" in sent.stderr
    followed = trn("logs", "-f", "hello-t1")
    assert followed.returncode == 0, followed.stderr.decode()
    assert b"0: <a b><$(id)>" in followed.stdout
    assert b"step 7: loss 2.5, from 2.5; 100.0 sequences/s on average" in followed.stderr
    assert trn("status", "--wait", "hello-t1").returncode == 0
    status = json.loads(trn("status", "hello-t1", "--json").stdout)
    assert (status["state"], status["ok"], status["nodes"]) == ("COMPLETED", True, 2)
    assert [s["name"] for s in status["stages"]] == ["train"]
    again = trn("submit", "hello.sh", "--nodes", "2", "--token", "t1", "--env", "A=b=c", "--json", "a b", "$(id)")
    assert json.loads(again.stdout)["existing"] is True
    assert b"already submitted" in again.stderr
    listed = trn("list").stdout.decode().splitlines()
    assert listed[0].split("\t") == ["job", "state", "nodes", "queue", "age", "duration", "user", "reason"]
    [row] = [line.split("\t") for line in listed[1:] if line.startswith("hello-t1\t")]
    assert [*row[:4], *row[6:]] == ["hello-t1", "train COMPLETED", "2", "compute1", user(Target()), ""]
    assert b"hello is hello-t1\n" in trn("status", "hello").stderr
    followed = trn("submit", "hello.sh", "--token", "t2", "--follow")
    assert (followed.returncode, followed.stdout.splitlines()[0]) == (0, b"hello-t2")
    assert b"step_loss : 2.5" in followed.stdout
    records = [
        json.loads(line)
        for line in trn("logs", "hello-t1", "--metrics", "--tail", "1", "--node", "0").stdout.splitlines()
    ]
    assert records == [{"stage": "train", "record": "Step", "step": 7, "loss": 2.5, "learning_rate": 0.001, "throughput": 100.0, "grad_norm": None, "total_steps": None, "global_batch_size": None, "seconds": None, "tokens_per_second": None, "unit": None}]  # fmt: skip


def test_an_array_from_submit_to_its_end(trn: Run, tmp_path: Path) -> None:
    (tmp_path / "sweep.sh").write_text('echo "rate $((TRN_ARRAY_INDEX * 2))"\n')
    sent = trn("submit", "sweep.sh", "--array", "0-2", "--token", "a1")
    assert (sent.returncode, sent.stdout) == (0, b"sweep-a1\n"), sent.stderr.decode()
    assert b"3 times 1 node of" in sent.stderr
    assert b"one's log: trn logs -f sweep-a1/INDEX" in sent.stderr
    assert trn("status", "--wait", "sweep-a1").returncode == 0
    shown = trn("status", "sweep").stdout.decode()
    assert "3 completed" in shown
    assert "sweep-a1/2\tCOMPLETED" in shown
    assert b"rate 4" in trn("logs", "sweep/2").stdout
    assert b"nothing to cancel" in trn("cancel", "sweep-a1/1").stderr
    joined = [line for line in trn("logs", "sweep-a1").stdout.splitlines() if b"rate" in line]
    assert joined == [b"[0] 0: rate 0", b"[1] 0: rate 2", b"[2] 0: rate 4"]
    assert (
        b"a node belongs to one member. Give a member, for example sweep-a1/0"
        in trn("logs", "sweep-a1", "--node", "0").stderr
    )
    refused = trn("submit", "sweep.sh", "--array", "0-2", "--sweep", "lr=1,2")
    assert (refused.returncode, b"sweep and array are both given" in refused.stderr) == (1, True)


def test_a_job_that_fails_makes_wait_and_follow_fail(trn: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.sh").write_text("exit 5\n")
    id = trn("submit", "bad.sh", "--precompile").stdout.decode().strip()
    for verb, *options in (("status", "--wait"), ("logs", "-f")):
        done = trn(verb, id, *options)
        assert done.returncode == 1
        assert b"train CANCELLED (did not run: precompile did not complete)" in done.stderr


def test_cancel(trn: Run, tmp_path: Path) -> None:
    (tmp_path / "long.sh").write_text("sleep 3600\n")
    id = trn("submit", "long.sh").stdout.decode().strip()
    assert json.loads(trn("cancel", id, "--json").stdout)["state"] == "CANCELLED"
    assert trn("status", "--wait", id).returncode == 1


def test_a_dry_run_is_what_would_be_sent_and_sends_nothing(trn: Run, slurm: LocalSlurm) -> None:  # noqa: F811
    before = slurm.run(["squeue", "-h", "-a"]).stdout
    done = trn("submit", "bert-large", "--nodes", "4", "--optimizer", "adamw", "--token", "dry", "--dry-run")
    job = BertLarge(nodes=4, optimizer="adamw", user=user(Target()))
    assert done.stdout == text(render(job, make_cluster(fleet(nodes=4)), "dry")).encode()
    assert done.returncode == 0
    told = json.loads(
        trn(
            "submit", "bert-large", "--nodes", "4", "--optimizer", "adamw", "--token", "dry", "--dry-run", "--json"
        ).stdout
    )
    assert (told["id"], told["sent"].encode()) == ("bert-large-dry", done.stdout)
    assert slurm.run(["squeue", "-h", "-a"]).stdout == before
    assert trn("status", "bert-large-dry").returncode == 1


BAD: list[tuple[list[str | bytes], int, str]] = [
    *table(__file__, "bad command lines"),
    (["submit", __file__, b"\xff"], 1, "not UTF-8 text"),
]


@pytest.mark.parametrize(("argv", "code", "message"), BAD, ids=[" ".join(map(str, b[0])) or "nothing" for b in BAD])
def test_a_bad_command_line(
    argv: list[str | bytes],
    code: int,
    message: str,
    slurm: LocalSlurm,  # noqa: F811
    cluster_file: Path,
    tmp_path: Path,
) -> None:
    before = slurm.run(["squeue", "-h", "-a"]).stdout
    words = [*map(os.fsdecode, argv), "--local"]
    done = command.trn(words, {**slurm.node_env(), "TRN_CLUSTER": str(cluster_file)}, tmp_path)
    assert done.returncode == code
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
    assert code == 2 or done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert slurm.run(["squeue", "-h", "-a"]).stdout == before


@pytest.mark.parametrize(
    ("argv", "env", "message"),
    [
        (["list"], {}, "cannot read stack TrnPclusterStack: no AWS region is set. Give --region"),
        (["list", "--stack", "Mine"], {"AWS_DEFAULT_REGION": "us-east-1"}, "cannot read stack Mine: .*credentials"),
        (["list", "--cluster", "/nowhere.json"], {}, r"cannot read /nowhere.json: No such file.*trn show cluster >"),
        (["list", "--cluster", __file__], {}, "does not describe a cluster"),
        (
            ["check", "--offline", "--environment", "/nowhere.yaml"],
            {},
            r"/nowhere.yaml: the file does not exist. Check the path$",
        ),
        (["check", "--environment", "/nowhere.yaml"], {}, r"/nowhere.yaml: the file does not exist. Check the path$"),
        (["list", "--environment", "/nowhere.yaml"], {}, r"/nowhere.yaml: the file does not exist. Check the path$"),
        (
            ["check", "--offline", "--environment", "/etc/passwd/x.yaml"],
            {},
            r"/etc/passwd/x.yaml: cannot be read: Not a directory",
        ),
    ],
)
def test_without_a_cluster(argv: list[str], env: dict[str, str], message: str) -> None:
    done = bare(*argv, **env)
    assert done.returncode == 1
    assert re.search(message, done.stderr), done.stderr
    assert done.stderr.startswith("trn: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("argv", [["list", "--stack"], *([verb] for verb in ("why", "destroy", "diff", "cost"))])
def test_an_empty_name_of_a_stack(argv: list[str]) -> None:
    """As `trn destroy "$STACK"` is where STACK is not set: neither the default stack, nor a request to AWS."""
    done = bare(*argv, "")
    assert (done.returncode, done.stdout) == (1, "")
    assert "it is empty. Give the name of a stack, or leave it out" in done.stderr


@pytest.mark.parametrize("job", ["finetune-20261120-4f3a9c", "train-20261120-4f3a9c/7", "latest"])
def test_why_a_job_failed_is_what_its_status_says(job: str) -> None:
    """No stack has such a name, so that nothing is asked of AWS."""
    done = bare("why", job)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{job} names a job, not a stack: `trn status {job}` says why it waits or failed" in done.stderr


def test_a_bug_is_reported_in_one_paragraph(tmp_path: Path) -> None:
    code = "import trainium_cdk.client.cli.app as c, trainium_cdk.client.cli.show as e\n@c.app.command()\ndef bad() -> None: raise KeyError('x')\nc.main()"

    def run(**env: str) -> str:
        return completed([sys.executable, "-c", code, "bad"], env=env).stderr

    assert run().startswith("trn: this is a bug in trn: KeyError: 'x'. Please report it")
    assert "Traceback" not in run()
    assert "Traceback" in run(TRN_DEBUG="1")


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        ("show schema >&-", 0, ""),
        ("show schema 2>&- >/dev/null", 0, ""),
        ("show schema | head -n 1 >/dev/null", 141, ""),
        ("show schema >/dev/full", 1, "trn: the output cannot be written: No space left on device. The command itself is not undone\n"),
    ],
)  # fmt: skip
def test_an_output_that_cannot_be_written(line: str, code: int, message: str) -> None:
    command = ["bash", "-c", f"set -o pipefail; {TRN} {line}"]
    done = completed(command)
    assert (done.returncode, done.stderr) == (code, message)


def test_a_command_that_is_stopped_while_it_loads_prints_nothing() -> None:
    code = """
import os, signal, sys
class Stopped:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Stopped())
from trainium_cdk.client.cli.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code, "show", "catalog"], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


def test_other_modules_are_as_python_has_them() -> None:
    """The usual `import importlib.metadata; importlib.metadata.version(...)` works under `trn`, too."""
    code = """
import importlib, sys
from trainium_cdk.client.cli import app
from trainium_cdk.client.cli.__main__ import main
app.main = lambda: None
main()
import importlib.metadata
print(importlib.metadata.version("typer"))
"""
    done = completed([sys.executable, "-c", code], check=True)
    assert done.stdout.strip() == version("typer")


FORWARDS = """
import signal, sys, time
from trainium_cdk.client.cli import app
from trainium_cdk.client.cli.__main__ import main
from trainium_cdk.client.jobs import forward as sessions
plugin = "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
port = sessions.free_port()
sessions._start = lambda *_: ([sys.executable, "-c", plugin, str(port)], None, lambda: print("session ended", flush=True))
def forward(**_):
    sessions.forward_port("i-1", "us-east-1", "Document", {}, port)
    print(port, flush=True)
    while True:
        time.sleep(600)
app.app = forward
main()
"""


@pytest.mark.parametrize("nohup", [False, True])
def test_a_closed_terminal_leaves_no_session_open(nohup: bool) -> None:
    """The plug-in of Session Manager is in a session of its own, and gets no SIGHUP. With nohup the command goes on."""
    command = [*(["nohup"] if nohup else []), sys.executable, "-c", FORWARDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        process.send_signal(signal.SIGHUP)
        if nohup:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)
            assert forward.answers("127.0.0.1", port, 5)
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + (signal.SIGTERM if nohup else signal.SIGHUP)
        assert process.stdout.read() == "session ended\n"
    assert not forward.answers("127.0.0.1", port, 5)


def test_check_offline(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text("name: mine\n")
    bad.write_text("nmae: mine\n")
    assert bare("check", "--offline", "--environment", str(good)).returncode == 0
    done = bare("check", "--offline", "--environment", str(bad))
    assert done.returncode == 1
    assert "bad.yaml:1: error: nmae" in done.stderr
    warned = str(Path(__file__).parents[1] / "environments/trn2-3xlarge.yaml")
    codes = [bare("check", "--offline", *strict, "--environment", warned).returncode for strict in ([], ["--strict"])]
    assert codes == [0, 2]


def test_check_prints_a_policy_for_each_stack_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "both.yaml").write_text("region: us-east-1\npcluster: {}\neks: {}\n")
    words = ["check", "--print-policy", "--environment", str(tmp_path / "both.yaml")]
    assert len(json.loads(bare(*words).stdout)) == 2
    assert json.loads(bare(*words, "TrnEksStack").stdout)["Statement"]


TRN2 = "pcluster: {queues: [{name: q, compute_resources: [{instance_type: trn2.48xlarge}]}]}\nregion: us-east-2\n"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("pcluster: {os: alinux2023}\n", [r"1: error: pcluster.os = alinux2023: torch-neuronx \S+ of Neuron 2\.28\.1 needs glibc 2.35"]),
        ("eks: {version: '1.29'}\n", ["1: error: eks.version = 1.29: EKS does not create clusters of this version any more"]),
        (TRN2, ["valid, can be deployed"]),
        (TRN2 + "bootstrap: {framework: torch-native}\n", ["valid, can be deployed"]),
    ],
)  # fmt: skip
def test_validate_reports_one_mistake_once(text: str, lines: list[str], tmp_path: Path) -> None:
    """What is chosen automatically does not change with it; stacks that the file does not describe are not judged."""
    (tmp_path / "e.yaml").write_text(text)
    found = bare("check", "--offline", "--environment", str(tmp_path / "e.yaml")).stderr.splitlines()
    assert len(found) == len(lines), found
    assert all(re.search(f"e.yaml:? ?{line}", one) for line, one in zip(lines, found, strict=True)), found


def test_the_schema_is_for_machines_too() -> None:
    assert json.loads(bare("show", "schema").stdout)["properties"]["pcluster"]


def test_help_is_quick_and_needs_nothing() -> None:
    code = "import sys, trainium_cdk.client.cli.app; print(*{m.split('.')[0] for m in sys.modules})"
    loaded = completed([sys.executable, "-c", code], check=True).stdout.split()
    assert not {"boto3", "botocore", "aws_cdk", "jsii", "pydantic", "ruamel"} & set(loaded)
    assert "submit" in bare("--help").stdout
    assert "One of strong, weak." in " ".join(bare("submit", "bert-large", "--help").stdout.split())


def test_a_dry_run_loads_nothing_that_asks_aws(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(make_cluster(fleet()).model_dump_json())
    code = (
        "import atexit, sys; from trainium_cdk.client.cli.__main__ import main; "
        "atexit.register(lambda: print(*(m for m in sys.modules if m in ('boto3', 'botocore', 'ssl')))); "
        "sys.argv = ['trn', 'submit', 'bert-large', '--dry-run', '--cluster', 'cluster.json']; main()"
    )
    done = completed([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert "sbatch" in done.stdout
    assert done.stdout.splitlines()[-1] == ""

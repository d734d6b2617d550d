"""Commands that are stopped before their end: Ctrl-C, SIGTERM, a reader that reads no further, credentials that expire."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws, processes
from sandbox.leftovers import beyond, inventory
from sandbox.slurm import LocalSlurm
from tests.credentials import session
from tests.support import ROOT, TRN, swept
from tests.trust.conftest import BUCKET
from tests.trust.moments import Moments, spread
from tests.trust.test_submissions import known
from trainium_cdk import outputs, settings
from trainium_cdk.client.cli.options import Target, user
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend

STOPS = {signal.SIGINT: 130, signal.SIGTERM: 143}
SAYS = {signal.SIGINT: "Ctrl-C does not end a job: ", signal.SIGTERM: ""}
TALKS = (
    b"#!/bin/bash\nfor ((i = 0; i < 100000; i++)); do echo line $i; if [ -e stop ]; then exit 0; fi; sleep 0.1; done\n"
)
both = pytest.mark.parametrize("number", swept(STOPS, signal.SIGINT), ids=lambda n: n.name)


class Command:
    """`trn` as a process of its own, which is sent a signal."""

    def __init__(
        self, arguments: list[str], env: dict[str, str], folder: Path, stdin: int = subprocess.DEVNULL
    ) -> None:
        self._out, self.err = bytearray(), bytearray()
        self.process = subprocess.Popen(
            [TRN, *arguments], env=env, cwd=folder, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, kept), daemon=True)
            for pipe, kept in ((self.process.stdout, self._out), (self.process.stderr, self.err))
        ]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(pipe: object, kept: bytearray) -> None:
        while data := os.read(pipe.fileno(), 65536):  # type: ignore[attr-defined]
            kept += data

    def wait_for_output(self, expected: bytes) -> None:
        """Wait until it has printed that, to either stream."""
        end = time.monotonic() + 600
        while expected not in self.err and expected not in self._out:
            assert self.process.poll() is None, self.err.decode()
            assert time.monotonic() < end, self.err.decode()
            time.sleep(0.01)

    def wait_for_input_request(self) -> None:
        """After its prompt: until it sleeps in `read`. Python would notice a signal between the two only with the next one."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        assert processes.wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S", 600, 0.01)

    def end(self, number: int | None = None, seconds: float = 600) -> tuple[int, bytes, list[str]]:
        """With this signal, where one is given: exit code, output, lines of standard error."""
        if number is not None:
            self.process.send_signal(number)
        code = self.process.wait(seconds)
        code = code if code >= 0 else 128 - code  # as a shell reports it: a signal in the last moment of all
        for reader in self._readers:
            reader.join(seconds)
        assert self.process.stdout
        assert self.process.stderr
        self.process.stdout.close()
        self.process.stderr.close()
        text = self.err.decode()
        assert "Traceback" not in text, text
        assert "Exception ignored" not in text, text
        return code, bytes(self._out), [line for line in text.splitlines() if line]


@pytest.fixture
def env(slurm: LocalSlurm, cluster: SlurmCluster, tmp_path: Path) -> dict[str, str]:
    """That of a user on the head node."""
    (tmp_path / "cluster.json").write_text(cluster.model_dump_json())
    return {**slurm.node_env(), "TRN_CLUSTER": str(tmp_path / "cluster.json")}


@pytest.fixture
def talking(backend: SlurmBackend, jobs_dir: Path) -> Iterator[str]:
    """A job that prints a line every now and then, until it is stopped."""
    id = backend.submit(Script(filename="talks.sh", content=TALKS)).id
    while backend.status(id).state != "RUNNING":
        time.sleep(0.1)
    yield id
    (jobs_dir / id / "work" / "stop").touch()
    assert backend.wait(id, 600).ok


def test_a_stopped_submission_is_complete_or_absent(
    slurm: LocalSlurm, backend: SlurmBackend, env: dict[str, str], jobs_dir: Path, tmp_path: Path
) -> None:
    """Before a program of each phase of it, by one signal after the other; in `make trust` before two, by both."""
    (tmp_path / "part.sh").write_bytes(b"#!/bin/bash\ntrue\n")
    job = Script(filename="part.sh", content=b"#!/bin/bash\ntrue\n", precompile=True, user=user(Target()))
    moments = Moments(tmp_path, slurm.node_env(), jobs_dir)

    def submit(token: str, number: int = 0, action: str = "") -> tuple[int, list[str]]:
        arguments = ["submit", "part.sh", "--token", token, "--precompile", "--local"]
        code, _, lines = Command(arguments, env | moments.env(token, number, action), tmp_path).end()
        return code, lines

    assert submit("whole")[0] == 0
    every, signals = os.environ.get("EXAMPLES") == "many", [*STOPS]
    points = spread(moments.phases("whole"), 2 if every else 1)
    plan = [(*p, n) for i, p in enumerate(points) for n in (signals if every else [signals[i % 2]])]
    found = Counter[str]()
    for i, (at, phase, number) in enumerate(plan):
        id = f"part-stop-{i}"
        code, lines = submit(f"stop-{i}", at, number.name.removeprefix("SIG"))
        assert moments.phases(f"stop-{i}")[at - 1] == phase
        if lines[-1].startswith("follow it with"):
            assert code in (0, STOPS[number])
            found["finished_before"] += 1
        else:
            assert code == STOPS[number], lines
            hints = [
                line
                for line in lines
                if line.startswith(f"interrupted: {id} will be submitted completely or not at all")
            ]
            assert len(hints) == 1, lines
            assert f"Run it again with --token stop-{i}" in hints[0]
            found["undone" if not (jobs_dir / id).exists() else "whole"] += 1
        there = known(slurm)[id]
        assert there == (jobs_dir / id / "submitted.json").exists()
        assert (jobs_dir / id).exists() is (there == 1), lines
        assert backend.submit(job, f"stop-{i}").existing is (there == 1)
        assert known(slurm)[id] == 1
    assert all(backend.wait(f"part-stop-{i}", 600).ok for i in range(len(plan)))
    assert found["whole"] == len(plan), found


@both
def test_a_stopped_follower_prints_how_to_continue(
    number: signal.Signals, backend: SlurmBackend, env: dict[str, str], talking: str, jobs_dir: Path, tmp_path: Path
) -> None:
    trn = Command(["logs", "-f", talking, "--local"], env, tmp_path)
    trn.wait_for_output(b"line 3\n")
    code, output, lines = trn.end(number)
    assert code == STOPS[number]
    assert backend.status(talking).state == "RUNNING"
    assert lines[-1].startswith(f"{SAYS[number]}{talking} continues to run. To continue: trn logs -f {talking} ")
    on = shlex.split(lines[-1].partition("To continue: trn ")[2])
    assert on[-3:] == ["--offset", str(len(output)), "--local"]
    (jobs_dir / talking / "work" / "stop").touch()
    code, more, _ = Command(on, env, tmp_path).end()
    assert code == 0
    assert output + more == (jobs_dir / talking / "logs" / "train.log").read_bytes()


@both
@pytest.mark.sweep
def test_a_stopped_wait_does_not_affect_the_job(
    number: signal.Signals, backend: SlurmBackend, env: dict[str, str], talking: str, tmp_path: Path
) -> None:
    trn = Command(["status", "--wait", talking, "--local"], env, tmp_path)
    trn.wait_for_output(b"train RUNNING")
    code, _, lines = trn.end(number)
    assert code == STOPS[number]
    assert lines[-1] == f"{SAYS[number]}{talking} continues to run. To wait again: trn status --wait {talking} --local"
    assert backend.status(talking).state == "RUNNING"


@pytest.mark.parametrize(
    "line",
    swept(
        [
            "trn logs -f JOB --local | head -n 3",
            "trn logs JOB --local --metrics | true",
            "trn list --local | true",
            "trn list --local --json | head -c 1",
            "trn status JOB --local | true",
            "trn submit bert-large --dry-run | head -n 1",
            "trn show schema | head -n 1",
            "trn check --offline --environment ENVIRONMENT --json | true",
        ],
        "trn logs -f JOB --local | head -n 3",
        "trn list --local | true",
    ),
)
def test_a_closed_pipe_ends_the_command(
    line: str, env: dict[str, str], talking: str, backend: SlurmBackend, tmp_path: Path
) -> None:
    line = line.replace("JOB", talking).replace("ENVIRONMENT", str(ROOT / "tests/environments/tutorial.yaml"))
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        env={**env, "PATH": f"{TRN.parent}:{env['PATH']}"}, cwd=tmp_path, capture_output=True, timeout=900, check=False,
    )  # fmt: skip
    # a command that had ended before its output was refused has its own code
    assert done.returncode == 141 or (done.returncode == 0 and "-f" not in line), done.stderr.decode()
    for word in (b"Traceback", b"Exception ignored", b"Broken pipe", b"bug in trn"):
        assert word not in done.stderr, done.stderr.decode()
    assert not backend.status(talking).done


@pytest.mark.sweep
def test_credentials_that_expire_while_following(
    local_aws: LocalAws, slurm: LocalSlurm, head: str, cluster: SlurmCluster, jobs_dir: Path, tmp_path: Path
) -> None:
    """Reported immediately, with the command that continues at that byte; the job is not affected."""
    there = cluster.model_copy(update={"head_node_id": head, "bucket": BUCKET})
    backend = SlurmBackend(there, LocalTransport(env=slurm.node_env(), interval=0.2))
    talking = backend.submit(Script(filename="talks.sh", content=TALKS)).id
    (tmp_path / "there.json").write_text(there.model_dump_json())
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TRN_CLUSTER": str(tmp_path / "there.json")}
    for seconds in (30, 120, 480):  # a slow machine needs longer to read the first line
        with session(
            local_aws, seconds, "ssm:SendCommand", "ssm:GetCommandInvocation", "ec2:DescribeInstances"
        ) as keys:
            code, output, lines = Command(["logs", "-f", talking, "--ssm"], {**plain, **keys}, tmp_path).end()
        if output:
            break
    assert code == 1, lines
    assert lines[-1].startswith("trn: these AWS credentials have expired or are not valid: The security token")
    assert lines[-2].startswith(f"{talking} continues to run. To continue: trn logs -f {talking} ")
    on = shlex.split(lines[-2].partition("To continue: trn ")[2])
    assert on[-3:] == ["--offset", str(len(output)), "--ssm"]
    (jobs_dir / talking / "work" / "stop").touch()
    code, more, _ = Command(on, {**plain, **local_aws.variables}, tmp_path).end()
    assert code == 0
    log = (jobs_dir / talking / "logs" / "train.log").read_bytes()
    assert output + more == log


SLOW = """
import json, pathlib, time, urllib.request
def handler(event, context):
    folder = pathlib.Path(event["ResourceProperties"]["Folder"])
    if event["RequestType"] == "Delete":
        (folder / event["RequestId"]).write_text("deleted")
        while not (folder / "go-on").exists():
            time.sleep(0.1)
    response = {"Status": "SUCCESS", "PhysicalResourceId": "slow", "Reason": "", **{k: event[k] for k in ("StackId", "RequestId", "LogicalResourceId")}}
    urllib.request.urlopen(urllib.request.Request(event["ResponseURL"], json.dumps(response).encode(), {"Content-Type": ""}, method="PUT"))
"""


@pytest.fixture
def stack(local_aws: LocalAws, tmp_path: Path) -> Iterator[str]:
    """A stack whose deletion ends after the test, and is started once. Its function may not write a log, so nothing is left."""
    folder = tmp_path / "slow"
    folder.mkdir()
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}
    role = {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]}}
    code = {"Code": {"ZipFile": SLOW}, "Handler": "index.handler", "Runtime": "python3.12", "Timeout": 900}
    resources = {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Function": {"Type": "AWS::Lambda::Function", "Properties": {**code, "Role": {"Fn::GetAtt": ["Role", "Arn"]}}},
        "Slow": {
            "Type": "Custom::Slow",
            "Properties": {"ServiceToken": {"Fn::GetAtt": ["Function", "Arn"]}, "Folder": str(folder)},
        },
    }
    with deployed(
        local_aws, {"Resources": resources, "Outputs": {outputs.CONTRACT_KEY: {"Value": outputs.CONTRACT}}}
    ) as name:
        yield name
        later = threading.Timer(2, (folder / "go-on").touch)  # while it is being destroyed again
        later.start()
    later.join()
    assert [file.read_text() for file in folder.iterdir() if file.name != "go-on"] == ["deleted"]


@pytest.fixture
def with_jobs(local_aws: LocalAws, head: str) -> Iterator[str]:
    """A stack whose outputs describe a cluster."""
    stack_outputs = outputs.slurm_outputs(settings.load(), head_node_id=head, bucket=BUCKET)
    made = {key: {"Value": value} for key, (value, _) in stack_outputs.items()}
    group = {"Type": "AWS::Logs::LogGroup"}
    with deployed(local_aws, {"Resources": {"Something": group}, "Outputs": made}) as name:
        yield name


@contextlib.contextmanager
def deployed(aws: LocalAws, template: dict[str, object]) -> Iterator[str]:
    """A stack of this template; `trn destroy` leaves nothing of it."""
    name, before = f"stops-{os.urandom(3).hex()}", inventory(aws.client)
    cloudformation = aws.client("cloudformation")
    cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    yield name
    done = subprocess.run([TRN, "destroy", name, "--yes"], env=aws.env, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr.strip().endswith(b"nothing is left")
    assert beyond(inventory(aws.client), before) == {}


@both
@pytest.mark.sweep
def test_a_stopped_destroy_can_be_continued(
    number: signal.Signals, local_aws: LocalAws, stack: str, tmp_path: Path
) -> None:
    """And the same command again finishes it."""
    trn = Command(["destroy", stack, "--yes", "--jobs", "ignore"], local_aws.env, tmp_path)
    trn.wait_for_output(b"deleting stack")
    cloudformation = local_aws.client("cloudformation")
    while cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"] != "DELETE_IN_PROGRESS":
        time.sleep(0.1)
    code, _, lines = trn.end(number)
    assert code == STOPS[number]
    assert lines[-1] == (
        f"CloudFormation continues to delete {stack}. Run the same command again to wait for it and delete the leftovers"
    )


@both
@pytest.mark.sweep
def test_a_destroy_stopped_while_it_waits_for_jobs_deletes_nothing(
    number: signal.Signals, local_aws: LocalAws, with_jobs: str, backend: SlurmBackend, talking: str, jobs_dir: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    trn = Command(["destroy", with_jobs, "--yes", "--jobs", "wait"], local_aws.env, tmp_path)
    trn.wait_for_output(f"waiting for 1 job: {talking}".encode())
    code, _, lines = trn.end(number)
    assert code == STOPS[number]
    assert lines[-1].startswith(f"{with_jobs} is CREATE_COMPLETE; ")
    assert lines[-1].endswith("Run the same command again to delete it")
    assert backend.status(talking).state == "RUNNING"
    (jobs_dir / talking / "work" / "stop").touch()
    assert backend.wait(talking, 600).ok


@both
@pytest.mark.sweep
def test_an_unanswered_confirmation_deletes_nothing(
    number: signal.Signals, local_aws: LocalAws, stack: str, tmp_path: Path
) -> None:
    ours, theirs = pty.openpty()
    trn = Command(["destroy", stack], local_aws.env, tmp_path, stdin=theirs)
    trn.wait_for_output(b"[y/N]")
    trn.wait_for_input_request()
    code, _, lines = trn.end(number)
    os.close(ours)
    os.close(theirs)
    assert (code, lines[-1]) == (STOPS[number], "nothing was deleted")
    found = local_aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    assert found["StackStatus"] == "CREATE_COMPLETE"


def test_a_terminated_script_may_clean_up(tmp_path: Path) -> None:
    """What `trn` runs on the head node ends with it, but not before it has cleaned up."""
    marker = tmp_path / "undone"
    script = f"trap 'sleep 0.5; touch {marker}' EXIT\necho begun > {tmp_path}/begun; sleep 60"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def once_begun() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, interrupt)
    waiting = threading.Thread(target=once_begun)
    waiting.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            LocalTransport().run(script)
    finally:
        waiting.join()
        signal.signal(signal.SIGALRM, before)
    assert marker.exists()


def test_without_a_job_no_message_about_a_running_one(env: dict[str, str], tmp_path: Path) -> None:
    code, _, lines = Command(["logs", "-f", "no-such-job", "--local"], env, tmp_path).end()
    assert code == 1
    assert len(lines) == 1
    assert re.match(r"trn: there is no job 'no-such-job'", lines[0])

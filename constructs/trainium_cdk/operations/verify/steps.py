"""What each step runs, and when it has passed. A step is a function of its context; what it saw goes into `facts`."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from trainium_cdk.catalog import Catalog
from trainium_cdk.catalog.files import read as read_data
from trainium_cdk.errors import StepFailed
from trainium_cdk.node.yaml import dump
from trainium_cdk.operations.verify.commands import Answer, Call
from trainium_cdk.operations.verify.guard import Client
from trainium_cdk.operations.verify.plan import Plan, described
from trainium_cdk.operations.verify.state import Run

T = TypeVar("T")
FILE = "environment.yaml"
PAUSE = 5.0
"""Seconds between two questions about a job."""
TRIES = 3
"""Of a question to the cluster."""
PROOF = 100
"""Steps that show that a training trains. After them a node is ended."""
_DENIED = re.compile(r"AccessDenied|UnauthorizedOperation|not authorized to perform")
_BANDWIDTH = re.compile(r"([\d.]+) GB/s bus bandwidth")
_PROGRAM = '''"""Counts, with a package of its own."""

import json
import sys
from importlib.metadata import version

for step in range(1, 11):
    print(json.dumps({"step": step, "loss": 1 / step}), flush=True)
print("package", sys.argv[1], version(sys.argv[1]))
'''


@dataclass
class Context:
    """What a step works with.

    Attributes:
        call: runs a command.
        client: service name -> boto3 client.
        status: CloudFormation's status of the stack; empty where there is none.
        folder: of the run: environment file, CDK app, logs.
        facts: what the step sees, by the names of `page.FACTS`.
        predictions: what of that was predicted.
    """

    run: Run
    call: Call
    client: Client
    status: Callable[[], str]
    folder: Path
    facts: dict[str, float] = field(default_factory=dict)
    predictions: dict[str, float] = field(default_factory=dict)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def to(self) -> tuple[str, ...]:
        """Options that name the cluster."""
        return "--environment", FILE, "--stack", self.plan.stack

    def left(self, name: str) -> Callable[[], float]:
        """Seconds until the step must end, from now on."""
        end = self.clock() + self.plan.step(name).most
        return lambda: max(1.0, end - self.clock())

    def run_command(self, program: str, *words: str, seconds: float) -> Answer:
        """Run a command, and count it if AWS has denied it something."""
        answer = self.call(program, *words, seconds=seconds)
        if _DENIED.search(answer.err + answer.out):
            self.facts["denied"] = self.facts.get("denied", 0.0) + 1
            self.predictions["denied"] = 0.0
        return answer

    def ask(self, left: Callable[[], float], *words: str) -> Answer:
        """A command that changes nothing, or the same if it is repeated: it is tried again, as a connection may be lost. Raises StepFailed."""
        for number in range(1, TRIES + 1):
            answer = self.run_command("trn", *words, seconds=left())
            if answer.ok:
                return answer
            if number < TRIES and answer.code is not None:
                self.sleep(PAUSE * number)
        raise StepFailed(answer.reason)

    def ask_for(self, kind: type[T], left: Callable[[], float], *words: str) -> T:
        """The same, for an answer in JSON of that type. Raises StepFailed."""
        answer = self.ask(left, *words)
        if not isinstance(data := answer.data, kind):
            raise StepFailed(f"its answer is no JSON: {answer.reason}")
        return data


def check(c: Context) -> None:
    """The file, the account, its quotas and permissions."""
    _write(c)
    answer = c.run_command(
        "trn", "check", c.plan.of.stack, "--environment", FILE, "--json", seconds=c.plan.step("check").most
    )
    report = answer.data
    if not isinstance(report, dict):
        raise StepFailed(answer.reason)
    for level in ("error", "warning"):
        c.facts[f"check-{level}s"] = float(report["counts"][level])
        c.predictions[f"check-{level}s"] = 0.0
    errors = [
        f"{f['what']} = {f['value']}: {f['reason']}. Fix: {f['fix']}"
        for f in report["findings"]
        if f["level"] == "error"
    ]
    if errors:
        raise StepFailed("\n".join(errors))
    if not answer.ok:
        raise StepFailed(answer.reason)


def deploy(c: Context) -> None:
    left = c.left("deploy")
    _deploy(c, left)


def _deploy(c: Context, left: Callable[[], float]) -> None:
    while c.status().endswith("_IN_PROGRESS") and left() > 1:
        c.sleep(PAUSE)  # what an earlier program has begun
    words = ("deploy", "-e", c.plan.of.stack, "-c", f"env={FILE}", "--require-approval", "never", "--no-notices")
    answer = c.run_command("cdk", *words, seconds=left())
    if not answer.ok:
        raise StepFailed(f"{answer.reason}. What failed in it: trn why {c.plan.stack} --region {c.plan.region}")


def nccom(c: Context) -> None:
    left = c.left("nccom")
    job = _submit(c, "nccom", "nccom", "--nodes", str(c.plan.nodes), left=left)
    status = _wait(c, job, left)
    log = c.ask(left, "logs", job, *c.to, "--tail", "50").out
    if (found := _BANDWIDTH.search(log)) is not None:
        c.facts["bandwidth"] = float(found[1])
        point = Catalog.load().collective(c.plan.instance_type, c.plan.nodes)
        if point:
            c.predictions["bandwidth"] = point.bus_gb_per_second
    _start(c, status)
    _must_complete(status, log)


def train(c: Context) -> None:
    """Until it has trained `PROOF` steps. It goes on: the next step ends one of its nodes."""
    left = c.left("train")
    job = _submit(c, "train", c.plan.kind, *c.plan.options, "--nodes", str(c.plan.nodes), left=left)
    first: tuple[float, int] | None = None
    while True:
        step = _last_step(c, job, left)
        if step and first is None:
            first = (c.clock(), step)
        if step >= PROOF:
            break
        status = _status(c, job, left)
        if status["done"]:
            raise StepFailed(_why(status) if not status["ok"] else f"it ended after {step} steps, of {PROOF}")
        if left() <= 1:
            raise StepFailed(f"its time was over after {step} steps, of {PROOF}")
        c.sleep(PAUSE)
    for name, seconds in _stages(_status(c, job, left)).items():
        c.facts[name] = seconds
    if first and step > first[1] and (took := c.clock() - first[0]) > 0:
        c.facts["steps-per-second"] = round((step - first[1]) / took, 4)


def resume(c: Context) -> None:
    """A node of the training is ended, as a broken one is. The training must go on from a checkpoint, and end."""
    left, job = c.left("resume"), f"{c.plan.kind}-{c.run.id}-train"
    if "ended" not in c.run.notes:
        status = _status(c, job, left)
        if status["done"]:
            raise StepFailed(
                "the training had ended before a node could be ended: nothing is shown"
                if status["ok"]
                else _why(status)
            )
        c.run.notes["trained"] = str(_last_step(c, job, left))
        c.run.notes["ended"] = _end_one_node(c)
        c.run.save(c.folder)
    began = c.clock()
    status = _wait(c, job, left)
    steps = list(_steps(c.ask(left, "logs", job, *c.to, "--metrics").out))
    again = resumed_at(steps, int(c.run.notes["trained"]))
    if again is not None:
        c.facts["resumed-at-step"] = float(again)
    c.facts["seconds-to-the-end"] = round(c.clock() - began, 1)
    _must_complete(status, "")
    if again is None:
        raise StepFailed("no step was trained again, so that the end of a node was not seen")
    if again <= 1:
        raise StepFailed("the training began again at step 1: it did not resume")


def resumed_at(steps: list[int], before: int) -> int | None:
    """The first step after a restart; None if there was none.

    Args:
        steps: of the log, 0 where an attempt begins: one that resumed at its last step repeats none. On Kubernetes it may have the last attempt alone: it then begins beyond half of what was trained before.
        before: the last step that was seen before the restart.

    >>> resumed_at([0, 1, 2, 0, 3], 2), resumed_at([1, 2, 3, 3, 4], 3), resumed_at([1, 2, 1, 2], 2), resumed_at([1, 2, 3], 2), resumed_at([91, 92], 100), resumed_at([], 100)
    (3, 3, 1, None, 91, None)
    """
    begins = next((i for i, step in enumerate(steps) if not step and any(steps[:i])), len(steps))
    told = [step for step in steps if step]
    again = next((b for a, b in pairwise(told) if b <= a), None) or next(filter(None, steps[begins:]), None)
    return again if again is not None or not told or told[0] <= before / 2 else told[0]


def work(c: Context) -> None:
    """A job with a folder of its own and a package."""
    left, folder, (package, version) = c.left("work"), c.folder / "work", read_data("verify")["package"].split("==")
    folder.mkdir(exist_ok=True)
    (folder / "count.py").write_text(_PROGRAM, "utf-8")
    (folder / "requirements.txt").write_text(f"{package}=={version}\n", "utf-8")
    words = ("work/count.py", "--workdir", "work", "--requirements", "work/requirements.txt", "--nodes", "1")
    job = _submit(c, "work", *words, left=left, arguments=(package,))
    status = _wait(c, job, left)
    log = c.ask(left, "logs", job, *c.to).out
    _must_complete(status, log)
    if f"package {package} {version}" not in log:
        raise StepFailed(f"its log does not say that it had {package} {version}")


def read(c: Context) -> None:
    left = c.left("read")
    job = (
        f"{c.plan.kind}-{c.run.id}-train"
        if "train" in c.run.notes
        else next((c.run.notes[name] for name in ("work", "nccom") if name in c.run.notes), "")
    )
    c.facts["jobs-listed"] = float(len(c.ask_for(list, left, "list", *c.to, "--json")))
    if not job:
        raise StepFailed("no job was submitted whose log could be read")
    if not c.ask(left, "logs", job, *c.to).out.strip():
        raise StepFailed("the log is empty")
    c.facts["steps-read"] = float(len(c.ask(left, "logs", job, *c.to, "--metrics").out.splitlines()))
    c.ask(left, "report", job, *c.to, "--output", "report.html")


def update(c: Context) -> None:
    """One more node at most: nothing that runs is disturbed."""
    left = c.left("update")
    _write(c, updated=True)
    answer = c.run_command("trn", "diff", c.plan.of.stack, "--environment", FILE, "--json", seconds=left())
    if not answer.ok or not isinstance(answer.data, list):
        raise StepFailed(f"the change is not safe: {answer.reason}")
    unsafe = [change["name"] for change in answer.data if change["level"] != "safe"]
    if not answer.data or unsafe:
        raise StepFailed(
            f"the change should be safe, but `trn diff` says of {', '.join(unsafe) or 'it'} something else"
        )
    _deploy(c, left)


STEPS: Mapping[str, Callable[[Context], None]] = {
    step.__name__: step for step in (check, deploy, nccom, train, resume, work, read, update)
}
"""By name, as in the catalogue; `remove` is `removal.remove`."""


def _write(c: Context, *, updated: bool = False) -> None:
    (c.folder / FILE).write_text(dump(described(c.plan, updated=updated), 120), "utf-8")


def _submit(c: Context, name: str, *words: str, left: Callable[[], float], arguments: tuple[str, ...] = ()) -> str:
    """Submit a job, once, however often the step is run. Its id."""
    token = f"{c.run.id}-{name}"
    c.run.notes[name] = str(
        c.ask_for(
            dict, left, "submit", *words, "--token", token, "--json", *c.to, *(("--", *arguments) if arguments else ())
        )["id"]
    )
    c.run.save(c.folder)
    return c.run.notes[name]


def _status(c: Context, job: str, left: Callable[[], float]) -> dict[str, Any]:
    return c.ask_for(dict, left, "status", job, *c.to, "--json")


def _wait(c: Context, job: str, left: Callable[[], float]) -> dict[str, Any]:
    """Until the job has ended. Raises StepFailed: it has not, in time."""
    wait = max(1.0, left() - 60)
    answer = c.run_command("trn", "status", job, *c.to, "--wait", "--timeout", f"{wait:.0f}", "--json", seconds=left())
    if not isinstance(answer.data, dict):
        raise StepFailed(answer.reason)
    if not answer.data["done"]:
        raise StepFailed(f"{job} is {answer.data['state']} when its time is over: {_why(answer.data)}")
    status: dict[str, Any] = answer.data
    return status


def _last_step(c: Context, job: str, left: Callable[[], float]) -> int:
    """The last training step in the log; 0 before the first."""
    answer = c.run_command("trn", "logs", job, *c.to, "--metrics", "--tail", "1", seconds=left())
    return max((_step(line) for line in answer.out.splitlines()), default=0)


def _step(line: str) -> int:
    try:
        found = json.loads(line)
    except ValueError:
        return 0
    return int(found.get("step") or 0) if found.get("record") == "Step" else 0


def _steps(metrics: str) -> Iterator[int]:
    """The steps of a log's records; 0 where an attempt begins."""
    for line in metrics.splitlines():
        if (step := _step(line)) or '"record": "Start"' in line:
            yield step


def _must_complete(status: dict[str, Any], log: str) -> None:
    if not status["ok"]:
        last = next((line for line in reversed(log.splitlines()) if line.strip()), "")
        raise StepFailed(f"{status['id']} is {status['state']}: {_why(status) or last}")


def _why(status: dict[str, Any]) -> str:
    reasons = [status.get("why"), *(stage.get("why") or stage.get("reason") for stage in status["stages"])]
    return next((str(reason) for reason in reasons if reason), str(status["state"]))


def _stages(status: dict[str, Any]) -> dict[str, float]:
    """Seconds of each stage that has ended."""
    times = {s["name"]: (s["started"], s["ended"]) for s in status["stages"]}
    return {
        f"stage-{name}": float(b - a) for name, (a, b) in times.items() if a and b and name in ("prepare", "precompile")
    }


def _start(c: Context, status: dict[str, Any]) -> None:
    """Seconds from the submission until its nodes had started."""
    started = [stage["started"] for stage in status["stages"] if stage["started"]]
    if started and status.get("submitted"):
        c.facts["start-of-nodes"] = float(min(started) - status["submitted"])


def _end_one_node(c: Context) -> str:
    """Terminate one instance of the training's type in the stack's network. Its id."""
    stack = c.client("cloudformation").get_paginator("list_stack_resources").paginate(StackName=c.plan.stack)
    networks = [
        r["PhysicalResourceId"]
        for page in stack
        for r in page["StackResourceSummaries"]
        if r["ResourceType"] == "AWS::EC2::VPC"
    ]
    ec2 = c.client("ec2")
    filters = [
        {"Name": "vpc-id", "Values": networks},
        {"Name": "instance-type", "Values": [c.plan.instance_type]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    found = ec2.describe_instances(Filters=filters)["Reservations"]
    ids = sorted(instance["InstanceId"] for reservation in found for instance in reservation["Instances"])
    if not ids:
        raise StepFailed(f"no {c.plan.instance_type} runs in the stack's network, though the job is running")
    ec2.terminate_instances(InstanceIds=ids[-1:])
    return str(ids[-1])

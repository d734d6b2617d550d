"""A model of an account: a clock, what exists at which time, and what it has really cost. Commands and requests fail in it as they do on AWS."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

from trainium_cdk.errors import Stopped
from trainium_cdk.operations.verify.commands import Answer
from trainium_cdk.operations.verify.plan import Plan

FAULTS = ("refused", "slow", "lost", "throttled", "stopped", "killed", "killed-after")
"""Of a call: nothing is done; it takes longer than its limit; it is done, and the answer is lost; it fails twice, then works; Ctrl-C while it runs;
the program dies before it is done, or after it."""


class Killed(BaseException):
    """The program, or its machine, is gone."""


@dataclass
class World:
    """One account.

    Attributes:
        fault: (number of the call, how it fails); None: nothing fails.
        calls: the names of all calls so far.
        usd: what was really charged.
        slow: by how much everything takes longer.
    """

    plan: Plan
    fault: tuple[int, str] | None = None
    now: float = 1_800_000_000.0
    calls: list[str] = field(default_factory=list)
    usd: float = 0.0
    stack: str = ""
    nodes: bool = False
    guard: float = 0.0
    held: bool = False
    trained: int = 0
    ended: int = 0
    creating_until: float = 0.0
    deleting_until: float = 0.0
    pressed: bool = False
    slow: float = 1.0

    # --- time and money ---

    def pass_time(self, seconds: float) -> None:
        """Until then everything that exists is charged, and the guard does its work."""
        end = self.now + seconds
        while self.now < end:
            moments = [end, *(t for t in (self.guard, self.creating_until, self.deleting_until) if t > self.now)]
            step = min(moments) - self.now
            if self.stack:
                self.usd += self.plan.price("full" if self.nodes else "idle", step)
            self.now = min(moments)
            if self.creating_until and self.now >= self.creating_until:
                self.stack, self.creating_until = "CREATE_COMPLETE", 0.0
            if self.deleting_until and self.now >= self.deleting_until:
                self.stack, self.nodes, self.deleting_until = "", False, 0.0
            if self.guard and self.now >= self.guard:
                self.guard += 3600  # each hour
                self._delete()

    def _delete(self, seconds: float = 0.0) -> None:
        if self.stack and not self.deleting_until:
            self.stack, self.creating_until = "DELETE_IN_PROGRESS", 0.0
            self.deleting_until = self.now + (seconds or self.plan.step("remove").most - 60)

    # --- calls ---

    def meet(self, name: str, seconds: float, limit: float, do: Callable[[], Any]) -> tuple[str, Any]:
        """A call of this name that takes so long: ("done" or how it failed, what it gave)."""
        self.calls.append(name)
        number, kind = self.fault or (-1, "")
        mine = number == len(self.calls) - 1 or (
            kind == "throttled" and number == len(self.calls) - 2 and self.calls[-1] == self.calls[-2]
        )
        if not mine:
            kind = ""
        if kind in ("refused", "throttled"):
            self.pass_time(1)
            return kind, None
        if kind == "killed":
            raise Killed
        if kind == "slow":
            do()
            self.pass_time(limit)
            return kind, None
        given = do()
        self.pass_time(min(seconds, limit) / (2 if kind in ("stopped", "killed-after") else 1))
        if kind == "killed-after":
            raise Killed
        self.pressed = self.pressed or kind == "stopped"  # a request goes on; the next command, or pause, does not
        kind = "" if kind == "stopped" else kind
        return kind or ("done" if seconds <= limit else "slow"), given

    def call(self, program: str, *words: str, seconds: float) -> Answer:
        name = " ".join([program, words[0]])
        self._stop_here()
        ended, out = self.meet(name, self._takes(words), seconds, lambda: self._run(program, words))
        self._stop_here()
        if ended == "slow":
            return Answer(None)
        if ended != "done":
            return Answer(1, "", f"{ended}: 123456789012 arn:aws:iam::123456789012:user/me")
        return Answer(*out) if isinstance(out, tuple) else Answer(0, out)

    def sleep(self, seconds: float) -> None:
        self._stop_here()
        self.pass_time(seconds)

    def _stop_here(self) -> None:
        if self.pressed:
            self.pressed = False
            raise Stopped

    def _takes(self, words: tuple[str, ...]) -> float:
        if words[0] == "destroy" and self.deleting_until:
            return self.deleting_until - self.now + 1
        usual = {"deploy": 900.0, "destroy": 900.0, "check": 10.0, "diff": 10.0}
        return self.slow * (300.0 if "--wait" in words else usual.get(words[0], 2.0))

    def _run(self, program: str, words: tuple[str, ...]) -> Any:
        if program == "cdk":
            if not self.stack:
                self.stack, self.creating_until = "CREATE_IN_PROGRESS", self.now + self._takes(words)
            return ""
        match words[0]:
            case "check":
                return json.dumps({"counts": {"error": 0, "warning": 1}, "findings": []})
            case "destroy":
                if not self.stack:
                    return 1, "", "nothing was deleted: there is no such stack"
                if self.creating_until:
                    return 1, "", "stack is CREATE_IN_PROGRESS. Wait until that has ended"
                self._delete(self._takes(words))
                return ""
            case "diff":
                return json.dumps([{"name": "Queue", "level": "safe"}])
        if self.stack != "CREATE_COMPLETE":
            return 1, "", "there is no such stack"
        match words[0]:
            case "submit":
                self.nodes = True
                token = words[words.index("--token") + 1]
                return json.dumps({"id": f"{words[1].rpartition('/')[2].removesuffix('.py')}-{token}"})
            case "status":
                done = "--wait" in words
                self.trained = max(self.trained, 600) if done else self.trained
                return json.dumps({
                    "id": words[1], "state": "COMPLETED" if done else "RUNNING", "done": done, "ok": done, "submitted": 1, "why": "",
                    "stages": [{"name": "train", "started": 61, "ended": 100 if done else None, "reason": "", "why": ""}],
                })  # fmt: skip
            case "logs" if "--metrics" in words:
                self.trained += 60
                steps = [
                    *range(1, self.trained),
                    *(range(max(1, self.trained - 20), self.trained + 1) if self.ended else ()),
                ]
                return "\n".join(json.dumps({"record": "Step", "step": step}) for step in steps)
            case "logs":
                return "0: package tabulate 0.9.0"
            case "list":
                return "[]"
        return ""

    # --- requests to AWS ---

    def status(self) -> str:
        return str(self._request("describe_stacks", lambda: self.stack))

    def client(self, service: str) -> Any:
        pages = [{"StackResourceSummaries": [{"ResourceType": "AWS::EC2::VPC", "PhysicalResourceId": "vpc-1"}]}]
        found = {"Reservations": [{"Instances": [{"InstanceId": "i-1"}] if self.nodes else []}]}
        return SimpleNamespace(
            get_paginator=lambda _: SimpleNamespace(
                paginate=lambda **_: self._request("list_stack_resources", lambda: pages)
            ),
            delete_stack=lambda **_: self._request("delete_stack", self._delete),
            describe_instances=lambda **_: self._request("describe_instances", lambda: found),
            terminate_instances=lambda **_: self._request("terminate_instances", self._terminate),
        )

    def _terminate(self) -> None:
        self.ended += 1

    def _request(self, name: str, do: Callable[[], Any]) -> Any:
        ended, given = self.meet(name, 0.2, 60.0, do)
        if ended == "done":
            return given
        if ended == "slow":
            raise EndpointConnectionError(endpoint_url="https://123456789012.example")
        raise ClientError(
            {"Error": {"Code": "AccessDenied", "Message": f"{ended}: arn:aws:iam::123456789012:user/me"}}, name
        )

    # --- the guard ---

    def take(self, until: float) -> None:
        def do() -> None:
            self.held, self.guard = True, until

        self._request("take", do)

    def renew(self, until: float) -> None:
        def do() -> None:
            self.guard = until

        self._request("renew", do)

    def release(self) -> None:
        def do() -> None:
            self.held, self.guard = False, 0.0

        self._request("release", do)

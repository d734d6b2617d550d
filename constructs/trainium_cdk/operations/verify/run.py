"""The order of a verification: each step within the budget, and the removal always."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from trainium_cdk._aws import describe_error, failures
from trainium_cdk.errors import StepFailed, Stopped
from trainium_cdk.jobs.quote import printed
from trainium_cdk.operations.verify.commands import Call
from trainium_cdk.operations.verify.guard import Client
from trainium_cdk.operations.verify.plan import GRACE, Plan, Step
from trainium_cdk.operations.verify.state import Done, Run
from trainium_cdk.operations.verify.steps import FILE, STEPS, Context

ATTEMPTS = 5
"""Of the removal. Each tries what is left."""
PAUSE = 30.0
SETTLE = 5.0
"""Seconds between two questions about a stack that changes."""


class Guarded(Protocol):
    """See `guard.Guard`."""

    def take(self, until: float) -> None: ...
    def renew(self, until: float) -> None: ...
    def release(self) -> None: ...


@dataclass
class Verification:
    """A run with all that it works with.

    Attributes:
        call: runs a command; raises Stopped.
        status: CloudFormation's status of the stack; empty where there is none.
        say: tells the person who runs it.
        steps: what each does, by name.
    """

    run: Run
    folder: Path
    call: Call
    client: Client
    guard: Guarded
    status: Callable[[], str]
    say: Callable[[str], None]
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    steps: Mapping[str, Callable[[Context], None]] = field(default_factory=lambda: STEPS)

    @property
    def plan(self) -> Plan:
        return self.run.plan

    def __call__(self) -> bool:
        """Do what is left of it. Whether every step has passed and nothing is left.

        Raises:
            Stopped: a second time, within the removal.
            TrnError: another verification runs, or the guard cannot be made: nothing was deployed.
        """
        self._wake()
        for step in self.plan.all:
            if step.name != "remove" and step.name not in self.run.done and not self.run.removed:
                self._step(step)
        if not self.run.removed:
            self._remove()
        return self.run.removed and all(done.end == "passed" for done in self.run.done.values())

    def _wake(self) -> None:
        """After a pause in which AWS itself has deleted the stack, as long as that may take is charged, and not the pause."""
        end = self.run.guard + self.plan.step("remove").most
        if self.run.rate != "nothing" and self.run.guard and self.clock() > end and not self._there():
            self.run.charge("nothing", end)

    def _step(self, step: Step) -> None:
        if reason := self._why_not(step):
            self.run.done[step.name] = Done("not run", reason=reason)
            self.say(f"{step.name}: not run: {reason}")
            self.run.save(self.folder)
            return
        began = self.clock()
        self.say(f"{step.name}: {step.title}. {self._money(began)}")
        context = Context(
            self.run, self.call, self.client, self.status, self.folder, clock=self.clock, sleep=self.sleep
        )
        try:
            if step.rate != "nothing":
                self._guard(step)
            self.run.charge(step.rate, began)
            self.run.save(self.folder)
            self.steps[step.name](context)
            done = Done("passed")
        except StepFailed as e:
            done = Done("failed", reason=str(e))
        except Stopped:
            self.run.stopped = True
            done = Done("failed", reason="it was stopped")
        except failures() as e:
            done = Done("failed", reason=describe_error(e))
        done.seconds, done.facts, done.predictions = self.clock() - began, context.facts, context.predictions
        self.run.done[step.name] = done
        self.run.save(self.folder)
        self.say(f"{step.name}: {done.end}, {done.seconds:,.0f} s{f': {done.reason}' if done.reason else ''}")

    def _why_not(self, step: Step) -> str:
        """Why a step is not run; empty if it is."""
        if self.run.stopped:
            return "it was stopped"
        checked = self.run.done.get("check")
        if step.name != "check" and (checked is None or checked.end != "passed"):
            return "the check has not passed"
        needed = self.run.done.get(step.needs)
        if step.needs and (needed is None or needed.end != "passed"):
            return f"{step.needs} has not passed"
        if step.needs and not self._there():
            return f"the stack is not there any more: its guard may have deleted it (log in {self.folder})"
        if (
            max(self.run.spent(self.clock()), self.plan.data) + self.plan.most(step) + self.plan.reserve
            > self.run.max_usd
        ):
            return f"it might cost {self.plan.most(step):,.2f} USD, and the rest of the budget is kept for the removal"
        return ""

    def _there(self) -> bool:
        try:
            return self.status() not in ("", "DELETE_IN_PROGRESS", "DELETE_FAILED")
        except failures():
            return True  # it is not known; the step itself says more

    def _guard(self, step: Step) -> None:
        """Before a step that costs: if this program is gone when it should have ended, AWS deletes the stack."""
        until = self.clock() + step.most + GRACE
        self.run.guard = max(self.run.guard, until)  # until it is known which one AWS has
        self.run.save(self.folder)
        if step.name == "deploy":
            self.guard.take(until)
        else:
            self.guard.renew(until)
        self.run.guard = until

    def _money(self, now: float) -> str:
        return f"{self.run.spent(now):,.2f} of {self.run.max_usd:,.2f} USD so far"

    def _remove(self) -> None:
        step = self.plan.step("remove")
        if not self.run.charged:
            self.guard.release()  # nothing was deployed
            self.run.removed = True
            self.run.save(self.folder)
            return
        began = self.clock()
        self.say(f"{step.name}: {step.title}. {self._money(began)}")
        reason = ""
        for attempt in range(ATTEMPTS):
            if attempt:
                self.sleep(PAUSE)
            left = step.most - (self.clock() - began)
            if left <= 0:
                reason = reason or "its time was over"
                break
            try:
                if reason := self._removed(left):
                    self.say(f"{step.name}: {reason}")
                    continue
                self.run.charge("nothing", self.clock())
                self.guard.release()
                self.run.removed = True
                break
            except failures() as e:
                reason = describe_error(e)
                self.say(f"{step.name}: {reason}")
            except Stopped:
                if self.run.stopped:
                    raise
                self.run.stopped, reason = True, "it was stopped"
                self.say("it is being removed. Press Ctrl-C again to leave it to the guard")
        self.run.done["remove"] = Done("failed" if reason else "passed", self.clock() - began, reason)
        self.run.save(self.folder)
        self.say(f"{step.name}: {self.run.done['remove'].end}, {self.run.done['remove'].seconds:,.0f} s")

    def _removed(self, seconds: float) -> str:
        """Delete the stack and what it leaves. Why that has failed; empty if nothing is left."""
        end = self.clock() + seconds
        before = self._settled(end)
        answer = self.call(
            "trn", "destroy", self.plan.stack, "--environment", FILE, "--yes", seconds=max(1.0, end - self.clock())
        )
        if answer.ok or (not before and not self.status()):
            return ""
        return answer.reason

    def _settled(self, end: float) -> str:
        """The stack's status, when nothing is done to it but its deletion. A creation that goes on is ended by it."""
        while (status := self.status()).endswith("_IN_PROGRESS") and status != "DELETE_IN_PROGRESS":
            if status == "CREATE_IN_PROGRESS":
                self.client("cloudformation").delete_stack(StackName=self.plan.stack)
            elif self.clock() > end:
                break
            self.sleep(SETTLE)
        return status


def what_stays(run: Run) -> str:
    """What to say of a run that ends with something in the account."""
    plan = run.plan
    return (
        f"{plan.stack} may be in {plan.region} still, and costs up to {plan.usd['full']:,.2f} USD an hour. "
        f"Run the same command again, which removes it; or: {printed('trn', 'destroy', plan.stack, '--region', plan.region)}. "
        "If you do neither, AWS itself deletes the stack at the time of its guard, the schedule trn-verify"
    )

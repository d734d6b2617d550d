"""Running the live checks concurrently, each with a time limit. A failed check does not affect the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from trainium_cdk.description.checks.live.aws import Aws
from trainium_cdk.description.checks.live.model import Check, CheckTarget, Subject, join_words
from trainium_cdk.errors import AwsError, Denied, NoCredentials, Unreachable
from trainium_cdk.problems import Problem

SECONDS = 60.0
"""Time limit of the checks. Each call has its own, shorter limit; this one is for the sum of a check's calls."""


class _Running(threading.Thread):
    """One check in a daemon thread: a call that hangs must not delay the end of the command."""

    def __init__(self, check: Check[Any], target: CheckTarget, aws: Aws) -> None:
        super().__init__(daemon=True)
        self.check, self._target, self._aws = check, target, aws
        self.findings: list[Problem] | None = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            answer = self.check.fetch(self._target, self._aws.limited_to(self.check.actions))
            self.findings = list(self.check.evaluate(self._target, answer))
        except Exception as e:
            self.error = e


def run(target: CheckTarget, aws: Aws, checks: Sequence[Check[Any]], seconds: float = SECONDS) -> list[Problem]:
    """The findings of the checks, in the order of the checks. A service that cannot be reached is reported once."""
    running = [_Running(check, target, aws) for check in checks if check.wanted(target)]
    for each in running:
        each.start()
    end = time.monotonic() + seconds
    for each in running:
        each.join(max(0.0, end - time.monotonic()))
    return _findings(running, seconds)


def _findings(jobs: Iterable[_Running], seconds: float) -> list[Problem]:
    findings: list[Problem] = []
    unreachable: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for job in jobs:
        name = job.check.name
        match job.error:
            case None if job.findings is not None:
                findings += [replace(f, rule=name) for f in job.findings]
            case None:
                findings.append(_unchecked(name, f"no answer within {seconds:.0f} s", "run trn check again"))
            case Denied(action=action):
                findings.append(denied(name, action))
            case Unreachable(service=service) as e:
                unreachable.setdefault(service, []).append(name)
                reasons.setdefault(service, str(e))
            case NoCredentials() as e:
                findings.append(_unchecked(name, str(e), "renew the credentials and run trn check again"))
            case AwsError() as e:
                findings.append(_unchecked(name, str(e), "fix this and run trn check again"))
            case e:
                bug = f"this is a bug in trn: {type(e).__name__}: {e}"
                findings.append(replace(_unchecked(name, bug, "report it; the other checks are valid"), level="error"))
    for service, names in unreachable.items():
        problem = Subject(f"connection to {service}").error(
            "none",
            f"{reasons[service]}. These checks could not run: {join_words(names)}",
            "check this machine's connection to AWS (network, proxy, AWS_ENDPOINT_URL), and run trn check again",
        )
        findings.append(replace(problem, rule="connection"))
    return findings


def denied(check: str, action: str) -> Problem:
    """The warning for a call that the credentials do not allow."""
    fix = f"allow {action} for these credentials (trn check --print-policy prints the policy that these checks need)"
    return _unchecked(check, f"needs {action}", fix)


def _unchecked(check: str, reason: str, fix: str) -> Problem:
    return replace(Subject(check).warning("unknown", f"could not be checked: {reason}", fix), rule=check)

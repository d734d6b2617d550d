"""Errors by message: what failures look like, the table of known errors, and what the rules say to the bad environments of their tests."""

from __future__ import annotations

import inspect
from collections.abc import Iterable

import yaml

from sandbox.paths import HOME as ROOT
from tests.checks.tables import REFUSED, SHAPE
from tools.reference.markdown import code, message, plain
from trainium_cdk import errors, settings
from trainium_cdk.description import checks
from trainium_cdk.description.catalog.known_errors import job_errors
from trainium_cdk.problems import Problem

WITHOUT_CONTENTS = "---\nhide: [toc]\n---\n\n"
TO_DO = {
    "no capacity": "EC2 has no free instance. Wait, ask for fewer nodes, or look elsewhere: `trn capacity --regions all`.",
    "failed update": "Correct the cause, and deploy again. On ParallelCluster, end the rollback first: [how](../guides/change.md#an-update-that-fails).",
    "lost node": "Nothing. The job starts again from its last checkpoint.",
    "full disk": "Delete old checkpoints and caches, or enlarge the file system. Then submit the job again with the same token.",
    "expired block": "Buy another block (`trn capacity`), write its id as `reservation`, and deploy.",
}  # fmt: skip
"""By failure of tests/failures.yaml."""


def refused() -> list[Problem]:
    """One problem for each bad environment of the tests, by running the rules."""
    found: list[Problem] = []
    for text, _, _ in (*REFUSED, *SHAPE):
        try:
            checks.require(settings.parse(text, "environment.yaml"))
        except settings.SettingsError as error:
            found += error.problems[:1]
    return found


def page() -> str:
    """The page of errors that a running cluster or job has."""
    return f"""{WITHOUT_CONTENTS}# Errors

Search for the words that you see, on this page or in the box above. Each heading is a message.
[Messages about the environment file](messages.md) have their own page.
Ask `trn status JOB` why a job waits or failed. Ask `trn why STACK` why a deployment failed.

## What `trn` says of a failure

TIME and ID stand for what differs.

{"".join(_told())}
## In the log of a stack, node or job

`trn why`, `trn status` and `trn logs` print cause and fix below such a line.

{"".join(_known())}
## In Python

All errors are subclasses of `TrnError` (`trainium_cdk.errors`):

```text
{(inspect.getdoc(errors) or "").partition(chr(10) * 2)[2]}
```
"""


def _told() -> Iterable[str]:
    where: dict[str, list[dict[str, str]]] = {}
    for row in yaml.safe_load((ROOT / "tests/failures.yaml").read_text("utf-8")):
        where.setdefault(row["what it says"], []).append(row)
    for sentence, rows in where.items():
        engines = " and ".join(row["engine"] for row in rows)
        failure = rows[0]["failure"]
        yield f"{message(sentence)}\n{failure.capitalize()} on {engines}, in {rows[0]['command']}. {TO_DO[failure]}\n\n"


def _known() -> Iterable[str]:
    for error in job_errors():
        more = "".join(f"Also: {code(sample)}\n\n" for sample in error.samples[1:])
        yield f"{message(error.samples[0])}\n{_sentence(error.cause)} **What to do:** {plain(error.fix)}.\n\n{more}"


def messages() -> str:
    """The page of what is refused in an environment file."""
    parts = [
        f"{WITHOUT_CONTENTS}# Messages about the environment file\n\n"
        "What `trn check`, `cdk synth` and `cdk deploy` refuse before they create anything. Each heading is a message. "
        "Below it stand the key, a value that was refused, and what to write. Your key and value may differ.\n"
    ]
    problems = {(p.reason, p.fix): p for p in refused()}.values()
    known: dict[str, dict[str, list[Problem]]] = {}
    for problem in sorted(problems, key=lambda p: (p.dotted.partition(".")[0], p.reason.lower())):
        known.setdefault(problem.dotted.partition(".")[0].partition("[")[0], {}).setdefault(problem.reason, []).append(
            problem
        )
    for section, reasons in known.items():
        parts.append(f"\n## {section or 'The file'}\n\n")
        for reason, found in reasons.items():
            parts.append(f"{message(reason)}\n")
            parts += [f"- {code(_given(p))}: {plain(p.fix)}.\n" for p in found]
            parts.append("\n")
    return "".join(parts)


def _given(problem: Problem) -> str:
    return f"{problem.dotted}: {str(problem.value)[:60]}" if problem.dotted else str(problem.value)[:60]


def _sentence(text: str) -> str:
    return f"{plain(text[:1].upper() + text[1:])}."

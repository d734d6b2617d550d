"""Errors by message: the table of known errors, and what the rules say to the bad environments of their tests."""

from __future__ import annotations

import inspect

from reference.markdown import code, plain, table
from tests.checks.tables import REFUSED, SHAPE
from trainium_cdk import checks, errors, settings
from trainium_cdk.catalog.known_errors import known_errors
from trainium_cdk.problems import Problem


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
    """The page."""
    known = [
        [
            f"`{error.name}`",
            code(error.samples[0][:160]),
            plain(f"{error.cause}. Fix: {error.fix}"),
            plain(error.source),
        ]
        for error in known_errors()
    ]
    problems = {(p.reason, p.fix): p for p in refused()}.values()
    rows = [
        [plain(p.reason), code(p.dotted), code(str(p.value)[:60]), plain(p.fix), "" if p.rule == "shape" else f"`{p.rule}`"]
        for p in sorted(problems, key=lambda p: (p.reason.lower(), p.dotted))
    ]  # fmt: skip
    tree = inspect.getdoc(errors) or ""
    return f"""# Errors by message

Search this page for the words that you see. It is made from the tables that the commands use.

## While a cluster is created, or a job waits or fails

`trn why STACK`, `trn status JOB` and `trn logs JOB` print cause and fix for lines of AWS, Slurm, Neuron and the node scripts that they know
(`catalog/data/known_errors.yaml`).

{table(["name", "a line of it", "what it means, and what to do", "source"], known)}
## In the environment file

What `trn validate`, `cdk synth` and `cdk deploy` refuse, before anything is created. Each row is the answer to one bad environment of the tests, with
the key and the value there; yours may differ in both.

{table(["message", "key", "value there", "fix", "rule"], rows)}
## In Python

All errors are subclasses of `TrnError` (`trainium_cdk.errors`):

```text
{tree.partition(chr(10) * 2)[2]}
```
"""

"""The CDK app. `cdk deploy TrnPclusterStack`, or with your own environment: `-c env=FILE`, or TRN_ENV, which `trn` reads too.

By default, the app has the stacks of all engines: the CDK's command line names the selected stacks only with `--exclusively` (`-e`).
With it, or with `-c engine=slurm`, the others are neither imported nor built.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any

if __name__ == "__main__":
    gc.disable()  # one short run that allocates much and frees little: a fifth of Python's time

# The CDK starts the first `node` on the PATH; the one in this Python's own environment is a version it supports.
if (_node := Path(sys.executable).with_name("node")).is_file():
    os.environ.setdefault("JSII_NODE", str(_node))


_SERVICES = ("ec2", "iam", "s3", "logs", "kms", "efs", "fsx", "lambda", "ecr")
"""The services that several engines use. Importing their modules sends Node no request, so that another thread can do it."""


def _ahead() -> None:
    """Import while the main thread waits for Node: first what needs no CDK, then modules of the CDK. Errors are raised again, and
    reported, below."""
    with suppress(Exception):
        import_module("trainium_cdk.checks")
        for service in _SERVICES:
            import_module(f"aws_cdk.aws_{service}")


try:
    import jsii  # noqa: F401  first: with it, Node starts sooner

    Thread(target=_ahead).start()
    import aws_cdk as cdk

    from trainium_cdk import checks, engines, settings
    from trainium_cdk._cdk.validation import TrnRules
    from trainium_cdk.engines import Engine
    from trainium_cdk.errors import SettingsFileError, TrnError
except ModuleNotFoundError as e:
    sys.exit(
        f"{e.name} is not installed for {sys.executable}. Run `make setup`, or `pip install -r requirements.txt` and `pip install --no-deps -e .`."
    )


def _stack_name(engine: Engine, environment: settings.Environment) -> str:
    """Its name in the account. Several environments can exist in one account: all but the default one have their name in it."""
    return engine.stack if environment.name == settings.Environment().name else f"{engine.stack}-{environment.name}"


def _context(app: cdk.App) -> Mapping[str, Any]:
    """The CDK's context.

    Raises:
        SettingsFileError: a key is nearly one of ours: ignored, it would deploy another environment than the one that was meant.
    """
    context: Mapping[str, Any] = app.node.get_all_context()
    for key in context:
        meant = {"env": "env", "environment": "env", "engine": "engine", "engines": "engine"}.get(key.lower())
        if meant and key != meant:
            raise SettingsFileError(f"-c {key}={context[key]}", "the app does not know this key", f"Give -c {meant}=")
    return context


def _selected(context: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the engines whose stacks are selected; empty if none is.

    Raises:
        EngineError: `-c engine` names an unknown one.
    """
    if names := context.get("engine"):
        return tuple(engines.get(name.strip()).name for name in str(names).split(","))
    patterns = context.get("aws:cdk:bundling-stacks") or []  # how the CDK's command line passes them
    matched = tuple(n for n, e in engines.every().items() if any(fnmatchcase(e.stack, str(p)) for p in patterns))
    return matched if matched != engines.names() else ()


def build(app: cdk.App) -> None:
    """Add the stacks of the environment in `-c env=FILE`, else in TRN_ENV, else of the default one, to the app.

    One engine's mistakes do not stop the other. Where the environment describes both engines and one half has errors, that
    half's stack is empty and carries them, so that only deploying it fails. An engine that the environment does not describe
    has a stack only if its defaults are valid. An engine that is selected must be valid.

    Raises:
        TrnError: the environment is not valid.
    """
    context = _context(app)
    environment = settings.load(context["env"] if "env" in context else os.environ.get("TRN_ENV") or None)
    selected = _selected(context)
    required = selected or environment.engines
    found = {name: checks.check(environment, name) for name in selected or engines.names()}
    wrong = {name: [p for p in problems if p.level == "error"] for name, problems in found.items()}
    if all(wrong[name] for name in required):
        checks.require(environment, *required)
    made: dict[cdk.Stack, list[settings.Problem]] = {}
    for name in found:
        if wrong[name] and name not in required:
            continue
        engine = engines.get(name)
        into: dict[str, Any] = {
            "scope": app,
            "id": engine.stack,
            "stack_name": _stack_name(engine, environment),
            "env": cdk.Environment(
                account=environment.account or os.environ.get("CDK_DEFAULT_ACCOUNT"), region=environment.region
            ),
        }
        stack = cdk.Stack(**into) if wrong[name] else engines.load(engine.stack_class)(environment=environment, **into)
        made[stack] = found[name]
        for problem in wrong[name]:  # the CDK's command line does not deploy a stack with an error annotation
            cdk.Annotations.of(stack).add_error(environment.source.describe(problem))
    cdk.Validations.of(app).add_plugins(TrnRules(made, environment.source))


def run(app: cdk.App) -> int:
    """Build and synthesise the app. An invalid environment is reported without a traceback. Returns the exit code."""
    try:
        build(app)
    except TrnError as e:
        print(e, file=sys.stderr)
        return 1
    app.synth()
    return 0


if __name__ == "__main__":
    # Validation takes most of the time of a synth, so it runs only with CDK_VALIDATION=true, and in the tests.
    code = run(cdk.App(builtin_cloud_formation_validation=os.environ.get("CDK_VALIDATION") == "true"))
    gc.freeze()  # as it ends, Python would search all objects for cycles: a tenth of the time
    sys.exit(code)

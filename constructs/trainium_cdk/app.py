"""The CDK app of an environment file.

The file is the one of `-c env=FILE`, else of TRN_ENV, else the one that `trn use` remembers, as for `trn`. Without one it refuses. The app
has the stacks of all engines. The CDK's command line names the selected stacks only with `--exclusively` (`-e`): with it, or with `-c engine=slurm`, the others
are neither imported nor built.

Example:
    import sys
    from trainium_cdk.app import run

    sys.exit(run())
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from trainium_cdk import stacks
from trainium_cdk.cdk.helpers.validation import RulesPlugin
from trainium_cdk.description import checks, engines, settings
from trainium_cdk.description.engines import Engine
from trainium_cdk.errors import SettingsFileError, TrnError
from trainium_cdk.problems import errors

_CONTEXT, _VARIABLE, _USE = "-c env", "TRN_ENV", "trn use"
_STACKS: Mapping[str, Callable[[], Callable[..., cdk.Stack]]] = {
    "slurm": lambda: stacks.TrnPclusterStack,
    "eks": lambda: stacks.TrnEksStack,
    "pcs": lambda: stacks.TrnPcsStack,
}
"""The class of each engine's stack, imported when it is built."""


@dataclass(frozen=True)
class _Choice:
    """Choice of the environment file that the app takes.

    Attributes:
        file: as it was given.
        source: what names it.
        others: what else names a file, and that file, where it is another one.
    """

    file: str
    source: str
    others: tuple[tuple[str, str], ...] = ()

    def describe(self, environment: settings.Environment | None, stacks: Iterable[str]) -> str:
        """One line: file, source, name, region and stacks. `environment` is None where the file cannot be read."""
        parts = [f"{self.file} ({self.source})"]
        if environment:
            parts += [f"name {environment.name}", f"region {environment.region}", f"stacks: {', '.join(stacks)}"]
        unused = [f"; not used: {file} ({source})" for source, file in self.others]
        return f"environment: {', '.join(parts)}{''.join(unused)}"


def _choose(context: Mapping[str, Any], folder: Path) -> _Choice:
    """The file for an app in a folder.

    Raises:
        TrnError: nothing names a file; or only `trn use` does, and it is not in the folder.
    """
    used = engines.in_use()
    named = {
        _CONTEXT: str(context["env"]) if "env" in context else None,
        _VARIABLE: os.environ.get("TRN_ENV") or None,
        _USE: str(used.file) if used else None,
    }
    found = [(source, file) for source, file in named.items() if file is not None]
    if not found:
        settings.no_file(folder)
    source, file = found[0]
    if source == _USE and not Path(file).resolve().is_relative_to(folder.resolve()):
        raise TrnError(
            f"`trn use` names {file}, which is not in the folder of this app, {folder.resolve()}. "
            f"To deploy that environment, write -c env={file}. To deploy another one here, give its file with -c env="
        )
    others = [pair for pair in found[1:] if Path(pair[1]).resolve() != Path(file).resolve()]
    return _Choice(file, source, tuple(others))


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
        TrnError: `-c engine` names an unknown one.
    """
    if names := context.get("engine"):
        return tuple(engines.get(name.strip()).name for name in str(names).split(","))
    patterns = context.get("aws:cdk:bundling-stacks") or []  # how the CDK's command line passes them
    matched = tuple(n for n, e in engines.ENGINES.items() if any(fnmatchcase(e.stack, str(p)) for p in patterns))
    return matched if len(matched) < len(engines.ENGINES) else ()


def build(app: cdk.App) -> None:
    """Add the stacks of the environment to the app, and print one line on standard error: file, source, name, region, stacks.

    One engine's mistakes do not stop the other. Where the environment describes both engines and one half has errors, that
    half's stack is empty and carries them, so that only deploying it fails. An engine that the environment does not describe
    has a stack only if its defaults fit, and nothing is reported of it. An engine that is selected must be valid.

    Raises:
        TrnError: the environment is not valid, no file is named, or `trn use` remembers one that is not in the current folder.
    """
    context = _context(app)
    selected = _selected(context)
    choice = _choose(context, Path())
    try:
        environment = settings.load(choice.file)
    except TrnError as e:
        print(choice.describe(None, ()), file=sys.stderr)
        if choice.source == _USE:
            raise TrnError(f"{e}. It is in use: use another one (trn use FILE), or none (trn use --none)") from None
        raise
    required = selected or environment.engines
    found = {name: checks.check(environment, name) for name in selected or engines.ENGINES}
    wrong = {name: errors(problems) for name, problems in found.items()}
    unusable = all(wrong[name] for name in required)
    made = required if unusable else [name for name in found if name in required or not wrong[name]]
    ids = {engines.get(name).stack: _stack_name(engines.get(name), environment) for name in made}
    shown = [id if id == name else f"{id} ({name})" for id, name in ids.items()]  # as `cdk list`: its commands take ids
    print(choice.describe(environment, shown), file=sys.stderr)
    if unusable:
        checks.require(environment, *required)
    reported: dict[cdk.Stack, list[settings.Problem]] = {}
    for name in made:
        engine = engines.get(name)
        into: dict[str, Any] = {
            "scope": app,
            "id": engine.stack,
            "stack_name": _stack_name(engine, environment),
            "env": cdk.Environment(
                account=environment.account or os.environ.get("CDK_DEFAULT_ACCOUNT"), region=environment.region
            ),
        }
        stack = cdk.Stack(**into) if wrong[name] else _STACKS[name]()(environment=environment, **into)
        reported[stack] = found[name] if name in required else []
        for problem in wrong[name]:  # the CDK's command line does not deploy a stack with an error annotation
            cdk.Annotations.of(stack).add_error(environment.source.describe(problem))
    cdk.Validations.of(app).add_plugins(RulesPlugin(reported, environment.source))


def run(app: cdk.App | None = None) -> int:
    """Build and synthesise the app. An invalid environment is reported without a traceback. Returns the exit code.

    Args:
        app: with your own stacks, for example. Default: a new one, which validates its templates unless CDK_VALIDATION=false.
    """
    app = app or cdk.App()
    try:
        build(app)
    except TrnError as e:
        print(e, file=sys.stderr)
        return 1
    app.synth()
    return 0

"""The CDK app that `trn init` writes with an environment file: app.py and cdk.json, in the current folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainium_cdk.cli.output import write_file
from trainium_cdk.errors import TrnError
from trainium_cdk.jobs.quote import printed

_MARK = "Written by `trn init`"
"""Stands in both files: only such a file is overwritten."""
_APP = f'''"""{_MARK}. The stacks of the environment file of `-c env=FILE`, of TRN_ENV, or of `trn use`."""

import sys

from trainium_cdk.app import run

if __name__ == "__main__":
    sys.exit(run())
'''


def write(*, force: bool) -> Iterator[str]:
    """Write app.py and cdk.json, each where there is none; yields what to say, also if the CDK's command line cannot be run.

    Args:
        force: also where `trn init` has written it.

    Raises:
        TrnError: the folder cannot be written to.
    """
    from trainium_cdk.operations.updates import spec

    texts = {"app.py": _APP, "cdk.json": json.dumps(_configuration(), indent=2) + "\n"}
    written = []
    for name, text in texts.items():
        file = Path(name)
        if file.exists() and not (force and _ours(file)):
            yield f"{name} is there already, and stays as it is"
            continue
        write_file(file, text, 0o644)
        written.append(name)
    if written:
        yield f"written too, for cdk: {' and '.join(written)}"
    if not (spec.installed() or spec.npm()):
        yield spec.NO_NODE


def _ours(file: Path) -> bool:
    try:
        return _MARK in file.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _configuration() -> dict[str, Any]:
    """Return the content of cdk.json. The app runs with this Python, and with the CDK's feature flags with which the stacks are tested."""
    return {"//": f"{_MARK}.", "app": f"{printed(_python())} app.py", "context": flags()}


def flags() -> dict[str, Any]:
    """The CDK's feature flags, as in this project's own cdk.json.

    Raises:
        TrnError: the file is not in the package.
    """
    file = Path(__file__).with_name("cdk.json")
    try:
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))["context"]
    except (OSError, ValueError, KeyError) as e:
        raise TrnError(f"cannot read {file}: {e}. Install trainium-cdk again") from None
    return found


def _python() -> Path:
    """This Python; by its path in the current folder, if it is there: the folder can then be moved."""
    python = Path(sys.executable)
    return python.relative_to(Path.cwd()) if python.is_relative_to(Path.cwd()) else python

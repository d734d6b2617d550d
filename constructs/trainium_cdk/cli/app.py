"""The command `trn`. Results go to standard output, messages to standard error. Exit code 0: success; 1: failure;
2: a command line that is not valid.

Slow imports (boto3) are inside the functions that need them: `trn --help` is fast, and needs no AWS.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from trainium_cdk.cli import (
    access,
    destroy,
    diff,
    environment,
    follow,
    graph,
    images,
    inside,
    kinds,
    plot,
    preflight,
    prepared,
    report,
    scale,
    submit,
)
from trainium_cdk.cli.output import say
from trainium_cdk.errors import TrnError

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


class _Commands(TyperGroup):
    """The commands; the options of `trn submit` are those of the kinds of jobs, which are loaded when it is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        return name, submit.command() if name == "submit" else command, rest


app = typer.Typer(
    name="trn",
    cls=_Commands,
    help="Submit and follow training jobs on a cluster of trainium-cdk.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_COMMANDS: dict[str, Callable[..., None]] = {
    "submit": submit.listed,
    "kinds": kinds.kinds,
    "status": follow.status,
    "logs": follow.logs,
    "cancel": follow.cancel,
    "wait": follow.wait,
    "list": follow.list_,
    "report": report.report,
    "plot": plot.plot,
    "environments": prepared.environments,
    "cluster": environment.cluster,
    "validate": environment.validate,
    "schema": environment.schema,
    "catalog": environment.catalog,
    "diff": diff.diff,
    "graph": graph.graph,
    "destroy": destroy.destroy,
    "scale": scale.scale,
    "preflight": preflight.preflight,
    "shell": inside.shell,
    "top": inside.top,
    "tensorboard": inside.tensorboard,
    "kubeconfig": access.kubeconfig,
    "torchx": access.torchx,
}
for _name, _command in _COMMANDS.items():
    app.command(_name)(_command)
app.command(hidden=True)(access.token)
app.add_typer(images.image, name="image")
app.add_typer(images.data, name="data")


def main() -> None:
    """Run `trn`. An error is one paragraph, never a traceback; TRN_DEBUG=1 shows the traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`trn list >&-`)
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal cannot show must not stop it
    try:
        signal.signal(signal.SIGTERM, _terminated)
        app(prog_name="trn")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except SystemExit as e:
        if isinstance(e.__context__, BrokenPipeError):  # typer's exit code for it is 1
            raise SystemExit(0) from None
        raise
    except Exception as e:
        if os.environ.get("TRN_DEBUG") == "1":
            raise
        say(f"trn: {_paragraph(e)}")
        raise SystemExit(1) from None
    finally:
        _flush()


def _flush() -> None:
    """A closed pipe (`trn list | head`) is not an error."""
    try:
        sys.stdout.flush()
    except OSError as e:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(e, BrokenPipeError):
            say(f"trn: {_paragraph(e)}")
            raise SystemExit(1) from None


def _terminated(number: int, _: FrameType | None) -> None:
    """End as after any error, so that temporary files are removed."""
    raise SystemExit(128 + number)


def _paragraph(error: Exception) -> str:
    if isinstance(error, TrnError):
        return str(error)
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
        return f"the output cannot be written: {error.strerror}. The command itself is not undone"
    return (
        f"this is a bug in trn: {type(error).__name__}: {error}. Please report it, with the output of the "
        "same command under TRN_DEBUG=1"
    )

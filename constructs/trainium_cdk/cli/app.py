"""The command `trn`. Results go to standard output, messages to standard error. Exit codes: see `app`.
Slow imports (boto3) are inside the functions that need them: `trn --help` is fast, and needs no AWS.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from trainium_cdk.cli.settings import SETTINGS
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from collections.abc import Callable

_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
_COMMANDS = {
    "submit": "submit:listed",
    "launch": "launch:launch_",
    "kinds": "kinds:kinds",
    "status": "follow:status",
    "logs": "follow:logs",
    "cancel": "follow:cancel",
    "wait": "follow:wait",
    "list": "follow:list_",
    "cp": "copy:cp",
    "report": "report:report",
    "cost": "cost:cost",
    "capacity": "capacity:capacity",
    "init": "init:init",
    "use": "use:use",
    "environments": "prepared:environments",
    "cluster": "environment:cluster",
    "clusters": "clusters:clusters",
    "validate": "environment:validate",
    "schema": "environment:schema",
    "catalog": "environment:catalog",
    "diff": "diff:diff",
    "destroy": "destroy:destroy",
    "scale": "scale:scale",
    "why": "why:why",
    "fleet": "fleet:fleet",
    "preflight": "preflight:preflight",
    "nodes": "nodes:nodes",
    "ssh": "nodes:ssh",
    "shell": "inside:shell",
    "top": "inside:top",
    "forward": "inside:forward",
    "tensorboard": "inside:tensorboard",
    "kubeconfig": "access:kubeconfig",
    "image": "images:image",
    "token": "access:token",
}
"""Where each command is: a module of this folder, and the function, or an app of subcommands. In the order of `trn --help`."""
_HIDDEN = frozenset({"token"})


class _OfScript(TyperCommand):
    """A command whose argument may be a script; its error for an unknown option says where options of the script go."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        script = any(word.endswith((".py", ".sh")) for word in args)
        try:
            return super().parse_args(ctx, args)
        except Exception as e:
            if script and hasattr(e, "option_name") and hasattr(e, "message"):
                e.message += "; options of your script go behind --"
            raise


class _Commands(TyperGroup):
    """Commands whose modules are imported when they are called."""

    def __init__(self, **attributes: Any):
        super().__init__(**attributes)
        loaded: dict[str, Any] = dict.fromkeys(_COMMANDS)
        self.commands = {**loaded, **self.commands}

    def get_command(self, ctx: Any, name: str) -> Any:
        found = super().get_command(ctx, name)
        return self._load(name, _COMMANDS[name]) if found is None and name in _COMMANDS else found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[:1] == ["submit"]:
            return args[0], self._load("submit", "submit:with_options"), args[1:]
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """A value that is refused has the same exit code from Typer, a command, a job and the cluster."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as e:
            if type(e).__name__ == "MissingParameter":
                raise
            from pydantic import ValidationError

            # Typer's message of a wrong type is pydantic's, which has no value
            if isinstance(e.__cause__, ValidationError):
                e.message = f"{e.__cause__.errors()[0]['input']!r}: {e.message}"
            raise TrnError(e.format_message()) from None

    def _load(self, name: str, place: str) -> Any:
        module, _, attribute = place.partition(":")
        found = getattr(import_module(f"trainium_cdk.cli.{module}"), attribute)
        if attribute == "with_options":
            found = found()
        return typer.main.get_command(found if isinstance(found, typer.Typer) else _single(name, found))


def _single(name: str, function: Callable[..., None]) -> typer.Typer:
    one = typer.Typer(**SETTINGS)
    one.command(name, cls=_OfScript, hidden=name in _HIDDEN)(function)
    return one


_ABOUT_COMPLETION = frozenset({"--install-completion", "--show-completion", "-h", "--help"})
"""Finding out the shell takes a while: only where its options are used or shown."""
app = typer.Typer(
    name="trn",
    cls=_Commands,
    help="Submit and follow training jobs on a cluster of trainium-cdk.",
    epilog="Exit codes: 0 success; 1 failure, a value that is refused, or a failed job that is waited for or followed; 2 a command line that is not understood; "
    "130 Ctrl-C; 143 SIGTERM; 129 a closed terminal. `trn shell` has that of its command.",
    no_args_is_help=True,
    **{**SETTINGS, "add_completion": not _ABOUT_COMPLETION.isdisjoint(sys.argv)},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from trainium_cdk.cli.output import answer

        answer(f"trn {version('trainium-cdk')}")
        raise typer.Exit


@app.callback()
def _root(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None: ...


def main() -> None:
    """Run `trn`. An error is one paragraph, never a traceback; TRN_DEBUG=1 shows the traceback."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`trn list >&-`)
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  until the process ends
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a character that the terminal cannot show must not stop it
    try:
        signal.signal(signal.SIGTERM, _terminated)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(signal.SIGHUP, _hung_up)
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
        _say(f"trn: {_paragraph(e)}")
        raise SystemExit(1) from None
    finally:
        _flush()


def _say(text: str) -> None:
    from trainium_cdk.cli.output import say

    say(text)


def _flush() -> None:
    """A closed pipe (`trn list | head`) is not an error."""
    try:
        sys.stdout.flush()
    except OSError as e:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(e, BrokenPipeError):
            _say(f"trn: {_paragraph(e)}")
            raise SystemExit(1) from None


def _terminated(number: int, _: FrameType | None) -> None:
    """End as after any error, so that temporary files are removed."""
    raise SystemExit(128 + number)


def _hung_up(number: int, frame: FrameType | None) -> None:
    """The terminal was closed: end as by SIGTERM, so that no tunnel stays open. The shell may send it once more."""
    signal.signal(number, signal.SIG_IGN)
    _terminated(number, frame)


def _paragraph(error: Exception) -> str:
    if isinstance(error, TrnError):
        return str(error)
    if isinstance(error, OSError) and error.errno in _UNWRITABLE and error.filename is None:
        return f"the output cannot be written: {error.strerror}. The command itself is not undone"
    return (
        f"this is a bug in trn: {type(error).__name__}: {error}. Please report it, with the output of the "
        "same command under TRN_DEBUG=1"
    )

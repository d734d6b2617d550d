"""The command `trn`. Results go to standard output, messages to standard error. Exit codes: docs/guides/jobs.md.
Slow imports (boto3) are inside the functions that need them: `trn --help` is fast, and needs no AWS.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from trainium_cdk.errors import JobError, TrnError

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS: dict[str, Any] = {
    "add_completion": False,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})
_GROUPS = {
    "Set up": {
        "init": ("init:init", "Write environment.yaml and its CDK app, by questions or options."),
        "use": ("use:use", "Remember an environment, a team or a user for later commands."),
        "check": ("check:check", "Check file, quotas, permissions, cost (--offline: the file)."),
        "diff": ("diff:diff", "Show what `cdk deploy` would lose, replace or interrupt."),
        "image": ("images:image", "Build a training container, or an image for faster Slurm nodes."),
        "show": ("show:show", "Show the schema, a cluster, or its kubeconfig."),
    },
    "Run": {
        "submit": ("submit:submit", "Submit a script or a kind of job; --list shows the kinds."),
        "launch": ("launch:launch_", "Deploy a cluster, run a job there, and remove it if wanted."),
        "list": ("follow:list_", "List jobs, newest first; --watch stays."),
        "status": ("follow:status", "Show stages, and why a job waits or failed; --wait, --watch."),
        "logs": ("follow:logs", "Print a job's log; -f follows it, --metrics prints the numbers."),
        "report": ("report:report", "Write a page about jobs: curves, cost, failures."),
        "cancel": ("follow:cancel", "Cancel jobs."),
        "cp": ("copy:cp", "Copy files and data sets between here, S3, a job and a cluster."),
        "shell": ("inside:shell", "Open a shell, or run a command, on a node of a job or cluster."),
        "forward": ("inside:forward", "Open a job's TensorBoard, notebook or port on this machine."),
    },
    "Cluster": {
        "clusters": ("show:clusters", "List your clusters in all regions, with their running nodes."),
        "nodes": ("nodes:nodes", "List nodes and their use; stop or start all of a Slurm cluster."),
        "why": ("why:why", "Explain a failed stack, or nodes that do not start."),
    },
    "Pay and remove": {
        "capacity": ("capacity:capacity", "Find where and when nodes can be had, and at what price."),
        "cost": ("cost:cost", "Print what an environment costs an hour, idle and full."),
        "destroy": ("destroy:destroy", "Delete a stack and its jobs, and list what stays."),
    },
}  # fmt: skip
"""The commands, as `trn --help` shows them: where each is (a module of this folder, and a function or an app of subcommands), and its line."""
_HIDDEN = {"token": "show:token"}
COMMANDS = {name: place for group in _GROUPS.values() for name, (place, _) in group.items()} | _HIDDEN
_USAGE = "Usage: trn COMMAND [OPTIONS]. The options of a command: trn COMMAND --help"
WORDS = "trn.words"
"""Where the words of the command line are kept."""
_JOB_FILES = (".yaml", ".yml")
_TYPED = {"–": "--", "—": "--", "−": "-", "“": '"', "”": '"', "„": '"', "‘": "'", "’": "'"}
"""What a shell reads, for what text editors make of it."""
_ALSO = "Also: trn --version, trn --install-completion"


class _Commands(TyperGroup):
    """Commands whose modules are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, name: str) -> Any:
        return _load(name, COMMANDS[name]) if name in COMMANDS else super().get_command(ctx, name)

    def get_help(self, ctx: Any) -> str:  # noqa: ARG002
        """One screen, for which no command is imported."""
        lines = [_USAGE]
        for title, group in _GROUPS.items():
            lines += [title, *(f"  {name:<14}{about}" for name, (_, about) in group.items())]
        return "\n".join([*lines, _ALSO])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*args[1:], "--help"] if args[:1] == ["help"] else args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        ctx.meta[WORDS] = args
        of_editors = (word for word in takewhile("--".__ne__, args) if word[:1] in _TYPED)
        if (word := next(of_editors, "")) and not ctx.resilient_parsing:
            ctx.fail(f"{word} begins with {word[0]}, as text editors write it. Write {_TYPED[word[0]]}")
        if args[:1] == ["submit"]:
            from trainium_cdk.client.cli.submit import check_kind, command_of

            def made(given: Sequence[str]) -> Any:
                return _command(args[0], command_of(given))

            words = args[1:]
            if name := _job_file(words, made):
                from trainium_cdk.client.cli.job_file import expand

                words = expand(ctx, words, name, made)
            command = made(words)
            if not ctx.resilient_parsing:  # a completion
                check_kind(ctx, command, words)
            return args[0], command, words
        if not args[0].startswith("-") and args[0] not in {*COMMANDS, *self.commands}:
            from trainium_cdk.client.cli.named import did_you_mean, end_of_sentence
            from trainium_cdk.client.cli.peers import command

            ours = command(args[0])
            close = f". Use {ours}" if ours else did_you_mean(args[0], COMMANDS.keys() - _HIDDEN, 0.8)
            ctx.fail(f"No such command '{args[0]}'{end_of_sentence(close)}")
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
                from trainium_cdk.description.settings.shape import fix_of_value

                error = e.__cause__.errors()[0]
                e.message = f"{error['input']!r}: {fix_of_value(error['type'], error.get('ctx', {})) or e.message}"
            raise TrnError(_place(ctx, [e.param.name] if e.param else []) + e.format_message()) from None
        except JobError as e:
            if where := _place(ctx, e.fields):
                raise JobError(f"{where}{e}", e.fields) from None
            raise
        except TyperException as e:
            own = (getattr(e, "ctx", None) or ctx).find_root() is ctx  # not of a command that this one runs
            if own and type(e).__name__ == "NoSuchOption":
                _answer(e, ctx.meta[WORDS])
            raise


def _job_file(words: Sequence[str], command_of: Callable[[Sequence[str]], Any]) -> str:
    """The job file among the words after `submit`; empty if there is none. `command_of`: returns the command for such words."""
    from trainium_cdk.client.cli.options import parsed, split

    own, _ = split(words)
    if not any(word.endswith(_JOB_FILES) for word in own):
        return ""
    found = parsed(command_of(()), own)
    return next((w for w in (found.get("job"), *(found.get("args") or ())) if w and w.endswith(_JOB_FILES)), "")


def _place(ctx: Any, names: Sequence[Any]) -> str:
    """See `job_file.place`."""
    if not names:
        return ""
    from trainium_cdk.client.cli.job_file import place

    return place(ctx, names)


def _answer(error: Any, words: list[str]) -> None:
    """Say what to write for an option that the command does not have."""
    from trainium_cdk.client.cli.peers import option

    known = [o for p in error.ctx.command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("--")]
    error.message += option(error.option_name, known, script=any(word.endswith((".py", ".sh")) for word in words))
    error.possibilities = []


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    return _command(name, getattr(import_module(f"trainium_cdk.client.cli.{module}"), attribute))


@cache
def _command(name: str, found: Callable[..., None] | typer.Typer) -> Any:
    if not isinstance(found, typer.Typer):
        one = typer.Typer(**SETTINGS)
        one.command(name, hidden=name in _HIDDEN)(found)
        found = one
    return typer.main.get_command(found)


_COMPLETION = frozenset({"--install-completion", "--show-completion"})
"""Options that find out the shell, which takes a while."""
app = typer.Typer(
    name="trn",
    cls=_Commands,
    no_args_is_help=True,
    **{**SETTINGS, "add_completion": "_TRN_COMPLETE" in os.environ or not _COMPLETION.isdisjoint(sys.argv)},
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from trainium_cdk.client.cli.output import echo

        echo(f"trn {version('trainium-cdk')}")
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
        if isinstance(e.__context__, BrokenPipeError):  # typer's exit code for it is 1, that of a failure
            raise SystemExit(128 + signal.SIGPIPE) from None
        raise
    except Exception as e:
        if os.environ.get("TRN_DEBUG") == "1":
            raise
        _say(f"trn: {_paragraph(e)}")
        raise SystemExit(1) from None
    finally:
        _flush()


def _say(text: str) -> None:
    from trainium_cdk.client.cli.output import log

    log(text)


def _flush() -> None:
    """A pipe that is closed after the command has ended (`trn list | head`) is not an error."""
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
        f"this is a bug in trn: {type(error).__name__}: {str(error)[:1000]}. Please report it, with the output of the "
        "same command under TRN_DEBUG=1"
    )

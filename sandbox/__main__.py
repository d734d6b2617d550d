"""The local AWS from a shell.

python -m sandbox setup                     install what it needs, where it is not used in its checkout
python -m sandbox up --slurm --kubernetes   start it (or find it running), with what runs jobs on its clusters
python -m sandbox shell                     open a shell whose aws, cdk, trn and boto3 use it (-- COMMAND: run that in place of it)
python -m sandbox leftovers                 list what exists beyond the bootstrap (exit code 1 when there is something)
python -m sandbox down                      stop it; what was in it is gone
python -m sandbox env                       the same environment as shell commands, for scripts. Where none can be given, the commands
                                            lead nowhere, so that what follows in the script cannot use an account of yours
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox import install, paths, shell
from sandbox.local_aws import DEFAULT_DIRECTORY, LocalAws, SandboxError


def _running(directory: Path) -> LocalAws:
    aws = LocalAws.attach(directory)
    if aws is None:
        raise SandboxError(f"no local AWS runs in {directory}: start one with `{_command('up', directory)}`")
    return aws


def _command(verb: str, directory: Path) -> str:
    """The command line that means this sandbox."""
    where = [] if directory.resolve() == DEFAULT_DIRECTORY.resolve() else ["--dir", str(directory.resolve())]
    return shlex.join(["python", "-m", "sandbox", verb, *where])


def _up(options: argparse.Namespace) -> int:
    directory: Path = options.dir
    aws = LocalAws.attach(directory)
    if aws and options.region not in (None, aws.region):
        raise SandboxError(
            f"a local AWS of region {aws.region} runs in {aws.directory}. Leave --region out, or end it with "
            f"`{_command('down', directory)}` (what is in it is gone then), or give another --dir"
        )
    if aws is None:
        from sandbox.datasets import seed_datasets

        aws = LocalAws.start(directory, options.region or "us-east-1")
        try:
            seed_datasets(aws.client("s3"))  # public data: there before us, and after us
            aws.bootstrap()
        except BaseException:
            aws.stop()
            raise
    kinds = [kind for kind in ("slurm", "kubernetes") if getattr(options, kind)]
    if kinds:
        from sandbox import supervisor

        for kind in kinds:
            supervisor.launch(aws, "slurm" if kind == "slurm" else "kubernetes")
    print(f"local AWS at {aws.endpoint} ({aws.region}), files in {aws.directory}")
    if kinds:
        print(f"clusters that are deployed into it get a real {' and a real '.join(k.capitalize() for k in kinds)}")
    print(f"next: {_command('shell', directory)}\nto end it: {_command('down', directory)}")
    return 0


def _shell(options: argparse.Namespace) -> int:
    """Never returns where a shell can be had."""
    aws = _running(options.dir)
    command, environment = shell.command(aws, os.environ.get("SHELL", "/bin/sh"), options.command)
    if not options.command:
        print(f"a shell for the local AWS at {aws.endpoint}; `exit` leaves it", file=sys.stderr)
    os.execvpe(command[0], command, environment)  # noqa: S606  it becomes the shell


def _env(options: argparse.Namespace) -> int:
    print(shell.exports(_running(options.dir)))
    return 0


def _leftovers(options: argparse.Namespace) -> int:
    found = _running(options.dir).leftovers()
    for kind, names in found.items():
        print(f"{kind}: {', '.join(names)}")
    if not found:
        print("nothing is left beyond the CDK's bootstrap")
    return 1 if found else 0


def _down(options: argparse.Namespace) -> int:
    from sandbox import supervisor

    aws = LocalAws.attach(options.dir)
    supervisor.end(options.dir)
    if aws:
        aws.stop()
    print("stopped" if aws else f"no local AWS runs in {options.dir}")
    return 0


def _setup(_: argparse.Namespace) -> int:
    install.install()
    print(f"everything that the sandbox needs is in {paths.HOME}")
    return 0


_COMMANDS = {"setup": _setup, "up": _up, "shell": _shell, "env": _env, "leftovers": _leftovers, "down": _down}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=list(_COMMANDS))
    parser.add_argument(
        "--dir",
        type=Path,
        default=Path(os.environ.get(shell.DIRECTORY, DEFAULT_DIRECTORY)),
        help=f"the sandbox's folder. Default: {shell.DIRECTORY}, which its shells set, else {DEFAULT_DIRECTORY}",
    )
    parser.add_argument("--region", help="with up: the region of the shells. Default: us-east-1")
    parser.add_argument(
        "--slurm", action="store_true", help="with up: a real Slurm behind each ParallelCluster cluster"
    )
    parser.add_argument(
        "--kubernetes", action="store_true", help="with up: a real Kubernetes API behind each EKS cluster"
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse and run; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        cut = words.index("--") if "--" in words else len(words)
        options = _parser().parse_args(words[:cut])
        options.command = words[cut + 1 :]
        if options.command and options.verb != "shell":
            _parser().error(f"{options.verb} takes no {options.command[0]!r}")
        return _COMMANDS[options.verb](options)
    except (SandboxError, install.SetupFailed) as problem:
        if "env" in words:
            print(shell.nowhere())
        print(problem, file=sys.stderr)
        return 2
    except (
        BaseException
    ) as problem:  # whatever it is, a script that evaluates our output must not go on with an account of its user's
        if "env" in words and not (isinstance(problem, SystemExit) and not problem.code):
            print(shell.nowhere())
        raise


if __name__ == "__main__":
    sys.exit(main())

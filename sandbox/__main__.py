"""The local AWS from a shell.

python -m sandbox setup                     install what it needs, outside a checkout of the project
python -m sandbox up --slurm --kubernetes   start it, with a Slurm or Kubernetes for each deployed cluster; again: no change
python -m sandbox shell                     open a shell whose aws, cdk, trn and boto3 use it (-- COMMAND: run that instead)
python -m sandbox leftovers                 list what exists beyond the bootstrap (exit code 1 if anything does)
python -m sandbox down                      stop it; its content is lost
python -m sandbox env                       the same variables as shell commands, for scripts. If it is not running, the
                                            commands make every request fail, so that the script cannot use a real account
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox import install, paths, shell
from sandbox.local_aws import DEFAULT_DIRECTORY, LocalAws, SandboxError


def _running(directory: Path) -> LocalAws:
    aws = LocalAws.attach(directory)
    if aws is None:
        raise SandboxError(f"no local AWS is running in {directory}; start it with `{_command('up', directory)}`")
    return aws


def _command(verb: str, directory: Path) -> str:
    """The command line for this sandbox."""
    where = [] if directory.resolve() == DEFAULT_DIRECTORY.resolve() else ["--dir", str(directory.resolve())]
    return shlex.join(["python", "-m", "sandbox", verb, *where])


def _up(options: argparse.Namespace) -> int:
    directory: Path = options.dir
    if options.region and not re.fullmatch(r"[a-z]{2,4}(-[a-z]+)+-[0-9]", options.region):
        raise SandboxError(f"--region is {options.region!r}, which is not a region of AWS. Give one such as us-west-2")
    aws = LocalAws.attach(directory)
    if aws and options.region not in (None, aws.region):
        raise SandboxError(
            f"a local AWS with region {aws.region} is running in {aws.directory}. Omit --region, stop it with "
            f"`{_command('down', directory)}` (its content is lost), or use another --dir"
        )
    if aws is None:
        from sandbox.datasets import seed_datasets

        aws = LocalAws.start(directory, options.region or "us-east-1")
        try:
            seed_datasets(aws.client("s3"))  # public data, not a leftover
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
        print(f"each deployed cluster gets a real {' or a real '.join(k.capitalize() for k in kinds)}")
    print(f"next: {_command('shell', directory)}\nto stop it: {_command('down', directory)}")
    return 0


def _shell(options: argparse.Namespace) -> int:
    """Does not return, unless the shell cannot be started."""
    aws = _running(options.dir)
    command, environment = shell.command(aws, os.environ.get("SHELL", "/bin/sh"), options.command)
    if not options.command:
        print(f"a shell for the local AWS at {aws.endpoint}; `exit` to leave", file=sys.stderr)
        if file := os.environ.get("TRN_ENV"):
            print(f"it uses the environment file {file} (TRN_ENV)", file=sys.stderr)
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
    print("stopped" if aws else f"no local AWS is running in {options.dir}")
    return 0


def _setup(_: argparse.Namespace) -> int:
    install.install()
    print(f"the sandbox is set up in {paths.HOME}")
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
        help=f"the sandbox's folder. Default: ${shell.DIRECTORY} (set in its shells), else {DEFAULT_DIRECTORY}",
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
    """Parse the arguments and run the command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        cut = given.index("--") if "--" in given else len(given)
        options = _parser().parse_args(given[:cut])
        options.command = given[cut + 1 :]
        if options.command and options.verb != "shell":
            _parser().error(f"{options.verb} takes no {options.command[0]!r}")
        return _COMMANDS[options.verb](options)
    except (SandboxError, install.SetupFailed, OSError) as problem:
        if "env" in given:
            print(shell.nowhere())
        if isinstance(problem, BrokenPipeError):  # `leftovers | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 2
        if isinstance(problem, OSError) and options.dir.absolute() in Path(str(problem.filename)).absolute().parents:
            problem = SandboxError(f"{problem.filename}: {problem.strerror}. Give your own folder with --dir")
        print(problem, file=sys.stderr)
        return 2
    except (
        BaseException
    ) as problem:  # after any failure, a script that evaluates our output must not use a real account
        if "env" in given and not (isinstance(problem, SystemExit) and not problem.code):
            print(shell.nowhere())
        raise


if __name__ == "__main__":
    sys.exit(main())

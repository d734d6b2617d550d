"""The local AWS from a shell.

python -m sandbox up              start it (or find it running) and bootstrap it for the CDK
eval "$(python -m sandbox env)"   point this shell's aws, cdk and boto3 at it
python -m sandbox leftovers       list what exists beyond the bootstrap (exit code 1 when there is something)
python -m sandbox down            stop it; what was in it is gone
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from sandbox.local_aws import CDK, DEFAULT_DIRECTORY, LocalAws, SandboxError
from sandbox.oracle import ROOT


def _running(directory: Path) -> LocalAws:
    aws = LocalAws.attach(directory)
    if aws is None:
        raise SandboxError(f"no local AWS runs in {directory}: start one with `python -m sandbox up`")
    return aws


def _up(directory: Path, region: str) -> int:
    aws = LocalAws.attach(directory)
    if aws is None:
        aws = LocalAws.start(directory, region)
        aws.bootstrap()
    print(
        f'local AWS at {aws.endpoint} ({aws.region}), files in {aws.directory}\nnext: eval "$(python -m sandbox env)"'
    )
    return 0


def _env(directory: Path) -> int:
    aws = _running(directory)
    print("unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_SECURITY_TOKEN")  # a real account's
    for name, value in aws.variables.items():
        print(f"export {name}={shlex.quote(value)}")
    print(f'export PATH={shlex.quote(f"{ROOT}/.venv/bin:{CDK.parent}")}:"$PATH"')
    return 0


def _leftovers(directory: Path) -> int:
    found = _running(directory).leftovers()
    for kind, names in found.items():
        print(f"{kind}: {', '.join(names)}")
    if not found:
        print("nothing is left beyond the CDK's bootstrap")
    return 1 if found else 0


def _down(directory: Path) -> int:
    aws = LocalAws.attach(directory)
    if aws:
        aws.stop()
    print("stopped" if aws else f"no local AWS runs in {directory}")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Parse and run; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sandbox", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["up", "down", "env", "leftovers"])
    parser.add_argument("--dir", type=Path, default=DEFAULT_DIRECTORY, help="the sandbox's folder (%(default)s)")
    parser.add_argument("--region", default="us-east-1", help="with up: the region (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        if options.command == "up":
            return _up(options.dir, options.region)
        return {"down": _down, "env": _env, "leftovers": _leftovers}[options.command](options.dir)
    except SandboxError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())

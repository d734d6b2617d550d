"""Shells that use the local AWS only, regardless of profiles and credentials that were set before."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from sandbox import paths
from sandbox.local_aws import CDK, LocalAws, plain_environment

DIRECTORY = "TRN_SANDBOX_DIR"
"""Variable with the sandbox's folder in its shells, so that `python -m sandbox` uses that sandbox."""
_CLEARED = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "TRN_STACK", "TRN_CLUSTER")  # fmt: skip
_CLOSED = "http://127.0.0.1:1"
"""Nothing listens there: requests to AWS fail."""


def variables(aws: LocalAws) -> dict[str, str]:
    """Variables of a shell for this local AWS, besides its PATH.

    Profiles are read from empty files, so that a real profile cannot be used by mistake.
    """
    return {
        **aws.variables,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        DIRECTORY: str(aws.directory),
    }


def exports(aws: LocalAws) -> str:
    """Commands of a POSIX shell that make it use the local AWS."""
    lines = [f"unset {' '.join([*_CLEARED, *_service_endpoints()])}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables(aws).items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(_path())}:"$PATH"'])


def nowhere() -> str:
    """Commands of a POSIX shell after which it cannot reach any AWS; the last one fails.

    A script that evaluates the output of `env` continues after a failure: with these, its requests fail.
    """
    message = "This shell cannot reach AWS now, so that no real account is changed by mistake. Open a new one."
    values = {
        "AWS_ENDPOINT_URL": _CLOSED,
        "AWS_ACCESS_KEY_ID": "none",
        "AWS_SECRET_ACCESS_KEY": "none",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_MAX_ATTEMPTS": "1",
    }
    lines = [
        f"unset {' '.join([*_CLEARED, *_service_endpoints(), DIRECTORY, 'CDK_DEFAULT_ACCOUNT', 'CDK_DEFAULT_REGION'])}"
    ]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in values.items()]
    return "\n".join([*lines, f"printf '%s\\n' {shlex.quote(message)} >&2", "false"])


def command(aws: LocalAws, program: str, arguments: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of a shell for the local AWS.

    An interactive bash or zsh reads the user's start-up file first, then sets this environment again, in case that file
    changed it, and a prompt that shows the local AWS. Other shells only get the environment.

    Args:
        program: the user's shell.
        arguments: a command to run instead of an interactive shell.
    """
    inherited = {name: value for name, value in plain_environment().items() if name not in _CLEARED}
    environment = {**inherited, **variables(aws), "PATH": f"{_path()}:{os.environ.get('PATH', os.defpath)}"}
    if arguments:
        return list(arguments), environment
    folder = aws.directory / "shell"
    folder.mkdir(exist_ok=True)
    name = Path(program).name
    if name == "bash":
        file = _write(folder / "bashrc", f'[ -r ~/.bashrc ] && . ~/.bashrc\n{exports(aws)}\nPS1="(local AWS) $PS1"\n')
        return [program, "--rcfile", str(file), "-i"], environment
    if name == "zsh":
        own = shlex.quote(os.environ.get("ZDOTDIR", str(Path.home())))
        _write(
            folder / ".zshrc",
            f'ZDOTDIR={own}\n[ -r $ZDOTDIR/.zshrc ] && . $ZDOTDIR/.zshrc\n{exports(aws)}\nPS1="(local AWS) $PS1"\n',
        )
        return [program, "-i"], {**environment, "ZDOTDIR": str(folder)}
    return [program], environment


def _service_endpoints() -> list[str]:
    """Variables that direct a service to another endpoint."""
    return sorted(name for name in os.environ if name.startswith("AWS_ENDPOINT_URL_"))


def _path() -> str:
    """With AWS's own session-manager-plugin, where it was built."""
    from sandbox.kubernetes.build import SESSION_MANAGER

    plugin = [str(SESSION_MANAGER.directory / "bin")] if SESSION_MANAGER.built else []
    return os.pathsep.join([str(paths.BIN), str(CDK.parent), *plugin])


def _write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file

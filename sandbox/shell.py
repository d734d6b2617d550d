"""Shells that use the local AWS and no other: neither by a profile, nor by credentials that were set before."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from sandbox import paths
from sandbox.local_aws import CDK, LocalAws, plain_environment

DIRECTORY = "TRN_SANDBOX_DIR"
"""Names the sandbox's folder in its shells, so that `python -m sandbox` in them means that sandbox."""
_CLEARED = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN", "AWS_ROLE_ARN",
    "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "TRN_STACK", "TRN_ENV", "TRN_CLUSTER")  # fmt: skip
_CLOSED = "http://127.0.0.1:1"
"""Nothing listens there: what is sent to AWS is refused."""


def variables(aws: LocalAws) -> dict[str, str]:
    """What a shell of this local AWS has set, besides its PATH.

    Profiles are read from empty files: one that is named by mistake does not exist.
    """
    return {
        **aws.variables,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        DIRECTORY: str(aws.directory),
    }


def exports(aws: LocalAws) -> str:
    """Commands of a POSIX shell that point it at the local AWS."""
    lines = [f"unset {' '.join([*_CLEARED, *_service_endpoints()])}"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in variables(aws).items()]
    return "\n".join([*lines, f'export PATH={shlex.quote(_path())}:"$PATH"'])


def nowhere() -> str:
    """Commands of a POSIX shell after which nothing in it can reach any AWS; the last one fails.

    A script that evaluates the output of `env` goes on when that failed: with these, what follows is refused.
    """
    words = "This shell can reach no AWS now, so that nothing is done to an account by mistake. Open a new one."
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
    return "\n".join([*lines, f"printf '%s\\n' {shlex.quote(words)} >&2", "false"])


def command(aws: LocalAws, program: str, words: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """The command line of a shell for the local AWS, and its environment.

    An interactive bash or zsh reads the user's own start-up file first, then gets this environment again, in case that file
    changed it, and a prompt that shows where it is. Other shells get the environment alone.

    Args:
        program: the user's shell.
        words: a command to run in place of an interactive shell.
    """
    inherited = {name: value for name, value in plain_environment().items() if name not in _CLEARED}
    environment = {**inherited, **variables(aws), "PATH": f"{_path()}:{os.environ.get('PATH', os.defpath)}"}
    if words:
        return list(words), environment
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
    """Variables that send one service elsewhere."""
    return sorted(name for name in os.environ if name.startswith("AWS_ENDPOINT_URL_"))


def _path() -> str:
    return os.pathsep.join([str(paths.BIN), str(CDK.parent)])


def _write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file

"""Quoting for shell: the only place where user input is written into a shell script."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from trainium_cdk.errors import JobError


def word(value: str) -> str:
    """Return the one shell word that means exactly `value`.

    Raises:
        JobError: it contains a NUL byte, or is not valid UTF-8.
    """
    check(value)
    return shlex.quote(value)


def shared(path: str) -> str:
    """A word for a path on a shared file system. Tests have those elsewhere: TRN_SHARED_ROOT."""
    return f'"${{TRN_SHARED_ROOT:-}}"{word(path)}'


def words(values: Iterable[str]) -> str:
    return " ".join(word(v) for v in values)


def printed(*given: object) -> str:
    """The words of a command that is printed, for a reader's shell. Paths that are not UTF-8 pass, too: it is not run here.

    >>> printed("trn", "use", "my file.yaml")
    "trn use 'my file.yaml'"
    """
    return shlex.join(map(str, given))


def split(text: str) -> list[str]:
    """The words of a line as a shell reads them, without a comment; as they stand where a quote does not end.

    >>> split("--comment 'a b' # why"), split("it's")
    (['--comment', 'a b'], ["it's"])
    """
    try:
        return shlex.split(text, comments=True)
    except ValueError:
        return text.split()


def check(value: str, what: str = "argument") -> str:
    """Return `value`, if it can be passed to a program.

    Raises:
        JobError: it contains a NUL byte, or is not valid UTF-8.
    """
    shown = repr(value[:60])
    if "\0" in value:
        raise JobError(f"{what} {shown} contains a NUL byte, which cannot be passed to a program. Remove it")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise JobError(
            f"{what} {shown} contains bytes that are not UTF-8 text. Put them in a file, and give its path"
        ) from None
    return value

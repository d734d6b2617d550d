"""Quoting for shell: the only place where user input, or a file's content, is written into a shell script."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Mapping

from trainium_cdk.errors import JobError


def word(value: str) -> str:
    """One shell word that means exactly `value`.

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
    """The words of a command that is printed, for a reader's shell. Of paths that are no UTF-8, too: it is not run here.

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


def exports(variables: Mapping[str, str]) -> str:
    """Lines that export variables, in the order of their names; empty without any."""
    return "".join(f"export {name}={word(value)}\n" for name, value in sorted(variables.items()))


def check(value: str, what: str = "argument") -> str:
    """`value`, if it can be passed to a program.

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


WRITE = r"""# Writes its input, which is text, to a file. It starts no process: that takes longer than all else.
write() { # file, "whole" if the last newline is not the file's
  local text=''
  IFS='' read -r -d '' text || true
  if [ "${2:-}" = whole ]; then text=${text%$'\n'}; fi
  printf '%s' "$text" > "$1"
}
if ((BASH_VERSINFO[0] > 4)); then BASH_COMPAT=5.0; fi # here-documents are files, which are read in blocks, not by character
"""
"""The function that the lines of `file` use."""


def file(target: str, content: bytes) -> str:
    """Shell lines that write `content` to `target`, which is already quoted; `WRITE` comes before them.

    Text is a quoted here-document, anything else base64. Every byte is preserved.
    """
    text = _readable(content)
    if text is None:
        lines = base64.encodebytes(content).decode().rstrip("\n")
        return f"base64 -d > {target} <<'EOF'\n{lines}\nEOF\n" if lines else f": > {target}\n"
    mark = "EOF"
    while mark in text.split("\n"):
        mark += "_"
    if text.endswith("\n"):
        return f"write {target} <<'{mark}'\n{text}{mark}\n"
    # the here-document adds a newline that is not in the file
    return f"write {target} whole <<'{mark}'\n{text}\n{mark}\n"


def _readable(content: bytes) -> str | None:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return None
    return text if text and text.replace("\n", "").replace("\t", "").isprintable() else None

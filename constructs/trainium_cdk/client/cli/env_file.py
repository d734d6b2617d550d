"""`--env-file`: variables of a job from a file, in the form of Docker Compose and python-dotenv. No message has a value: they may be secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainium_cdk.errors import JobError, fix_of_path

MAX_BYTES = 1_000_000
_LINE = re.compile(
    r"""[ \t]*(?:export[ \t]+)?(?P<name>[^\s=\#'"]+)[ \t]*
    (?:=[ \t]*(?:'(?P<plain>[^']*)'|"(?P<quoted>(?:\\.|[^"\\])*)"|(?P<bare>[^\n]*?)))?[ \t]*(?:(?<=[ \t])\#[^\n]*)?(?=\n|$)""",
    re.VERBOSE | re.DOTALL,
)
_EMPTY = re.compile(r"[ \t]*(#[^\n]*)?(?=\n|$)")
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"', "'": "'", "$": "$"}


def read(file: Path) -> dict[str, str]:
    """The variables of a file. A name without a value takes it from this process.

    Raises:
        JobError: it cannot be read, or a line is not a variable; the message has its number.
    """
    try:
        if file.stat().st_size > MAX_BYTES:
            raise JobError(f"--env-file {file} has more than {MAX_BYTES:,} bytes. Give a file of variables")
        text = file.read_text("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise JobError(f"--env-file {file} is not text. Save it as UTF-8") from None
    except (OSError, ValueError) as e:  # ValueError: a NUL byte in the path
        reason = e.strerror if isinstance(e, OSError) else "its name has a NUL byte"
        raise JobError(f"cannot read --env-file {str(file)[:200]!r}: {reason}. {fix_of_path(file)}") from None
    return dict(_variables(text, str(file)))


def _variables(text: str, file: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        line = f"{file} line {text.count(chr(10), 0, at) + 1}"
        if empty := _EMPTY.match(text, at):
            at = empty.end() + 1
            continue
        found = _LINE.match(text, at)
        if not found or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", found["name"]):
            raise JobError(f"{line} is not a variable. Write NAME=VALUE, with quotes around a value of several lines")
        yield found["name"], _value(found, line)
        at = found.end() + 1


def _value(found: re.Match[str], line: str) -> str:
    name, given = found["name"], next((v for v in found.group("plain", "quoted", "bare") if v is not None), None)
    if given is None:
        if name not in os.environ:
            raise JobError(
                f"{line} has a name without a value, and your shell does not set it. Write NAME=VALUE, or set it"
            )
        return os.environ[name]
    if found["plain"] is not None:
        return given
    if found["bare"] is not None and given[:1] in ("'", '"'):
        raise JobError(
            f"{line}: the value of {name} has a quote without its end, or text after it. Write one pair of quotes"
        )
    if re.search(r"(?<!\\)\$\{", given):
        raise JobError(
            f"{line}: {name} has ${{...}}, which nothing replaces here. Write the value itself; in single quotes, ${{ is part of it"
        )
    if found["bare"] is not None:
        return given
    return re.sub(r"\\(.)", lambda one: _ESCAPES.get(one[1], one[0]), given, flags=re.DOTALL)

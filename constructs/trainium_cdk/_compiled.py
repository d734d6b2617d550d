"""What is parsed or compiled once, and then, as Python does with modules, read from a copy in `__pycache__`."""

from __future__ import annotations

import atexit
import marshal
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def compiled(file: Path, name: str, parse: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The content of a file, from its compiled copy if that is of the same file, size and time of change.

    Args:
        name: of the copy; no two files share one.
        parse: how the file is read where there is no such copy. Its result is of plain types: marshal can write it.
    """
    stat = file.stat()
    state = [str(file), stat.st_mtime_ns, stat.st_size]
    with suppress(TypeError, ValueError):
        of, data = _read(name)
        if of == state:
            return dict(data)
    data = parse(file)
    _write(name, [state, data])
    return data


def compile_sources_once() -> None:
    """Keep the code of what modules compile from text while they load: methods of dataclasses, named tuples and annotations. That is a tenth
    of the time of a short command, and the same at each start of it."""
    import collections
    import dataclasses
    import typing

    found = _read("sources")
    codes: dict[str, Any] = found if isinstance(found, dict) else {}
    before = len(codes)

    def code(source: str, name: str = "<string>", mode: str = "eval") -> Any:
        if (key := f"{mode} {source}") not in codes:
            codes[key] = compile(source, name, mode, dont_inherit=True)
        return codes[key]

    # these hide Python's own functions from one module each
    for module, function, ours in (
        (dataclasses, "exec", lambda source, *spaces: exec(code(source, mode="exec"), *spaces)),  # noqa: S102
        (collections, "eval", lambda source, *spaces: eval(code(source), *spaces)),  # noqa: S307
        (typing, "compile", code),
    ):
        setattr(module, function, ours)

    @atexit.register
    def keep() -> None:
        if len(codes) > before:
            _write("sources", codes)


def _copy(name: str) -> Path:
    return Path(__file__).parent / "__pycache__" / f"{name}.{sys.implementation.cache_tag}.marshal"


def _read(name: str) -> Any:
    """The copy, if there is one that is not damaged."""
    with suppress(OSError, ValueError, EOFError, TypeError):
        return marshal.loads(_copy(name).read_bytes())  # noqa: S302  beside our modules, which are compiled in the same way


def _write(name: str, data: Any) -> None:
    """Write a copy, where this user may and Python writes its own."""
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            copy = _copy(name)
            copy.parent.mkdir(exist_ok=True)
            new = copy.with_suffix(f".{os.getpid()}")
            new.write_bytes(marshal.dumps(data))
            new.replace(copy)

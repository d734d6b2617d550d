"""Data of files that are parsed once, and then, as Python does with modules, read from a compiled copy in `__pycache__`."""

from __future__ import annotations

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
    copy = Path(__file__).parent / "__pycache__" / f"{name}.{sys.implementation.cache_tag}.marshal"
    stat = file.stat()
    state = [str(file), stat.st_mtime_ns, stat.st_size]
    with suppress(OSError, ValueError, EOFError, TypeError):
        of, data = marshal.loads(copy.read_bytes())  # noqa: S302  beside our modules, which are compiled in the same way
        if of == state:
            return dict(data)
    data = parse(file)
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            copy.parent.mkdir(exist_ok=True)
            new = copy.with_suffix(f".{os.getpid()}")
            new.write_bytes(marshal.dumps([state, data]))
            new.replace(copy)
    return data

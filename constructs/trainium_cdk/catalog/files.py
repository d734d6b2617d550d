"""The files of the catalogue: read as YAML once, and then, as Python does with modules, from a compiled copy in `__pycache__`."""

from __future__ import annotations

import marshal
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")


@cache
def read(name: str) -> dict[str, Any]:
    """The content of a file of the catalogue, by its name without `.yaml`; dates are text."""
    return load(DATA / f"{name}.yaml")


def load(file: Path) -> dict[str, Any]:
    """The content of a YAML file of ours, from its compiled copy if that is of the same file, size and time of change."""
    compiled = Path(__file__).parent / "__pycache__" / f"{file.stem}.{sys.implementation.cache_tag}.marshal"
    stat = file.stat()
    state = [str(file), stat.st_mtime_ns, stat.st_size]
    with suppress(OSError, ValueError, EOFError, TypeError):
        of, data = marshal.loads(compiled.read_bytes())  # noqa: S302  beside our modules, which are compiled in the same way
        if of == state:
            return dict(data)
    data = _parse(file.read_text("utf-8"))
    if not sys.dont_write_bytecode:
        with suppress(OSError):
            compiled.parent.mkdir(exist_ok=True)
            new = compiled.with_suffix(f".{os.getpid()}")
            new.write_bytes(marshal.dumps([state, data]))
            new.replace(compiled)
    return data


def _parse(text: str) -> dict[str, Any]:
    import yaml

    from trainium_cdk.catalog.plain import plain

    try:
        from yaml import CSafeLoader
    except ImportError:  # a PyYAML that was built without libyaml
        from yaml import SafeLoader as CSafeLoader

    data = plain(yaml.load(text, Loader=CSafeLoader))  # ten times as fast as ruamel.yaml, whose line numbers users need
    assert isinstance(data, dict)  # noqa: S101  our own file
    return data

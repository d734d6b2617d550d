"""Names of a package that are imported when they are used first: the CDK starts a Node process, and a command loads only what it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any


def homes(file: str) -> dict[str, str]:
    """The module below `trainium_cdk` of each name that a package imports for type checkers: they are written once. `file`: the package's own."""
    text = Path(file).read_text("utf-8")
    return {
        name: home
        for home, name in re.findall(r"^    from trainium_cdk\.(\S+) import (\w+) as \w+$", text, re.MULTILINE)
    }


def attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` of a package.

    Args:
        homes: name -> the module below `trainium_cdk` that has it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"trainium_cdk.{homes[name]}"), name)
        except ModuleNotFoundError as e:
            if e.name in ("aws_cdk", "constructs", "jsii"):
                e.msg = f"{e.name} is not installed, which {name} needs. Install trainium-cdk with its extra: trainium-cdk[cdk]"
            raise

    return load

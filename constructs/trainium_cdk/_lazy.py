"""Names of a package that are imported when they are used first: the CDK starts a Node process, and a command loads only what it needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """`__getattr__` of a package.

    Args:
        homes: name -> the module below `trainium_cdk` that has it, or that is it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"trainium_cdk.{homes[name]}")
        except ModuleNotFoundError as e:
            if e.name in ("aws_cdk", "constructs", "jsii"):
                e.msg = f"{e.name} is not installed, which {name} needs. Install trainium-cdk with its extra: trainium-cdk[cdk]"
            raise
        return module if homes[name].endswith(f".{name}") else getattr(module, name)

    return load

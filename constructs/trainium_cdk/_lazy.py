"""Names of a package that are imported when they are used first, so that a command loads only what it needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package with names that some of its modules have too: importing such a module does not replace the name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)


_IMPORT = re.compile(r"^    from (trainium_cdk\.\S+) import (\w+) as \2$", re.M)


def names(package: str) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a package, from the imports that it has for type checkers, under TYPE_CHECKING: each is done when its
    name is used first."""
    module = sys.modules[package]
    source: str = module.__spec__.loader.get_source(package)  # type: ignore[union-attr]
    homes = {name: home for home, name in _IMPORT.findall(source)}
    module.__class__ = _Package

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(homes[name]), name)
        except ModuleNotFoundError as e:
            if e.name in ("aws_cdk", "constructs", "jsii"):
                e.msg = f"{e.name} is not installed, which {name} needs. Install trainium-cdk with its extra: trainium-cdk[cdk]"
            raise

    return load, sorted(homes)

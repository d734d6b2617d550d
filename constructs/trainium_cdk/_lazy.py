"""Names of a package that are imported when they are used first, so that a command loads only what it needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """A package with names that some of its modules have too: importing such a module does not replace the name."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (isinstance(value, ModuleType) and name in self.__all__):
            super().__setattr__(name, value)


def names(package: str, modules: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """`__getattr__` and `__all__` of a package.

    Args:
        modules: names, separated by spaces, by the module of `trainium_cdk` that has them. Type checkers read imports under TYPE_CHECKING;
            tests/test_constructs_alone.py compares the two.
    """
    homes = {name: module for module, of_module in modules.items() for name in of_module.split()}
    sys.modules[package].__class__ = _Package

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(import_module(f"trainium_cdk.{homes[name]}"), name)
        except ModuleNotFoundError as e:
            if e.name in ("aws_cdk", "constructs", "jsii"):
                e.msg = f"{e.name} is not installed, which {name} needs. Install trainium-cdk with its extra: trainium-cdk[cdk]"
            raise

    return load, sorted(homes)

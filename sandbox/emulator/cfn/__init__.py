"""CloudFormation resource types ministack lacks, and mends to some it has.

Each module registers its types with `registry.resource`; `install()` loads them all. A new module
only has to be named in `MODULES`.
"""

from __future__ import annotations

import importlib

MODULES = ("network", "compute", "fsx", "eks", "mends", "order", "failed_creates")


def install() -> None:
    """Register every handler with ministack and wrap them with fault injection. Call once, before serving."""
    from sandbox.emulator.cfn import faults

    for name in MODULES:
        importlib.import_module(f"sandbox.emulator.cfn.{name}")
    faults.install()

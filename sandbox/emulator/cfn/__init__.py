"""CloudFormation resource types that ministack lacks, and fixes to some that it has.

Each module registers its types with `registry.resource`; `install()` loads them all. Add a new module
to `MODULES`.
"""

from __future__ import annotations

import importlib

MODULES = (
    "network",
    "compute",
    "fsx",
    "pcs",
    "eks",
    "dashboards",
    "patches",
    "replacing",
    "order",
    "quotas",
    "failed_creates",
    "failed_rollbacks",
    "exports",
)


def install() -> None:
    """Register every handler with ministack and add fault injection. Call once, before serving."""
    from sandbox.emulator.cfn import faults

    for name in MODULES:
        importlib.import_module(f"sandbox.emulator.cfn.{name}")
    faults.install()

"""What the local AWS takes from the project's catalogue. The catalogue is loaded when first asked for."""

from __future__ import annotations

from typing import Any


def offerings() -> dict[str, list[str]]:
    """Where the project's catalogue says its instance types are offered: type -> zone ids."""
    from trainium_cdk.description.catalog import Catalog

    return {name: list(instance.zone_ids) for name, instance in Catalog.load().instances.items()}


def kubernetes() -> dict[str, Any]:
    """What the project's catalogue says of EKS, as the emulator tells it (see sandbox.emulator.eks_versions)."""
    from trainium_cdk.description.catalog import Catalog

    facts = Catalog.load().eks
    return {
        "versions": {
            name: {"standard": str(v.standard_support_until), "extended": str(v.extended_support_until)}
            for name, v in facts.versions.items()
        },
        "addons": {name: sorted(addon.versions.values()) for name, addon in facts.addons.items()},
        "images": [facts.ami_parameter.format(version=name) for name in facts.versions],
    }

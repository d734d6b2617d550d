"""The reference of the constructs: names for mkdocstrings, which reads signatures and docstrings from the source."""

from __future__ import annotations

import trainium_cdk


def page() -> str:
    """The page."""
    names = sorted(trainium_cdk.__all__, key=lambda name: (not name.startswith("Trn"), name))
    objects = "\n".join(f"::: trainium_cdk.{name}\n" for name in names)
    return (
        "# The constructs\n\nWhat `from trainium_cdk import ...` gives, with arguments, defaults and errors. How they are used together: "
        f"[in your own CDK app](../guides/own-app.md).\n\n{objects}"
    )

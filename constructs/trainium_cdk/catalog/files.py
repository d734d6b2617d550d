"""The files of the catalogue, in YAML."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")


@cache
def read(name: str) -> dict[str, Any]:
    """The content of a file of the catalogue, by its name without `.yaml`; dates are text."""
    import yaml

    from trainium_cdk.catalog.plain import plain

    try:
        from yaml import CSafeLoader
    except ImportError:  # a PyYAML that was built without libyaml
        from yaml import SafeLoader as CSafeLoader

    data = plain(
        yaml.load((DATA / f"{name}.yaml").read_text("utf-8"), Loader=CSafeLoader)
    )  # ten times as fast as ruamel.yaml, whose line numbers users need
    assert isinstance(data, dict)  # noqa: S101  our own file
    return data

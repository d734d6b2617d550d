"""YAML as ParallelCluster and the nodes of EKS read it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from io import StringIO
from typing import Any

from ruamel.yaml import YAML


def dump(data: Mapping[str, Any], width: int) -> str:
    """The data as YAML, in its own order; lines are broken at `width` characters."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.width = width
    text = StringIO()
    yaml.dump(data, text)
    return text.getvalue()

"""The nested stack of AWS ParallelCluster's CloudFormation provider, served locally.

AWS publishes the provider as a template at a fixed URL per region and version. In the emulator that URL returns
`template.yaml`: the same parameters and outputs, with a function that calls `handler.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

_URL = re.compile(
    r"https://(?P<region>[a-z0-9-]+)-aws-parallelcluster\.s3\.(?P=region)\.amazonaws\.com(?:\.cn)?"
    r"/parallelcluster/(?P<version>[^/]+)/templates/custom_resource/cluster\.yaml$"
)


def template_for(url: str) -> str | None:
    """The provider's template, if `url` is its address; otherwise None.

    Raises ValueError when the stack requests a version other than the installed one, whose validators
    would not apply.
    """
    match = _URL.match(url)
    if not match:
        return None
    here = os.environ.get("SANDBOX_PCLUSTER_VERSION", "")
    if match["version"] != here:
        raise ValueError(f"the stack requests AWS ParallelCluster {match['version']}; the sandbox has {here or 'none'}")
    text = Path(__file__).with_name("template.yaml").read_text()
    return text.replace("@VERSION@", here).replace("@SOURCE@", os.environ["SANDBOX_SOURCE"])


def install() -> None:
    """Serve the template wherever ministack reads one by URL."""
    from ministack.services.cloudformation import helpers

    resolve = helpers._resolve_template

    def resolve_template(params: dict[str, Any]) -> Any:
        url = (params.get("TemplateURL") or [""])[0]
        text = template_for(url) if url else None
        return (text, None) if text is not None else resolve(params)

    helpers._resolve_template = resolve_template

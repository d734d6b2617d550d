"""A TorchX component for a cluster. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from pprint import pformat
from typing import Any

from trainium_cdk.catalog import Catalog
from trainium_cdk.errors import JobError
from trainium_cdk.jobs import quote
from trainium_cdk.jobs.environment import cache_lines, launch_environment
from trainium_cdk.jobs.kinds.script import Script
from trainium_cdk.jobs.kubernetes import pods
from trainium_cdk.jobs.plan import plan
from trainium_cdk.outputs import EksCluster

_COMPONENT = Path(__file__).with_name("torchx_component.py")
_ITS_OWN = ("MASTER_PORT",)


def component(cluster: EksCluster) -> str:
    """The text of a TorchX component for a cluster: `torchx_component.py` with the cluster's values in FACTS."""
    text = _COMPONENT.read_text("utf-8")
    facts = pformat(facts_of(cluster), width=110, sort_dicts=False)
    return re.sub(r"^FACTS: Dict\[str, Any\] = \{\}$", lambda _: f"FACTS: Dict[str, Any] = {facts}", text, flags=re.M)


def facts_of(cluster: EksCluster) -> dict[str, Any]:
    """The values of FACTS."""
    names = Catalog.load().eks.resources
    fleets: dict[str, Any] = {}
    for fleet in cluster.fleets:
        wanted = pods.devices(fleet)
        fleets.setdefault(
            fleet.instance_type,
            {
                "nodes": fleet.nodes,
                "cores": fleet.cores,
                "efa": fleet.efa,
                "cpu": int(wanted["cpu"]),
                "memory_mib": int(wanted["memory"].removesuffix("Gi")) * 1024,
                # TorchX counts devices, but does not support huge pages
                "devices": {n: int(wanted[n]) for n in (names.device, names.efa) if n in wanted},
            },
        )
    return {
        "stack": cluster.stack,
        "image": cluster.image,
        "mounts": [
            {"claim": claim, "place": place} for claim, place in zip(cluster.claims, cluster.mount_dirs, strict=True)
        ],
        "cache_root": f"{cluster.shared_dir}/trn/neuron_cache",
        "cache_lines": cache_lines(cluster.framework),
        "env": _environment(cluster),
        "fleets": fleets,
    }


def run_line(cluster: EksCluster, file: str) -> str:
    """The `torchx` command that uses it."""
    return (
        f'torchx run -s kubernetes --workspace="" -cfg queue={cluster.queue()[0].queue},namespace={cluster.namespace},'
        f"service_account={cluster.service_account} {quote.printed(f'{file}:train')} --script train.py --nnodes 2"
    )


def _environment(cluster: EksCluster) -> dict[str, str]:
    """The launch environment of a script on several nodes, if the cluster allows several."""
    for nodes in (2, 1):
        try:
            fitted = plan(Script(filename="x", content=b"x", nodes=nodes, image="x/y:z"), cluster)
        except JobError:
            continue
        return {k: v for k, v in launch_environment(fitted).items() if k not in _ITS_OWN}
    return {}

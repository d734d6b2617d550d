"""The launch environment: variables of a training process, by Neuron release, kernel, fleet and kind. Pure.

Sources: Neuron SDK documentation (release notes of torch-neuronx, EFA and ParallelCluster guides, caching guide) and the launch
scripts of the vendor's samples, as of 2026-11. What depends on the node (the compile cache's folder) is set on the node.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from trainium_cdk.errors import UnknownCatalogEntry

if TYPE_CHECKING:
    from trainium_cdk.catalog import Catalog
    from trainium_cdk.jobs.plan import Plan

LARGE = 64
"""From this number of nodes, torch-xla's rendezvous store is not used. The vendor documents no number; `env` overrides."""

_FORK_SAFE_BELOW = (5, 15)
_NEWEST = (99, 0)


def launch_environment(plan: Plan, catalog: Catalog | None = None) -> dict[str, str]:
    """Names and values, including the job's own `env`, which overrides the others."""
    job, fleet = plan.job, plan.fleet
    env = {
        "PYTHONUNBUFFERED": "1",  # so that logs can be followed
        "MASTER_PORT": "2022",
    }
    if not plan.on_trainium:
        return {**env, **job.env}
    env["NEURON_RT_EXEC_TIMEOUT"] = "600"  # slow compilation on one worker must not look like a hang on the others
    if fleet.efa and job.nodes > 1:
        env |= {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}
        if _version(plan.cluster.kernel) < _FORK_SAFE_BELOW:
            env["FI_EFA_FORK_SAFE"] = "1"
        if plan.cluster.socket_interface:
            env["CCOM_SOCKET_IFNAME"] = plan.cluster.socket_interface
    if job.nodes >= LARGE and plan.framework == "torch-xla":
        env |= {"XLA_USE_DUMMY_STORE": "1", "TORCH_DIST_INIT_BARRIER": "0"}
    lnc = {"NEURON_LOGICAL_NC_CONFIG": str(fleet.lnc)} if fleet.lnc else {}
    env |= {**job.launch_environment(plan, torch_version(plan, catalog)), **lnc, **job.env}
    if fleet.lnc and plan.framework != "torch-native":  # TorchNeuron passes that variable to the compiler itself
        flags = env.get("NEURON_CC_FLAGS", "")
        if not re.search(r"(^|\s)--?(logical-nc-config|lnc)\b", flags):  # compiler and runtime need the same value
            env["NEURON_CC_FLAGS"] = f"{flags} --logical-nc-config={env['NEURON_LOGICAL_NC_CONFIG']}".strip()
    return env


def torch_version(plan: Plan, catalog: Catalog | None = None) -> tuple[int, ...]:
    """(major, minor) of the PyTorch of the cluster's Neuron release; the newest if unknown."""
    from trainium_cdk.catalog import Catalog

    try:
        known = (catalog or Catalog.load()).release(plan.cluster.neuron_release).frameworks
    except UnknownCatalogEntry:
        return _NEWEST
    version = next((framework.version for name, framework in known.items() if name == plan.framework), None)
    return _version(version) if version else _NEWEST


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())

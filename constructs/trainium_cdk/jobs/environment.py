"""The launch environment: what a training process must find set, by Neuron release, kernel, fleet and model. Pure.

Sources: Neuron SDK documentation (release notes of torch-neuronx, EFA and ParallelCluster guides) and the launch
scripts of the vendor's samples, as of 2026-11. What depends on the node (the compile cache's folder) is set on the
node.
"""

from __future__ import annotations

from trainium_cdk.catalog import Catalog, UnknownFact
from trainium_cdk.jobs.models import BertLarge, Gpt3, Script
from trainium_cdk.jobs.plan import Plan

LARGE = 64
"""Nodes from which on the rendezvous store of torch-xla is spared. The vendor names no number; `env` overrides."""

_FORK_SAFE_BELOW = (5, 15)
_NEWEST = (99, 0)


def launch_environment(plan: Plan, catalog: Catalog | None = None) -> dict[str, str]:
    """Names and values, the user's own included (they win)."""
    job, fleet = plan.job, plan.fleet
    torch = torch_version(plan.cluster.neuron_release, catalog)
    env = {
        # slow compilation on one worker must not look like a hang on the others
        "NEURON_RT_EXEC_TIMEOUT": "600",
        "PYTHONUNBUFFERED": "1",  # so that logs can be followed
        "MASTER_PORT": "2023" if isinstance(job, BertLarge) and job.phase == 2 else "2022",
    }
    if fleet.efa and job.nodes > 1:
        env |= {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}
        if _version(plan.cluster.kernel) < _FORK_SAFE_BELOW:
            env["FI_EFA_FORK_SAFE"] = "1"
        if plan.cluster.engine == "eks":
            env["CCOM_SOCKET_IFNAME"] = "eth0"  # the one interface of a pod, for the collectives' first words
    if job.nodes >= LARGE:
        env |= {"XLA_USE_DUMMY_STORE": "1", "TORCH_DIST_INIT_BARRIER": "0"}
    if not isinstance(job, Script):  # the numerics of a user's own script are the user's
        env |= {"NEURON_RT_STOCHASTIC_ROUNDING_EN": "1", "NEURON_RT_STOCHASTIC_ROUNDING_SEED": "0"}
    if isinstance(job, BertLarge):
        env["XLA_TRANSFER_SEED_ASYNC"] = "1"
        env["ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB" if torch >= (2, 5) else "BUCKET_CAP_MB"] = "512"
        if torch < (2, 5):
            env["XLA_DOWNCAST_BF16"] = "1"  # later the script casts the model itself
    if isinstance(job, Gpt3):
        env |= {
            "NEURON_NUM_RECENT_MODELS_TO_KEEP": "3",
            "NEURON_TRANSFER_ALL_PARAMETERS_WITH_STATIC_RING": "1",
            "NEURON_FUSE_SOFTMAX": "1",
            # deprecated, but this code base has no other bf16 that goes with its gradient buffers
            "XLA_USE_BF16": "1",
        }
    return {**env, **job.env}


def torch_version(release: str, catalog: Catalog | None = None) -> tuple[int, ...]:
    """(major, minor) of the PyTorch a Neuron release trains with; the newest where it is not known."""
    try:
        framework = (catalog or Catalog.load()).release(release).frameworks.get("torch-xla")
    except UnknownFact:
        return _NEWEST
    return _version(framework.version) if framework else _NEWEST


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2] if part.isdigit())

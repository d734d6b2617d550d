"""A TorchX component for this cluster: `torchx run -s kubernetes ... trn_component.py:train --script train.py`.

Written by `trn torchx`. It imports nothing from trainium-cdk, as TorchX needs a separate environment. It renders the same as
`trn submit` of a script, as far as TorchX supports it: whole nodes with all their devices and EFA interfaces, the shared file
systems, the launch environment, one rank for each NeuronCore, a compile cache for each node. Unlike `trn`, it does not
reserve the compile cache: make sure that no two jobs use one at the same time.
"""

# ruff: noqa: UP006, UP035, UP045  TorchX reads the types of the arguments, and supports only these
import shlex
from typing import Any, Dict, List, Optional

import torchx.specs as specs
from torchx.specs import macros

FACTS: Dict[str, Any] = {}


def train(
    script: str,
    script_args: str = "",
    name: str = "train",
    image: str = "",
    nnodes: int = 1,
    nproc_per_node: int = 0,
    instance_type: str = "",
    cacheset: str = "torchx",
    precompile: bool = False,
    env: Optional[Dict[str, str]] = None,
    max_retries: int = 3,
    port: int = 2022,
) -> specs.AppDef:
    """Train on whole Trainium nodes, data parallel over every NeuronCore.

    Args:
        script: training script, as the image has it.
        script_args: its arguments, in one string.
        name: of the job.
        image: container image. Default: the cluster's.
        nnodes: nodes.
        nproc_per_node: processes of a node. Default: one for each NeuronCore.
        instance_type: one of the cluster's. Default: its first.
        cacheset: compile cache; must not be shared by jobs that run at the same time.
        precompile: compile the graphs (neuron_parallel_compile) instead of training.
        env: additions to the launch environment.
        max_retries: how often the job may start again.
        port: of the rendezvous, on the first node.
    """
    fleets: Dict[str, Any] = FACTS["fleets"]
    kind = instance_type or next(iter(fleets))
    if kind not in fleets:
        raise ValueError(f"this cluster has no {kind}; it has {', '.join(fleets)}")
    fleet = fleets[kind]
    if nnodes > fleet["nodes"]:
        raise ValueError(f"nnodes is {nnodes}, but this cluster has at most {fleet['nodes']} of {kind}")
    if nnodes > 1 and not fleet["efa"]:
        raise ValueError(f"nnodes is {nnodes}, but {kind} has no EFA: use 1")
    if not (image or FACTS["image"]):
        raise ValueError("no image. Give one as --image")
    node = macros.replica_id
    workers = nproc_per_node or fleet["cores"]
    program = [
        "python3",
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        str(workers),
        "--nnodes",
        str(nnodes),
        "--node_rank",
    ]
    words = [*map(_literal, program), node, '--master_addr "$$MASTER_ADDR" --master_port "$$MASTER_PORT"']
    words += [_literal(word) for word in [script, *shlex.split(script_args)]]
    if precompile:
        words.insert(0, "neuron_parallel_compile")
    lines: List[str] = [
        "set -euo pipefail",
        # Volcano gives every pod the name of the first; TorchX gives the first pod only `localhost`
        f'export MASTER_ADDR="$${{VC_TRAIN_0_HOSTS:-$${{{macros.rank0_env}:-localhost}}}}" MASTER_PORT={port}',
        f"export NNODES={nnodes} NODE_RANK={node} NPROC_PER_NODE={workers}",
        f"cache={_literal(FACTS['cache_root'])}/{_literal(cacheset)}/node-{node}",
        FACTS["cache_lines"].replace("$", "$$"),
        'mkdir -p "$$cache"',
        "ulimit -n 65535 2> /dev/null || true",
        "exec " + " ".join(words),
    ]
    return specs.AppDef(
        name=name,
        roles=[
            specs.Role(
                name="train",
                image=image or FACTS["image"],
                entrypoint="bash",
                args=["-c", "\n".join(lines)],
                num_replicas=nnodes,
                max_retries=max_retries,
                env={**FACTS["env"], **(env or {})},
                resource=specs.Resource(
                    cpu=fleet["cpu"],
                    gpu=0,
                    memMB=fleet["memory_mib"],
                    capabilities={"node.kubernetes.io/instance-type": kind},
                    devices=fleet["devices"],
                ),
                mounts=[specs.VolumeMount(src=m["claim"], dst_path=m["place"]) for m in FACTS["mounts"]],
            )
        ],
    )


def _literal(word: str) -> str:
    """One shell word, escaped for TorchX, which expands $name in arguments."""
    return shlex.quote(word).replace("$", "$$")

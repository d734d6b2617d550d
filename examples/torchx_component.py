"""A TorchX component for the cluster of TrnEksStack, with Volcano: data parallel over every NeuronCore of whole Trainium nodes.

    trn show cluster --stack TrnEksStack > cluster.json
    torchx run -s kubernetes --workspace="" -cfg queue=trn,namespace=training,service_account=trn-job \
        examples/torchx_component.py:train --cluster cluster.json --script train.py --nnodes 2

It runs where TorchX is installed, and needs nothing of trainium-cdk there. Its compile caches are its own: two jobs that run at
the same time must not have the same `--cacheset`.
"""

# ruff: noqa: UP006, UP035, UP045  TorchX reads the types of the arguments, and supports only these
import json
import re
import shlex
from pathlib import Path
from typing import Dict, Optional

import torchx.specs as specs
from torchx.specs import macros


def train(
    cluster: str,
    script: str,
    script_args: str = "",
    name: str = "train",
    image: str = "",
    nnodes: int = 1,
    instance_type: str = "",
    cacheset: str = "default",
    precompile: bool = False,
    env: Optional[Dict[str, str]] = None,
    max_retries: int = 3,
) -> specs.AppDef:
    """Train on whole Trainium nodes, with one process for each NeuronCore.

    Args:
        cluster: file with the output of `trn show cluster`.
        script: training script, as the image has it.
        script_args: its arguments, in one string.
        name: of the job: at most 38 characters, or 36 with more than 10 nodes.
        image: container image. Default: the cluster's.
        nnodes: nodes.
        instance_type: one of the cluster's. Default: its first.
        cacheset: name of the compile cache.
        precompile: compile the graphs (neuron_parallel_compile) instead of training.
        env: additional variables of the launched program.
        max_retries: how often the job may start again.
    """
    known = json.loads(Path(cluster).read_text("utf-8"))
    fleets = {fleet["instance_type"]: fleet for fleet in reversed(known["fleets"])}
    kind = instance_type or known["fleets"][0]["instance_type"]
    if kind not in fleets:
        raise ValueError(f"this cluster has no {kind}; it has {', '.join(fleets)}")
    most = fleets[kind]["nodes"] if fleets[kind]["efa"] else 1  # several nodes need EFA
    if nnodes > most:
        raise ValueError(f"nnodes is {nnodes}, but jobs of this cluster can have at most {most} of {kind}")
    # it is a label of its pods, and the name of a Service
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ValueError(f"name is {name!r}. Give letters, digits, - _ and ., with a letter first and no sign last")
    # TorchX adds up to 15 characters (schedulers/ids.py), and Volcano the task: a pod's name is its host's, of at most 63
    longest = 63 - 15 - len(f"-train-{nnodes - 1}-{nnodes - 1}")
    if len(name) > longest:
        fits = name[:longest].rstrip("._-")
        raise ValueError(f"name has {len(name)} characters, and TorchX makes it longer. Give at most {longest}: {fits}")
    if not (image or known["image"]):
        raise ValueError("no image. Give one as --image")
    wanted = known["pods"][kind]["resources"]
    variables = {**known["pods"][kind]["env"], **(env or {})}
    cache = f"{known['shared_dir']}/torchx/{cacheset}/node-{macros.replica_id}"
    if known["framework"] == "torch-native":
        variables.setdefault("TORCH_NEURONX_NEFF_CACHE_DIR", cache)
    else:
        variables["NEURON_CC_FLAGS"] = f"--cache_dir={cache} {variables.get('NEURON_CC_FLAGS', '')}".strip()
    # TorchX replaces ${name} in arguments, and leaves one $ of two. Volcano gives every pod the name of the first
    command = (
        f"{'neuron_parallel_compile ' if precompile else ''}python3 -m torch.distributed.run "
        f"--nproc_per_node {fleets[kind]['cores']} --nnodes {nnodes} --node_rank {macros.replica_id} "
        '--master_addr "$$VC_TRAIN_0_HOSTS" --master_port "$$MASTER_PORT" "$$@"'
    )
    words = [word.replace("$", "$$") for word in (script, *shlex.split(script_args))]
    role = specs.Role(
        name="train",
        image=image or known["image"],
        entrypoint="bash",
        args=["-c", f"set -eu; mkdir -p '{cache}'; ulimit -n 65535 || true; exec {command}", "train", *words],
        num_replicas=nnodes,
        max_retries=max_retries,
        env=variables,
        resource=specs.Resource(
            cpu=int(wanted["cpu"]),
            gpu=0,
            memMB=int(wanted["memory"].removesuffix("Gi")) * 1024,
            capabilities={"node.kubernetes.io/instance-type": kind},
            # TorchX counts devices, but does not support huge pages
            devices={n: int(wanted[n]) for n in ("aws.amazon.com/neuron", "vpc.amazonaws.com/efa") if n in wanted},
        ),
        mounts=[
            specs.VolumeMount(src=claim, dst_path=place)
            for claim, place in zip(known["claims"], known["mount_dirs"])  # noqa: B905  of one length
        ],
    )
    return specs.AppDef(name=name, roles=[role])

"""Shell text for job kinds. Pure.

Training commands are written out by the kinds rather than left to the vendor's launch scripts, which, for example, divide the
accumulation steps by the nodes without regard to the remainder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from trainium_cdk.catalog.sources import SourceTree, sources
from trainium_cdk.jobs import quote
from trainium_cdk.jobs.models import Plan
from trainium_cdk.jobs.models import Template as Template

Option = str | tuple[str, str]


def on_cluster(path: str, plan: Plan) -> str:
    """A check that a path exists, if it is on a shared file system, which the head node can read."""
    if not any(path == m or path.startswith(f"{m}/") for m in plan.cluster.mount_dirs):
        return ""
    place = quote.shared(path)
    return f'[ -e {place} ] || die "there is no" {quote.word(path)} "on the cluster. Check the path"\n'


def tree_ref(name: str, tree: SourceTree) -> str:
    """A line that sets `<name>_ref` to the commit of a source tree."""
    return f"{name}_ref=${{{tree.ref_variable}:-{tree.commit}}}"


def data(source: str | None, dataset: str) -> tuple[str, str]:
    """(shell lines that fetch a data set, its directory afterwards, quoted for the shell).

    Args:
        source: a directory or s3:// address; None for the public data set.
        dataset: the public data set, by its name in the catalogue.
    """
    if source is None:
        lines = []
        for public in sources().datasets[dataset]:
            call = "data_archive" if public.uri.endswith(".tar") else "data_file"
            lines.append(" ".join([call, dataset, public.uri, "--no-sign-request", public.sha256 or ""]).rstrip())
        return "\n".join(lines), f'"$trn/data/{dataset}"'
    if source.startswith("/"):
        return "", quote.shared(source)
    import hashlib  # slow to load, for those who only list the kinds

    stem = re.sub(r"[^a-z0-9]+", "-", source.removeprefix("s3://").lower()).strip("-")[-40:]
    name = f"{stem}-{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    if source.endswith(".tar"):
        return f"data_archive {name} {quote.word(source)} ''", f'"$trn/data/{name}"'
    return f"data_prefix {name} {quote.word(source)}", f'"$trn/data/{name}"'


def overrides(given: Iterable[str]) -> list[Option]:
    """Options of a program that a job adds, from KEY=VALUE or KEY alone."""
    return [f"--{quote.words(each.split('=', 1))}" for each in given]


_LAUNCHERS = {
    "torchrun": """  python3 -m torch.distributed.run --nproc_per_node "$NPROC_PER_NODE"
  --nnodes "$NNODES" --node_rank "$NODE_RANK" --master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT\"""",
    "accelerate": """  python3 -m accelerate.commands.launch --multi_gpu --num_processes "$((NNODES * NPROC_PER_NODE))"
  --num_machines "$NNODES" --machine_rank "$NODE_RANK" --main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT\"""",
}
"""Started as modules: the script `torchrun` runs the Python it was installed with, which does not have the packages of the job's
environment. `--multi_gpu` is Accelerate's name for several processes on any accelerator."""


def command(program: str, options: list[Option], launcher: Literal["torchrun", "accelerate"] = "torchrun") -> str:
    """The array `command`, which starts one process for each NeuronCore of the node. Option values are already quoted."""
    lines = ["command=(", _LAUNCHERS[launcher]]
    lines += [f"  {program}", *(f"  {' '.join(o) if isinstance(o, tuple) else o}" for o in options)]
    return "\n".join([*lines, ")"])


ENVIRONMENT = """venv=$trn/environments/$(cat "$job/environment")
if [ ! -f "$venv/bin/activate" ]; then die "the environment of this job, $venv, was removed. Submit the job again"; fi
. "$venv/bin/activate"
"""
"""Activates the environment that `prepare` has made, or found, for the job's packages."""


RUN = """if [ "$stage" = precompile ]; then
  neuron_parallel_compile "${command[@]}"
else
  "${command[@]}"
fi"""
"""Runs `command`; in the stage `precompile` its graphs are only compiled."""


def number(value: float) -> str:
    return f"{value:.10g}"

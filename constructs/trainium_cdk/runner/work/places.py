"""The places of a program's words on its node, and its variables."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .. import prepare
from ..files import shared_root
from ..layout import UnknownPlace, folder_places, resolve
from ..prepare import checkpoints
from ..spec import JobSpec, NodeEnvironment, StageSpec, Word, array_indices
from .process import CannotStart

PORT = "2022"
_XLA_FLAGS, _NATIVE_CACHE, _JAX_CACHE = "NEURON_CC_FLAGS", "TORCH_NEURONX_NEFF_CACHE_DIR", "JAX_COMPILATION_CACHE_DIR"


@dataclass(frozen=True)
class StageNode:
    """One node of a stage.

    Attributes:
        root: the job's folder; of a member of an array, the array's.
        job: the job's own folder.
        number: 0, 1, ... of `nodes`.
        host: its own name, also for its compile cache: locks do not hold on NFS, so that nodes must not share one.
        master: address of node 0.
        run: tells one run of the stage from another (`records`).
        index: of a member of an array.
        checkpoint: from which the program continues; empty: none.
    """

    root: Path
    job: Path
    number: int = 0
    nodes: int = 1
    host: str = ""
    master: str = ""
    run: str = "0"
    index: str = ""
    checkpoint: str = ""

    @property
    def trn(self) -> Path:
        """The folder of data, sources and models."""
        return self.root.parent.parent


def places(
    node: StageNode, job: JobSpec, stage: StageSpec, own: Mapping[str, str], problem: str = ""
) -> dict[str, str]:
    """The text of each place.

    Args:
        own: the job's variables.
        problem: why the node's Neuron driver and runtime do not work together.
    """
    processes = max(1, job.environment.cores)
    given = stage.program.variables.get("MASTER_PORT") if stage.program else None
    return {
        **folder_places(node.root, node.trn),
        "job": str(node.job),
        "cache": str(node.trn / "neuron_cache" / job.environment.cache / node.host),
        "nodes": str(node.nodes),
        "node": str(node.number),
        "processes": str(processes),
        "workers": str(node.nodes * processes),
        "master": node.master,
        "port": own.get("MASTER_PORT") or (given if isinstance(given, str) else PORT),
        "host": node.host,
        "id": f"{job.id}/{node.index}" if node.index else job.id,
        "run": node.run,
        "problem": problem,
        **({"checkpoint": node.checkpoint} if node.checkpoint else {}),
        **({"index": node.index} if node.index else {}),
        **({f"sweep.{name}": value for name, value in job.sweep.of(node.index).items()} if job.sweep else {}),
    }


def variables(
    node: StageNode, job: JobSpec, stage: StageSpec, own: Mapping[str, str], at: Mapping[str, str]
) -> dict[str, str]:
    """The variables of a program: the node's, its kind's, and the job's own, which win.

    Raises:
        CannotStart: its virtual environment is missing.
    """
    kinds = {name: word(value, at) for name, value in stage.program.variables.items()} if stage.program else {}
    path = kinds.pop("PYTHONPATH", "")
    trackers = _trackers(job, stage, kinds.get("TRN_GIT_COMMIT", ""), own, at["id"])
    made = {**os.environ, **_ranks(node, job, at), **kinds, **trackers, **own}
    for name in trackers:
        if not made[name]:  # a user's empty one switches it off
            del made[name]
    if path:
        made["PYTHONPATH"] = os.pathsep.join(filter(None, (path, made.get("PYTHONPATH"))))
    if stage.spreads:  # what is of this node alone; the compiler's own cache is on each node's disk
        del made["NODE_RANK"]
        made["TRN_PROGRESS"] = ""
    else:
        _add_cache(made, job.environment, at["cache"])
    place = _find_environment(node, job.environment)
    return prepare.activate(place, made) if place else made


def ranks(node: StageNode, local: int, copies: int) -> dict[str, str]:
    """The variables by which one of several copies on a node knows its rank: copy L of node N has N x copies + L."""
    return {
        "RANK": str(node.number * copies + local),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(node.nodes * copies),
    }


def find_checkpoint(job: JobSpec, own: Path, *, first: bool = True) -> str:
    """The checkpoint from which a job continues; empty if there is none.

    Args:
        own: the job's own folder.
        first: also forget those that its program must not find, and write down what they are. One node does it, before any starts the program.
    """
    made = job.checkpoints
    if made is None:
        return ""
    folder = own / made.folder
    if first:
        checkpoints.describe(made.same, folder)
        checkpoints.forget(made, folder / made.place)
    return str(checkpoints.newest(made, folder / made.place) or "")


def word(one: Word, at: Mapping[str, str]) -> str:
    """A word as the program gets it.

    Raises:
        CannotStart: it names a place that there is not here.
    """
    try:
        return resolve(one, at)
    except UnknownPlace as e:
        raise CannotStart(f"the job names a place {e.args[0]!r} that this node does not have") from None


def _ranks(node: StageNode, job: JobSpec, at: Mapping[str, str]) -> dict[str, str]:
    made = {
        "NNODES": at["nodes"],
        "NODE_RANK": at["node"],
        "NPROC_PER_NODE": at["processes"],
        "MASTER_ADDR": node.master,
    }
    if node.index:
        made |= {"TRN_ARRAY_INDEX": node.index, "TRN_ARRAY_COUNT": str(len(array_indices(job.array)))}
    return made


def _trackers(job: JobSpec, stage: StageSpec, commit: str, own: Mapping[str, str], id: str) -> dict[str, str]:
    """Return the variables that Weights & Biases and MLflow read of the job. Each gets them where the job has a variable of theirs.

    A run of W&B continues after a restart. Compiling is none: it would log steps that are not training. MLflow has no variable for a run that is not
    there yet, so a restart is another run with the same tags. (wandb 0.31, wandb_settings.py; mlflow 3.17, system_environment_context.py; 2026-11)
    """
    name, made = id.replace("/", "-"), {}
    if any(one.startswith("WANDB_") for one in own):
        run = {"WANDB_RUN_ID": name, "WANDB_RESUME": "allow", "WANDB_NAME": name}
        made = run if stage.name == "train" else {"WANDB_MODE": "disabled"}
        made |= {"WANDB_RUN_GROUP": job.id} if name != id else {}
        made |= {"WANDB_GIT_COMMIT": commit} if commit else {}
    if any(one.startswith("MLFLOW_") for one in own):
        tags = {"mlflow.runName": name, "trn.job": id, "trn.stage": stage.name}
        tags |= {f"trn.{key}": str(job.shown[key]) for key in ("kind", "nodes", "instance_type") if key in job.shown}
        tags |= {"mlflow.source.git.commit": commit} if commit else {}
        made["MLFLOW_RUN_CONTEXT"] = json.dumps(tags)
    return made


def _add_cache(made: dict[str, str], of: NodeEnvironment, cache: str) -> None:
    """Set the variables by which a framework finds the compile cache. TorchNeuron gives NEURON_CC_FLAGS to the compiler, and has them in its keys.

    JAX also keeps its own cache, which the plug-in supports (release notes of jax-neuronx 0.1.2). Its first process writes it for all nodes.
    """
    if of.framework == "torch-native":
        made[_NATIVE_CACHE] = made.get(_NATIVE_CACHE) or cache
    else:
        made[_XLA_FLAGS] = f"--cache_dir={cache} {made.get(_XLA_FLAGS, '')}".rstrip()
    if of.framework == "jax" and of.cores:  # on CPUs it would warn of each graph that it reads
        made.setdefault(_JAX_CACHE, str(Path(cache).with_name("jax")))


def _find_environment(node: StageNode, environment: NodeEnvironment) -> Path | None:
    if environment.packages:
        found = prepare.find_own(node.root)
        if found is None:
            raise CannotStart("this job's packages were removed. Submit the job again")
        return found
    try:
        place = prepare.find_base(environment.venv, shared_root())
    except (RuntimeError, UnknownPlace) as e:  # there is no such user
        raise CannotStart(f"its virtual environment was not found on this node: {e}") from None
    if place is not None and (place / "bin" / "activate").is_file():
        return place
    if environment.venv_required:
        raise CannotStart(f"there is no virtual environment at {place}")
    return None

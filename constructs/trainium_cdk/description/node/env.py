"""The settings of the nodes: the file `node.env`, and arguments that differ between queues. Pure.
`bootstrap/lib/settings.sh` defines the keys and types of values that configure-node.sh accepts, and rejects others.
"""

from __future__ import annotations

import shlex

from trainium_cdk.description.catalog import device_counters, python_of
from trainium_cdk.description.outputs import Fleet, fleets
from trainium_cdk.description.outputs.slurm import JOBS_USER
from trainium_cdk.description.requirements import is_word
from trainium_cdk.description.settings import Environment

CPU_ROLE = "TRN_NODE_ROLE=cpu"
"""Argument of the nodes of the CPU queue."""
JOBS_UID = 1999
"""Uid of the jobs' account: below the users' uids, above the uids that an image gives to its first users."""


def values(env: Environment, *, image: bool = False, engine: str = "slurm") -> dict[str, str]:
    """The settings that are equal on all nodes; empty values are left out.

    Args:
        image: for the build of an image, which can reach package repositories even if the nodes cannot.
        engine: whose nodes.
    """
    release, repositories = env.release, env.catalog.repositories
    section = env.slurm_sections[engine]
    name = section.os
    system = env.catalog.parallelcluster.operating_systems[name]
    found = {"TRN_USER": system.user, "TRN_MOUNTS": " ".join((*env.storage.mount_dirs, *section.mount_dirs))}
    if not image:
        users = " ".join(f"{user.name}:{user.uid}" for user in section.users)
        found |= {"TRN_JOBS_USER": f"{JOBS_USER}:{JOBS_UID}", **({"TRN_USERS": users} if users else {})}
        found |= {"TRN_DEVICE_COUNTERS": ",".join(device_counters())}
        found |= {"TRN_DEVICES": "tell"} if env.jobs.health.device == "tell" else {}
        found |= {"TRN_DIRECTORY": "yes"} if section.several_users == "directory" else {}
    if not image and not env.network.reaches_internet:  # nodes reach only AWS: the packages are on the custom image
        return found
    found |= {
        "TRN_OS_PACKAGES": " ".join(system.packages),
        "TRN_NEURON_SDK": release.version,
        "TRN_NEURON_DKMS": release.dkms,
        "TRN_NEURON_COLLECTIVES": release.collectives,
        "TRN_NEURON_RUNTIME": release.runtime,
        "TRN_NEURON_TOOLS": release.tools,
        "TRN_NEURON_APT_URL": repositories.apt,
        "TRN_NEURON_YUM_URL": repositories.yum,
        "TRN_NEURON_KEY_URL": repositories.key,
        "TRN_EFA_INSTALLER": env.catalog.efa_installer,
        "TRN_EFA_URL": repositories.efa,
    }
    return found | {k: v for k, v in _framework(env, name).items() if v}


def render(env: Environment, *, image: bool = False, engine: str = "slurm", metrics_group: str = "") -> str:
    """The text of `node.env`; `image` and `engine` as of `values`. Every value is quoted here, and nowhere else.

    Args:
        metrics_group: log group of the nodes' metrics; empty for none.
    """
    agent = env.catalog.cloudwatch_agent
    metrics = {
        "TRN_METRICS_GROUP": metrics_group,
        "TRN_AGENT_URL": env.catalog.repositories.agent,
        "TRN_AGENT_VERSION": agent.version,
        "TRN_AGENT_SHA": agent.sha256,
    }
    written = values(env, image=image, engine=engine) | (metrics if metrics_group else {})
    lines = [f"{key}={shlex.quote(value)}" for key, value in written.items()]
    return "".join(f"{line}\n" for line in ["# Written by trainium-cdk at deployment.", *lines])


def queue_arguments(env: Environment, queue: str, engine: str = "slurm", resource: str = "") -> tuple[str, ...]:
    """Arguments for the nodes of one queue, as KEY=VALUE: the expected number of devices and EFA interfaces.

    A number that differs between the queue's instance types is not checked: ParallelCluster passes the same
    arguments to every node of a queue.

    Args:
        resource: only its nodes. Default: the whole queue's.
    """
    of_queue = [f for f in fleets(env, engine) if f.queue == queue and resource in ("", f.resource)]
    return (
        f"TRN_NEURON_DEVICES_EXPECTED={_common(of_queue, 'devices')}",
        f"TRN_EFA_EXPECTED={_common(of_queue, 'efa')}",
    )


def _common(of_queue: list[Fleet], field: str) -> int:
    numbers = {int(getattr(f, field)) for f in of_queue}
    return numbers.pop() if len(numbers) == 1 else 0


def _framework(env: Environment, system: str) -> dict[str, str]:
    kind = env.framework
    framework = None if kind == "none" else env.release.frameworks.get(kind)
    if framework is None:
        return {}
    python = python_of(env.catalog, framework, system)
    extra = [] if kind == "torch-xla" else [f"{framework.package}=={framework.version}", *framework.requires]
    return {
        "TRN_PYTHON": f"python{python}" if python else "",
        "TRN_VENV": env.bootstrap.venv,
        "TRN_VENV_SHARED": "yes" if _shared(env) else "no",
        "TRN_NEURON_CC": env.release.compiler,
        "TRN_TORCH_NEURONX": framework.version if kind == "torch-xla" else "",
        "TRN_PIP_EXTRA": " ".join([*extra, *filter(is_word, env.bootstrap.pip_packages)]),
        "TRN_PIP_LINES": "|".join(p for p in env.bootstrap.pip_packages if not is_word(p)),
        "TRN_NEURON_PIP_URL": env.catalog.repositories.pip,
    }


def _shared(env: Environment) -> bool:
    """Return whether all nodes share the head node's virtual environment, in the home or on a shared file system."""
    venv = env.bootstrap.venv
    return not venv.startswith("/") or any(f"{venv}/".startswith(f"{d}/") for d in ("/home", *env.storage.mount_dirs))

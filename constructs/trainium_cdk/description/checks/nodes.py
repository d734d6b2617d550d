"""Head nodes, login nodes and other nodes without Trainium; and scripts of one's own that nodes run when they start."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import PurePosixPath

from trainium_cdk.description.checks.rule import Rules, error, groups, info, queues, warning
from trainium_cdk.description.settings import Environment, Problem
from trainium_cdk.problems import KeyPath

TOO_SMALL = ("nano", "micro", "small")
SHELLS = ("bash", "sh", "dash")
"""Interpreters of scripts that bash can read."""
SECONDS = 10
# EC2 naming: letters, generation, then attributes, of which g is AWS Graviton: c7g, m7gd, im4gn; a1 is older than that
_ARM = re.compile(r"^([a-z]+\d+[a-z]*g[a-z]*|a1)(-[a-z0-9]+)?$")
_ACCELERATED = re.compile(r"^(trn|inf)\d")


RULES = Rules()


@RULES.refuse("ParallelCluster, InstanceArchitectureCompatibilityValidator; EKS API, CreateNodegroup: of amiType")
def service_node_type(env: Environment) -> Iterator[Problem]:
    for key, instance_type, smallest, work in _service_nodes(env):
        size = instance_type.partition(".")[2]
        if instance_type in env.catalog.instances or _ACCELERATED.match(instance_type):
            price = env.catalog.price(instance_type, env.region)
            cost = f" ({price:,.2f} USD an hour)" if price else ""
            yield warning(
                key,
                f"this node does not train: its accelerators would cost money without use{cost}",
                "choose an ordinary type, for example c5.4xlarge",
            )
        elif is_arm(instance_type):
            yield error(
                key,
                "this is an Arm type, but Trainium nodes are x86_64 and a cluster has one architecture",
                "choose an x86_64 type, for example c5.4xlarge",
            )
        elif smallest and size in TOO_SMALL:
            yield warning(key, f"too small for {work}", f"choose 8 GiB of memory or more, for example {smallest}")


def is_arm(instance_type: str) -> bool:
    """Return whether a type has the architecture arm64, by its name."""
    return bool(_ARM.match(instance_type.partition(".")[0]))


@RULES.refuse("ParallelCluster, HeadNodeMemorySizeValidator: 0.6 GiB, and 1 for each 25 nodes, up to 16")
def small_head_node(env: Environment) -> Iterator[Problem]:
    name = env.pcluster.head.instance_type
    memory = memory_gib(name)
    p = env.pcluster
    nodes = sum(r.max_nodes for q in p.queues for r in q.compute_resources) + sum(q.max_nodes for q in p.cpu_queues)
    needed = min(nodes / 25 + 0.6, 16)
    if memory is not None and name.partition(".")[2] not in TOO_SMALL and memory < needed:
        yield error(
            ("pcluster", "head", "instance_type"),
            f"it has {memory:g} GiB of memory, but ParallelCluster needs {needed:.1f} GiB to manage {nodes:,} nodes",
            "choose a larger type, for example c5.4xlarge, or lower max_nodes",
        )


def memory_gib(instance_type: str) -> float | None:
    """Memory of a compute, general or memory-optimized type since the fifth generation, from its name: the letter gives
    the memory for each vCPU (it may have a little more), the size gives the number of vCPUs. None for other types."""
    match = re.match(r"^([cmr])[5-9][a-z]*\.(?:(medium|large|xlarge)|(\d+)xlarge)$", instance_type)
    if not match:
        return None
    vcpus = {"medium": 1, "large": 2, "xlarge": 4}.get(match[2] or "", 0) or int(match[3]) * 4
    return {"c": 2.0, "m": 4.0, "r": 8.0}[match[1]] * vcpus


@RULES.refuse("ParallelCluster, RootVolumeSizeValidator: at least the image's")
def small_root_volume(env: Environment) -> Iterator[Problem]:
    least, p = env.catalog.parallelcluster.root_volume_gib(env.pcluster.version), env.pcluster
    sizes: list[tuple[KeyPath, int, str | None]] = [
        (("pcluster", "head", "root_volume_gib"), p.head.root_volume_gib, p.head.custom_ami)
    ]
    sizes += [((*at, "root_volume_gib"), q.root_volume_gib, q.custom_ami) for at, q in queues(env)]
    sizes += [(("pcluster", "cpu_queue", "root_volume_gib"), q.root_volume_gib, q.custom_ami) for q in p.cpu_queues]
    for key, size, image in sizes:
        if size < least and not (image or p.custom_ami):
            yield error(key, f"ParallelCluster's image needs a root volume of at least {least} GiB", f"write {least}")


@RULES.add
def custom_image_of_another_maker(env: Environment) -> Iterator[Problem]:
    p = env.pcluster
    named: list[tuple[KeyPath, str | None]] = [
        (("pcluster", "custom_ami"), p.custom_ami),
        (("pcluster", "head", "custom_ami"), p.head.custom_ami),
        *(((*at, "custom_ami"), q.custom_ami) for at, q in queues(env)),
    ]
    for key, image in named:
        if image and env.network.reaches_internet:  # without it, another rule checks the image
            yield info(
                key,
                f"nodes can only use an image that ParallelCluster {env.parallelcluster_version} has built for {p.os}",
                "build it with `trn image bake`; `trn check` reads the image's tags",
            )


@RULES.refuse("VPC user guide, VPC_Internet_Gateway: it needs public addresses")
def login_nodes_without_aws(env: Environment) -> Iterator[Problem]:
    login = env.pcluster.login_nodes
    if not login or login.subnet != "public":
        return
    key, reason = ("pcluster", "login_nodes", "subnet"), "ParallelCluster does not give login nodes public addresses"
    if env.network.existing:
        yield warning(
            key,
            f"{reason}: they only start if the subnet assigns public addresses, or has another connection to AWS",
            "write subnet: private, and connect to them through the head node or SSM Session Manager",
        )
    else:
        yield error(
            key,
            f"{reason}, and neither do this network's public subnets: the nodes could not reach AWS and would be replaced endlessly",
            "write subnet: private, and connect to them through the head node or SSM Session Manager",
        )


def _service_nodes(env: Environment) -> Iterator[tuple[KeyPath, str, str, str]]:
    """Key, instance type, smallest suitable type (empty: any size is enough), purpose."""
    slurm = "m5.large or c5.4xlarge", "Slurm's controller and the installation of the framework"
    yield ("pcluster", "head", "instance_type"), env.pcluster.head.instance_type, *slurm
    if env.pcluster.login_nodes:
        yield ("pcluster", "login_nodes", "instance_type"), env.pcluster.login_nodes.instance_type, *slurm
    yield (
        ("pcs", "login", "instance_type"),
        env.pcs.login.instance_type,
        "c5.2xlarge",
        "the installation of the framework",
    )
    for section, slurm_section in (("pcluster", env.pcluster), ("pcs", env.pcs)):
        for cpu in slurm_section.cpu_queues:
            yield (section, "cpu_queue", "instance_type"), cpu.instance_type, "c5.2xlarge", "the preparation of data"
    yield (
        ("eks", "system", "instance_type"),
        env.eks.system.instance_type,
        "",
        "",
    )  # eks_nodes.py sums what it must hold
    if env.eks.bastion_host:
        yield ("eks", "bastion_host", "instance_type"), env.eks.bastion_host.instance_type, "", ""


@RULES.refuse(
    "Linux manual, man2/execve.2: the first line names a program; Bash manual, The-Set-Builtin: -n reads alone"
)
def unreadable_script(env: Environment) -> Iterator[Problem]:
    scripts: list[tuple[KeyPath, str, str]] = [
        (("bootstrap", "scripts", i, "script"), own.name, own.script) for i, own in enumerate(env.bootstrap.scripts)
    ]
    scripts += [((*at, "user_data"), group.name, group.user_data or "") for at, group in groups(env)]
    for key, name, script in scripts:
        first = script.partition("\n")[0]
        words = first.removeprefix("#!").split() if first.startswith("#!") else []
        if first.endswith("\r"):
            text = "its first line ends as Windows writes it (CR LF), and Linux finds no such interpreter"
            yield error(key, text, "save it with Unix line ends (LF), for example with dos2unix", value=name)
        elif any(PurePosixPath(word).name in SHELLS for word in words[:2]) and (wrong := _syntax(script)):
            yield error(key, f"bash cannot read it: {wrong}", "correct it; `bash -n FILE` checks it", value=name)


@cache
def _syntax(script: str) -> str:
    """The first fault that bash of this machine finds, without running anything; empty if there is none, or no bash."""
    program = shutil.which("bash")
    if not program:
        return ""
    try:
        done = subprocess.run([program, "-n"], input=script.encode(), capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = done.stderr.decode(errors="replace").splitlines() if done.returncode else []
    return lines[0].partition(": ")[2] if lines else ""

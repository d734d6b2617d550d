"""The folder of a local Slurm: its directories, keys, configuration files, and the commands of its daemons."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import secrets
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandbox import processes, slurm_accounting, slurm_packages
from sandbox.slurm_config import ClusterPlan, Places, cgroup_conf, node_conf, slurm_conf
from sandbox.slurm_packages import which


class SlurmFailed(RuntimeError):
    """A local Slurm did not start, or is not running. The message has the end of its log."""


def munge_options(root: Path) -> list[str]:
    munge = root / "munge"
    files = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [*(f"--{option}={munge / name}" for option, name in files.items()), "--num-threads=4"]


def slurmd_command(node: str, configuration: str) -> list[str]:
    """The command of a virtual node's slurmd. Its fourth argument is the node's name."""
    unpacked = slurm_packages.unpacked()
    stepd = ["-d", str(unpacked.stepd)] if unpacked else []
    return [command_path("slurmd"), "-D", "-N", node, "-f", configuration, *stepd]


def user_name() -> str:
    """The name of the user that runs the daemons."""
    return pwd.getpwuid(os.getuid()).pw_name


def command_path(command: str) -> str:
    found = which(command)
    if found is None:
        raise SlurmFailed(f"{command} is not installed")
    return found


def lay_out(
    directory: Path, wanted: ClusterPlan, credential_seconds: int, earlier: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Create directories and configuration files of a new Slurm, or of changed nodes; returns its state.

    Args:
        earlier: the state of a Slurm that continues: nodes that it has keep their port and configuration file.
    """
    known = earlier or {"link": "", "order": [], "ports": {}, "nodes": {}, "daemons": {}}
    order = list(dict.fromkeys([*known["order"], *(node.name for node in wanted.nodes)]))
    for name in ("etc", "log", "run", "state", "s", "munge", "ports", "power", *(f"s/{i}" for i in range(len(order)))):
        (directory / name).mkdir(exist_ok=True)
    if earlier is None:
        (key := directory / "munge" / "key").touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(256))
    version, new = _version(), ["slurmctld", "slurmdbd", "mariadbd", *order][len(known["ports"]) :]
    link = Path(known["link"]) if earlier else _short_link(directory)
    ports = {**known["ports"], **dict(zip(new, processes.free_ports(len(new)), strict=True))} if new else known["ports"]
    places = Places(
        root=link,
        host=socket.gethostname().partition(".")[0],
        user=user_name(),
        ctld_port=ports["slurmctld"],
        node_ports=tuple(ports[node.name] for node in wanted.nodes),
        version=version,
        plugins=unpacked.plugins if (unpacked := slurm_packages.unpacked()) else None,
        credential_seconds=credential_seconds,
        database_port=ports["slurmdbd"] if wanted.accounting else 0,
    )
    etc = directory / "etc"
    (etc / "slurm.conf").write_text(slurm_conf(wanted, places))
    (etc / "cgroup.conf").write_text(cgroup_conf(version))
    for i in range(len(order)):
        (etc / f"{i}.conf").write_text(node_conf(places, i))
    if wanted.accounting and earlier is None:
        slurm_accounting.prepare(directory, link, places.user, (ports["slurmdbd"], ports["mariadbd"]))
    return {
        **known,
        "link": str(link),
        "host": places.host,
        "order": order,
        "ports": ports,
        "names": [node.name for node in wanted.nodes],
        "launches": {node.name: node.launch for node in wanted.nodes},
        "service": wanted.service,
        "left_out": wanted.left_out,
        "settings_not_run": wanted.settings_not_run,
        "credential_seconds": credential_seconds,
    }


def _short_link(directory: Path) -> Path:
    """A short link to `directory`: the names of slurmd's Unix sockets have at most 107 characters."""
    while True:
        link = Path("/tmp") / f"trn-{secrets.token_hex(4)}"  # noqa: S108  random, and created only if it does not exist
        with contextlib.suppress(FileExistsError):
            link.symlink_to(directory)
            return link


def _version() -> tuple[int, int]:
    output = subprocess.run([command_path("slurmd"), "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", output)
    if found is None:
        raise SlurmFailed(f"`slurmd -V` printed {output.strip()!r}, which is not a version")
    return int(found[1]), int(found[2])

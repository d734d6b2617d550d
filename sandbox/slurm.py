"""A real Slurm on this machine, with the partitions and node names of a ParallelCluster cluster.

One slurmctld, one slurmd per virtual node and its own munged, all on 127.0.0.1, all state in one directory::

    with LocalSlurm.start(Path("state/slurm"), cluster_configuration) as slurm:
        slurm.run(["sbatch", "--nodes=16", "job.sh"])

From a shell: `python -m sandbox.slurm up DIRECTORY CONFIG.yaml`, `python -m sandbox.slurm down DIRECTORY [--wipe]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Self

from sandbox import head_node, metadata, paths, processes, slurm_accounting, slurm_packages, slurm_power, slurm_users
from sandbox.guard import release, watch
from sandbox.processes import Started
from sandbox.slurm_config import CREDENTIAL_SECONDS, MAX_NODES, BadClusterConfiguration, ClusterPlan
from sandbox.slurm_layout import SlurmFailed, command_path, lay_out, munge_options, slurmd_command, user_name
from sandbox.slurm_packages import SYSTEM_PATH, which
from sandbox.slurm_plan import plan

_STATE = "local-slurm.json"


def available() -> str | None:
    """Why a local Slurm cannot run on this machine, or None."""
    if (reason := slurm_packages.unavailable()) is not None:
        return reason
    if which("git") is None:
        return "git is not installed; the fake repositories need it"
    missing = [name for name in slurm_packages.COMMANDS if which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (`{paths.SLURM}` downloads Slurm into .cache, without root)"
    try:
        user_name()
    except KeyError:
        return f"the user id {os.getuid()} has no name in /etc/passwd, and Slurm needs one"
    return None


class LocalSlurm:
    """A running local Slurm. Created with `start` (new) or `open` (started earlier, by any process)."""

    def __init__(self, directory: Path, state: Mapping[str, Any]):
        self.directory = directory
        self._state = dict(state)
        self._children: list[subprocess.Popen[bytes]] = []

    @classmethod
    def start(
        cls,
        directory: Path,
        config: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        users: Mapping[str, int] | None = None,
        max_nodes: int = MAX_NODES,
        credential_seconds: int = CREDENTIAL_SECONDS,
        idle_seconds: int | None = None,
        timeout: float = 180.0,
    ) -> Self:
        """Start the Slurm of a cluster configuration and wait until every node that always runs is idle.

        A Slurm left over in `directory` is stopped first; its job history is removed, the users' files are kept.

        Args:
            directory: for everything: state, logs, the private home, the shared file systems.
            config: a ParallelCluster cluster configuration; numbers can be strings.
            environment: additional variables of the head node's shell (`AWS_ENDPOINT_URL`, ...).
            users: name -> uid of further accounts (`slurm_users`), which must be able to pass through `directory`.
            max_nodes: maximum of virtual nodes; `notices` reports when it applies.
            credential_seconds: see `CREDENTIAL_SECONDS`.
            idle_seconds: after which a node of AWS PCS without a job is stopped. Default: the cluster's setting, which is minutes.
            timeout: seconds to wait until all nodes are idle.

        Raises:
            SlurmFailed: Slurm is not installed, or did not start; the message has the end of its log.
            sandbox.slurm_config.BadClusterConfiguration: the configuration has no nodes.
        """
        if (reason := available()) is not None:
            raise SlurmFailed(f"a local Slurm cannot run here: {reason}")
        wanted = plan(config, max_nodes, idle_seconds)
        if wanted.accounting and (reason := slurm_accounting.unavailable()):
            raise SlurmFailed(f"Slurm's accounting cannot run here: {reason}")
        directory = directory.resolve()
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / _STATE).exists():
            cls.open(directory).stop()
        state = {**lay_out(directory, wanted, credential_seconds), "idle_seconds": idle_seconds}
        slurm = cls(directory, {**state, **slurm_users.prepare(directory, users or {})})
        watch("slurm", directory)
        try:
            slurm._launch(wanted, dict(environment or {}), timeout)
        except BaseException:
            slurm.stop()
            raise
        return slurm

    @classmethod
    def open(cls, directory: Path) -> Self:
        """The Slurm that was started in `directory`, by this or another process.

        Raises:
            SlurmFailed: none was started there, or it was stopped.
        """
        directory = directory.resolve()
        try:
            return cls(directory, json.loads((directory / _STATE).read_text()))
        except FileNotFoundError:
            raise SlurmFailed(
                f"no local Slurm is running in {directory}; start it with `python -m sandbox.slurm up {directory} CONFIG`"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the user: where this Slurm is smaller than the configuration."""
        left_out, made = self._state["left_out"], len(self.node_names)
        found = [f"this line of slurm.conf is not run here: {line}" for line in self._state["settings_not_run"]]
        if left_out:
            found.append(
                f"the cluster has {made + left_out} nodes; this machine runs {made} virtual ones "
                f"({left_out} left out). Jobs on more than {made} nodes are rejected here, but not on AWS."
            )
        return tuple(found)

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(self._state["names"])

    def node_env(self) -> dict[str, str]:
        """Variables of a shell of the cluster's user on the head node: SLURM_CONF, PATH, HOME, TRN_SHARED_ROOT, AWS_*, ..."""
        return dict(self._state["env"])

    def attach(self, cluster_dir: Path) -> Path:
        """Let the emulator's SSM run commands on this head node: writes `node.json` and returns its path."""
        cluster_dir.mkdir(parents=True, exist_ok=True)
        env, inside = self.node_env(), self._state["inside"]
        file = cluster_dir / "node.json"
        part = file.with_suffix(".part")
        part.write_text(json.dumps({"env": env, "cwd": env["HOME"], "inside": inside}, indent=2, sort_keys=True))
        part.replace(file)
        return file

    def run(
        self, command: Sequence[str], *, timeout: float = 300.0, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the head node, in its home directory; returns output as text, without a check of the exit code."""
        full = {**self.node_env(), **(env or {})}
        return subprocess.run(
            [*self._state["inside"], *command],
            env=full,
            cwd=full["HOME"],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    def node_states(self) -> dict[str, str]:
        """Slurm's state of each node, for example `idle`, `alloc`, `down*`."""
        rows = self.run(["sinfo", "-h", "-N", "-o", "%N %t"]).stdout.split("\n")
        return {row.split()[0]: row.split()[1] for row in rows if len(row.split()) == 2}

    def kill_node(self, name: str) -> None:
        """Kill a node as a hardware fault would: its slurmd and every process of its jobs at once.

        Raises:
            SlurmFailed: the node does not exist.
        """
        processes.kill_together([self._slurmd_of(name)], lambda: self._of_node(name))
        self._reap()

    def _of_node(self, name: str) -> list[Started]:
        """The processes of a node's jobs: daemons of steps, and all that they have started."""
        own = self._conf(name)  # the only reference of a step's daemon to its node
        every = processes.with_environment(self._is_ours)
        steps = {one for one, command, env in every if command == "slurmstepd" and env.get("SLURM_CONF") == own}
        theirs = {one for one, command, env in every if command != "slurmd" and env.get("SLURMD_NODENAME") == name}
        return [one for one in steps | theirs if one.alive]

    def end_node(self, name: str) -> None:
        """Shut a node down as its operating system would: first its slurmd, then SIGTERM to the processes of its jobs, whose end
        is still reported. `kill_node` ends the rest.

        Raises:
            SlurmFailed: the node does not exist, or its slurmd does not end.
        """
        daemon = self._slurmd_of(name)
        os.kill(daemon.pid, signal.SIGTERM)
        self._reap()
        if not processes.wait_until(lambda: not daemon.alive, 60):
            raise SlurmFailed(f"slurmd of {name} does not end")
        for process, command, env in processes.with_environment(self._is_ours):
            if env.get("SLURMD_NODENAME") == name and command not in ("slurmd", "slurmstepd"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGTERM)

    def replace_node(self, name: str) -> None:
        """Replace a dead node with a new machine of the same name, as ParallelCluster does.

        Raises:
            SlurmFailed: the node does not exist.
        """
        self._slurmd_of(name)  # raises if the node does not exist
        # for 12 s Slurm orders the dead one to end its jobs; a machine takes minutes, and does not get that order
        none = ["Agent", "count:", "0"]
        processes.wait_until(lambda: none in map(str.split, self.run(["sdiag"]).stdout.splitlines()), 60, 0.2)
        self._daemon(slurmd_command(name, self._conf(name)), name)
        self.run(["scontrol", "update", f"nodename={name}", "state=resume"])

    def kill_controller(self, *, save: bool = False) -> None:
        """Kill slurmctld with SIGKILL, as a crash would. It loses unsaved state; nodes and their jobs keep running.

        Args:
            save: stop it with SIGTERM instead, so that it saves its state.

        Raises:
            SlurmFailed: it does not end.
        """
        daemon = self._controller()
        if daemon.alive:
            os.kill(daemon.pid, signal.SIGTERM if save else signal.SIGKILL)
        for child in [c for c in self._children if c.pid == daemon.pid]:
            child.wait(60)
            self._children.remove(child)
        if not processes.wait_until(lambda: not daemon.alive, 60):
            raise SlurmFailed("slurmctld does not end")

    def start_controller(self, timeout: float = 180.0) -> None:
        """Start slurmctld with its saved state, and wait until it responds. Does nothing if it is running.

        Raises:
            SlurmFailed: it does not respond within `timeout` seconds.
        """
        if self._controller().alive:
            return
        self._daemon([command_path("slurmctld"), "-D", "-f", f"{self._state['link']}/etc/slurm.conf"], "slurmctld")
        if not processes.wait_until(lambda: self.run(["scontrol", "ping"]).returncode == 0, timeout):
            raise SlurmFailed(f"slurmctld does not respond within {timeout:.0f} s: {self._log_end('slurmctld')}")
        self.register_nodes()

    def register_nodes(self) -> None:
        """Make each node report its jobs to the controller now, as it does automatically every few minutes."""
        for node in self._slurmds().values():
            if node.alive:
                os.kill(node.pid, signal.SIGHUP)

    def renew(self) -> None:
        """Replace the cluster with a new one on the same file systems: new nodes, no jobs, job numbers from 1.

        Raises:
            SlurmFailed: it does not respond within 180 s.
        """
        self.kill_controller()
        nodes = [Started(*who) for who in self._state["nodes"].values()]
        processes.stop_all([*nodes, *self._job_processes()], patience=0.0)
        ended = {node.pid for node in nodes}
        processes.reap(child for child in self._children if child.pid in ended)
        self._children = [c for c in self._children if c.pid not in ended and c.poll() is None]
        shutil.rmtree(self.directory / "state")
        (self.directory / "state").mkdir()
        # The controller first: its reply to the registration would end a node that has just started.
        self.start_controller(180)
        for index, name in enumerate(self._state["order"]):
            shutil.rmtree(self.directory / "s" / str(index))
            (self.directory / "s" / str(index)).mkdir()
            self._daemon(slurmd_command(name, self._conf(name)), name)
        self._wait_until_idle(180)

    def update(self, config: Mapping[str, Any], max_nodes: int = MAX_NODES, timeout: float = 180.0) -> None:
        """Follow a change of a cluster of AWS PCS, while its jobs continue: nodes are added and removed; running ones whose image, launch
        template or start script changed are replaced after their job.

        Raises:
            SlurmFailed: the controller does not respond within `timeout` seconds.
        """
        wanted = plan(config, max_nodes, self._state["idle_seconds"])
        before = self._state["launches"]
        self.kill_controller(save=True)
        self._state = lay_out(self.directory, wanted, self._state["credential_seconds"], self._state)
        self._save()
        names = set(self.node_names)
        for name in [name for name in self._slurmds() if name not in names]:
            processes.stop_all([self._slurmd_of(name)])
            self._state["nodes"].pop(name, None)
        self.start_controller(timeout)
        for node in wanted.always_on:
            if node.name not in self._slurmds():
                self._daemon(slurmd_command(node.name, self._conf(node.name)), node.name)
        self.run(["scontrol", "reconfigure"])
        for name in slurm_power.running(self.directory):
            if name in names and before.get(name) != self._state["launches"][name]:
                self.run(["scontrol", "update", f"nodename={name}", "state=POWER_DOWN_ASAP"])
        self._save()

    def stop(self, wipe: bool = False) -> None:
        """Stop all processes of this Slurm, including job steps, and remove its job history. Safe to call twice.

        Args:
            wipe: also remove the directory with home, shared file systems and logs.
        """
        if (self.directory / _STATE).exists():
            daemons = {name: Started(*who) for name, who in self._state["daemons"].items()}
            # The controller first, so that no other job starts when one ends; then jobs, then nodes.
            processes.stop_all(daemon for name, daemon in daemons.items() if name == "slurmctld")
            processes.stop_all(self._power_programs())
            processes.stop_all(self._job_processes(), patience=1.0)
            processes.stop_all([*daemons.values(), *self._slurmds().values()])
            processes.stop_all(self._job_processes(), patience=0.5)
            processes.reap(self._children)
            Path(self._state["link"]).unlink(missing_ok=True)
            for name in ("state", "s", "run", "etc", "munge", "ports", "power", "database"):
                shutil.rmtree(self.directory / name, ignore_errors=True)
            (self.directory / _STATE).unlink()
        if wipe:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _power_programs(self) -> list[Started]:
        found = processes.with_environment(self._is_ours)
        return [process for process, _, env in found if env.get("TRN_SANDBOX_NODE") == slurm_power.PROGRAM]

    def _job_processes(self) -> list[Started]:
        """Steps, tasks and their children. A user's shell that merely has our environment is not included."""
        return [
            process
            for process, command, env in processes.with_environment(self._is_ours)
            if command == "slurmstepd" or "SLURM_JOB_ID" in env
        ]

    def _is_ours(self, env: Mapping[str, str]) -> bool:
        """A job with `--export=NONE` still has Slurm's own variables."""
        here = env.get("TRN_SANDBOX") == str(self.directory)
        return here or env.get("SLURM_CONF", "").startswith(f"{self._state['link']}/")

    def _slurmd_of(self, name: str) -> Started:
        found = self._slurmds()
        if name not in found:
            raise SlurmFailed(f"no node {name!r} is running; there are {', '.join(found)}")
        return found[name]

    def _slurmds(self) -> dict[str, Started]:
        """The nodes that run, by name."""
        static = {name: Started(*who) for name, who in self._state["nodes"].items()}
        return {**static, **slurm_power.running(self.directory)}

    def _conf(self, name: str) -> str:
        return f"{self._state['link']}/etc/{self._state['order'].index(name)}.conf"

    def _controller(self) -> Started:
        return Started(*self._state["daemons"]["slurmctld"])

    def _reap(self) -> None:
        for child in self._children:
            child.poll()

    def _launch(self, wanted: ClusterPlan, environment: dict[str, str], timeout: float) -> None:
        root = Path(self._state["link"])
        if wanted.idle_seconds:
            slurm_power.write(self.directory, str(root), environment)
        self._daemon([command_path("munged"), "-F", "--force", *munge_options(root)], "munged")
        socket_file = root / "munge" / "sock"
        if not processes.wait_until(socket_file.is_socket, timeout):
            raise SlurmFailed(f"munged did not start within {timeout:.0f} s: {self._log_end('munged')}")
        if wanted.accounting:
            self._launch_accounting(root, timeout)
        self._daemon([command_path("slurmctld"), "-D", "-f", f"{root}/etc/slurm.conf"], "slurmctld")
        for node in wanted.always_on:
            self._daemon(slurmd_command(node.name, self._conf(node.name)), node.name)
        if keys := metadata.keys(environment):
            port = processes.free_ports(1)[0]
            secured = ["--secured"] if wanted.secured else []
            self._daemon([sys.executable, "-I", metadata.__file__, str(port), *secured], "metadata", keys)
            role = slurm_users.start_role_of_jobs(self._state["users"], self.directory, environment, self._daemon)
            environment = {**metadata.on_nodes(environment, port), **role}
        self._state["env"] = head_node.prepare(self.directory, root, wanted, environment)
        slurm_users.homes(self.directory, self._state["env"], self._state["users"])
        head_node.write_environment(self.directory, self._state["env"])
        self._save()
        self._wait_until_idle(timeout)

    def _launch_accounting(self, root: Path, timeout: float) -> None:
        """The database, slurmdbd, and the cluster's name in it, which the controller needs to record anything."""
        database = self._state["ports"]["mariadbd"]
        self._daemon(slurm_accounting.mariadbd(self.directory, root, user_name(), database), "mariadbd")
        socket_file = root / "run" / "mariadb"
        if not processes.wait_until(socket_file.is_socket, timeout):
            raise SlurmFailed(f"MariaDB did not start within {timeout:.0f} s: {self._log_end('mariadbd')}")
        conf = {"SLURM_CONF": f"{root}/etc/slurm.conf"}
        self._daemon([command_path("slurmdbd"), "-D"], "slurmdbd", conf)
        manager = [command_path("sacctmgr"), "-i", "add", "cluster", "parallelcluster"]
        why = ""

        def added() -> bool:
            nonlocal why
            done = subprocess.run(manager, env=conf, capture_output=True, text=True, check=False)
            why = f"{done.stderr.strip()} ({slurm_accounting.DEBIAN_13})"
            return done.returncode == 0

        if not processes.wait_until(added, timeout, pause=0.1):
            raise SlurmFailed(f"slurmdbd did not start within {timeout:.0f} s: {why} | {self._log_end('slurmdbd')}")

    def _wait_until_idle(self, timeout: float) -> None:
        names = set(self._state["nodes"])
        up = processes.wait_until(
            lambda: self._idle() >= names and (bool(names) or bool(self.node_states())), timeout, pause=0.05
        )
        if not up:
            raise SlurmFailed(
                f"{len(names - self._idle())} of {len(names)} virtual nodes did not start within {timeout:.0f} s: "
                f"{self._log_end('slurmctld')}"
            )

    def _idle(self) -> set[str]:
        dead = next((c for c in self._children if c.poll() is not None), None)
        if dead is not None:
            name = Path(str(dead.args[0])).name  # type: ignore[index]
            log = dead.args[3] if name == "slurmd" else name  # type: ignore[index]
            raise SlurmFailed(f"{name} ended immediately (exit code {dead.returncode}): {self._log_end(str(log))}")
        return {name for name, state in self.node_states().items() if state == "idle"}

    def _daemon(self, command: list[str], name: str, more: Mapping[str, str] | None = None) -> None:
        env = {
            **(more or {}),
            "PATH": SYSTEM_PATH,
            "TRN_SANDBOX": str(self.directory),
            "TRN_SANDBOX_NODE": name,
            "LC_ALL": "C.UTF-8",
        }
        child = processes.start([*self._state["inside"], *command], self.directory / "log" / f"{name}.out", env)
        child.args = command
        self._children.append(child)
        kind = "daemons" if name in {"munged", "mariadbd", "slurmdbd", "slurmctld", "metadata", "role"} else "nodes"
        self._state[kind][name] = astuple(processes.identity(child))
        self._save()

    def _log_end(self, name: str) -> str:
        lines: list[str] = []
        for file in (self.directory / "log" / f"{name}.log", self.directory / "log" / f"{name}.out"):
            if file.exists():
                lines += [line for line in file.read_text(errors="replace").splitlines() if line.strip()][-4:]
        return " | ".join(lines) or f"{self.directory / 'log'} is empty"

    def _save(self) -> None:
        part = self.directory / (_STATE + ".part")
        part.touch(mode=0o600)
        part.write_text(json.dumps(self._state, indent=1))
        part.replace(self.directory / _STATE)


def main(arguments: Sequence[str] | None = None) -> int:
    """`up DIRECTORY CONFIG` and `down DIRECTORY [--wipe]`."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.slurm", description="A real Slurm on this machine.")
    commands = parser.add_subparsers(dest="verb", required=True)
    up = commands.add_parser("up", help="start it, and print the environment of its head node")
    up.add_argument("directory", type=Path)
    up.add_argument("config", type=Path, help="ParallelCluster cluster configuration, YAML")
    up.add_argument("--max-nodes", type=int, default=MAX_NODES)
    down = commands.add_parser("down", help="stop it, job steps included")
    down.add_argument("directory", type=Path)
    down.add_argument("--wipe", action="store_true", help="also remove its directory")
    args = parser.parse_args(arguments)
    try:
        if args.verb == "down":
            LocalSlurm.open(args.directory).stop(wipe=args.wipe)
            return 0
        from ruamel.yaml import YAML

        config = YAML(typ="safe", pure=True).load(args.config)
        slurm = LocalSlurm.start(args.directory, config, max_nodes=args.max_nodes)
        release("slurm", slurm.directory)
    except (SlurmFailed, BadClusterConfiguration, OSError) as problem:
        print(f"sandbox.slurm: {problem}", file=sys.stderr)
        return 1
    for notice in slurm.notices:
        print(f"# {notice}", file=sys.stderr)
    for name in ("SLURM_CONF", "PATH", "HOME", "TRN_SHARED_ROOT"):
        print(f"export {name}={head_node.quoted(slurm.node_env()[name])}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

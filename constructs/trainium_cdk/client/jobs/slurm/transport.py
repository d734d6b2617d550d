"""Running a script as the jobs' user on the head node: through SSM Run Command, or directly where this is the head
node."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from trainium_cdk.errors import TransportError

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import SlurmCluster

UNDO_SECONDS = 20.0
"""Seconds for a script on this machine to undo what it has begun, after SIGTERM."""
NOT_THEIRS = 77
"""Exit code if there is no such user."""
CFNCONFIG = Path("/etc/parallelcluster/cfnconfig")


class Result(NamedTuple):
    """A script's output and exit code."""

    stdout: str
    stderr: str
    code: int


class Transport(Protocol):
    """A way to the head node."""

    interval: float
    """Seconds between two requests while a job is followed."""

    @property
    def instance(self) -> str:
        """EC2 instance id of the head node, or of a login node; empty if it is this machine.

        Raises:
            TransportError: no login node runs.
        """
        ...

    def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:
        """Run a bash script as the jobs' user, with the variables of the node's login shells, and without that user's own start-up files.

        Args:
            timeout: seconds.
            private: only sender and head node may read the script, now or later.

        Raises:
            TransportError: it could not be started, or did not end within `timeout` seconds. It may have run.
        """
        ...

    def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
        """Ask the runner of this version, as the jobs' user. Its answer is the output.

        Args:
            request: JSON (`runner.requests`).
            timeout: seconds.
            private: as of `run`.

        Raises:
            TransportError: as of `run`; or the runner cannot be placed there.
        """
        ...


class LocalTransport:
    """This machine is the head node."""

    instance = ""

    def __init__(self, env: dict[str, str] | None = None, interval: float = 1.0):
        self._env, self.interval = env, interval

    def run(self, script: str, timeout: float = 120, private: bool = False) -> Result:  # noqa: ARG002  always private
        return self._start(("bash",), script.encode(), (), b"", timeout)

    def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:  # noqa: ARG002  always private
        """The runner is this process's: a job gets a copy of it in its user's folder (`runner.layout`)."""
        from trainium_cdk.client.jobs.pyz import pyz
        from trainium_cdk.client.jobs.slurm.commands import PYTHON

        return self._start((PYTHON, "-I"), pyz().content, ("ask",), request.encode(), timeout)

    def _start(
        self, interpreter: tuple[str, ...], program: bytes, words: tuple[str, ...], given: bytes, timeout: float
    ) -> Result:
        home = (self._env or os.environ).get("HOME") or None
        # without a name: it is deleted however this process ends
        with tempfile.TemporaryFile() as file:
            file.write(program)
            file.flush()
            try:
                process = subprocess.Popen(
                    # of this process: those that it starts find it there, too
                    [*interpreter, f"/proc/{os.getpid()}/fd/{file.fileno()}", *words],
                    env=self._env,
                    cwd=home,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as e:
                if home and e.filename == home:
                    raise TransportError(
                        f"HOME is {home}: {e.strerror}. Set it to a folder that exists", again=False
                    ) from None
                raise TransportError(
                    f"cannot run {interpreter[0]} on this machine: {e.strerror}", again=False
                ) from None
            with process:
                try:
                    out, err = process.communicate(given, timeout=timeout)
                except BaseException as e:
                    _end(process)
                    if not isinstance(e, subprocess.TimeoutExpired):
                        raise
                    raise TransportError(
                        f"a command on this head node did not end within {timeout:.0f} s. Is Slurm's controller up "
                        "(`sinfo`)?"
                    ) from None
        return Result(out.decode(errors="replace"), err.decode(errors="replace"), process.returncode)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a script undo what it has begun; then kill it and its children, which may hold the pipes."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=UNDO_SECONDS)
    except (subprocess.TimeoutExpired, ProcessLookupError):
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def is_head_node(cluster: SlurmCluster, cfnconfig: Path = CFNCONFIG) -> bool:
    """Return whether this machine is the cluster's head node or one of its login nodes, by ParallelCluster's record. Login nodes have the same users,
    file systems and commands of Slurm."""
    try:
        lines = cfnconfig.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    values = {k.strip(): v.strip().strip("'\"") for k, eq, v in (line.partition("=") for line in lines) if eq}
    return values.get("cfn_node_type") in ("HeadNode", "LoginNode") and cluster.cluster_name in (
        values.get("stack_name"),
        values.get("cfn_cluster_name"),
    )

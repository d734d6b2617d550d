"""The way to the head node: what a transport is, this machine as one (`ssm.py` has Run Command), and the text of commands there.

A job can write its user's own files, so a command that is started for another purpose reads none of them: no login shell, no profile, no
start-up file, and no variable of the caller.

Each version of the runner is a file of root's, named by its SHA-256, in a folder of root's, on the shared file system: jobs begin with it and
keep it. Root trusts no place that others can write, and follows no link.
"""

from __future__ import annotations

import base64
import contextlib
import os
import secrets
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from trainium_cdk.client.jobs import quote
from trainium_cdk.client.jobs.runner import Pyz, pyz
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import TransportError
from trainium_cdk.runner.layout import PLACE

UNDO_SECONDS = 20.0
"""Seconds for a script on this machine to undo what it has begun, after SIGTERM."""
INTERVAL = 4.0
"""Seconds between two requests through Systems Manager, while a job is followed."""
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


def of_caller(cluster: SlurmCluster) -> SlurmCluster:
    """The cluster as the user who runs this process sees it, on a machine of the cluster with several users. Administrators there, and Session
    Manager's own user, have no jobs."""
    import getpass

    name = getpass.getuser()
    is_person = os.getuid() >= 1000 and name not in ("ssm-user", cluster.image_user)
    return cluster.of_user(name) if cluster.users and not cluster.for_person and is_person else cluster


ENVIRONMENT = "/etc/trn-environment"
"""What a login shell has on that node without a user's own files: NAME=VALUE, each with a NUL byte at its end. Written by root (the step
`environment` of the node's bootstrap)."""
PATH = "/opt/slurm/bin:/opt/aws/neuron/bin:/opt/amazon/efa/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""On a node without that file: Slurm's commands as ParallelCluster has them, Neuron's and EFA's."""
PYTHON = "/usr/bin/python3"
"""The operating system's Python: 3.9 on Amazon Linux 2023, newer on Ubuntu. No variable and no file of a user changes what it imports."""
NOT_PLACED = 78
"""Exit code of a request if this version of the runner is not there."""
PIECE = 22_000
"""Bytes of a piece that has room in a Run Command itself."""

_START = r"""given=(PATH={path}) file=${{TRN_NODE_ENVIRONMENT:-{environment}}}
if [ -r "$file" ]; then mapfile -d "" -t given < "$file"; fi
home=$(getent passwd "$1" | cut -d: -f6)
exec {become} -u "$1" -- env -i "${{given[@]}}" ${{TERM:+TERM="$TERM"}} ${{home:+HOME="$home"}} USER="$1" LOGNAME="$1" \
  SHELL=/bin/bash /bin/bash --noprofile --norc -c "cd 2> /dev/null || cd /; $2"
"""
_IS_PLACED = """r={path}
if [ "$(find "${{r%/*}}" "$r" -maxdepth 0 -uid "$(id -u)" ! -perm /022 ! -type l 2> /dev/null | wc -l)" != 2 ]; then
  : > "$d/out"
  echo "the runner is not placed yet" > "$d/err"
  code={code}
else
"""
_PLACE = r"""set -euo pipefail
umask 022
root=${{TRN_SHARED_ROOT:-}} at={shared}
refuse() {{ printf '%s\n' "$*" >&2; exit 1; }}
if [ ! -d "$root$at" ]; then refuse "there is no $at: the head node's bootstrap has not finished, or failed"; fi
place=$root$at/{folder}
# whoever could rename one of these could put another program in its place; where the sticky bit is set, only an owner can
while [ -n "$at" ]; do
  if [ -z "$(find "$root$at" -maxdepth 0 -type d -uid "$(id -u)" \( ! -perm /022 -o -perm -1000 \))" ]; then
    refuse "$at is not root's, or others can rename what is in it. An administrator can mend it: chown root $at; chmod +t $at"
  fi
  at=${{at%/*}}
done
mkdir "$place" 2> /dev/null || true
if [ -z "$(find "$place" -maxdepth 0 -type d -uid "$(id -u)" ! -perm /022)" ]; then
  refuse "$place is not a folder of root's alone. An administrator can remove it"
fi
find "$place" -maxdepth 1 -type f -name '.*' -mmin +60 -delete # of one that was interrupted
part=$place/.{token}
base64 -d {into} "$part" << 'EOF'
{piece}
EOF
"""
_LAST = r"""printf '%s  %s\n' {name} "$part" | sha256sum --check --status || {{ rm -f "$part"; refuse "the runner has arrived damaged. Try again"; }}
chmod 644 "$part"
mv -T "$part" "$place/{name}.pyz"
"""


def as_user(user: str, command: str, become: Literal["runuser", "sudo"]) -> str:
    """A line of sh that runs a command as a user, in its home.

    Args:
        command: for bash.
        become: the program by which the caller becomes that user: root's, or the program of an account that may use sudo.
    """
    start = _START.format(path=PATH, environment=ENVIRONMENT, become=become)
    return f"bash --noprofile --norc -c {quote.word(start)} trn {quote.words((user, command))}"


def shell(user: str) -> str:
    """A line of sh that opens a shell for a person at a terminal."""
    return as_user(user, "exec bash --noprofile --norc -i", "sudo")


def runner_path(cluster: SlurmCluster, pyz: Pyz) -> str:
    """A word for the file of a version."""
    return quote.shared(f"{cluster.shared_dir}/{PLACE}/{pyz.name}.pyz")


def is_placed(cluster: SlurmCluster, pyz: Pyz) -> str:
    """The first half of an `if` in the text of a Run Command: what follows, up to `fi`, runs if this version is there."""
    return _IS_PLACED.format(path=runner_path(cluster, pyz), code=NOT_PLACED)


def start_runner(cluster: SlurmCluster, pyz: Pyz) -> str:
    """The command that answers the request on its standard input."""
    return f"exec {PYTHON} -I {runner_path(cluster, pyz)} ask"


def place_runner(cluster: SlurmCluster, pyz: Pyz, size: int | None = None) -> Iterator[str]:
    """Scripts for root that put this version there, one after another.

    Args:
        size: bytes of each piece. Default: all in one.
    """
    shared, token = quote.word(cluster.shared_dir.rstrip("/")), secrets.token_hex(8)
    size = size or len(pyz.content)
    for at in range(0, len(pyz.content), size):
        piece = base64.encodebytes(pyz.content[at : at + size]).decode().rstrip("\n")
        text = _PLACE.format(shared=shared, folder=PLACE, token=token, into=">>" if at else ">", piece=piece)
        yield text + (_LAST.format(name=pyz.name) if at + size >= len(pyz.content) else "")

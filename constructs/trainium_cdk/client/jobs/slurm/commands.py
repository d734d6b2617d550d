"""The text of commands on a node: as which user they run, and how root places and starts the runner. Pure.

A job can write its user's own files, so a command that is started for another purpose reads none of them: no login shell, no profile, no
start-up file, and no variable of the caller.

Each version of the runner is a file of root's, named by its SHA-256, in a folder of root's, on the shared file system: jobs begin with it and
keep it. Root trusts no place that others can write, and follows no link.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from typing import Literal

from trainium_cdk.client.jobs import quote
from trainium_cdk.client.jobs.pyz import Pyz
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.runner.layout import PLACE

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


def path(cluster: SlurmCluster, pyz: Pyz) -> str:
    """A word for the file of a version."""
    return quote.shared(f"{cluster.shared_dir}/{PLACE}/{pyz.name}.pyz")


def is_placed(cluster: SlurmCluster, pyz: Pyz) -> str:
    """The first half of an `if` in the text of a Run Command: what follows, up to `fi`, runs if this version is there."""
    return _IS_PLACED.format(path=path(cluster, pyz), code=NOT_PLACED)


def start(cluster: SlurmCluster, pyz: Pyz) -> str:
    """The command that answers the request on its standard input."""
    return f"exec {PYTHON} -I {path(cluster, pyz)} ask"


def place(cluster: SlurmCluster, pyz: Pyz, size: int | None = None) -> Iterator[str]:
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

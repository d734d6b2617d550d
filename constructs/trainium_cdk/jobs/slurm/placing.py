"""The runner on a Slurm cluster: where root puts it, once for each version, and how it is started.

Each version is a file of root's, named by its SHA-256, in a folder of root's, on the shared file system: jobs begin with it and keep it. Root
trusts no place that others can write, and follows no link.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator

from trainium_cdk.jobs import quote
from trainium_cdk.jobs.pyz import Pyz
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner.layout import PLACE

PYTHON = "/usr/bin/python3"
"""Of the operating system: 3.9 on Amazon Linux 2023, newer on Ubuntu. No variable and no file of a user changes what it imports."""
NOT_PLACED = 78
"""Exit code of a request if this version of the runner is not there."""

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
PIECE = 22_000
"""Bytes of a piece that has room in a Run Command itself."""


def path(cluster: SlurmCluster, pyz: Pyz) -> str:
    """A word for the file of a version."""
    return quote.shared(f"{cluster.shared_dir}/{PLACE}/{pyz.name}.pyz")


def is_placed(cluster: SlurmCluster, pyz: Pyz) -> str:
    """The beginning of a condition in the text of a Run Command, which `fi` ends: what follows runs if this version is there."""
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

"""The runner on a Slurm cluster: where root puts it, once for each version, and how it is started. Pure.

Each version is a file of root's, named by its SHA-256, in a folder of root's, on the shared file system: jobs begin with it and keep it. Root
trusts no place that others can write, and follows no link.
"""

from __future__ import annotations

import base64

from trainium_cdk.jobs import quote
from trainium_cdk.jobs.pyz import Pyz
from trainium_cdk.outputs import SlurmCluster
from trainium_cdk.runner.program import PLACE

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
part=$(mktemp "$place/.XXXXXXXX")
trap 'rm -f "$part"' EXIT
base64 -d > "$part" << 'EOF'
{content}
EOF
printf '%s  %s\n' {name} "$part" | sha256sum --check --status || refuse "the runner has arrived damaged. Try again"
chmod 644 "$part"
mv -T "$part" "$place/{name}.pyz"
"""


def path(cluster: SlurmCluster, pyz: Pyz) -> str:
    """A word for the file of a version."""
    return quote.shared(f"{cluster.shared_dir}/{PLACE}/{pyz.name}.pyz")


def is_placed(cluster: SlurmCluster, pyz: Pyz) -> str:
    """The beginning of a condition in the text of a Run Command, which `fi` ends: what follows runs if this version is there."""
    return _IS_PLACED.format(path=path(cluster, pyz), code=NOT_PLACED)


def start(cluster: SlurmCluster, pyz: Pyz) -> str:
    """The command that answers the request on its standard input."""
    return f"exec {PYTHON} -I {path(cluster, pyz)} ask"


def place(cluster: SlurmCluster, pyz: Pyz) -> str:
    """A script for root that puts this version there."""
    content = base64.encodebytes(pyz.content).decode().rstrip("\n")
    shared = quote.word(cluster.shared_dir.rstrip("/"))
    return _PLACE.format(shared=shared, folder=PLACE, content=content, name=pyz.name)

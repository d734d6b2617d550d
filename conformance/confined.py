"""A command as in a job's container: as the pods' user, without privileges, with a root that is read-only, and an instance metadata service
that connects and never answers, as it is to a container where the hop limit is 1. Needs root, and changes nothing outside its own
mount and network namespaces; no other machine can be reached there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from trainium_cdk.description.outputs.eks import JOB_USER

_SILENT = """import os, socket, subprocess, sys
for words in (["link", "set", "lo", "up"], ["address", "add", "169.254.169.254/32", "dev", "lo"]):
    subprocess.run(["ip", *words], check=True)
service = socket.create_server(("169.254.169.254", 80))
os.dup2(service.fileno(), 200)  # it listens until the last process ends, and accepts nothing
os.environ.pop("LC_CTYPE", None)  # Python's own
os.execvp(sys.argv[1], sys.argv[1:])
"""
_CONFINE = f"""readable=() writable=()
while [ "$1" != -- ]; do readable+=("$1"); shift; done
shift
while [ "$1" != -- ]; do writable+=("$1"); shift; done
shift
mount -t tmpfs none /mnt
for i in "${{!readable[@]}}"; do mkdir "/mnt/$i"; mount --bind "${{readable[i]}}" "/mnt/$i"; done
for i in "${{!readable[@]}}"; do # the folders above it may be closed to others
  above=/
  IFS=/ read -r -a names <<< "${{readable[i]#/}}"
  for name in "${{names[@]}}"; do
    above=$above$name
    if [ ! -e "$above" ]; then break; fi
    if [ -z "$(find "$above" -maxdepth 0 -perm -o=rx)" ]; then mount -t tmpfs -o mode=755 none "$above"; break; fi
    above=$above/
  done
  mkdir -p "${{readable[i]}}"
  mount --bind "/mnt/$i" "${{readable[i]}}"
done
for place in "${{writable[@]}}"; do mount --bind "$place" "$place"; done
for place in / "${{readable[@]}}"; do mount -o remount,bind,ro "$place"; done
cd "$PWD"
exec setpriv --reuid {JOB_USER} --regid {JOB_USER} --clear-groups --inh-caps=-all --bounding-set=-all --no-new-privs "$@\""""


def confined(
    command: Sequence[str], *, volumes: Iterable[Path], shared: Path, readable: Iterable[Path] = ()
) -> list[str]:
    """The command with what confines it.

    Args:
        volumes: folders that are the pod's own; given to its user.
        shared: the folder `trn` of the shared file system, to which the pods' init container lets every user add.
        readable: what can be read although only root may enter a folder above it.
    """
    own = [*volumes]
    for folder in own:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["chown", "-R", f"{JOB_USER}:{JOB_USER}", folder], check=True)
    shared.mkdir(parents=True, exist_ok=True)
    shared.chmod(0o1777)
    places = [*map(str, readable), "--", *map(str, (*own, shared)), "--"]
    silent = ["unshare", "--mount", "--net", sys.executable, "-c", _SILENT]
    return [*silent, "bash", "-ec", _CONFINE, "confine", *places, *command]

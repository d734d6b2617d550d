"""How a cluster of the local AWS gets a Slurm or a Kubernetes API: the emulator sends a request, a supervisor responds.

Where a supervisor is running (`python -m sandbox up --slurm --kubernetes` starts them), the creation of a ParallelCluster or EKS
cluster waits until it has a Slurm or a Kubernetes API. Otherwise nothing waits. Everything is files in the sandbox's folder::

    attach/slurm.json            the supervisor's process
    attach/slurm/NAME.json       request: {"id", "region"}
    attach/slurm/NAME.done.json  response: {"id", "error"}; empty if successful

The emulator's Python imports this module, so it uses the standard library only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from sandbox import processes

Kind = Literal["slurm", "kubernetes"]
KINDS: tuple[Kind, ...] = ("slurm", "kubernetes")
NODE_TAG = "Name-in-Slurm"
"""A tag of the sandbox's own: which of Slurm's nodes an instance is."""
_SECONDS = 600.0  # only a hang takes this long


class AttachFailed(RuntimeError):
    """Nothing could be attached to the cluster; the message has the reason."""


def folder(sandbox: Path, kind: Kind) -> Path:
    """The folder with requests and responses of a kind."""
    return sandbox / "attach" / kind


def supervisor(sandbox: Path, kind: Kind) -> processes.Started | None:
    """The running supervisor of a sandbox, or None."""
    found = read(sandbox / "attach" / f"{kind}.json")
    process = processes.Started(found["pid"], found["began"]) if found else None
    return process if process and process.alive else None


def request(sandbox: Path, kind: Kind, name: str, region: str) -> str:
    """Request a Slurm or Kubernetes for cluster `name`; returns the request's id, empty if no supervisor is running."""
    if supervisor(sandbox, kind) is None:
        return ""
    id = uuid.uuid4().hex
    write(folder(sandbox, kind) / f"{name}.json", {"id": id, "region": region})
    return id


def wait(sandbox: Path, kind: Kind, name: str, id: str) -> None:
    """Wait for the response to a request; returns immediately for an empty id.

    Raises:
        AttachFailed: it could not be started, or the supervisor ended.
    """
    if not id:
        return
    answer = folder(sandbox, kind) / f"{name}.done.json"

    def answered() -> bool:
        found = read(answer)
        return bool(found and found["id"] == id) or supervisor(sandbox, kind) is None

    if not processes.wait_until(answered, _SECONDS, pause=0.1):
        raise AttachFailed(f"no {kind} was attached to cluster {name} within {_SECONDS:.0f} s")
    found = read(answer)
    if not found or found["id"] != id:
        raise AttachFailed(f"the sandbox's supervisor for {kind} ended; see {sandbox / 'attach' / f'{kind}.log'}")
    if found["error"]:
        raise AttachFailed(f"no {kind} can be attached to cluster {name}: {found['error']}")


def withdraw(sandbox: Path, kind: Kind, name: str) -> None:
    """Report the deletion of a cluster: its Slurm or Kubernetes is stopped."""
    (folder(sandbox, kind) / f"{name}.json").unlink(missing_ok=True)


def requests(sandbox: Path, kind: Kind) -> dict[str, dict[str, Any]]:
    """Cluster name -> its request."""
    files = [file for file in folder(sandbox, kind).glob("*.json") if not file.name.endswith(".done.json")]
    found = {file.name.removesuffix(".json"): read(file) for file in files}
    return {name: content for name, content in found.items() if content}


def respond(sandbox: Path, kind: Kind, name: str, id: str, error: str = "") -> None:
    """Answer a request."""
    write(folder(sandbox, kind) / f"{name}.done.json", {"id": id, "error": error})


def read(file: Path) -> dict[str, Any]:
    """A JSON file; empty if it does not exist."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except FileNotFoundError:
        return {}
    return found


def write(file: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part")
    part.write_text(json.dumps(content) + "\n")
    part.replace(file)

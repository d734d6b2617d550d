"""Short-lived pods on the system nodes: they read the log of a deleted pod, answer a request, or serve TensorBoard."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from trainium_cdk.client.jobs.backend import until
from trainium_cdk.client.jobs.forward import Tunnel, serves
from trainium_cdk.client.jobs.kubernetes import parts, status
from trainium_cdk.client.jobs.kubernetes.api import Api
from trainium_cdk.client.jobs.kubernetes.inside import Forward
from trainium_cdk.client.jobs.kubernetes.look import JobSource
from trainium_cdk.client.jobs.kubernetes.parts import FOLDER, labels
from trainium_cdk.client.jobs.runner import MOST, MOST_PACKED, Document, document, pyz
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.errors import ApiError, TransportError
from trainium_cdk.runner.requests import BOARD_HOURS, Cluster, write_request
from trainium_cdk.runner.spec import SpecError, unpack

Object = dict[str, Any]

FILES = "/trn/files"
_LONGEST_LOG = 1 << 30
START_SECONDS = 600.0
"""Seconds that pulling an image may take."""
BOARD_PORT = 6006
_READY_SECONDS = 120.0
RUNNER = ("python3", "-I", f"{FILES}/runner.pyz")
_PRINT = """\
import os, shutil, sys
file = os.environ.get("TRN_SHARED_ROOT", "") + sys.argv[1]
if os.path.exists(file):
    with open(file, "rb") as log:
        shutil.copyfileobj(log, sys.stdout.buffer)
"""
"""Prints a file, if it exists. Small, and in a small image: the jobs' own may have to be pulled."""
NEVER_STARTS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError")
"""Reasons of Kubernetes' for a container that waits."""


def pod(
    cluster: EksCluster,
    name: str,
    kind: str,
    image: str,
    command: Sequence[str],
    *,
    seconds: int,
    port: int | None = None,
    files: Mapping[str, bytes] | None = None,
    folders: Sequence[str] = (),
) -> Object:
    """A pod with the shared file systems, on a system node.

    Args:
        seconds: after which Kubernetes ends it, even if this process is killed.
        files: of the Secret of its name, below `FILES`.
        folders: are made before (`runner.work.container`), where there is a runner among the files.
    """
    volumes = parts.Volumes(cluster)
    if files:
        volumes.add("files", {"secret": {"secretName": name, "defaultMode": 0o444}}, FILES)
    from trainium_cdk.description.catalog.pods import pods as known  # slow to load, for those who only look

    size = known().helpers.tensorboard if kind == "tensorboard" else known().helpers.reader
    main = parts.container(
        "main", image, command, resources=parts.Resources.of(size, cluster.prepare_memory_gib), mounts=volumes.mounts
    )
    if port:
        main["ports"] = [{"containerPort": port}]
    words = [*RUNNER, "folder", *map(literal, folders)]
    mounts = [*volumes.shared, *volumes.mounts[-1:]]
    makes = parts.container(FOLDER, image, words, resources=parts.LEAST, mounts=mounts)
    first = [parts.maker(cluster, makes, folders)] if folders else []
    spec = parts.spec(
        cluster, containers=[main], init_containers=first, volumes=volumes, grace_seconds=5, where=parts.ON_SYSTEM
    )
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": labels(name, kind)},
        "spec": {**spec, "activeDeadlineSeconds": seconds},
    }


def small_image(cluster: EksCluster) -> str:
    """An image with Python that is pulled in seconds: a training image has many gigabytes, and a cluster may have none of its own."""
    return cluster.shell_image or Catalog.load().eks.shell_image


def kept_log(api: Api, cluster: EksCluster, id: str, stage: str, node: int) -> bytes:
    """A log on the shared file system; empty if it does not exist.

    Raises:
        TransportError: the pod that reads it did not start, or failed.
    """
    file = f"{cluster.shared_dir}/trn/jobs/{id}/logs/{stage}.{node}.log"
    command = ["python3", "-I", "-c", _PRINT, file]
    made = pod(cluster, _name(), "read", small_image(cluster), command, seconds=1200)
    return _run(api, made, _LONGEST_LOG, f"the log has more than {_LONGEST_LOG >> 30} GiB. Copy it with trn cp")


def ask(api: Api, cluster: EksCluster, given: Any, *, image: str, folder: str = "", seconds: int) -> Document:
    """The document with which the runner answers a request, in such a pod. The request is in a Secret: it may hold secrets, and neither a
    pod's description nor an audit log has them.

    Args:
        folder: is created before, where it does not exist.
        seconds: from its start, after which it is ended.

    Raises:
        TransportError: as of `run`.
    """
    seen = Cluster(cluster.shared_dir, cluster.folder, "", cluster.cluster_name, cluster.stack, cluster.region)
    request = gzip.compress(json.dumps(write_request(seen, given)).encode())
    name, files = _name(), {"runner.pyz": pyz().content, "request": request}
    command, length = [*RUNNER, "ask", f"{FILES}/request"], seconds + int(START_SECONDS)
    folders = [f"{cluster.shared_dir}/{cluster.folder}", folder] if folder else []
    made = pod(cluster, name, "read", image, command, seconds=length, files=files, folders=folders)
    with sent(api, made, files):
        printed = _run(api, made, MOST_PACKED, f"pod {name} printed more than an answer can be").decode(
            errors="replace"
        )
    try:
        return document(unpack(printed, MOST).decode(errors="replace"))
    except SpecError as e:
        raise TransportError(f"pod {name} gave no answer ({e}): {printed[-300:].strip()}") from None


@contextlib.contextmanager
def sent(api: Api, pod: Object, files: Mapping[str, bytes]) -> Iterator[None]:
    """The Secret with a pod's files, as long as this context."""
    data = {file: base64.b64encode(content).decode() for file, content in files.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": pod["metadata"], "data": data, "immutable": True}
    api.create("Secret", secret)
    try:
        yield
    finally:
        api.delete("Secret", pod["metadata"]["name"])


def _name() -> str:
    return f"trn-read-{secrets.token_hex(4)}"


def _run(api: Api, pod: Object, most: int, too_much: str) -> bytes:
    """Run a pod to its end, and return its output. Raises TransportError: it failed, or printed more than `most` bytes."""
    name = pod["metadata"]["name"]
    api.create("Pod", pod)
    try:
        seconds = pod["spec"]["activeDeadlineSeconds"] - START_SECONDS
        ended = until_pod(api, name, lambda found: found["status"].get("phase") in ("Succeeded", "Failed"), seconds)
        pieces: list[bytes] = []
        for piece in api.log(name, "main"):
            pieces.append(piece)
            if (most := most - len(piece)) < 0:
                raise TransportError(too_much, again=False)
        output = b"".join(pieces)
    finally:
        api.delete("Pod", name)
    if full := status.memory_full(ended, "main"):
        raise TransportError(f"pod {name} {full}")
    if ended["status"]["phase"] == "Failed":
        raise TransportError(f"pod {name} failed: {output[-600:].decode(errors='replace').strip() or 'no output'}")
    return output


def literal(text: str) -> str:
    """`text`, escaped for Kubernetes, which expands $(NAME) and $$ in commands.

    >>> literal("s3://b/$(HOME)/x")
    's3://b/$$(HOME)/x'
    """
    return text.replace("$", "$$")


def until_pod(api: Api, name: str, done: Callable[[Object], bool], seconds: float = 0) -> Object:
    """Wait for a pod to start, and so many seconds more.

    Raises:
        TransportError: it was not `done` in time; the message has Kubernetes's reason, if any.
    """
    end = time.monotonic() + START_SECONDS + seconds
    while True:
        try:
            found = api.get("Pod", name)
        except ApiError as e:
            raise TransportError(f"pod {name} was deleted: {e}") from None
        if done(found):
            return found
        if (why := status.why_pending([found], "main")).startswith(NEVER_STARTS):
            raise TransportError(f"pod {name} does not start: {why}")
        if time.monotonic() > end:
            conditions = [c.get("message", "") for c in found.get("status", {}).get("conditions", [])]
            raise TransportError(
                f"pod {name} did not {'end' if seconds else 'start'} within {START_SECONDS + seconds:.0f} s: {' '.join(filter(None, conditions)) or 'no reason reported'}. Are there "
                "system nodes (trn show kubeconfig; kubectl get nodes)?"
            )
        time.sleep(0.5)


@contextlib.contextmanager
def serve_tensorboard(
    backend: JobSource,
    id: str,
    *,
    image: str | None = None,
    port: int = 0,
    say: Callable[[str], None] = print,
) -> Iterator[Tunnel]:
    """TensorBoard over all of a job's directory, in a pod on a system node, which is deleted with this context, and ends after
    half a day even if this process is killed.

    Args:
        image: default: the job's.
        port: of this machine. Default: a free one.

    Raises:
        UnknownJob, TransportError
    """
    seen = backend.seen(id, any_member=True)
    directory = backend.status(id).directory
    image = image or str(status.train_spec(seen.job)["containers"][0]["image"])
    name = f"trn-tensorboard-{secrets.token_hex(4)}"
    command, files = [*RUNNER, "board", directory, str(BOARD_PORT)], {"runner.pyz": pyz().content}
    seconds = BOARD_HOURS * 3600
    made = pod(backend.cluster, name, "tensorboard", image, command, seconds=seconds, port=BOARD_PORT, files=files)
    api = backend.api
    with sent(api, made, files), _created(api, made):
        say(f"TensorBoard starts in pod {name}; pulling its image takes some minutes the first time")
        until_pod(api, name, lambda p: p["status"].get("phase") not in (None, "Pending"))
        with Forward(api, name, BOARD_PORT, local=port) as forward:
            ended = f"TensorBoard's pod {name} has ended. Start it again"
            board = Tunnel(forward.port, lambda: _phase(backend, name) == "Running", ended)
            if not until(lambda: _serves(backend, name, board.url), _READY_SECONDS):
                raise TransportError(f"TensorBoard in pod {name} did not answer within {_READY_SECONDS:.0f} s")
            yield board


@contextlib.contextmanager
def _created(api: Api, pod: dict[str, Any]) -> Iterator[None]:
    api.create("Pod", pod)
    try:
        yield
    finally:
        api.delete("Pod", pod["metadata"]["name"])


def _phase(backend: JobSource, name: str) -> str:
    try:
        return str(backend.api.get("Pod", name).get("status", {}).get("phase", ""))
    except TransportError:
        return ""


def _serves(backend: JobSource, name: str, url: str) -> bool:
    if _phase(backend, name) in ("Failed", "Succeeded"):
        if full := status.memory_full(backend.api.get("Pod", name), "main"):
            raise TransportError(f"TensorBoard {full}")
        lines = b"".join(backend.api.log(name, "main")).decode(errors="replace").strip().splitlines()[-1:]
        raise TransportError(f"TensorBoard ended: {' '.join(lines).removeprefix('trn: ') or 'no reason reported'}")
    return serves(url)

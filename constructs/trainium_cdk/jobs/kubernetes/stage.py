"""Copying a data set onto the shared file system: a small Job on a system node. No Trainium node is needed."""

from __future__ import annotations

import hashlib
import posixpath
import re
import time
from collections.abc import Callable
from typing import Any

from trainium_cdk.catalog.sources import sources
from trainium_cdk.errors import ApiError, JobError, TransportError
from trainium_cdk.jobs import quote, shell
from trainium_cdk.jobs.image_examples import how_to_build
from trainium_cdk.jobs.kubernetes import names, pods, reader, status
from trainium_cdk.jobs.kubernetes.api import Api
from trainium_cdk.jobs.kubernetes.names import labels
from trainium_cdk.jobs.patience import until
from trainium_cdk.outputs import EksCluster

Object = dict[str, Any]

KEPT_SECONDS = 86_400
_ATTEMPTS = 3
_REFUSED: Object = {
    "rules": [
        {"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [4]}},
        *pods.MEMORY_FULL,
    ]
}
"""Exit code 4 is permanent: the Job is not retried."""
_OWNER = "batch.kubernetes.io/controller-uid"
_UNSIGNED = "--no-sign-request"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SOURCE = re.compile(rf"s3://{_BUCKET.pattern}(/[^\x00\n]*)?")
_SHA256 = re.compile(r"[0-9a-f]{64}")

_STAGE = r"""
uri=$1 root=${TRN_SHARED_ROOT:-} signing=$3 name=$4 mount=$5
target=$root$2 work=$root$2/.trn-$4
sha256=$6
if [ "${name#data-}" != "$name" ]; then sha256=$(known "$6"); fi
command -v aws > /dev/null || die "the image has no aws, which fetches data. Give one that has it as --image"
if [ "$(realpath -m "$target")" != "$(realpath -m "$root$mount")${2#"$mount"}" ]; then
  say "$2 is reached through a link. Give the directory itself"
  exit 4
fi
[ -w "$target" ] || die "user $(id -u) may not write to $2. Choose another directory"

archive() {
  get_parts "$uri" "$work" "$signing"
  verify "$uri" "$sha256"
  unpack_parts "$uri" "$work"
}

object() {
  get_parts "$uri" "$work" "$signing"
  verify "$uri" "$sha256"
  own_folder "$work"
  cat "$parts"/*[0-9] > "$work/${uri##*/}"
}

everything() {
  local all count
  all=$(aws s3 ls --recursive --summarize ${signing:+"$signing"} "${uri%/}/" | tail -n 2 | tr -cd '0-9\n') || all=
  { read -r count; read -r size; } <<< "$all"$'\n'
  if [ "${count:-0}" -eq 0 ]; then die "there is nothing at $uri. Check the bucket and the prefix"; fi
  own_folder "$work"
  room "$uri" "$((size - $(du -sb "$work" | cut -f 1)))" "$work"
  say "fetching all below $uri: $count objects, $size bytes"
  aws s3 sync --no-progress ${signing:+"$signing"} "${uri%/}/" "$work/"
}

stage() {
  "$1"
  python3 -c "$UNPACK" move "$work" "$target"
  if [ "$1" != everything ]; then rm -rf "$parts"; fi
}

case $uri in
  *.tar | *.tar.gz | *.tgz) kind=archive ;;
  */) kind=everything ;;
  *)
    kind=object key=${uri#s3://*/}
    if ! aws s3api head-object --bucket "$(cut -d / -f 3 <<< "$uri")" --key "$key" ${signing:+"$signing"} > /dev/null 2>&1; then
      kind=everything
    fi
    ;;
esac
if [ "$kind" = everything ] && [ -n "$sha256" ]; then
  say "a SHA-256 is that of one object, and $uri is a prefix, or does not exist"
  exit 4
fi
if [ -e "$trn/done/$name" ]; then say "$uri is in $2 already"; fi
once "$name" "$target" stage "$kind"
say "$uri is in $2"
"""


def render(
    source: str,
    target: str,
    cluster: EksCluster,
    *,
    public: bool = False,
    image: str | None = None,
    sha256: str = "",
) -> tuple[Object, ...]:
    """The Jobs that copy a data set, one after the other.

    Args:
        source: `s3://bucket/file.tar` (.tar.gz, .tgz), which is unpacked, `s3://bucket/file`, or `s3://bucket/prefix/`; or the
            name of a data set that the job kinds use, which is then stored where they expect it.
        target: a directory on a shared file system; empty for such a name.
        public: the bucket is public, and is read without credentials.
        image: one with bash, Python and the AWS CLI. Default: the cluster's.
        sha256: of the object; with any other it is refused. Default: the catalogue's for a known data set, where there is one.

    Raises:
        JobError: the source or the checksum is not valid, or the target is not on a shared file system or is among the jobs' own files.
    """
    image = image or cluster.image
    if not image:
        raise JobError(
            f"no container image: the catalogue has none of Neuron SDK {cluster.neuron_release}. Build one "
            f"({how_to_build(cluster)}), and give the name that it prints as --image"
        )
    known = sources().datasets
    if sha256 and (source in known or not _SHA256.fullmatch(sha256)):
        raise JobError(f"the SHA-256 is {sha256[:80]!r}. Give the 64 digits (0-9, a-f) of one object, s3://bucket/key")
    if source in known and not target:
        place = f"{cluster.shared_dir}/trn/data/{source}"
        return tuple(_job(p.uri, place, cluster, _UNSIGNED, image, p.sha256 or "", source) for p in known[source])
    bucket = source.removeprefix("s3://").partition("/")[0]
    if source.startswith("s3://") and not _BUCKET.fullmatch(bucket):
        raise JobError(
            f"the bucket of the source {source[:80]!r} is {bucket[:80]!r}. Give the name of a bucket: 3 to 63 small letters, digits, "
            "dots and hyphens, with a letter or digit as the first and the last"
        )
    if not _SOURCE.fullmatch(source):
        raise JobError(
            f"the source is {source[:80]!r}. Give s3://bucket/key, or one of the data sets {', '.join(sorted(known))} (without a "
            "target)"
        )
    quote.check(source)
    quote.check(target)
    given, target = target, posixpath.normpath(target)
    places = " or ".join(f"{m}/..." for m in cluster.mount_dirs)
    if "\n" in target or ".." in given.split("/") or not _mount(target, cluster):
        raise JobError(f"the target is {given[:80]!r}, which is not on a shared file system. Give {places}")
    ours = f"{cluster.shared_dir}/trn"
    if f"{target}/".startswith(f"{ours}/"):
        raise JobError(f"the target is {given[:80]!r}, and {ours} holds the jobs' own files. Give another of {places}")
    return (_job(source, target, cluster, _UNSIGNED if public else "", image, sha256),)


def _mount(target: str, cluster: EksCluster) -> str:
    """The mount point of the shared file system that a directory is on; empty if none."""
    return next((m for m in cluster.mount_dirs if target.startswith(f"{m}/")), "")


def _job(
    uri: str, target: str, cluster: EksCluster, signing: str, image: str, sha256: str = "", known_as: str = ""
) -> Object:
    # an object that was copied without this checksum is copied again
    digest = hashlib.sha256(f"{uri} {target} {sha256}".rstrip().encode()).hexdigest()[:12]
    name = f"trn-data-{digest}"
    # the markers that `prepare` of a job checks, for a data set of the job kinds
    mark = f"stage-{digest}"
    if known_as:
        mark = f"data-{known_as}" if uri.endswith(".tar") else f"data-{known_as}-{uri.rpartition('/')[2]}"
    volumes = pods.Volumes(cluster)
    fetch = shell.fetch().decode()
    shared = f"trn=${{TRN_SHARED_ROOT:-}}{quote.word(cluster.shared_dir)}/trn"
    text = f"{shared}\njob=$trn python=python3 mode=fetch\n{fetch}{_STAGE}"
    words = [reader.literal(uri), reader.literal(target), signing, mark, _mount(target, cluster), sha256]
    command = ["bash", "-c", text, "stage", *words]
    main = pods.container("main", image, command, resources=pods.prepare(cluster, "files"), mounts=volumes.mounts)
    folder = pods.folder(cluster, image, volumes, reader.literal(target))
    spec = pods.spec(cluster, containers=[main], init_containers=[folder], volumes=volumes, where=pods.ON_SYSTEM)
    mine = labels(name, "data")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": cluster.namespace, "labels": mine},
        "spec": {
            "backoffLimit": _ATTEMPTS - 1,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "podFailurePolicy": _REFUSED,
            "template": {"metadata": {"labels": mine}, "spec": spec},
        },
    }


def run(
    api: Api,
    job: Object,
    *,
    log: Callable[[bytes], None],
    say: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Run a Job to its end, or follow it if it already runs; True if it succeeded. If this process is interrupted, the Job
    goes on, and the next call follows it.

    Raises:
        TransportError: the cluster cannot be reached, or the Job's container cannot start.
    """
    name = job["metadata"]["name"]
    if there := api.find("BatchJob", name):
        if names.condition(there, "Complete", "Failed"):
            api.delete("BatchJob", name, uid=there["metadata"]["uid"])
            _gone(api, name, sleep)
        else:
            say(f"{name} already runs")
    try:
        api.create("BatchJob", job)
    except ApiError as e:
        if e.status != 409:
            raise
    done: set[str] = set()
    told = {"", "starts"}
    while True:
        now = api.get("BatchJob", name)
        ended = names.condition(now, "Complete", "Failed")
        # By the Job's uid: pods of an ended Job of the same name outlive it until they are collected.
        mine = f"{_OWNER}={now['metadata']['uid']}"
        pods = sorted(api.list("Pod", labels=mine), key=lambda p: str(p["metadata"]["creationTimestamp"]))
        for pod in pods:
            state = status.container_state(pod, "main")
            if pod["metadata"]["name"] not in done and ("running" in state or "terminated" in state):
                done.add(pod["metadata"]["name"])
                _log(api, pod["metadata"]["name"], log, sleep)
                break
        else:
            if ended:
                if full := next((text for pod in pods if (text := status.memory_full(pod, "main"))), ""):
                    say(f"{name} {full}")
                return bool(ended["type"] == "Complete")
            if (why := status.why_pending(pods[-1:], "main")) not in told:
                told.add(why)
                if why.startswith(reader.NEVER_STARTS):
                    api.delete("BatchJob", name, uid=now["metadata"]["uid"])  # another image is another attempt
                    raise TransportError(f"{name} does not start: {why}")
                say(f"{name}: {why}")
            sleep(1.0)


def _log(api: Api, pod: str, log: Callable[[bytes], None], sleep: Callable[[float], None]) -> None:
    """The whole log of one pod, until it has ended."""
    got = 0
    while True:
        try:
            ended = "terminated" in status.container_state(api.get("Pod", pod), "main")
            text = b"".join(api.log(pod, "main"))
        except ApiError as e:
            if e.status == 404:
                return
            raise
        if text[got:]:
            log(text[got:])
            got = len(text)
        if ended:
            return
        sleep(1.0)


def _gone(api: Api, name: str, sleep: Callable[[float], None]) -> None:
    if not until(lambda: api.find("BatchJob", name) is None, reader.START_SECONDS, pause=0.3, sleep=sleep):
        raise TransportError(f"the ended Job {name} was not deleted. Delete it with kubectl (trn kubeconfig)")

"""Building a training image in the account: a folder goes to the stack's bucket, CodeBuild builds and pushes it.
No Docker is needed here, and any machine will do: the image is x86_64, as Trainium nodes are.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trainium_cdk._aws import client, describe_error, failures
from trainium_cdk.client.jobs.build_context import PackedFolder, pack
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.errors import TransportError, TrnError
from trainium_cdk.text import counted

__all__ = ["Image", "PackedFolder", "build", "pack"]

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_NEWEST = 100
"""Builds that are looked at: the most of one request."""
_ENDED = frozenset({"SUCCEEDED", "FAILED", "FAULT", "STOPPED", "TIMED_OUT"})


@dataclass(frozen=True)
class Image:
    """An image in the stack's registry.

    Attributes:
        name: `<registry>/<repository>:<tag>`.
        digest: `sha256:...`; empty if the registry reported none.
        built: whether it was built now; False if it already existed.
    """

    name: str
    digest: str
    built: bool

    @property
    def pinned(self) -> str:
        """The name with the digest, which always means this image."""
        return f"{self.name.rpartition(':')[0]}@{self.digest}" if self.digest else self.name


def build(
    cluster: EksCluster,
    source: PackedFolder,
    tag: str | None = None,
    *,
    say: Callable[[str], None] = print,
    log: Callable[[str], None] = print,
    phase: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Image:
    """Build an image and follow the build to its end. An image of the same source is not built again.

    Args:
        tag: default: derived from the content, so that the same content gives the same image.
        say: called with messages on progress.
        log: called with each line of the build's log.
        phase: called with the build's phase in CodeBuild's words, such as `BUILD`.

    Raises:
        TrnError: the tag is not valid, the stack has no registry, or the build failed.
        TransportError: AWS cannot be reached.
    """
    if not (cluster.registry_uri and cluster.build_project):
        raise TrnError(f"{cluster.stack} has no registry. Turn it on (registry.enabled) and deploy again")
    tag = tag or source.tag()
    if not _TAG.fullmatch(tag):
        raise TrnError(f"tag is {tag!r}. Use letters, digits and . _ -, 128 at most")
    name = f"{cluster.registry_uri}:{tag}"
    try:
        ecr, s3, codebuild = (client(s, cluster.region) for s in ("ecr", "s3", "codebuild"))
        if digest := _digest(ecr, cluster, tag):
            if tag != source.tag():
                raise TrnError(f"{name} already exists, and tags are immutable. Give another --tag")
            return Image(name, digest, built=False)
        started = _running(codebuild, cluster, source, tag) or _start(codebuild, s3, cluster, source, tag, say)
        say(f"CodeBuild runs {started}. Ctrl-C does not end it: run the same command again to follow it")
        try:
            ended = _follow(codebuild, client("logs", cluster.region), started, log, phase, sleep)
        except failures() as e:
            raise TransportError(
                f"CodeBuild does not answer: {describe_error(e)}. {started} continues: run the same command again to follow it"
            ) from None
        if ended["buildStatus"] != "SUCCEEDED":
            raise TrnError(f"{started} ended as {ended['buildStatus']}{_reason(ended)}. See its log")
        return Image(name, _digest(ecr, cluster, tag), built=True)
    except failures() as e:
        raise TransportError(f"the image was not built: {describe_error(e)}") from None


def _start(
    codebuild: Any, s3: Any, cluster: EksCluster, source: PackedFolder, tag: str, say: Callable[[str], None]
) -> str:
    say(
        f"sending {counted(source.files, 'file')}, {len(source.content):,} bytes, to s3://{cluster.bucket}/{source.key}"
    )
    stored = s3.put_object(Bucket=cluster.bucket, Key=source.key, Body=source.content)
    version = stored.get("VersionId")
    if not version:
        raise TrnError(
            f"bucket {cluster.bucket} has no versioning, so the build could get another source. Turn versioning on"
        )
    variables = {"IMAGE_TAG": tag, "DOCKERFILE": source.dockerfile}
    started: str = codebuild.start_build(
        projectName=cluster.build_project,
        sourceTypeOverride="S3",
        sourceLocationOverride=f"{cluster.bucket}/{source.key}",
        sourceVersion=version,  # not an object that is uploaded later
        environmentVariablesOverride=[{"name": k, "value": v, "type": "PLAINTEXT"} for k, v in variables.items()],
        idempotencyToken=hashlib.sha256(f"{version} {tag}".encode()).hexdigest()[:64],
    )["build"]["id"]
    return started


def _running(codebuild: Any, cluster: EksCluster, source: PackedFolder, tag: str) -> str:
    """The build of this image that runs already, of a command that was interrupted or of another user; empty if none does. A second one
    would be charged as well, and could not push its image: tags are immutable."""
    with contextlib.suppress(*failures()):  # without the permission to list them a build is started
        ids = codebuild.list_builds_for_project(projectName=cluster.build_project, sortOrder="DESCENDING")["ids"]
        for one in codebuild.batch_get_builds(ids=ids[:_NEWEST])["builds"] if ids else ():
            variables = {each["name"]: each["value"] for each in one["environment"].get("environmentVariables", ())}
            built = (variables.get("IMAGE_TAG"), variables.get("DOCKERFILE"), one["source"].get("location"))
            same = built == (tag, source.dockerfile, f"{cluster.bucket}/{source.key}")
            if same and one["buildStatus"] == "IN_PROGRESS":
                return str(one["id"])
    return ""


def _digest(ecr: Any, cluster: EksCluster, tag: str) -> str:
    """The digest of an image in the registry; empty if it does not exist."""
    repository = cluster.registry_uri.partition("/")[2]
    try:
        found = ecr.describe_images(repositoryName=repository, imageIds=[{"imageTag": tag}])["imageDetails"]
    except ecr.exceptions.ImageNotFoundException:
        return ""
    return str(found[0]["imageDigest"]) if found else ""


def _reason(ended: dict[str, Any]) -> str:
    for phase in ended.get("phases", []):
        if phase.get("phaseStatus") in ("FAILED", "FAULT", "TIMED_OUT"):
            messages = " ".join(c.get("message", "") for c in phase.get("contexts", []) if c.get("message"))
            return f" in {phase['phaseType']}" + (f": {messages}" if messages else "")
    return ""


def _follow(
    codebuild: Any,
    logs: Any,
    id: str,
    log: Callable[[str], None],
    phase: Callable[[str], None],
    sleep: Callable[[float], None],
) -> dict[str, Any]:
    token = None
    while True:
        now: dict[str, Any] = codebuild.batch_get_builds(ids=[id])["builds"][0]
        phase(now.get("currentPhase", ""))
        token = _lines(logs, now.get("logs", {}), token, log)
        if now["buildStatus"] in _ENDED:
            # the last lines arrive after the build has ended
            sleep(3.0)
            _lines(logs, now.get("logs", {}), token, log)
            return now
        sleep(5.0)


def _lines(logs: Any, where: dict[str, Any], token: str | None, log: Callable[[str], None]) -> str | None:
    if not where.get("streamName"):
        return token
    while True:
        wanted = {"logGroupName": where["groupName"], "logStreamName": where["streamName"], "startFromHead": True}
        try:
            page = logs.get_log_events(**wanted, **({"nextToken": token} if token else {}))
        except logs.exceptions.ResourceNotFoundException:
            return token  # not yet
        for event in page["events"]:
            log(event["message"].rstrip("\n"))
        if page["nextForwardToken"] == token:  # an empty page is not the end
            return token
        token = str(page["nextForwardToken"])

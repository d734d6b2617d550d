"""Building a training image in the account: a folder, or an example of this package, goes as a zip file to the stack's bucket, without secrets and
with nothing from outside the folder. CodeBuild builds and pushes it. No Docker is needed here, and any machine will do: the image is x86_64, as
Trainium nodes are.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import posixpath
import re
import stat
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_cdk._aws import client, describe_error, failures
from trainium_cdk.client.jobs.workdir import is_secret, leads_out
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.description.outputs.contract import SOURCES
from trainium_cdk.errors import TransportError, TrnError
from trainium_cdk.text import counted

if TYPE_CHECKING:
    from pathspec import PathSpec

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_NEWEST = 100
"""Builds that are looked at: the most of one request."""
_ENDED = frozenset({"SUCCEEDED", "FAILED", "FAULT", "STOPPED", "TIMED_OUT"})

EXAMPLES = ("torchneuron", "bert-large", "jax")
"""TorchNeuron with the packages of `finetune`; Neuron's training containers with the packages of `bert-large`, and with Optax and Orbax."""
MAX_BYTES = 2_000_000_000
"""Bytes of all files together, before compression."""
IGNORE = ".dockerignore"
_EPOCH = (1980, 1, 1, 0, 0, 0)


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


@dataclass(frozen=True)
class LeftOut:
    """Files that are not sent.

    Attributes:
        what: a path in the folder, or .dockerignore for everything that it excludes.
    """

    what: str
    files: int
    size: int

    def __str__(self) -> str:
        return f"{self.what} ({counted(self.files, 'file')}, {self.size:,} bytes)"


@dataclass(frozen=True)
class PackedFolder:
    """A folder to build, packed.

    Attributes:
        content: a zip file; the same files give the same bytes.
        digest: SHA-256 of it.
        files: number of files in it.
        size: bytes of these files, before compression.
        left_out: what the folder has and the zip file has not.
    """

    content: bytes
    digest: str
    files: int
    dockerfile: str = "Dockerfile"
    size: int = 0
    left_out: tuple[LeftOut, ...] = ()

    @property
    def key(self) -> str:
        return f"{SOURCES}{self.digest}.zip"

    def tag(self) -> str:
        """The default tag of the image, derived from its content and, where it is not `Dockerfile`, from the Dockerfile's name."""
        digest = self.digest
        if self.dockerfile != "Dockerfile":
            digest = hashlib.sha256(f"{digest} {self.dockerfile}".encode()).hexdigest()
        return f"src-{digest[:16]}"


def pack(folder: Path, dockerfile: str = "Dockerfile") -> PackedFolder:
    """Pack a folder as `docker build` sees it: without what its .dockerignore names, and links as links. Files that often hold
    secrets (`workdir.SECRETS`) are left out.

    Raises:
        TrnError: the folder or the Dockerfile does not exist, a link leaves the folder, a file cannot be read or sent, or
            the folder is too large.
    """
    if not folder.is_dir():
        raise TrnError(f"{folder} is not a folder. Name the one with the Dockerfile")
    dockerfile = posixpath.normpath(dockerfile)
    if not (folder / dockerfile).is_file():
        raise TrnError(f"there is no {dockerfile} in {folder.resolve()}. Name another folder, or give --file")
    for needed in (dockerfile, IGNORE):
        if not (folder / needed).resolve().is_relative_to(folder.resolve()):
            raise TrnError(f"{needed} is outside {folder}. Put the file itself into the folder")
    rules = _Rules.read(folder / IGNORE)
    sent: list[tuple[Path, str, os.stat_result]] = []
    left: dict[str, list[int]] = {}
    by_top = Counter[str]()
    for file in _files(folder):
        name, info = file.relative_to(folder).as_posix(), file.lstat()
        if name not in (dockerfile, IGNORE) and (why := rules.leave_out(name, info.st_mode)):
            left.setdefault(why, []).append(info.st_size)
        else:
            sent.append((file, name, info))
            by_top[name.partition("/")[0]] += info.st_size
    if (size := by_top.total()) > MAX_BYTES:
        raise TrnError(_too_large(folder, by_top))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as packed:
        for file, name, info in sent:
            packed.writestr(_zip_entry(name, info.st_mode), _zip_content(file, folder, name, info.st_mode))
    content = out.getvalue()
    left_out = tuple(LeftOut(what, len(sizes), sum(sizes)) for what, sizes in sorted(left.items()))
    return PackedFolder(content, hashlib.sha256(content).hexdigest(), len(sent), dockerfile, size, left_out)


@dataclass(frozen=True)
class _Rules:
    """Rules for files that are left out: the rules in .dockerignore, and `workdir.SECRETS` unless .dockerignore includes the name."""

    ignored: PathSpec[Any]
    wanted: PathSpec[Any]

    @classmethod
    def read(cls, file: Path) -> _Rules:
        """Raises TrnError: it is not a valid .dockerignore."""
        from pathspec import PathSpec

        try:
            lines = file.read_bytes().decode("utf-8-sig").splitlines() if file.is_file() else []
        except UnicodeDecodeError as e:
            raise TrnError(f"{file} is not UTF-8 text (its byte {e.start}). Save it as UTF-8") from None
        except OSError as e:
            raise TrnError(f"cannot read {file}: {e.strerror}") from None
        ignored, wanted = [], []
        for number, line in enumerate(lines, 1):
            patterns = _as_gitignore(line)
            try:
                PathSpec.from_lines("gitignore", patterns)
            except ValueError:
                raise TrnError(
                    f"{file}, line {number}: {line.strip()[:80]!r} is not a pattern. Correct it, or remove the line"
                ) from None
            ignored += patterns
            wanted += [p[1:] for p in patterns if p.startswith("!") and is_secret(p[1:])]
        return cls(PathSpec.from_lines("gitignore", ignored), PathSpec.from_lines("gitignore", wanted))

    def leave_out(self, name: str, mode: int) -> str:
        """The name under which a file is reported as left out; empty if it is sent."""
        parts = name.split("/")
        secret = next((i for i, part in enumerate(parts) if is_secret(part)), None)
        if secret is not None and not self.wanted.match_file(name):
            return "/".join(parts[: secret + 1])
        if self.ignored.match_file(name):
            return f"by {IGNORE}"
        return "" if stat.S_ISREG(mode) or stat.S_ISLNK(mode) else f"{name}, which is not a regular file"


def _as_gitignore(line: str) -> list[str]:
    """A line of .dockerignore as lines of .gitignore. Its patterns are relative to the folder, and include everything below a match."""
    text = line.strip()
    if not text or text.startswith("#"):
        return []
    sign, text = ("!", text[1:]) if text.startswith("!") else ("", text)
    text = text.removeprefix("./").strip("/")
    return [f"{sign}/{text}", f"{sign}/{text}/**"] if text not in ("", ".") else []


def _files(folder: Path) -> Iterator[Path]:
    """Everything but folders, in the same order on every machine; links are not followed."""

    def failed(e: OSError) -> None:
        raise TrnError(f"cannot read {e.filename}: {e.strerror}. Name it in {folder / IGNORE}, or make it readable")

    for root, folders, names in os.walk(folder, onerror=failed):
        links = [f for f in folders if Path(root, f).is_symlink()]
        folders[:] = sorted(set(folders) - set(links))
        yield from (Path(root, name) for name in sorted([*names, *links]))


def _zip_entry(name: str, mode: int) -> zipfile.ZipInfo:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise TrnError(f"the file name {os.fsencode(name)!r} is not UTF-8. Rename it, or name it in {IGNORE}") from None
    entry = zipfile.ZipInfo(name, _EPOCH)  # with real times, the same content would not give the same bytes
    entry.create_system = 3  # always Unix: otherwise modes are ignored
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = ((stat.S_IFLNK | 0o777) if stat.S_ISLNK(mode) else 0o755 if mode & 0o111 else 0o644) << 16
    return entry


def _zip_content(file: Path, folder: Path, name: str, mode: int) -> bytes:
    try:
        if not stat.S_ISLNK(mode):
            return file.read_bytes()
        target = str(file.readlink())
    except OSError as e:
        raise TrnError(f"cannot read {file}: {e.strerror}. Name it in {folder / IGNORE}, or make it readable") from None
    if leads_out(folder, name, target):
        raise TrnError(
            f"{name} is a link to {target}, which is outside {folder}. Files outside are not sent: put the file itself into the "
            f"folder, or name the link in {folder / IGNORE}"
        )
    return os.fsencode(target)


def _too_large(folder: Path, by_top: Counter[str]) -> str:
    most = ", ".join(f"{name} ({size:,} bytes)" for name, size in by_top.most_common(3))
    return (
        f"{folder} has more than {MAX_BYTES:,} bytes; most are in {most}. Name what the image does not need in "
        f"{folder / IGNORE}, and put data on the shared file system (trn cp)"
    )


def find_example(folder: Path) -> Path:
    """A folder to build: the one given or, where there is none, the example of this name, for example torchneuron or
    examples/torchneuron. In a wheel the examples are in this file's folder, in a source tree in examples/.

    Raises:
        TrnError: it is neither a folder nor an example.
    """
    if folder.is_dir():
        return folder
    here = Path(__file__).resolve()
    if folder.name in EXAMPLES and str(folder.parent) in (".", "examples"):
        for place in (here.parent / "examples", here.parents[4] / "examples"):
            if (place / folder.name).is_dir():
                return place / folder.name
    raise TrnError(f"{folder} is not a folder. Name the one with the Dockerfile, or an example: {', '.join(EXAMPLES)}")

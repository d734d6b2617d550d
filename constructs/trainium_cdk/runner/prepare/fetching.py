"""Steps of `prepare` that fetch what all jobs share, into the folders `data` (of S3, by the AWS CLI), `src` (repositories, each at one commit) and
`hf_cache` (of Hugging Face)."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from ..errors import Refused
from . import Failed, Here, check_room, once, remove, say
from .unpack import Damaged, Hashed, unpack

_READ = 1 << 20


def file(here: Here, name: str, uri: str, sha256: str = "", public: bool = False) -> None:
    """Fetch one object into the data set's folder. `public`: without the node's identity."""
    target = here.trn / "data" / name / uri.rpartition("/")[2]
    once(
        here,
        f"data-{name}-{target.name}",
        target,
        partial(_fetch_object, here, uri, target, wanted(here, sha256), public),
    )


def prefix(here: Here, name: str, uri: str) -> None:
    """Fetch everything below a prefix; after an interruption, what is not there yet."""
    target = here.trn / "data" / name
    once(here, f"data-{name}", target, partial(_sync, here, uri.rstrip("/") + "/", target))


def wanted(here: Here, sha256: str) -> str:
    """The checksum, unless the nodes accept any content of the public data sets."""
    return "" if here.variables.get("TRN_UNVERIFIED_DATA") else sha256


def verify(uri: str, actual: str, sha256: str) -> None:
    """Compare the checksum of an object, if it is known.

    Raises:
        Refused: it is another one.
    """
    if sha256 and actual != sha256:
        raise Refused(
            f"{uri} has the SHA-256 {actual}, and not {sha256}: it was replaced or damaged. It was deleted. Use another copy"
        )
    if sha256:
        say(f"SHA-256 of {uri} verified")


def size_of(here: Here, uri: str, public: bool) -> int:
    """Bytes of an object.

    Raises:
        Failed: it cannot be read.
    """
    bucket, _, key = uri[len("s3://") :].partition("/")
    code, output, errors = here.ask(
        ["aws", "s3api", "head-object", f"--bucket={bucket}", f"--key={key}", "--output=json", *unsigned(public)]
    )
    try:
        return int(json.loads(output)["ContentLength"])
    except (ValueError, KeyError, TypeError):
        why = errors.strip()[-300:] or f"aws ended with {code}"
        raise Failed(f"cannot read {uri}: {why}. Check that it exists and may be read from here") from None


def unsigned(public: bool) -> list[str]:
    """The option of the AWS CLI for buckets that anybody reads."""
    return ["--no-sign-request"] if public else []


def _fetch_object(here: Here, uri: str, target: Path, sha256: str, public: bool) -> None:
    part = target.with_name(f"{target.name}.part")
    remove(part)
    size = size_of(here, uri, public)
    check_room(uri, size, target.parent)
    say(f"fetching {uri}: {size} bytes")
    if here.run(["aws", "s3", "cp", "--only-show-errors", *unsigned(public), uri, str(part)]):
        raise Failed(f"{uri} could not be fetched: see what aws says above. Submit the job again")
    try:
        verify(uri, _digest(part), sha256)
    except Refused:
        part.unlink()
        raise
    part.replace(target)


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as content:
        for piece in iter(lambda: content.read(_READ), b""):
            found.update(piece)
    return found.hexdigest()


def _sync(here: Here, uri: str, target: Path) -> None:
    say(f"fetching {uri}")
    part = target.with_name(f"{target.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    if here.run(["aws", "s3", "sync", "--only-show-errors", "--delete", uri, f"{part}/"]):
        raise Failed(f"{uri} could not be fetched: see what aws says above. What arrived is kept: submit the job again")
    if not any(part.iterdir()):
        raise Refused(f"there is nothing at {uri}. Check the bucket and the prefix")
    remove(target)
    part.rename(target)


# --- archives of S3: unpacked while they arrive, so that they are nowhere whole ---------------------------------------------------------


def archive(here: Here, name: str, uri: str, sha256: str = "", public: bool = False) -> None:
    """Fetch a tar archive, and unpack it into the data set's folder. `public`: without the node's identity."""
    target = here.trn / "data" / name
    once(here, f"data-{name}", target, partial(_fetch_archive, here, uri, target, wanted(here, sha256), public))


def _fetch_archive(here: Here, uri: str, target: Path, sha256: str, public: bool) -> None:
    part = target.with_name(f"{target.name}.part")
    remove(part)
    size = size_of(here, uri, public)
    check_room(uri, size, target.parent)
    say(f"fetching and unpacking {uri}: {size} bytes")
    words = ["aws", "s3", "cp", "--only-show-errors", *unsigned(public), uri, "-"]
    try:
        with subprocess.Popen(words, env=dict(here.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as aws:
            stream = Hashed(aws.stdout)  # type: ignore[arg-type]
            try:
                entries, bytes_ = unpack(stream, part, size)
            except Refused as e:
                raise Refused(f"{uri} is refused: {e}") from None
            except (Damaged, OSError) as e:
                raise _failed(uri, aws, e) from None
            found = stream.digest()
            if aws.wait():
                raise _failed(uri, aws, None)
        verify(uri, found, sha256)
    except BaseException:
        remove(part)
        raise
    say(f"{entries:,} entries, {bytes_:,} bytes unpacked, {size:,} bytes packed")
    remove(target)
    part.rename(target)


def _failed(uri: str, aws: subprocess.Popen[bytes], error: Exception | None) -> Failed:
    """Return the error of an archive that did not arrive, or is damaged."""
    try:
        code = aws.wait(5)  # it ends before what it sends does; else it waits for a reader
    except subprocess.TimeoutExpired:
        aws.kill()
        code = 0
    if isinstance(error, OSError):
        return Failed(f"{uri} could not be unpacked: {error}")
    if code:
        return Failed(f"{uri} could not be fetched: see what aws says above. Submit the job again")
    return Failed(f"{uri} could not be unpacked: the archive is damaged: {error}")


# --- models and data sets of Hugging Face, by its own libraries -------------------------------------------------------------------------

_MODEL = """import sys, huggingface_hub as hub
commit, model, *files = sys.argv[1:]
hub.snapshot_download(model, revision=commit, allow_patterns=files)"""
_DATASET = """import sys, datasets
datasets.load_dataset(*sys.argv[1:], split="train")"""


def model(here: Here, model: str, patterns: Sequence[str]) -> None:
    """Fetch a model's files of these patterns."""
    name = model.replace("/", "--")
    place = here.trn / "hf_cache" / "hub" / f"models--{name}"
    once(here, f"hf-{name}-{_short(model, *patterns)}", place, partial(_fetch_model, here, model, place, patterns))


def dataset(here: Here, words: Sequence[str]) -> None:
    """Read the part `train` of a data set: its name or a directory, and a configuration."""
    name = "-".join(words).replace("/", "-").replace(" ", "_")[-100:]
    place = here.trn / "hf_cache" / "datasets"
    once(here, f"hf-data-{name}-{_short(*words)}", place, partial(_read_dataset, here, words))


def _fetch_model(here: Here, model: str, place: Path, patterns: Sequence[str]) -> None:
    # files that come later are of the same commit as those that are there: each commit has its own folder
    newest = place / "refs" / "main"
    commit = (newest.read_text().strip() if newest.exists() else "") or "main"
    say(f"fetching {model} from Hugging Face: {' '.join(patterns)}")
    _by_library(here, f"{model} could not be fetched", _MODEL, commit, model, *patterns)


def _read_dataset(here: Here, words: Sequence[str]) -> None:
    say(f"reading the data set {' '.join(words)}")
    _by_library(here, f"the data set {' '.join(words)} could not be read", _DATASET, *words)


def _by_library(here: Here, failed: str, program: str, *words: str) -> None:
    variables = {**here.variables, "HF_HOME": str(here.trn / "hf_cache")}
    command = [here.python, "-c", program, *words]
    done = subprocess.run(
        command, env=variables, cwd=here.job, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=False
    )
    if done.returncode:
        raise Failed(f"{failed}: see what its library says above")


def _short(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


# --- git repositories -------------------------------------------------------------------------------------------------------------------


def source(here: Here, name: str, url: str, commit: str, variable: str = "", unless: Sequence[str] = ()) -> None:
    """Fetch a repository at a commit.

    Args:
        variable: names what is fetched in the commit's place: in a sandbox, whose repositories have other commits.
        unless: not needed where Python finds all of these modules.
    """
    if unless and not here.absent_modules(unless):
        return
    place = here.trn / "src" / f"{name}-{commit}"
    ref = here.variables.get(variable) or commit
    once(here, f"src-{name}-{commit}".replace("/", "-"), place, partial(_clone, here, url, ref, place))


def _clone(here: Here, url: str, ref: str, place: Path) -> None:
    say(f"fetching {url} at {ref}")
    part = place.with_name(f"{place.name}.part")
    remove(place)
    remove(part)
    git = ["git", "-C", str(part)]
    for words in (
        ["git", "init", "-q", str(part)],
        [*git, "fetch", "-q", "--depth", "1", "--", url, ref],
        [*git, "checkout", "-q", "--detach", "FETCH_HEAD"],
    ):
        if here.run(words):
            raise Failed(f"{url} could not be fetched at {ref}: see what git says above. Submit the job again")
    part.rename(place)

"""Steps of a job's stage `prepare`, as data. They fetch what the job needs on its cluster before it starts; `runner.prepare.main` carries them out.
Each function returns steps, and the place of the result for a program. Also names of models and data sets on Hugging Face, and those that need a
token. Pure.

    found = fetching.source("samples", tree, job.env)
    found.steps  # for `Job.prepare`
    (*found.place, "/train.py")  # a word for `Job.program`
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from trainium_cdk.client.jobs import words
from trainium_cdk.client.jobs.models import Job
from trainium_cdk.description.catalog.sources import SourceTree, sources
from trainium_cdk.errors import JobError
from trainium_cdk.runner.spec import Only, Part, Place, PrepareStep, Word
from trainium_cdk.text import Text

if TYPE_CHECKING:
    from trainium_cdk.client.jobs.packages import Packages
    from trainium_cdk.client.jobs.workdir import Workdir
    from trainium_cdk.description.outputs import ClusterOutputs
    from trainium_cdk.description.requirements import Requirements

_TOKENIZER = ("*.json", "*.model", "merges.txt")
_WEIGHTS = "*.safetensors"

_PART = "[A-Za-z0-9_][A-Za-z0-9_.-]*"
HubModel = Annotated[
    str, Text(f"^{_PART}/{_PART}$", "OWNER/NAME, as on huggingface.co", "Qwen/Qwen3-8B", max_length=200)
]
"""OWNER/NAME."""
HubDataset = Annotated[
    str,
    Text(
        f"^{_PART}/{_PART}( {_PART})?$",
        "OWNER/NAME, as on huggingface.co, and a space and a configuration if it has several",
        "trl-lib/Capybara",
        max_length=300,
    ),
]
"""OWNER/NAME, and the name of a configuration."""
HUB_TOKEN = "HF_TOKEN"  # noqa: S105  the name of a variable
_GATED = ("meta-llama/",)
"""Beginnings of names of models that need a token (huggingface.co/meta-llama, 2026-11). Others report it when they are fetched."""

Steps = tuple[PrepareStep, ...]


class Fetched(NamedTuple):
    """Steps, and the folder in which their result is afterwards."""

    steps: tuple[PrepareStep, ...]
    place: tuple[Part, ...]


def source(name: str, tree: SourceTree, variables: Mapping[str, str], unless: Iterable[str] = ()) -> Fetched:
    """A git repository at one commit.

    Args:
        variables: the job's, which may name another commit, branch or tag.
        unless: not fetched where Python finds all of these modules.
    """
    commit = variables.get(tree.ref_variable) or tree.commit
    given = {"name": name, "url": tree.url, "commit": commit, "variable": tree.ref_variable}
    if needed := tuple(unless):
        given["unless"] = needed  # type: ignore[assignment]
    return Fetched((PrepareStep("source", given),), (Place("trn"), f"/src/{name}-{commit}"))


def data(given: str | None, public: str) -> Fetched:
    """A data set.

    Args:
        given: a directory, or an s3:// address: of a .tar, which is unpacked, or of a prefix. None: the public data set.
        public: that, by its name in the catalogue.
    """
    if given is None:
        objects = sources().datasets[public]
        return Fetched(tuple(_object(public, one.uri, one.sha256 or "", public=True) for one in objects), _data(public))
    if given.startswith("/"):
        return Fetched((), words.shared(given))
    stem = re.sub(r"[^a-z0-9]+", "-", given.removeprefix("s3://").lower()).strip("-")[-40:]
    name = f"{stem}-{hashlib.sha256(given.encode()).hexdigest()[:8]}"
    if given.endswith(".tar"):
        return Fetched((_object(name, given, "", public=False),), _data(name))
    return Fetched((PrepareStep("prefix", {"name": name, "uri": given}),), _data(name))


def _data(name: str) -> tuple[Part, ...]:
    return (Place("trn"), f"/data/{name}")


def _object(name: str, uri: str, sha256: str, *, public: bool) -> PrepareStep:
    given: dict[str, Any] = {"name": name, "uri": uri, "sha256": sha256, "public": public}
    return PrepareStep("archive" if uri.endswith(".tar") else "file", given)


def model(name: str, *, weights: bool) -> Fetched:
    """The configuration and tokenizer of a model on Hugging Face, and its weights. The place has its files."""
    return model_files(name, *_TOKENIZER, *([_WEIGHTS] if weights else []))


def model_files(name: str, *patterns: str) -> Fetched:
    """Files of a model on Hugging Face, in the cache that HF_HOME names: `hf_cache` of `Place("trn")`."""
    folder = (Place("trn"), f"/hf_cache/hub/models--{name.replace('/', '--')}/snapshots")
    return Fetched((PrepareStep("model", {"model": name, "patterns": patterns}),), (Only(folder),))


def dataset(name: Word, configuration: str = "") -> tuple[PrepareStep, ...]:
    """The part `train` of a data set that the library datasets reads, into the same cache.

    Args:
        name: OWNER/NAME on Hugging Face, or a directory.
    """
    return (PrepareStep("dataset", {"words": (name, *([configuration] if configuration else []))}),)


def packages(
    kind: str,
    needed: Packages,
    versions: Iterable[str],
    cluster: ClusterOutputs,
    image: str | None,
    *more: Word,
    program: str = "",
    words: Iterable[Word] = (),
) -> tuple[PrepareStep, ...]:
    """A virtual environment of a kind's packages, on top of the cluster's or the image's. `Job.environment.packages` is to be true then.

    Args:
        needed: of the kind.
        versions: `needed.requirements(job, cluster)`: what pip installs.
        more: further words of pip's.
        program: a Python file that the kind sends (`Job.files`), which completes the virtual environment: run in it, after pip; with `words`.
    """
    found = tuple(versions)
    made = PrepareStep(
        "packages",
        {"kind": kind, **_on(cluster, image), "words": (*found, *more), "program": program, "arguments": tuple(words)},
    )
    if not needed.libraries:
        return (made,)
    there = modules(
        needed.libraries, "Use an image or a Neuron release that has it, or add it to bootstrap.pip_packages"
    )
    # without their versions they must be there before anything is installed
    return (*there, made) if found == needed.pins else (made, *there)


def requirements(
    given: Requirements, workdir: Workdir | None, cluster: ClusterOutputs, image: str | None
) -> tuple[PrepareStep, ...]:
    """A virtual environment of a user's requirements. The code is fetched before. `Job.environment.packages` is to be true then."""
    from trainium_cdk.client.jobs.packages import files_at

    there = [entry for path in given.paths for entry in files_at(path, workdir)] if workdir else []
    return (
        PrepareStep(
            "requirements",
            {
                **_on(cluster, image),
                "lines": tuple(given.lines),
                "constraints": tuple(given.constraints),
                "files": tuple(there),
                "label": given.file,
                "variables": tuple(given.variables),
            },
        ),
    )


def _on(cluster: ClusterOutputs, image: str | None) -> dict[str, Any]:
    from trainium_cdk.description.catalog import Catalog

    base = (image or cluster.image) if cluster.containers else ""
    return {"base": base, "index": Catalog.load().repositories.pip}


def code(workdir: Workdir, bucket: str) -> Fetched:
    """The folder of a user's code."""
    from trainium_cdk.client.jobs.workdir import archive_key

    given = {"uri": f"s3://{bucket}/{archive_key(workdir.archive)}", "digest": workdir.archive, "size": workdir.size}
    return Fetched((PrepareStep("code", given),), (Place("job"), "/code"))


def modules(names: Iterable[str], fix: str) -> tuple[PrepareStep, ...]:
    """Refuse the job where Python does not find these modules. `fix`: what to do then, for the user."""
    return (PrepareStep("modules", {"names": tuple(names), "fix": fix}),)


def tools(names: Iterable[str], fix: str) -> tuple[PrepareStep, ...]:
    """Refuse the job where there are no such programs. `fix`: what to do then, for the user."""
    return (PrepareStep("tools", {"names": tuple(names), "fix": fix}),)


def enough_files(folder: Word, pattern: str, count: int, fix: str, says: str = "") -> tuple[PrepareStep, ...]:
    """Refuse the job where a folder, with those right below it, has fewer files of a pattern. One that is not there is not looked at.

    Args:
        fix: what to do then, for the user.
        says: all of the message, in place of the one with the numbers; then a folder that is not there is refused too.
    """
    return (PrepareStep("files", {"folder": folder, "pattern": pattern, "count": count, "fix": fix, "says": says}),)


def check_hub_home(job: Job) -> None:
    """Check that a job whose models and data `prepare` fetches does not name another folder for them.

    Raises:
        JobError: it does.
    """
    if home := job.env.get("HF_HOME"):
        raise JobError(
            f"env HF_HOME is {home}, but {job.kind} reads models and data sets where `prepare` puts them, in trn/hf_cache of the shared file "
            "system. Remove it"
        )


def check_gated(job: Job, model: str, otherwise: str) -> None:
    """Check that a job has a token for a model that only some may read.

    Args:
        otherwise: the option that names a directory with its files.

    Raises:
        JobError: it has none.
    """
    if model.startswith(_GATED) and HUB_TOKEN not in job.env:
        raise JobError(
            f"{model} is gated: Hugging Face gives it to those who have accepted its licence. Accept it there, and give your token as "
            f"--env {HUB_TOKEN} (your shell gives the value); or put its files on the cluster (`hf download`), and name their "
            f"directory as {otherwise}"
        )

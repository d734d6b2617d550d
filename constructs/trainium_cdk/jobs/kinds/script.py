"""A user's script, for PyTorch/XLA and for TorchNeuron."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from trainium_cdk.errors import JobError
from trainium_cdk.jobs import quote, templates
from trainium_cdk.jobs.models import MAX_SCRIPT_BYTES, Job, fits, passable, shown, wrong
from trainium_cdk.jobs.plan import Plan
from trainium_cdk.jobs.templates import Template


class Script(Job):
    """A user's script, started on each node with the rendezvous in its environment.

    MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE (the NeuronCores of a node) are set; with `tasks_per_node`
    above 1, or a launcher, also RANK, LOCAL_RANK and WORLD_SIZE.
    """

    TITLE: ClassVar[str] = "a script of your own"
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ()
    PREPARES: ClassVar[bool] = False
    RESTARTS: ClassVar[bool] = False

    kind: Literal["script"] = "script"
    filename: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")]
    content: bytes = Field(max_length=MAX_SCRIPT_BYTES, repr=False)
    args: tuple[str, ...] = ()
    tasks_per_node: int = Field(default=1, ge=1, le=256, description="Copies of the script on each node.")
    launcher: Literal["none", "torchrun", "accelerate"] = Field(
        default="none",
        description="Start a Python script once for each NeuronCore: with PyTorch's torchrun, or with Hugging Face's accelerate, which "
        "must be installed. none: the script is started as it is, and starts its processes itself.",
    )
    framework: Literal["torch-xla", "torch-native"] | None = Field(
        default=None,
        description="torch-xla or torch-native (TorchNeuron): decides which variables set the compile cache. Default: the cluster's.",
    )
    precompile: bool = Field(
        default=False, description="Run it under neuron_parallel_compile first (PyTorch/XLA only)."
    )

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Self:
        """The job of a script file.

        Raises:
            JobError: it cannot be read, is not a file, or is empty or too large.
        """
        name, path = str(path)[:300], Path(path)
        try:
            size, file = path.stat().st_size, path.is_file()
            content = path.read_bytes() if file and size <= MAX_SCRIPT_BYTES else None
        except (OSError, ValueError) as e:  # ValueError: a NUL byte in the path
            reason = e.strerror if isinstance(e, OSError) else e
            raise JobError(f"cannot read the script {name}: {reason}. Check the path") from None
        if not file:
            raise JobError(f"{path} is not a file. Give the path of the script")
        if content is None:
            raise JobError(
                f"{path} has {size:,} bytes; a script may have at most {MAX_SCRIPT_BYTES:,}. Put data on the shared file system"
            )
        return cls(filename=path.name, content=content, **fields)

    @model_validator(mode="after")
    def _arguments(self) -> Self:
        if not self.content.strip():
            raise wrong(f"the script {self.filename} is empty. Give a script with content")
        if reason := _not_runnable(self.filename, self.content):
            raise wrong(f"the script {self.filename} {reason}")
        if self.launcher != "none" and (not self.filename.endswith(".py") or self.tasks_per_node > 1):
            what = (
                f"tasks_per_node is {self.tasks_per_node}"
                if self.filename.endswith(".py")
                else f"{self.filename} is not a .py file"
            )
            raise wrong(
                f"{what}, and {self.launcher} starts one Python process for each NeuronCore itself. Remove --launcher, or change that"
            )
        fits(self._env_size() + sum(passable(f"argument {shown(word)}", word) for word in self.args))
        return self

    @property
    def label(self) -> str:
        stem = re.sub(r"[^a-z0-9]+", "-", Path(self.filename).stem.lower()).strip("-")
        return self.name or stem[:40] or "script"

    @property
    def cache_set(self) -> str:
        return self.cache or f"script-{self.label}"

    @property
    def processes_per_node(self) -> int:
        return self.tasks_per_node

    @property
    def files(self) -> Mapping[str, bytes]:
        return {self.filename: self.content}

    def check(self, plan: Plan) -> None:
        own_image = self.image and not self.framework  # then the framework is unknown
        if self.precompile and plan.framework != "torch-xla" and not own_image:
            raise JobError(
                f"precompiling needs torch-xla (neuron_parallel_compile), but the framework is {plan.framework}. Submit without "
                "--precompile, or deploy with `bootstrap: {framework: torch-xla}`"
            )

    def template(self, plan: Plan) -> Template:
        name = quote.word(self.filename)
        if self.launcher != "none":
            given: list[templates.Option] = [quote.words(self.args)] if self.args else []
            start = templates.command(f'"$job/script"/{name}', given, self.launcher)
            return Template(f'cd "$job/work"\n{start}\n{templates.RUN}')
        if self.content.startswith(b"#!"):
            start = f'"$job/script"/{name}'
        else:
            start = f'{"python3" if self.filename.endswith(".py") else "bash"} "$job/script"/{name}'
        words = f" {quote.words(self.args)}" if self.args else ""
        return Template(f"""cd "$job/work"
command=({start}{words})
{templates.RUN}""")


def _not_runnable(name: str, content: bytes) -> str:
    """Why the nodes could not run it, and what to do; empty if they can."""
    first, _, _ = content.partition(b"\n")
    if content.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark, which hides its first line. Save it as UTF-8 without one"
    if first.endswith(b"\r") and (first.startswith(b"#!") or not name.endswith(".py")):
        return f"has Windows line ends, which its interpreter does not understand. Convert it: sed -i 's/\\r$//' {name}"
    if b"\0" in content and not first.startswith(b"#!"):
        return "is not text. Submit a script that starts the program, which can be on the shared file system"
    return ""


KIND = Script

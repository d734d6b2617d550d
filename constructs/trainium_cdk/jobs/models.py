"""Jobs as plain data. A job says what to train and on how many nodes; nothing here knows a cluster or a scheduler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from trainium_cdk.jobs.errors import JobError

Scaling = Literal["strong", "weak"]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9.-]{0,38}[a-z0-9])?$")]
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$")]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
TimeLimit = Annotated[
    str, StringConstraints(pattern=r"^([0-9]{1,9}|([0-9]{1,5}-)?[0-9]{1,5}(:[0-9]{2}){0,2})$", max_length=20)
]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^/[^\x00\n]*$", max_length=1024)]
Image = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._:/-]*(:[\w.-]{1,128})?(@sha256:[0-9a-f]{64})?$")]
Data = Annotated[str, StringConstraints(pattern=r"^(/[^\x00\n]*|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[^\x00\n]*)?)$")]

_HINTS = {
    "name": "small letters, digits, dots and hyphens, 40 at most, as bert-large-2",
    "queue": "the name of a queue, as compute1",
    "instance_type": "the name of an instance type, as trn1.32xlarge",
    "time_limit": "minutes, or HH:MM:SS, or D-HH:MM:SS, as 2-00:00:00",
    "data": "a directory on the cluster (/efs/...) or s3://bucket/key",
    "checkpoint": "a file on the cluster (/efs/.../ckpt_7032.pt) or the id of the job that wrote it",
    "env": "NAME=VALUE, the name of letters, digits and _",
    "filename": "a file name of letters, digits and . _ + -",
    "cache": "letters, digits and . _ -, as bert-large",
    "image": "the name of a container image, as <registry>/<repository>:<tag>",
    "scaling": "strong or weak",
}
MAX_SCRIPT_BYTES = 5_000_000
MAX_WORD_BYTES = 131_071
"""Longest argument, or NAME=VALUE, that Linux hands to a program (MAX_ARG_STRLEN in linux/binfmts.h, less the NUL)."""
MAX_WORDS_BYTES = 1_000_000
"""Longest arguments and environment together. Linux takes 2 MiB in all; the rest is for what is there already."""

# Bash sets these itself, reads them, or refuses that they are set; `cd` and the virtual environment change some
_OF_BASH = frozenset(
    """BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_LINENO BASH_REMATCH BASH_SOURCE
    BASH_SUBSHELL BASH_VERSINFO BASH_VERSION COMP_WORDBREAKS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD
    IFS LINENO OLDPWD OPTARG OPTIND PATH PIPESTATUS POSIXLY_CORRECT PPID PS1 PWD PYTHONHOME RANDOM REPLY SECONDS SHELLOPTS SHLVL
    SRANDOM UID VIRTUAL_ENV VIRTUAL_ENV_PROMPT _""".split()  # noqa: SIM905
)
# The launch scripts' own variables: a test holds that none is missing
_OF_LAUNCH = frozenset(
    """NNODES NODE_RANK RANK LOCAL_RANK WORLD_SIZE cache code command data failed fails_once files found host i inside job limit log main
    megatron_ref mode most node output phase1_end pids ranks resume samples_ref stage start steps tensorboard told tool trn venv
    writer""".split()  # noqa: SIM905
)


def _wrong(message: str) -> PydanticCustomError:
    return PydanticCustomError("trn", "{message}", {"message": message})


def _shown(value: object) -> str:
    text = repr(value[:100] if isinstance(value, str | bytes) else value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _passable(what: str, word: str) -> int:
    """The bytes of a word that a program can be given."""
    if "\0" in word:
        raise _wrong(f"{what} holds a NUL byte, which no program can be given. Remove it")
    try:
        size = len(word.encode())
    except UnicodeEncodeError:
        raise _wrong(f"{what} holds bytes that are not UTF-8 text. Put them in a file, and name the file") from None
    if size > MAX_WORD_BYTES:
        raise _wrong(
            f"{what} has {size:,} bytes; Linux hands at most {MAX_WORD_BYTES:,} to a program in one word. Put it in a "
            "file on the shared file system, and name the file"
        )
    return size + 1


def _fits(size: int) -> None:
    if size > MAX_WORDS_BYTES:
        raise _wrong(
            f"arguments and env have {size:,} bytes together; {MAX_WORDS_BYTES:,} is the most. Put them in a file on the "
            "shared file system, and name the file"
        )


class Job(BaseModel):
    """What every job has. Frozen; unknown fields are refused with `JobError`.

    Attributes:
        nodes: compute nodes.
        name: first part of the job's id. Default: the template's name.
        queue: the cluster's queue. Default: its first.
        instance_type: which fleet, where the queue mixes instance types.
        time_limit: of the training stage: minutes, HH:MM:SS or D-HH:MM:SS. Default: the queue's.
        env: additions to the launch environment; they win over ours.
        precompile: compile the graphs first, in a stage of its own.
        cache: the compile cache (cache set) it shares with others of this name. Default: the template's name, or the
            script's.
        image: container image, on Kubernetes. Default: the cluster's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    nodes: int = Field(1, ge=1, le=10_000)
    name: Name | None = None
    queue: Word | None = None
    instance_type: Word | None = None
    time_limit: TimeLimit | None = None
    env: Mapping[EnvName, str] = Field(default_factory=dict)
    precompile: bool = True
    cache: Word | None = None
    image: Image | None = None

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as e:
            raise JobError(_describe(e)) from None

    @model_validator(mode="after")
    def _environment(self) -> Self:
        for name in self.env:
            if name.startswith("SLURM"):
                raise _wrong(f"env {name}: names that begin with SLURM are Slurm's own. Choose another name")
            if name in _OF_BASH | _OF_LAUNCH:
                raise _wrong(f"env {name}: the launch scripts, or bash, set it themselves. Set it in your own script")
        _fits(self._env_size())
        return self

    def _env_size(self) -> int:
        return sum(_passable(f"env {name}", f"{name}={value}") for name, value in self.env.items())

    @property
    def label(self) -> str:
        """The first part of the job's id."""
        return self.name or self.kind

    @property
    def cache_set(self) -> str:
        """The name of its compile cache."""
        return self.cache or self.kind


class BertLarge(Job):
    """BERT-Large pretraining, data parallel over every NeuronCore (aws-neuron-samples, dp_bert_hf_pretrain).

    Defaults are the tutorials': phase 1 with sequence length 128, LAMB at global batch size 65536 on 32-core nodes.

    Attributes:
        phase: 1 (sequence length 128) or 2 (512, from a checkpoint of phase 1).
        optimizer: `lamb` or `adamw`.
        scaling: `strong` keeps the global batch size and divides the accumulation among the nodes; `weak` keeps the
            work of each node, so that the global batch size grows with the nodes.
        batch_size: sequences of one microstep of one worker. Default: 16 in phase 1, 2 in phase 2.
        accumulation: gradient accumulation microsteps of one node alone. Default: lamb 128, adamw 32, phase 2 512.
        steps: optimizer steps of the whole training. Default: lamb 7032, adamw 28125, phase 2 1563.
        run_steps: stop after this many steps. Default: all.
        learning_rate: default: lamb 6e-3, adamw 4e-4; phase 2 4e-3 and 2.8e-4.
        warmup_steps: default 2000, phase 2 781.
        data: tokenized shards: a directory, s3://bucket/file.tar or s3://bucket/prefix. Default: the public Wikipedia
            set.
        checkpoint: phase 2 only: a ckpt_<step>.pt file, or the id of the job that wrote it.
    """

    kind: Literal["bert-large"] = "bert-large"
    phase: Literal[1, 2] = 1
    optimizer: Literal["lamb", "adamw"] = "lamb"
    scaling: Scaling = "strong"
    batch_size: int | None = Field(None, ge=1)
    accumulation: int | None = Field(None, ge=1)
    steps: int | None = Field(None, ge=1)
    run_steps: int | None = Field(None, ge=1)
    learning_rate: float | None = Field(None, gt=0, lt=1)
    warmup_steps: int | None = Field(None, ge=0)
    data: Data | None = None
    checkpoint: str | None = Field(None, pattern=r"^(/[^\x00\n]*/ckpt_\d+\.pt|[a-z0-9][a-z0-9.-]{0,80})$")

    @model_validator(mode="after")
    def _phases(self) -> Self:
        if self.phase == 2 and self.checkpoint is None:
            raise _wrong(
                "phase 2 starts from a checkpoint of phase 1. Give checkpoint (--checkpoint): a ckpt_<step>.pt "
                "file on the cluster, "
                "or the id of the job that wrote it"
            )
        if self.phase == 1 and self.checkpoint is not None:
            raise _wrong("phase 1 starts from nothing. Remove checkpoint, or choose phase 2")
        return self


class Gpt3(Job):
    """GPT-3 6.7B pretraining with Megatron-LM (aws-neuron-reference-for-megatron-lm): 32 layers, hidden 4096, 32
    heads, 2048 tokens.

    Attributes:
        tensor_parallel: NeuronCores one copy of the model is spread over. The rest is data parallel.
        scaling: `weak` keeps 64 accumulation microsteps, so that the global batch size follows the nodes; `strong`
            keeps it at 1024.
        accumulation: microsteps, with weak scaling. Default: 64.
        global_batch_size: sequences, with strong scaling. Default: 1024.
        micro_batch_size: sequences of one microstep.
        steps: iterations of the whole training.
        run_steps: stop after this many iterations. Default: all.
        learning_rate: peak; decays to a tenth by cosine.
        data: a directory or s3:// prefix with gpt2-vocab.json, gpt2-merges.txt and <data_name>.bin/.idx. Default: the
            public Wikipedia set.
        data_name: file name of the .bin and .idx files, without ending.
    """

    kind: Literal["gpt3-6.7b"] = "gpt3-6.7b"
    tensor_parallel: int = Field(32, ge=1, le=64)
    scaling: Scaling = "weak"
    accumulation: int | None = Field(None, ge=1)
    global_batch_size: int | None = Field(None, ge=1)
    micro_batch_size: int = Field(1, ge=1)
    steps: int = Field(143_051, ge=1)
    run_steps: int | None = Field(None, ge=1)
    learning_rate: float = Field(0.00012, gt=0, lt=1)
    data: Data | None = None
    data_name: Word = "my-gpt2_text_document"

    @model_validator(mode="after")
    def _batch(self) -> Self:
        if self.scaling == "weak" and self.global_batch_size is not None:
            raise _wrong(
                "global_batch_size is given, but weak scaling derives it from the nodes. Remove it, or choose "
                "scaling strong"
            )
        if self.scaling == "strong" and self.accumulation is not None:
            raise _wrong(
                "accumulation is given, but strong scaling derives it from global_batch_size. Remove it, or "
                "choose scaling weak"
            )
        if 32 % self.tensor_parallel:
            raise _wrong(
                f"tensor_parallel is {self.tensor_parallel}: the model's 32 attention heads must divide by it. "
                "Use 1, 2, 4, 8, 16 or 32"
            )
        return self


class Script(Job):
    """A script of the user's own, started on each node with the rendezvous in its environment.

    It finds MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE (the NeuronCores of a node) set; with
    `tasks_per_node` above 1 also RANK, LOCAL_RANK and WORLD_SIZE.

    Attributes:
        filename: its file name.
        content: its bytes.
        args: its arguments; they arrive as they are.
        tasks_per_node: copies started on each node.
        precompile: run it under neuron_parallel_compile first.
    """

    kind: Literal["script"] = "script"
    filename: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$")]
    content: bytes = Field(max_length=MAX_SCRIPT_BYTES, repr=False)
    args: tuple[str, ...] = ()
    tasks_per_node: int = Field(1, ge=1, le=256)
    precompile: bool = False

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Self:
        """The job of a script file.

        Raises:
            JobError: it cannot be read, is no file, empty, or too large to be a script.
        """
        shown, path = str(path)[:300], Path(path)
        try:
            size, file = path.stat().st_size, path.is_file()
            content = path.read_bytes() if file and size <= MAX_SCRIPT_BYTES else None
        except (OSError, ValueError) as e:  # ValueError: a NUL byte in it
            reason = e.strerror if isinstance(e, OSError) else e
            raise JobError(f"cannot read the script {shown}: {reason}. Check the path") from None
        if not file:
            raise JobError(f"{path} is not a file. Name the script itself")
        if content is None:
            raise JobError(
                f"{path} has {size:,} bytes; a script may have {MAX_SCRIPT_BYTES:,}. Put data on the shared file system"
            )
        return cls(filename=path.name, content=content, **fields)

    @model_validator(mode="after")
    def _words(self) -> Self:
        if not self.content.strip():
            raise _wrong(f"the script {self.filename} is empty. Write something in it")
        _fits(self._env_size() + sum(_passable(f"argument {_shown(word)}", word) for word in self.args))
        return self

    @property
    def label(self) -> str:
        return self.name or re.sub(r"[^a-z0-9]+", "-", Path(self.filename).stem.lower()).strip("-")[:40] or "script"

    @property
    def cache_set(self) -> str:
        return self.cache or f"script-{self.label}"


AnyJob = BertLarge | Gpt3 | Script


def _describe(error: ValidationError) -> str:
    sentences = []
    for found in error.errors():
        if found["type"] == "trn":
            sentences.append(str(found["ctx"]["message"]))
            continue
        key = str(found["loc"][0]) if found["loc"] else "job"
        fix = f" Write {_HINTS[key]}" if key in _HINTS else ""
        if found["type"] == "extra_forbidden":
            sentences.append(f"a {error.title} job has no {key}. Remove it")
        elif found["type"] == "missing":
            sentences.append(f"{key} is not given.{fix}")
        else:
            shown = _shown(found["input"])
            reason = found["msg"][0].lower() + found["msg"][1:]
            if found["type"] == "string_pattern_mismatch" and fix:
                reason = "not of the right form"
            sentences.append(f"{key} is {shown}: {reason}.{fix}")
    return " ".join(s.removesuffix(".") + "." for s in sentences).removesuffix(".")

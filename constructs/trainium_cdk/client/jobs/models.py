"""The fields of every job, and the base class of job kinds. The kinds are in `kinds/`, one file each."""

import re
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainium_cdk.client.jobs import packages, sweep, words
from trainium_cdk.client.jobs.packages import Packages
from trainium_cdk.client.jobs.packages import Upstream as Upstream
from trainium_cdk.client.jobs.words import (
    SET_BY_RUNNER,
    WORD,
    Array,
    EnvName,
    Image,
    JobId,
    Label,
    Name,
    SbatchOption,
    Source,
    TimeLimit,
    describe_errors,
    fits,
    passable,
    shown,
    wrong,
)
from trainium_cdk.description.catalog.constants import Fetches
from trainium_cdk.errors import JobError
from trainium_cdk.runner.aws import SECRET_BEGINS, SECRET_FORM
from trainium_cdk.runner.readers import Reader
from trainium_cdk.runner.spec import Checkpoints as Checkpoints
from trainium_cdk.runner.spec import JobSpec as JobSpec
from trainium_cdk.runner.spec import PrepareStep, Program, Words, array_indices
from trainium_cdk.text import S3_FOLDER, Text

if TYPE_CHECKING:
    from trainium_cdk.description.outputs import Cluster, Fleet

Scaling = Literal["strong", "weak"]


def plain(text: str) -> str:
    """The text as a job's name may be.

    >>> plain("torchtitan-My_Qwen3.5")
    'torchtitan-my-qwen3.5'
    """
    return re.sub(r"[^a-z0-9.]+", "-", text.lower())[:40].strip(".-")


class Job(BaseModel):
    """The fields of every job, and the methods that a kind overrides. Frozen; unknown fields raise `JobError`.

    A kind is a subclass in a module of its own (`trainium_cdk.client.jobs.kinds`, or a package with an entry point in the group
    `trainium_cdk.job_kinds`). It declares `kind` with a literal type, sets the class variables, defines `program`, and overrides the
    other methods that it needs. What they return is data for the runner (`runner.spec`), and no line of a shell.
    """

    TITLE: ClassVar[str] = ""
    """What it trains, in one line."""
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ("torch-xla",)
    """Frameworks that it runs with; empty: no framework needed."""
    FAMILIES: ClassVar[tuple[str, ...]] = ()
    """Instance families that it runs on; empty: all."""
    RELEASES: ClassVar[tuple[str, str]] = ("", "")
    """First Neuron SDK release that it runs with, and first release that it does not run with any more; empty: no bound."""
    UPSTREAM: ClassVar[Upstream | None] = None
    PACKAGES: ClassVar[Packages | None] = None
    """What its programs import in addition to the framework; None: it runs with the packages of the cluster, or of the image."""
    TENSORBOARD: ClassVar[str] = "output"
    """Folder of TensorBoard's files in the job's directory."""
    FETCHES: ClassVar[Fetches] = "files"
    """What it fetches: that decides how much memory its pod gets."""
    RESTARTS: ClassVar[bool] = True
    """Whether to retry after a failure of its own program, because it resumes from a checkpoint."""
    CHECKPOINTS: ClassVar[Checkpoints | None] = None
    """Those of its program, without `same` and `source`; None: it writes none."""
    NEEDS_TRAINIUM: ClassVar[bool] = True
    """Whether it runs on Trainium nodes only; False: also in a cluster's queue of nodes without them."""
    CHECKS_VERSIONS: ClassVar[bool] = True
    """Whether a node does not start if its Neuron driver and runtime are not compatible. False: the kind reports it itself."""
    REPLACES: ClassVar[Mapping[str, str]] = {}
    """Names of former kinds that this one replaces, each with the reason for its removal."""
    LOGS: ClassVar[tuple[Reader, ...]] = ()
    """Readers of its log lines (see `readers.log`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    kind: str
    nodes: int = Field(default=1, ge=1, le=10_000, description="Compute nodes.")
    name: Name | None = Field(
        default=None, description="First part of the job's id. Default: the kind's name, or the script's."
    )
    queue: Annotated[str, replace(WORD, words="the name of a queue", example="compute1")] | None = Field(
        default=None,
        description="Queue. Default: the cluster's first. Slurm: scripts that need no Trainium also run in the queue of CPU nodes, cpu.",
    )
    instance_type: (
        Annotated[str, replace(WORD, words="the name of an instance type", example="trn2.48xlarge")] | None
    ) = Field(default=None, description="Instance type, where a queue mixes several.")
    compute_resource: Label | None = Field(
        default=None,
        description="Slurm: compute resource. Default: all of the queue that have the job's instance type and EFA.",
    )
    time_limit: TimeLimit | None = Field(
        default=None,
        description="Time limit of the training: 90m, 12h, 2d. Slurm's forms work, too: minutes, HH:MM:SS, D-HH:MM:SS. Default: the queue's.",
    )
    env: Mapping[EnvName, str] = Field(
        default_factory=dict, description="Additional variables of the job's programs; they win over the defaults."
    )
    precompile: bool = Field(default=True, description="Compile the graphs first, in a separate stage.")
    cache: (
        Annotated[
            str, Text(rf"{WORD.regex}|^{S3_FOLDER}/?$", f"{WORD.words}; or an address in S3", "s3://my-bucket/compiled")
        ]
        | None
    ) = Field(
        default=None,
        description="Name of the compile cache. Jobs with the same name share it. Default: the kind's name, or the script's. Or an address in S3, "
        "which clusters share: graphs are read from there first, and written there.",
    )
    keep: (
        Annotated[str, Text(rf"^(no|{S3_FOLDER}/?)$", "an address in S3, or no", "s3://my-bucket/checkpoints")] | None
    ) = Field(
        default=None,
        description="Copy each complete checkpoint to this address in S3, while the job runs. Default: the environment's (jobs: {keep}). no: nowhere.",
    )
    keep_newest: int = Field(
        default=3, ge=1, le=100, description="With --keep: checkpoints of the job that stay there, the newest."
    )
    image: Image | None = Field(default=None, description="Kubernetes: container image. Default: the cluster's.")
    priority: Label | None = Field(
        default=None,
        description="Kubernetes: priority class: low, normal, high, or another of the cluster's. Default: normal's.",
    )
    lnc: Literal[1, 2] | None = Field(
        default=None,
        description="Trn2 and Trn3: physical NeuronCores of one logical NeuronCore. Default: the queue's, or 2.",
    )
    devices: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Kubernetes: take so many devices of one node, in a node group with share: true. Default: whole nodes.",
    )
    after: JobId | None = Field(
        default=None,
        description="Id of a job that must have completed before this one begins. It is cancelled if that one fails. ARRAY: all of its "
        "members; ARRAY/INDEX: that one.",
    )
    account: Label | None = Field(
        default=None, description="Slurm: account that the job counts for. Default: the user's. Needs accounting."
    )
    qos: Label | None = Field(
        default=None, description="Slurm: quality of service. Default: the account's. Needs accounting."
    )
    sbatch: tuple[SbatchOption, ...] = Field(
        default=(),
        description="Slurm: further option of sbatch for its nodes, for example --sbatch --exclude=node-3 or --sbatch --reservation=weekly. "
        "Repeat it for more.",
    )
    array: Array | None = Field(
        default=None,
        description="Run it once for each of these indices, for example 0-99. A member has its index in TRN_ARRAY_INDEX, and the id "
        "JOB/INDEX. The job is prepared once. Slurm: 0-99%8 runs at most 8 at a time, and members compile at their first steps.",
    )
    resume_from: Source | None = Field(
        default=None,
        description="Go on from the newest checkpoint of an earlier job. Give the job's id; an address in S3 that --keep has written to; or a folder "
        "or address with what its checkpoint directory had. It is copied once, before the job trains.",
    )
    user: Annotated[str, Text(r"^[A-Za-z0-9_.-]{0,40}$", "at most 40 letters, digits and . _ -", "alice")] = ""
    """Who submits it, for `trn list`."""
    restarts: int | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Maximum restarts after a node was lost. On Kubernetes, kinds that resume from a checkpoint are also "
        "restarted after a failure of their program. Default: 3, or 20 on spot nodes; on Slurm no limit.",
    )

    past_block_end: bool = Field(
        default=False,
        description="Stay in a capacity block to its end (Slurm). The job is lost with its nodes. Default: save before that, and wait for the next block.",
    )
    max_usd: float | None = Field(
        default=None,
        gt=0,
        le=100_000_000,
        description="Most that its nodes may cost, in USD. At 80% you get a warning; at 100% the job saves and stops. All attempts count, at the list "
        "price; in an array, for each member. Storage, prepare, and nodes while they start do not count.",
    )

    def __init__(self, **data: Any) -> None:
        try:
            super().__init__(**data)
        except ValidationError as e:
            raise JobError(describe_errors(e, type(self)), [str(f["loc"][0]) for f in e.errors() if f["loc"]]) from None

    @model_validator(mode="after")
    def _environment(self) -> Self:
        for name in self.env:
            if name.startswith("SLURM"):
                raise wrong(f"env {name}: names that begin with SLURM are Slurm's own. Choose another name")
            if reason := SET_BY_RUNNER.get(name):
                raise wrong(f"env {name}: {reason}. Choose another name, or set it in your own script")
            if self.env[name].startswith(SECRET_BEGINS) and not SECRET_FORM.fullmatch(self.env[name]):
                raise wrong(
                    f"env {name}: {shown(self.env[name])} is not a reference to a secret. Write secretsmanager:NAME, secretsmanager:NAME#KEY or ssm:NAME"
                )
        fits(self._env_size())
        return self

    @property
    def has_secrets(self) -> bool:
        """True if a variable's value is kept in AWS."""
        return any(value.startswith(SECRET_BEGINS) for value in self.env.values())

    def _env_size(self) -> int:
        return sum(passable(f"env {name}", f"{name}={value}") for name, value in self.env.items())

    @property
    def label(self) -> str:
        """The first part of the job's id."""
        return self.name or plain(self.kind)

    @property
    def cache_set(self) -> str:
        """The name of its compile cache."""
        return self.cache_name or self.kind

    @property
    def cache_name(self) -> str:
        """The name that its compile cache was given; empty if none."""
        return "" if (self.cache or "").startswith("s3://") else self.cache or ""

    @classmethod
    def goes_on(cls) -> bool:
        """Return whether programs of this kind start from the checkpoints of another job."""
        return cls.CHECKPOINTS is not None

    @property
    def total_steps(self) -> int | None:
        """Optimizer steps of this run; None if its program decides."""
        return getattr(self, "run_steps", None) or getattr(self, "steps", None)

    @property
    def processes_per_node(self) -> int:
        """Copies of its program that are started on each node."""
        return 1

    @property
    def prepares(self) -> bool:
        """True if something is fetched, or copied, first."""
        return type(self).prepare is not Job.prepare or self.resume_from is not None

    @property
    def fetches(self) -> Fetches:
        """Return the work of `prepare` that decides its memory."""
        return self.FETCHES

    @property
    def own_environment(self) -> bool:
        """True if `prepare` installs the job's packages."""
        return self.PACKAGES is not None

    @property
    def tools(self) -> str:
        """Programs that `prepare` needs, where it fetches neither code nor data, with a space between them."""
        return ""

    def describe_packages(self, cluster: "Cluster") -> str:
        """Describe the packages that the job brings, for the user, before it runs; empty for none."""
        return packages.describe(self.PACKAGES, self, cluster) if self.PACKAGES else ""

    @property
    def needs_framework(self) -> bool:
        """True if the nodes must have one of `FRAMEWORKS`."""
        return bool(self.FRAMEWORKS)

    def check(self, plan: "Plan") -> Iterable[str] | None:
        """Check that the job can run on this cluster. Returns notes for the user, if there are any.

        Raises:
            JobError: it cannot; the message has the value and the fix.
        """

    def batch(self, fleet: "Fleet", notes: list[str]) -> "Batch | None":
        """The composition of the global batch; None if the kind defines none.

        Args:
            notes: list to which notes for the user are appended.

        Raises:
            JobError: it does not fit the nodes.
        """
        return None

    def launch_environment(self, plan: "Plan", torch: tuple[int, ...]) -> dict[str, str]:
        """Variables of this kind, in addition to every job's.

        Args:
            torch: (major, minor) of PyTorch on the nodes.
        """
        return {}

    @abstractmethod
    def program(self, plan: "Plan") -> Program:
        """The program of the training, as it starts on each node."""

    def precompile_program(self, plan: "Plan") -> Program:
        """The program whose graphs `neuron_parallel_compile` compiles. Default: the training's, from its beginning."""
        return replace(self.program(plan), resume=())

    def prepare(self, plan: "Plan") -> tuple[PrepareStep, ...]:
        """Return the steps that fetch first: see `jobs.fetching`. A kind that overrides this has a stage `prepare`."""
        return ()

    def files(self, plan: "Plan") -> Mapping[str, bytes]:
        """Return the files that are sent with the job, by name; programs are executable."""
        return {}

    def require(self, plan: "Plan") -> Words:
        """Paths on the cluster without which the job is refused before a node is requested."""
        return ()

    @property
    def starts_once(self) -> bool:
        """True if the training starts once, in Slurm's batch script (`runner.spec.StageSpec`)."""
        return False

    @property
    def spmd(self) -> bool:
        """True if one process uses several NeuronCores, as JAX does (`runner.spec.StageSpec`)."""
        return False

    def layout(self, plan: "Plan") -> Mapping[str, str | int]:
        """Return the values that another job must share to start from its checkpoints, by the names of options, or `workers`."""
        return {}


AnyJob = Job

StageName = Literal["prepare", "precompile", "train"]


class Batch(NamedTuple):
    """The composition of a global batch.

    Attributes:
        per_worker: sequences of one microstep of one model copy.
        accumulation: gradient accumulation microsteps.
        data_parallel: model copies.
    """

    per_worker: int
    accumulation: int
    data_parallel: int

    @property
    def global_size(self) -> int:
        """Sequences of one optimizer step."""
        return self.per_worker * self.accumulation * self.data_parallel

    def __str__(self) -> str:
        return (
            f"{self.global_size} = {self.per_worker} sequences x {self.accumulation} accumulation steps "
            f"x {self.data_parallel} data-parallel"
        )


@dataclass(frozen=True)
class Plan:
    """A job that fits its cluster.

    Attributes:
        fleet: the nodes it runs on; the first of several that are alike.
        batch: None if the job defines no global batch, for example a user's script.
        prepares_on: where `prepare` runs on Slurm: the nodes without Trainium, else those with the fewest NeuronCores, which cost least.
        prepared: these nodes and their price, for the user; empty if nothing is fetched, and on Kubernetes.
        constraint: Slurm features that select the fleets, if the queue has others too.
        notes: for the user, before the job runs.
        spec: what the runner carries out; empty until the job is rendered with a token.
    """

    job: Job
    cluster: "Cluster"
    fleet: "Fleet"
    batch: Batch | None
    prepares_on: "Fleet"
    prepared: str = ""
    constraint: str | None = None
    notes: tuple[str, ...] = ()
    spec: JobSpec = field(default=JobSpec("", "", ()), repr=False)

    @property
    def id(self) -> str:
        """`<name>-<token>`; the same token gives the same id, and is submitted once."""
        return self.spec.id

    @property
    def directory(self) -> str:
        """The job's directory on the shared file system: logs, checkpoints, TensorBoard's files."""
        return f"{self.cluster.shared_dir}/{self.cluster.folder}/jobs/{self.id}"

    @property
    def workers(self) -> int:
        return self.job.nodes * self.fleet.cores

    @property
    def framework(self) -> str:
        """The framework of its workers: torch-xla, torch-native, jax, or none if neither the job nor the cluster sets one."""
        known = self.job.FRAMEWORKS
        given = getattr(self.job, "framework", None) or ("jax" if self.job.spmd else self.cluster.framework)
        return known[0] if len(known) == 1 else given

    @property
    def needs_neuron(self) -> bool:
        """True if the job needs a Neuron driver: a script without a framework may not, and there is none without Trainium."""
        return self.on_trainium and (self.job.needs_framework or self.framework != "none")

    @property
    def keep(self) -> str:
        """The address to which its checkpoints are copied; empty if none."""
        given = self.cluster.keep if self.job.keep is None else self.job.keep.removeprefix("no")
        return given if self.job.CHECKPOINTS else ""

    @property
    def shared_cache(self) -> str:
        """The address in S3 of its compile cache; empty if none."""
        given = self.cluster.cache if not self.job.cache or self.job.cache_name else self.job.cache
        return given if self.on_trainium and self.framework != "none" and not self.job.starts_once else ""

    @property
    def on_trainium(self) -> bool:
        """True if the job's nodes have Trainium."""
        return self.fleet.devices > 0

    @property
    def ranks_per_node(self) -> int:
        """Processes of a node that have a rank."""
        several = self.job.processes_per_node
        return several if several > 1 or self.job.spmd else self.fleet.cores

    @property
    def started(self) -> int:
        """Processes that are started, on all nodes: where a launcher does it, one for each NeuronCore."""
        if self.job.starts_once:
            return 1
        launched = words.starts_several(self.job.program(self).words)
        return self.job.nodes * (max(1, self.fleet.cores) if launched else self.job.processes_per_node)

    @property
    def stages(self) -> tuple[StageName, ...]:
        """Return the stages in their order. `prepare` runs only if something must be fetched."""
        first: tuple[StageName, ...] = ("prepare",) if self.job.prepares or self.shared_cache else ()
        # an array's members on Slurm: their nodes are not known before
        compiles = self.job.precompile and (self.cluster.containers or not self.job.array)
        middle: tuple[StageName, ...] = ("precompile",) if compiles else ()
        return (*first, *middle, "train")

    def describe(self) -> list[str]:
        """The plan as lines of text."""
        nodes, each = f"{self.job.nodes} node{'s' if self.job.nodes > 1 else ''}", " each"
        if some := self.job.devices:
            nodes, each = f"{some} device{'s' if some > 1 else ''} of a node", ""
        lines = [
            f"{nodes} of {self.fleet.instance_type} in queue {self.fleet.queue}, {self.fleet.cores} NeuronCores{each}"
        ]
        if not self.on_trainium:
            lines = [f"{nodes} of {self.fleet.instance_type} in queue {self.fleet.queue}, without Trainium"]
        if self.job.array:
            lines[0] = f"{len(array_indices(self.job.array))} times {lines[0]}"
        if self.keep:
            lines.append(f"its {self.job.keep_newest} newest checkpoints are copied to {self.keep}")
        if values := getattr(self.job, "sweep", None):
            lines.append(f"sweep of {sweep.describe(values)}")
        if self.batch:
            lines.append(f"global batch size {self.batch}")
        installed = self.job.describe_packages(self.cluster)
        return [*lines, *filter(None, (installed, self.prepared)), *self.notes]

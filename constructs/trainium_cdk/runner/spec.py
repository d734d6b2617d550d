"""The job, requests and answers, as JSON, which a client, the runner and a job's folder share.

A request is strict: a field that this version does not know is refused, with the versions of both sides. A record on disk is not: what an
older version does not know, it leaves out.
"""

import base64
import dataclasses
import functools
import gzip
import io
import re
import sys
import types
import typing
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Optional, TypeVar, Union

VERSION = 1
"""Version of this format: a change of a field that is sent raises it."""

T = TypeVar("T")
_UNIONS = (Union, getattr(types, "UnionType", Union))  # a Python may write `X | None`


class SpecError(ValueError):
    """A text is no such JSON, or of another version."""


# --- words of a program ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A part of a word that only the node knows, by its name.

    Names: `job` (the job's folder; of a member of an array its own), `files` (what its kind sends), `trn` (the folder of data, sources and models),
    `root` (the prefix of an absolute path of a shared file system; empty but in a sandbox), `cache` (the node's compile cache),
    `checkpoint` (the newest complete one), `nodes`, `node` (0, 1, ...), `processes` (of one node), `workers` (of all nodes), `master` (address of
    node 0), `port`, `host` (the node's name), `id` (the job's; of a member of an array ARRAY/INDEX), `index` (of such a member), `run` (tells
    one run of the stage from another), `problem` (why the node's Neuron driver and runtime do not work together; empty where they do),
    `sweep.NAME` (a member's value: `Sweep`).
    """

    name: str


@dataclass(frozen=True)
class Only:
    """The one entry of a folder, if it has one and that is a folder; else the folder itself."""

    of: "Word"


Part = Union[str, Place, Only]
Word = Union[str, tuple[Part, ...]]
"""A word of a command line or the value of a variable: a text as it is, or parts that are joined."""
Words = tuple[Word, ...]


# --- the job ----------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """The program that a stage starts on each node.

    Attributes:
        words: the program and its arguments; it is not a shell's line.
        folder: where it starts.
        resume: further words once the job has a checkpoint.
        variables: besides the job's own, which win. PYTHONPATH comes before theirs and the node's.
        folders: made before it starts.
    """

    words: Words
    folder: Word
    resume: Words = ()
    variables: Mapping[str, Word] = field(default_factory=dict)
    folders: Words = ()


@dataclass(frozen=True)
class StageSpec:
    """One stage of a job.

    Attributes:
        name: prepare, precompile or train.
        program: None for `prepare`, which carries out `JobSpec.prepare`.
        processes: copies of the program on each node.
        seconds: time limit; None: the scheduler's.
        again: whether a failure of the program itself may be tried again, as it resumes from a checkpoint.
        batch: whether Slurm's batch script starts the program, once, on the first node. `processes` is then srun's default in the program.
        spmd: whether one copy of the program uses several NeuronCores, so that each copy has a rank, also the only one of a node (JAX).
    """

    name: str
    nodes: int = 1
    program: Optional[Program] = None
    processes: int = 1
    seconds: Optional[int] = None
    again: bool = False
    batch: bool = False
    spmd: bool = False

    @property
    def has_ranks(self) -> bool:
        """True if each copy of the program that is started has a rank."""
        return (self.processes > 1 or self.spmd) and not self.batch

    def ranks(self, cores: int) -> int:
        """Return the number of ranks of a node with so many NeuronCores."""
        return self.processes if self.processes > 1 or self.spmd else max(1, cores)

    @property
    def spreads(self) -> bool:
        """True if the program itself starts processes on the other nodes, with its own variables."""
        return self.batch and self.nodes > 1


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of a job's program.

    Attributes:
        folder: where it writes them, in the job's folder.
        place: folder below it that has them; empty: itself.
        pattern: of a checkpoint's name, for example `ckpt_*.pt`, newest last in the order of its numbers; empty: all that the folder has belongs together.
        last: a file in a checkpoint that its program writes last; `zip`: the checkpoint is a file, complete if it is a whole ZIP archive.
        forget: what is deleted before the program starts: `others` than the newest one; empty: nothing.
        same: what a job that continues from another one's checkpoints must have in common with it.
        source: a job's id, `ARRAY/INDEX`, a folder of a shared file system, or an address in S3 from which this job continues; empty: none.
        transfer: USD for a gigabyte from another region to this one, by that region's name.
        keep: address in S3 to which complete ones are copied; empty: none. keeps: how many stay there.
    """

    folder: str
    place: str = ""
    pattern: str = ""
    last: str = ""
    forget: str = ""
    same: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    transfer: Mapping[str, float] = field(default_factory=dict)
    keep: str = ""
    keeps: int = 3


@dataclass(frozen=True)
class Rule:
    """Neuron drivers and runtimes that do not work together: each from `first`, and before `before`; empty: no bound. `words`: what to write instead."""

    driver: tuple[str, str]
    runtime: tuple[str, str]
    words: str


@dataclass(frozen=True)
class NodeEnvironment:
    """What surrounds a program on its node.

    Attributes:
        venv: the virtual environment of the cluster (`~` and `~USER` at its start are replaced on the node); empty: the image's own Python.
        venv_required: refused without it.
        packages: whether `prepare` makes an environment of the job's own on top of it.
        cores: NeuronCores of a node.
        framework: torch-xla, torch-native, jax or none: it decides the variables of the compile cache.
        cache: name of the compile cache.
        compiled: address in S3 that it has in common with other clusters; empty: none.
        rules: of driver and runtime.
        checks: refuse the node (`refuse`), report (`report`), or say nothing (empty) where they do not work together.
        region: of variables whose values are kept in AWS (`aws.secret_values`); empty without such.
    """

    venv: Word = ""
    venv_required: bool = False
    packages: bool = False
    cores: int = 0
    framework: str = "none"
    cache: str = ""
    compiled: str = ""
    rules: tuple[Rule, ...] = ()
    checks: str = ""
    region: str = ""


@dataclass(frozen=True)
class PrepareStep:
    """One step of `prepare`. What it makes is made once for all jobs that need the same.

    Attributes:
        do: its name: a function of `runner.prepare`.
        with_: the function's arguments, plain data.
    """

    do: str
    with_: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """The values of an array's members. `rows[INDEX]`: a member's, in the order of the names."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def of(self, index: str) -> dict[str, str]:
        """The values of a member by their names; empty if it has none."""
        row = self.rows[int(index)] if index.isdecimal() and int(index) < len(self.rows) else ()
        return dict(zip(self.names, row))


@dataclass(frozen=True)
class Slurm:
    """Slurm's settings for the stages of a job.

    Attributes:
        queue, prepare_queue: partitions.
        options: for sbatch, for each stage but `prepare`.
        cluster: which tells clusters on the same file system apart.
        after: id of a job that must complete first; empty: none.
        account, qos: empty: the user's own.
        restarts: most restarts after a node was lost; None: no limit.
        past_block_end: whether it stays in a capacity block until EC2 ends its nodes.
    """

    queue: str
    prepare_queue: str
    cluster: str
    options: tuple[str, ...] = ()
    after: str = ""
    account: str = ""
    qos: str = ""
    restarts: Optional[int] = None
    past_block_end: bool = False


@dataclass(frozen=True)
class HealthRules:
    """Rules for a running training: the watch, and the response where it makes no progress. The times are in seconds.

    Attributes:
        hang: `tell`, or `restart` from the newest checkpoint. nan: `tell`, or `stop`.
        every: between two looks of a node, and of what judges all of them.
        least: without a step, after which a training hangs at the earliest.
        start: without a line, after which a program that has done fewer than ten steps, and does not hang, is reported.
    """

    hang: str = "tell"
    nan: str = "tell"
    every: float = 30.0
    least: float = 600.0
    start: float = 5400.0


@dataclass(frozen=True)
class Budget:
    """The most that a job may cost. `seconds`: of one node, which cost that, in all attempts and stages but `prepare`; each node counts."""

    usd: float
    seconds: float


@dataclass(frozen=True)
class JobSpec:
    """A job that fits its cluster: all that the runner needs to carry it out.

    Attributes:
        shown: what `trn list` shows of it: kind, queue, instance_type, nodes, global_batch_size, user, checkpoints.
        settings: what it was submitted with, other than the defaults of its kind; without its variables.
        variables: the user's own. They win over all others, and are in their own file.
        files: what its kind sends, by name; programs are executable.
        array: indices of its members, as Slurm takes them; empty: none.
        sweep: the values of its members; None: they differ in their index alone.
        budget: of each member, where it is an array; None: no limit.
    """

    id: str
    kind: str
    stages: tuple[StageSpec, ...]
    environment: NodeEnvironment = field(default_factory=NodeEnvironment)
    prepare: tuple[PrepareStep, ...] = ()
    require: tuple[Word, ...] = ()
    shown: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    checkpoints: Optional[Checkpoints] = None
    array: str = ""
    sweep: Optional[Sweep] = None
    slurm: Optional[Slurm] = None
    health: HealthRules = field(default_factory=HealthRules)
    budget: Optional[Budget] = None


# --- the members of an array, as `sbatch --array` reads them ----------------------------------------------------------------------------

ARRAY_PATTERN = r"[0-9]{1,3}(-[0-9]{1,3}(:[0-9]{1,3})?)?(,[0-9]{1,3}(-[0-9]{1,3}(:[0-9]{1,3})?)?){0,99}(%[0-9]{1,3})?"
MAX_MEMBERS = 1000
"""Most members: Slurm's MaxArraySize is 1001 by default, and ParallelCluster and PCS leave it (slurm.conf(5), 2026-11)."""


def array_indices(array: str) -> list[int]:
    """The indices of an array, in ascending order; empty where a range's first is not before its last.

    >>> array_indices("0-3%2"), array_indices("10-20:5,1,3"), array_indices("5-3,1")
    ([0, 1, 2, 3], [1, 3, 10, 15, 20], [])
    """
    found: set[int] = set()
    for part in array.partition("%")[0].split(","):
        first, _, rest = part.partition("-")
        last, _, step = rest.partition(":")
        if not (every := range(int(first), int(last or first) + 1, int(step or 1))):
            return []
        found.update(every)
    return sorted(found)


def array_problem(array: str) -> str:
    """Describe why an array with the right format cannot be; else empty."""
    if re.search(r"[:%]0+(?![0-9])", array):
        return "a step, and a number at a time, is at least 1"
    every = array_indices(array)
    if not every or max(every) >= MAX_MEMBERS:
        return f"its indices are 0 to {MAX_MEMBERS - 1}, the first of a range before its last"
    return ""


# --- JSON -------------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bound:
    """A condition for a value from JSON, besides its type, in an `Annotated`. `name`: as an error has it."""

    name: str
    holds: Callable[[Any], object]


TIME = Bound("time", lambda seconds: 0 <= seconds <= 253_402_300_799)
"""Seconds since 1970, up to the year 9999."""
Time = Annotated[int, TIME]
Count = Annotated[int, Bound("count", lambda count: count >= 0)]


class Packed(bytes):
    """Bytes that are compressed in JSON, as logs repeat themselves."""


def to_json(value: Any) -> Any:
    """A value of these classes as plain data for `json.dumps`. Bytes are base64; what is a default is left out."""
    if isinstance(value, Place):
        return {"place": value.name}
    if isinstance(value, Only):
        return {"only": to_json(value.of)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            one.name: to_json(getattr(value, one.name))
            for one in dataclasses.fields(value)
            if not _is_default(one, value)
        }
    if isinstance(value, Packed):
        return pack(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(one) for one in value]
    return value


def from_json(kind: type[T], value: Any, *, strict: bool = True) -> T:
    """A value of one of these classes from plain data.

    Args:
        strict: refuse fields that the class does not have; else they are left out.

    Raises:
        SpecError: it is no such value; the message names the place in it.
    """
    made: T = _read(kind, value, kind.__name__, strict)
    return made


def pack(data: bytes) -> str:
    """Bytes as text, compressed."""
    return base64.b64encode(gzip.compress(data, 6)).decode() if data else ""


def unpack(text: object, most: int = 64 * 2**20) -> bytes:
    """Bytes of such a text.

    Raises:
        SpecError: it is damaged, or it would be more than so many bytes.
    """
    try:
        packed = io.BytesIO(base64.b64decode(str(text)))
        found = gzip.GzipFile(fileobj=packed).read(most + 1) if text else b""
    except (ValueError, OSError, EOFError, zlib.error):
        raise SpecError("a text of compressed bytes is damaged") from None
    if len(found) > most:
        raise SpecError(f"a text of compressed bytes is more than {most:,} bytes")
    return found


def _is_default(one: "dataclasses.Field[Any]", value: Any) -> bool:
    if one.default is not dataclasses.MISSING:
        return bool(getattr(value, one.name) == one.default)
    if one.default_factory is not dataclasses.MISSING:
        return bool(getattr(value, one.name) == one.default_factory())
    return False


def _read(kind: Any, value: Any, at: str, strict: bool) -> Any:
    origin, inner, named = typing.get_origin(kind), typing.get_args(kind), hasattr(kind, "_fields")
    if kind is Any:
        return value
    if origin is Annotated:
        made, bound = _read(inner[0], value, at, strict), inner[1]
        if not bound.holds(made):
            raise SpecError(f"{at} is {str(value)[:60]!r}, and no {bound.name}")
        return made
    if named:  # a NamedTuple
        origin, inner = tuple, tuple(_hints(kind).values())
    if kind == Word:
        return read_word(value, at)
    if origin in _UNIONS:  # Optional
        return None if value is None else _read(inner[0], value, at, strict)
    if origin is tuple:
        if not isinstance(value, list) or (inner[-1] is not ... and len(value) != len(inner)):
            raise SpecError(f"{at} is not a list of that length")
        kinds = [inner[0]] * len(value) if inner[-1] is ... else inner
        parts = (_read(one, part, f"{at}[{i}]", strict) for i, (one, part) in enumerate(zip(kinds, value)))
        return kind(*parts) if named else tuple(parts)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise SpecError(f"{at} is not an object")
        return {str(key): _read(inner[1], one, f"{at}.{key}", strict) for key, one in value.items()}
    if dataclasses.is_dataclass(kind):
        return _object(kind, value, at, strict)
    if kind is Packed:
        return Packed(unpack(value))
    if kind is bytes:
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError):
            raise SpecError(f"{at} is not base64") from None
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise SpecError(f"{at} is {str(value)[:60]!r}, and not of type {kind.__name__}")
    return value


def _object(kind: Any, value: Any, at: str, strict: bool) -> Any:
    if not isinstance(value, dict):
        raise SpecError(f"{at} is not an object")
    fields = {one.name: one for one in dataclasses.fields(kind)}
    unknown = sorted(set(value) - set(fields))
    if unknown and strict:
        raise SpecError(f"{at} has no field {unknown[0]!r} in version {VERSION} of the runner")
    hints = _hints(kind)
    given = {key: _read(hints[key], one, f"{at}.{key}", strict) for key, one in value.items() if key in fields}
    try:
        return kind(**given)
    except TypeError as e:
        raise SpecError(f"{at} is not complete: {e}") from None


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind, vars(sys.modules[kind.__module__]), include_extras=True)


def read_word(value: Any, at: str = "a word") -> Word:
    """A word from plain data.

    Raises:
        SpecError: it is none.
    """
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise SpecError(f"{at} is not a word")
    parts: list[Part] = []
    for one in value:
        if isinstance(one, str):
            parts.append(one)
        elif isinstance(one, dict) and set(one) == {"place"} and isinstance(one["place"], str):
            parts.append(Place(one["place"]))
        elif isinstance(one, dict) and set(one) == {"only"}:
            parts.append(Only(read_word(one["only"], at)))
        else:
            raise SpecError(f"{at} is not a word")
    return tuple(parts)

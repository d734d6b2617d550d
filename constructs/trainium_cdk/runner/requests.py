"""Requests of a client to the runner of a cluster, and their answers: one request is one JSON document, and so is its answer.

Answers come from machines that jobs run on: each value's type says what it must be, and whoever reads it refuses anything else.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Optional

from .blocks import Block
from .files import shared_root
from .spec import VERSION, Bound, Count, JobSpec, Packed, SpecError, Word, from_json, to_json
from .status import Foreign, JobStatus, Node


@dataclass(frozen=True)
class Cluster:
    """A Slurm cluster as its client sees it.

    Attributes:
        shared_dir: where its shared file system is mounted.
        folder: of the user's jobs and data in it.
        identity: tells clusters apart that have the same file system, one after another.
        name, stack, region: as messages name it.
        cpu_queue: of the nodes without Trainium; empty: there are none.
        multi_user: whether it has several users, each with its own folder.
        blocks: its capacity blocks, where the client has asked for them, and EC2 has told.
    """

    shared_dir: str
    folder: str
    identity: str
    name: str
    stack: str = ""
    region: str = ""
    cpu_queue: str = ""
    multi_user: bool = False
    blocks: tuple[Block, ...] = ()

    @property
    def shared(self) -> Path:
        """The shared file system. In a sandbox, `TRN_SHARED_ROOT` is its prefix."""
        return Path(shared_root() + self.shared_dir)

    @property
    def trn(self) -> Path:
        """The folder of the user's jobs, data, sources and models."""
        return self.shared / self.folder

    @property
    def jobs(self) -> Path:
        return self.trn / "jobs"


_Text = Annotated[str, Bound("text of 1 to 10,000 characters", lambda text: 0 < len(text) <= 10_000)]
_Port = Annotated[int, Bound("port", range(1, 65536).__contains__)]


@dataclass(frozen=True)
class Error:
    """The error instead of an answer. `kind`: of `errors`, or `broken`: the runner itself has failed. `similar`: ids like one that is not known."""

    kind: _Text
    message: _Text
    similar: tuple[str, ...] = ()


@dataclass(frozen=True)
class ListJobs:
    """The newest jobs, newest first. `others`: then other users' that run or wait."""

    limit: int = 50
    others: bool = False


@dataclass(frozen=True)
class Status:
    """One job; of `ARRAY/INDEX`, the array."""

    id: str


@dataclass(frozen=True)
class ReadLog:
    """A piece of a log. Answer: `Log`.

    Attributes:
        stage: empty: the last one that has a log.
        node: None: of all nodes, each line with its number before it. rank: the node of this process instead; the answer has its number.
        offset: byte to begin at.
        most: bytes.
        tail: begin at so many last lines, if they are after `offset`.
        members: of an array, whose members' logs are read instead: the byte to begin at, by index. Empty: all members, from their beginning.
    """

    id: str
    stage: str = ""
    node: Optional[int] = None
    offset: int = 0
    most: int = 16 * 1024 * 1024
    tail: Optional[int] = None
    members: Mapping[str, int] = field(default_factory=dict)
    rank: Optional[int] = None


@dataclass(frozen=True)
class LogPiece:
    """A piece of a log.

    Attributes:
        size: of the log. offset: at which the piece begins; without data, the log's end, if that is before the offset that was asked for.
        member: index, of an array.
    """

    size: Count = 0
    offset: Count = 0
    data: Packed = field(default_factory=Packed)
    member: str = ""


@dataclass(frozen=True)
class Log:
    """A piece of a log, and the job's status just before it was read: if the stage had ended, its log is complete.

    Attributes:
        members: for an array, the pieces of its members that have any, in their order; None: it is not an array.
        node: of the rank that was asked for.
    """

    job: JobStatus
    stage: str
    piece: LogPiece = field(default_factory=LogPiece)
    members: Optional[tuple[LogPiece, ...]] = None
    node: Optional[int] = None


@dataclass(frozen=True)
class Report:
    """A job with the logs of its stages but `prepare`, from their beginning; of an array, none. Answer: `History`. `most`: bytes of all logs."""

    id: str
    most: int = 16 * 1024 * 1024


@dataclass(frozen=True)
class History:
    """A job, what it was submitted with (as of `JobSettings`), and the logs of its stages, without what is not a regular file."""

    job: JobStatus
    settings: Mapping[str, Any]
    logs: Mapping[str, LogPiece]


@dataclass(frozen=True)
class JobSettings:
    """The settings of a job's submission, without its variables and the defaults of its kind; empty if they are not known."""

    id: str


@dataclass(frozen=True)
class Active:
    """The jobs of all users that run or wait, as Slurm itself knows them."""


@dataclass(frozen=True)
class Others:
    """The jobs that other clients than `trn` run or queue."""


@dataclass(frozen=True)
class ListNodes:
    """The nodes, as Slurm's controller sees them."""


@dataclass(frozen=True)
class SubmitJobs:
    """Submit these jobs, each once. Answer: the `Outcome` of each.

    Attributes:
        addresses: presigned, of what the client sends, by what they stand for. They are not part of a job.
    """

    jobs: tuple[JobSpec, ...]
    addresses: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Outcome:
    """The result of a job's submission.

    Attributes:
        stages: numbers of its Slurm jobs, by stage. existing: from an earlier request. resubmitted: stages that Slurm had lost.
        note: what its user must know.
        error: why it is not submitted. One of the kind `later` is submitted, whole and once, by the same request.
    """

    stages: Mapping[str, str] = field(default_factory=dict)
    existing: bool = False
    resubmitted: tuple[str, ...] = ()
    note: str = ""
    error: Optional[Error] = None

    def __post_init__(self) -> None:
        if not (self.stages or self.error):
            raise SpecError("a job has no outcome")


@dataclass(frozen=True)
class Cancel:
    """Cancel a job, or a member of an array: `ARRAY/INDEX`. The answer is as of `Status`."""

    id: str


BOARD_HOURS = 12
"""After which TensorBoard ends, even if its viewer has gone without a word."""


@dataclass(frozen=True)
class StartBoard:
    """Start TensorBoard over a job's directory. Answer: `StartedBoard`. `venv`: as of `spec.NodeEnvironment`."""

    id: str
    venv: Word = ""


@dataclass(frozen=True)
class StartedBoard:
    """The number of TensorBoard's process, and its port of the loopback address."""

    number: Annotated[int, Bound("number of a process", lambda number: number > 0)]
    port: _Port


@dataclass(frozen=True)
class StopBoard:
    """End a TensorBoard. `number`: of its process."""

    number: int


@dataclass(frozen=True)
class WordsOnNode:
    """The words that start a program on a node (0, 1, ...) of a running job, with a terminal."""

    id: str
    node: int


@dataclass(frozen=True)
class StartRelay:
    """Start a relay to a node of a running job. Answer: `StartedRelay`.

    Attributes:
        node: 0, 1, ...; `name`: its name, which is used instead where it is not empty; `rank`: the node of this process instead.
        digest: SHA-256 of the caller's secret.
    """

    id: str
    node: int
    digest: str
    name: str = ""
    rank: Optional[int] = None


@dataclass(frozen=True)
class StartedRelay:
    """The address of a relay, the file with the port that its job offers, and the job's node (0, 1, ...)."""

    address: Annotated[str, Bound("address", re.compile(r"[0-9A-Za-z][\w.:-]{0,252}").fullmatch)]
    port: _Port
    offer: str
    node: int


@dataclass(frozen=True)
class RunOnNodes:
    """Run a short program on each node of a running job. Answer: what it prints on each, in their order."""

    id: str
    words: tuple[str, ...]


class Entry(NamedTuple):
    """A file, or a link. `time`: of its last change, in seconds; `link`: where it leads; empty for a file."""

    name: str
    size: int
    time: int
    mode: int
    link: str

    def same(self, other: "Optional[Entry]") -> bool:
        """Return whether the other entry is this file already: by size and time, as `aws s3 sync` and rsync compare."""
        return other is not None and (self.size, self.time, self.link) == (other.size, other.time, other.link)


@dataclass(frozen=True)
class ListFiles:
    """The files of a folder, or one file. Answer: `Listing`. `places`: the shared file systems; it must be on one of them."""

    path: str
    places: tuple[str, ...]
    most: int


@dataclass(frozen=True)
class Listing:
    """The entries of a folder, or of one file.

    Attributes:
        root: the folder that they are in. folder: whether it was asked for, and not one file.
        left_out: names of others, with the reason.
    """

    root: str
    folder: bool
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class FindFiles:
    """The entries at the target of a copy. Answer: `FoundFiles`.

    Attributes:
        path: the folder of the files; or of one file: a folder that exists, or the file's new name.
        names: of the files in the folder; or `name`, of one file.
        into: the path is the one file's folder, whether it exists or not.
    """

    path: str
    places: tuple[str, ...]
    names: tuple[str, ...] = ()
    name: str = ""
    into: bool = False


@dataclass(frozen=True)
class FoundFiles:
    """The entries at the target of a copy, and the free bytes. `into`: whether the path is the folder of the files."""

    into: bool
    there: tuple[Optional[Entry], ...]
    free: int


@dataclass(frozen=True)
class Incoming:
    """A file that is fetched from a presigned address. It must have this SHA-256, or still this ETag. A link has no address."""

    entry: Entry
    address: str = field(default="", repr=False)
    sha256: str = ""
    etag: str = ""


@dataclass(frozen=True)
class TakeFiles:
    """Fetch these files into a folder."""

    path: str
    places: tuple[str, ...]
    files: tuple[Incoming, ...]


@dataclass(frozen=True)
class Outgoing:
    """A file that is sent. `to`: offset and length of its spans, each with a presigned address."""

    entry: Entry
    to: tuple[tuple[int, int, str], ...] = field(repr=False)


@dataclass(frozen=True)
class GiveFiles:
    """Send these files of a folder. Answer: the `SentFile` of each."""

    path: str
    places: tuple[str, ...]
    files: tuple[Outgoing, ...]


@dataclass(frozen=True)
class SentFile:
    """A file's SHA-256, and the ETags of its spans."""

    sha256: Annotated[str, Bound("SHA-256", re.compile(r"[0-9a-f]{64}").fullmatch)]
    etags: tuple[str, ...]


@dataclass(frozen=True)
class ListCheckpoints:
    """The newest checkpoint of each of the newest 1,000 jobs. Answer: `FoundCheckpoints`."""


class Checkpoint(NamedTuple):
    """A job's newest complete checkpoint; where nothing says what is complete, the newest entry of its `path`, the folder of all. `id`: also
    `ARRAY/INDEX`. `to`: where in a bucket a copy of the folder does not mix with what `--keep` has copied; empty: S3 has the checkpoint."""

    id: _Text
    name: _Text
    size: Count
    path: _Text
    to: str


@dataclass(frozen=True)
class FoundCheckpoints:
    """Checkpoints, the newest job's first; and the users that have their own folder, where this is not one of them."""

    checkpoints: tuple[Checkpoint, ...]
    users: tuple[str, ...] = ()


OPERATIONS: dict[str, tuple[Any, Any, str]] = {
    "list": (ListJobs, tuple[JobStatus, ...], "head.answers.list_jobs"),
    "status": (Status, JobStatus, "head.answers.status"),
    "log": (ReadLog, Log, "head.answers.read_piece"),
    "report": (Report, History, "head.answers.report"),
    "submit": (SubmitJobs, tuple[Outcome, ...], "head.submit.submit_jobs"),
    "cancel": (Cancel, JobStatus, "head.answers.cancel"),
    "settings": (JobSettings, Mapping[str, Any], "head.answers.settings"),
    "active": (Active, tuple[JobStatus, ...], "head.answers.active"),
    "others": (Others, tuple[Foreign, ...], "slurm_nodes.others"),
    "checkpoints": (ListCheckpoints, FoundCheckpoints, "work.keep.list_checkpoints"),
    "nodes": (ListNodes, tuple[Node, ...], "slurm_nodes.list_nodes"),
    "start tensorboard": (StartBoard, StartedBoard, "head.programs.start_board"),
    "stop tensorboard": (StopBoard, None, "head.programs.stop_board"),
    "start relay": (StartRelay, StartedRelay, "head.programs.start_relay"),
    "words on a node": (WordsOnNode, tuple[str, ...], "head.programs.words_on_node"),
    "run on nodes": (RunOnNodes, tuple[str, ...], "head.programs.run_on_nodes"),
    "list files": (ListFiles, Listing, "head.copying.list_files"),
    "find files": (FindFiles, FoundFiles, "head.copying.find_files"),
    "take files": (TakeFiles, None, "head.copying.take_files"),
    "give files": (GiveFiles, tuple[SentFile, ...], "head.copying.give_files"),
}
"""Each operation's request class, answer class, and the function that answers it, as FOLDER.MODULE.FUNCTION. It gets a `Cluster`
and the request."""


def write_request(cluster: Cluster, given: Any) -> Any:
    """A request as plain data."""
    name = next(name for name, (kind, *_) in OPERATIONS.items() if kind is type(given))
    return {"version": VERSION, "op": name, "cluster": to_json(cluster), "given": to_json(given)}


def read_request(value: Any) -> tuple[str, Cluster, Any]:
    """The function that answers a request, its cluster, and what is asked.

    Raises:
        SpecError: it is not a request of this version.
    """
    if not isinstance(value, dict) or set(value) != {"version", "op", "cluster", "given"}:
        raise SpecError("a request has version, op, cluster and given, and nothing else")
    if value["version"] != VERSION:
        raise SpecError(f"the request is of version {value['version']!r:.20}, and this runner of version {VERSION}")
    if not isinstance(value["op"], str) or value["op"] not in OPERATIONS:
        raise SpecError(f"there is no operation {value['op']!r:.60}, but {', '.join(OPERATIONS)}")
    kind, _, function = OPERATIONS[value["op"]]
    return function, from_json(Cluster, value["cluster"]), from_json(kind, value["given"])


def read_answer(given: Any, value: Any) -> Any:
    """The answer to a request. It may be of a newer runner.

    Raises:
        SpecError: it is none, or has not one result for each thing that was asked for.
    """
    kind = next(answer for kind, answer, _ in OPERATIONS.values() if kind is type(given))
    answer: Any = from_json(kind, value, strict=False) if kind else None
    asked: Sequence[Any] = ()
    if isinstance(given, FindFiles):
        asked, results = (given.name,) if given.name else given.names, answer.there
    elif isinstance(given, (SubmitJobs, GiveFiles)):
        asked, results = given.jobs if isinstance(given, SubmitJobs) else given.files, answer
    else:
        return answer
    if len(results) != len(asked):
        raise SpecError(f"it is not about {len(asked)} files or jobs")
    return answer

"""What a client asks the runner of a Slurm cluster: one request is one JSON document, and so is its answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from .blocks import Block
from .spec import VERSION, Job, SpecError, Word, from_json, to_json
from .words import shared_root


@dataclass(frozen=True)
class Cluster:
    """A Slurm cluster as its client sees it.

    Attributes:
        shared_dir: where its shared file system is mounted.
        folder: of the user's jobs and data in it.
        identity: tells clusters apart that have the same file system, one after another.
        name, stack, region: as messages name it.
        cpu_queue: of the nodes without Trainium; empty: there are none.
        several: whether it has several users, each with a folder of its own.
        blocks: its capacity blocks, where the client has asked for them, and EC2 has told.
    """

    shared_dir: str
    folder: str
    identity: str
    name: str
    stack: str = ""
    region: str = ""
    cpu_queue: str = ""
    several: bool = False
    blocks: tuple[Block, ...] = ()

    @property
    def shared(self) -> Path:
        """The shared file system. `TRN_SHARED_ROOT` stands before it in a sandbox."""
        return Path(shared_root() + self.shared_dir)

    @property
    def trn(self) -> Path:
        """The folder of the user's jobs, data, sources and models."""
        return self.shared / self.folder

    @property
    def jobs(self) -> Path:
        return self.trn / "jobs"


@dataclass(frozen=True)
class ListJobs:
    """The newest jobs, newest first. `others`: then those of other users that run or wait."""

    limit: int = 50
    others: bool = False


@dataclass(frozen=True)
class Status:
    """One job; of `ARRAY/INDEX`, the array."""

    id: str


@dataclass(frozen=True)
class ReadLog:
    """A piece of a log, and the job's status just before it was read.

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
class Report:
    """A job's status, its settings, and the logs of its stages but `prepare`, from their beginning; of an array, none. `most`: bytes of all logs."""

    id: str
    most: int = 16 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """What a job was submitted with."""

    id: str


@dataclass(frozen=True)
class Active:
    """The jobs of all users that run or wait, as Slurm itself knows them."""


@dataclass(frozen=True)
class Others:
    """What others than `trn` run or queue."""


@dataclass(frozen=True)
class ListNodes:
    """The nodes, as Slurm's controller sees them."""


@dataclass(frozen=True)
class SubmitJobs:
    """Submit these jobs, each once: of each, an outcome.

    Attributes:
        addresses: presigned, of what the client sends, by what they stand for. They are no part of a job.
    """

    jobs: tuple[Job, ...]
    addresses: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Cancel:
    """Cancel a job, or a member of an array: `ARRAY/INDEX`. The answer is as of `Status`."""

    id: str


@dataclass(frozen=True)
class StartBoard:
    """Start TensorBoard over a job's directory. `venv`: as of `spec.Environment`."""

    id: str
    venv: Word = ""


@dataclass(frozen=True)
class StopBoard:
    """End a TensorBoard. `number`: of its process."""

    number: int


@dataclass(frozen=True)
class NodeOfRank:
    """The job's node (0, 1, ...) on which the process of this rank runs."""

    id: str
    rank: int


@dataclass(frozen=True)
class WordsOnNode:
    """The words that start a program on a node (0, 1, ...) of a running job, with a terminal."""

    id: str
    node: int


@dataclass(frozen=True)
class StartRelay:
    """Start a relay to a node of a running job.

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
class RunOnNodes:
    """Run a short program on each node of a running job."""

    id: str
    words: tuple[str, ...]


_Entry = tuple[str, int, int, int, str]
"""As of `copied_files.Entry`."""


@dataclass(frozen=True)
class ListFiles:
    """The files of a folder, or one file. `places`: the shared file systems, on one of which it must be."""

    path: str
    places: tuple[str, ...]
    most: int


@dataclass(frozen=True)
class FindFiles:
    """What is there where files shall be copied to.

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
class Incoming:
    """A file that is fetched from a presigned address. It must have this SHA-256, or still this ETag. A link has no address."""

    entry: _Entry
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

    entry: _Entry
    to: tuple[tuple[int, int, str], ...] = field(repr=False)


@dataclass(frozen=True)
class GiveFiles:
    """Send these files of a folder."""

    path: str
    places: tuple[str, ...]
    files: tuple[Outgoing, ...]


OPERATIONS: dict[str, tuple[Any, str]] = {
    "list": (ListJobs, "head.answers.list_jobs"),
    "status": (Status, "head.answers.status"),
    "log": (ReadLog, "head.log.read_piece"),
    "report": (Report, "head.log.report"),
    "submit": (SubmitJobs, "head.submit.submit_jobs"),
    "cancel": (Cancel, "head.cancel.cancel"),
    "settings": (Settings, "head.answers.settings"),
    "active": (Active, "head.answers.active"),
    "others": (Others, "head.nodes.others"),
    "nodes": (ListNodes, "head.nodes.list_nodes"),
    "start tensorboard": (StartBoard, "work.board.start"),
    "stop tensorboard": (StopBoard, "work.board.stop"),
    "start relay": (StartRelay, "head.step.start_relay"),
    "node of a rank": (NodeOfRank, "head.step.node_of_rank"),
    "words on a node": (WordsOnNode, "head.step.words_on_node"),
    "run on nodes": (RunOnNodes, "head.step.run_on_nodes"),
    "list files": (ListFiles, "head.copying.list_files"),
    "find files": (FindFiles, "head.copying.find_files"),
    "take files": (TakeFiles, "head.copying.take_files"),
    "give files": (GiveFiles, "head.copying.give_files"),
}
"""Of each operation: the class of its request, and the function that answers it, as FOLDER.MODULE.FUNCTION. It gets a `Cluster` and the
request, and returns plain data."""


def write_request(cluster: Cluster, given: Any) -> Any:
    """A request as plain data."""
    name = next(name for name, (kind, _) in OPERATIONS.items() if kind is type(given))
    return {"version": VERSION, "op": name, "cluster": to_json(cluster), "given": to_json(given)}


def read_request(value: Any) -> tuple[str, Cluster, Any]:
    """The function that answers a request, its cluster, and what is asked.

    Raises:
        SpecError: it is no request of this version.
    """
    if not isinstance(value, dict) or set(value) != {"version", "op", "cluster", "given"}:
        raise SpecError("a request has version, op, cluster and given, and nothing else")
    if value["version"] != VERSION:
        raise SpecError(f"the request is of version {value['version']!r:.20}, and this runner of version {VERSION}")
    if not isinstance(value["op"], str) or value["op"] not in OPERATIONS:
        raise SpecError(f"there is no operation {value['op']!r:.60}, but {', '.join(OPERATIONS)}")
    kind, function = OPERATIONS[value["op"]]
    return function, from_json(Cluster, value["cluster"]), from_json(kind, value["given"])

"""A hostile head node, or pod: whatever it answers, each command of the client ends with a message."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.conftest import make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from trainium_cdk.client.jobs import runner as answers
from trainium_cdk.client.jobs.copy import Copy
from trainium_cdk.client.jobs.kubernetes import reader
from trainium_cdk.client.jobs.slurm import ssm
from trainium_cdk.client.jobs.slurm.transport import Result
from trainium_cdk.errors import TransportError, TrnError
from trainium_cdk.jobs import SlurmBackend, SsmTransport
from trainium_cdk.runner import requests
from trainium_cdk.runner.head import copying
from trainium_cdk.runner.requests import (
    OPERATIONS,
    Entry,
    FindFiles,
    GiveFiles,
    Incoming,
    ListFiles,
    Outgoing,
    ReadLog,
    StartRelay,
)
from trainium_cdk.runner.spec import SpecError, pack, unpack

ENTRY = Entry("a", 1, 0, 0o644, "")
STAGE = {"name": "train", "number": "1", "state": "RUNNING"}
JOB = {
    "id": "a-1",
    "kind": "script",
    "queue": "q",
    "instance_type": "t",
    "nodes": 1,
    "global_batch_size": None,
    "stages": [STAGE],
}
LOG = {"job": JOB, "stage": "train"}
NODE = {"name": "q-1", "queue": "q", "instance_type": "t", "state": "idle"}
LISTING = {"root": "/efs/x", "folder": True}
ANYTHING: tuple[Any, ...] = (
    None, 7, -1, True, "x", [], {}, [None], [[]], [{}], [7], ["x", 1], {"job": 7}, {"job": None}, {"job": {}}, {"jobs": []},
    JOB, {**JOB, "stages": []}, [{**JOB, "stages": []}], {**JOB, "submitted": 10**18}, [{**JOB, "submitted": -5}], {**JOB, "nodes": -1},
    {**JOB, "stages": [{**STAGE, "ended": 10**15}]}, {**JOB, "members": [{**STAGE, "started": -1}]}, {**JOB, "directory": 7},
    {**JOB, "stages": [{**STAGE, "findings": [{"kind": "hang", "at": -1}]}]}, {**LOG, "job": {**JOB, "stages": []}}, {**LOG, "members": None},
    {**LOG, "piece": {"offset": -1}}, {**LOG, "piece": {"size": "1"}}, {**LOG, "piece": {"data": "x"}}, {**LOG, "members": [{"member": 7}]},
    {"job": JOB, "settings": [], "logs": {}}, {"job": JOB, "settings": {}, "logs": {"train": 7}},
    {"job": JOB, "settings": {}, "logs": {"train": {"size": -1, "data": ""}}}, {"settings": [1]}, {"port": 0, "number": 1},
    {"port": 70000, "number": 1}, {"number": 1}, {"port": 1, "number": -1}, {"address": "-x", "port": 1, "offer": "", "node": 0},
    {"address": "x", "port": 0, "offer": "", "node": 0}, {"node": "0"}, [{**NODE, "name": "-oProxyCommand=id"}], [{**NODE, "booted": 10**16}],
    {"x": "1"}, {"1": 1}, [{"error": {"kind": "refused"}}], [{"error": {"kind": "", "message": "x"}}], [{"stages": {}}],
    [{"stages": [], "existing": False, "resubmitted": []}], {**LISTING, "entries": [["a"]]}, {**LISTING, "entries": [7]}, LISTING,
    {**LISTING, "entries": [["a", "1", 0, 0, ""]]}, {"into": True, "there": [], "free": 1}, {"into": True, "there": [ENTRY, ENTRY], "free": 1},
    {"into": 1, "there": [None], "free": 1}, [{"sha256": "", "etags": []}],
)  # fmt: skip
FIELDS: dict[str, Any] = {
    "id": "a-1", "path": "/efs/x", "places": ("/efs",), "most": 9, "names": ("a",), "files": (), "node": 0, "rank": 0, "digest": "",
    "words": ("w",), "number": 1, "jobs": (),
}  # fmt: skip


class Head:
    """A head node whose runner prints this."""

    instance, interval = "", 0.0

    def __init__(self, text: str) -> None:
        self.text = text

    def ask(self, *_: Any) -> Result:
        return Result(self.text, "", 0)


def backend(answer: Any) -> SlurmBackend:
    return SlurmBackend(
        make_cluster(),
        Head(answer if isinstance(answer, str) else json.dumps({"answer": answer})),
        sleep=lambda _: None,
    )


def asked(kind: Any) -> Any:
    given = {name: FIELDS[name] for name, one in kind.__dataclass_fields__.items() if name in FIELDS}
    return kind(**given)


@pytest.mark.parametrize("kind", [kind for kind, *_ in OPERATIONS.values()])
def test_no_answer_to_any_request_is_a_traceback(kind: Any) -> None:
    believed = 0
    for answer in ANYTHING:
        with contextlib.suppress(TransportError):
            backend(answer).ask(asked(kind))
            believed += 1
    assert believed == OPEN[kind] if kind in OPEN else believed <= 1


OPEN = {
    requests.StopBoard: len(ANYTHING) - 1,
    requests.TakeFiles: len(ANYTHING) - 1,
    requests.JobSettings: sum(isinstance(answer, dict) for answer in ANYTHING),
}
"""How many of these answers are believed: of the first two only an error is read, and settings are any object. A text is no document."""


@pytest.mark.parametrize("answer", ANYTHING)
def test_no_answer_to_any_verb_is_a_traceback(answer: Any, tmp_path: Path) -> None:
    head = backend(answer)
    verbs = [
        lambda: head.status("a-1"),
        lambda: head.list(),
        lambda: head.settings("a-1"),
        lambda: head.history("a-1"),
        lambda: head.active(),
        lambda: head.others(),
        lambda: head.nodes(),
        lambda: head.cancel("a-1"),
        lambda: list(head.logs("a-1")),
        lambda: head.on_nodes("a-1", ["true"]),
        lambda: Copy(head).plan_download("/efs/x", tmp_path),
        lambda: Copy(head).plan_upload(Path(__file__), "/efs/x"),
    ]
    for verb in verbs:
        with contextlib.suppress(TrnError):
            verb()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000, '{"answer": ' + "[" * 40 + "]" * 40 + "}", '{"answer": NaN}', '{"answer": -Infinity}', '{"answer": 1e999}',
        '{"answer": ' + "9" * 5000 + "}", '{"answer": 99999999999999999999}', '{"answer": ' + "[1," * 2_100_000, "7", "null", '"answer"',
        '{"error": {"kind": 7, "message": "x"}}', '{"error": {"kind": "x", "message": ""}}', '{"error": null}', '{"answer": 1, "id": 7}',
        json.dumps({"error": {"kind": "x", "message": "x" * 20_000}}), '{"error": {"kind": "unknown", "message": "x", "similar": [7]}}',
    ],
)  # fmt: skip
def test_what_is_no_document_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        answers.document(text)
    with pytest.raises(TransportError, match="the answer cannot be read"):
        backend(text).ask(ReadLog("a-1"))


def test_half_characters_are_replaced() -> None:
    found = answers.document('{"answer": {"\\ud800k": ["a\\udfff", "\\ud83d\\ude00"]}}').answer
    assert found == {"\ufffdk": ["a\ufffd", "\U0001f600"]}
    json.dumps(found, ensure_ascii=False).encode()


def test_what_is_large_when_it_is_unpacked_is_refused() -> None:
    assert unpack(pack(bytes(1000)), 1000) == bytes(1000)
    with pytest.raises(SpecError, match="more than 999 bytes"):
        unpack(pack(bytes(1000)), 999)


@dataclass
class Agent:
    """boto3's client of Systems Manager: a head node that prints this for each command."""

    output: str

    def send_command(self, **_: Any) -> Any:
        return {"Command": {"CommandId": "c"}}

    def get_command_invocation(self, **_: Any) -> Any:
        return {"Status": "Success", "StandardOutputContent": self.output}


BOMB = base64.b64encode(gzip.compress(bytes(answers.MOST + 1))).decode()


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (f"trn-ssm 0 {10**12} /tmp/trn-ssm-x\n\nabc", "sent more than an answer can be"),
        (f"trn-ssm 0 {'9' * 5000} /tmp/trn-ssm-x\n\nabc", "sent an unexpected response"),
        (f"trn-ssm {'9' * 5000} 1 /tmp/trn-ssm-x\n\nabc", "sent an unexpected response"),
        ("trn-ssm 0 1 /tmp/trn-ssm-x; id\n\nabc", "sent an unexpected response"),
        ("trn-ssm 0 4 /tmp/trn-ssm-x\n\n\udcff\udcff\udcffa", "lost part of its response"),
        (f"trn-ssm 0 {len(BOMB)} /tmp/trn-ssm-x\n\n{BOMB}", "sent more than an answer can be"),
        ("", "sent an unexpected response"),
    ],
    ids=range(7),
)
def test_an_output_that_no_wrapper_prints(output: str, message: str) -> None:
    transport = SsmTransport(Agent(output), "i-1", "ubuntu", sleep=lambda _: None)  # type: ignore[arg-type]
    with pytest.raises(TransportError, match=message):
        transport.run("true")


class Pods:
    """The API of a cluster on which a pod prints this."""

    def __init__(self, *printed: bytes) -> None:
        self.printed = printed

    def create(self, *_: Any) -> None:
        """Taken."""

    delete = create

    def get(self, *_: Any) -> Any:
        return {"status": {"phase": "Succeeded"}}

    def log(self, *_: Any) -> Any:
        yield from self.printed


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ((b"no base64",), "gave no answer"),
        ((BOMB.encode(),), "gave no answer .*more than"),
        ((b"\xff\xfe",), "gave no answer"),
        ((base64.b64encode(gzip.compress(b"[" * 100_000)),), "gave no answer"),
        ((base64.b64encode(gzip.compress(b"7")),), "gave no answer"),
        ([b"A" * 2**20] * 300, "printed more than an answer can be"),
    ],
    ids=range(6),
)
def test_a_pod_that_prints_something_else(printed: Any, message: str) -> None:
    with pytest.raises(TransportError, match=message):
        reader.ask(Pods(*printed), make_eks(), ListFiles("/efs", ("/efs",), 9), image="i", seconds=9)  # type: ignore[arg-type]


def test_results_are_as_many_as_were_asked_for() -> None:
    there = {"into": True, "there": [ENTRY], "free": 1}
    one = FindFiles("/efs", ("/efs",), ("a",))
    assert backend(there).ask(one).there == (ENTRY,)
    with pytest.raises(TransportError, match="not about 2 files"):
        backend(there).ask(FindFiles("/efs", ("/efs",), ("a", "b")))
    give = GiveFiles("/efs", ("/efs",), (Outgoing(ENTRY, ((0, 1, "https://x"),)),))
    with pytest.raises(TransportError, match="not about 1 files"):
        backend([]).ask(give)
    with pytest.raises(TransportError, match="no address"):
        backend({"address": "a b", "port": 1, "offer": "", "node": 0}).ask(StartRelay("a", 0, "d"))
    assert Incoming(ENTRY).sha256 == ""
    assert ssm.MOST_PACKED < answers.MOST


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("../a", 1, 0, 0o644, "")], "cannot be a file"),
        ([("/a", 1, 0, 0o644, "")], "cannot be a file"),
        ([("a\0", 1, 0, 0o644, "")], "cannot be a file"),
        ([("", 1, 0, 0o644, "")], "cannot be a file"),
        ([("a", -1, 0, 0o644, "")], "cannot be a file"),
        ([("a", 2**62, 0, 0o644, "")], "cannot be a file"),
        ([("a", 1, 2**62, 0o644, "")], "cannot be a file"),
        ([("t", 0, 0, 0, "s/.."), ("s", 0, 0, 0, ".")], "may lead out of the folder"),
        ([("t", 0, 0, 0, "/etc")], "may lead out of the folder"),
        ([("d/t", 0, 0, 0, "../../x")], "may lead out of the folder"),
        ([("s", 0, 0, 0, "d"), ("s/x", 1, 0, 0o644, "")], "cannot have 's/x' in it"),
        ([("s", 1, 0, 0o644, ""), ("s/d/x", 1, 0, 0o644, "")], "cannot have 's/d/x' in it"),
        ([(f"a{n}", 1, 0, 0o644, "") for n in range(100_001)], "more than 100,000 files"),
    ],
    ids=range(13),
)
def test_a_list_of_files_that_is_none_writes_nothing(entries: Any, message: str, tmp_path: Path) -> None:
    listed = {**LISTING, "entries": entries}
    with pytest.raises(TrnError, match=message):
        Copy(backend(listed)).plan_download("/efs/x", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("entries", [[], [ENTRY, ENTRY], [("other", 1, 0, 0o644, "")]])
def test_one_file_is_the_one_that_was_asked_for(entries: Any, tmp_path: Path) -> None:
    with pytest.raises(TrnError, match="is not about /efs/x"):
        Copy(backend({**LISTING, "folder": False, "entries": entries})).plan_download("/efs/x", tmp_path)


@pytest.mark.parametrize(
    ("sent", "there"), [(0o4777, 0o755), (0o6666, 0o644), (0o100666, 0o644), (-1, 0o755), (0o640, 0o640)]
)
def test_nobody_else_can_write_a_file_that_has_arrived(sent: int, there: int, tmp_path: Path) -> None:
    entry = Entry("a", 1, 0, sent, "")
    with copying.arriving(tmp_path, entry) as out:
        out.write(b"x")
    assert (tmp_path / "a").stat().st_mode & 0o7777 == there


def test_links_that_stay_are_copied(tmp_path: Path) -> None:
    entries = [("d/t", 0, 0, 0, "../s"), ("s", 0, 0, 0, "d"), ("u", 0, 0, 0, "./d/x")]
    plan = Copy(backend({**LISTING, "entries": entries})).plan_download("/efs/x", tmp_path)
    for entry in plan.links:
        copying.link(tmp_path, entry)
    assert [(tmp_path / name).readlink().as_posix() for name, *_ in entries] == ["../s", "d", "d/x"]

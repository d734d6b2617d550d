"""Requests to the runner: through Run Command of the local AWS, where root places it, and directly on a head node."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm, available
from tests.jobs.conftest import CONFIGURATION, fleet, make_cluster
from tests.support import head_node, need
from trainium_cdk.client.jobs.runner import Pyz, pyz
from trainium_cdk.client.jobs.slurm.transport import Result
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.errors import JobError, TransportError, UnknownJob
from trainium_cdk.jobs import LocalTransport, SlurmBackend, SsmTransport
from trainium_cdk.runner.layout import PLACE
from trainium_cdk.runner.requests import JobSettings, ListJobs, ListNodes, ReadLog, Status

CLUSTER, BUCKET = "jobs-that-ask", "trn-jobs-that-ask"


@pytest.fixture(scope="module")
def slurm(local_aws: LocalAws, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSlurm]:
    need(available() is None, str(available()))
    folder = tmp_path_factory.mktemp("asking")
    with LocalSlurm.start(folder, CONFIGURATION, environment=local_aws.variables) as running:
        yield running


@pytest.fixture(scope="module")
def head(local_aws: LocalAws, slurm: LocalSlurm) -> Iterator[str]:
    folder = local_aws.directory / "clusters" / CLUSTER
    slurm.attach(folder)
    local_aws.client("s3").create_bucket(Bucket=BUCKET)
    with head_node(local_aws, CLUSTER) as instance:
        yield instance
    (folder / "node.json").unlink()
    folder.rmdir()
    local_aws.client("s3").delete_bucket(Bucket=BUCKET)  # refuses a bucket in which a payload was left


@pytest.fixture
def ssm(local_aws: LocalAws, head: str, monkeypatch: pytest.MonkeyPatch) -> SsmTransport:
    """`sent`: the texts of its commands."""
    made = SsmTransport(local_aws.client("ssm"), head, "ubuntu", s3=local_aws.client("s3"), bucket=BUCKET)
    sent: list[str] = []
    invoke = SsmTransport._invoke
    monkeypatch.setattr(SsmTransport, "_invoke", lambda self, text, time: sent.append(text) or invoke(self, text, time))
    made.sent = sent  # type: ignore[attr-defined]
    return made


@pytest.fixture
def place(slurm: LocalSlurm) -> Iterator[Path]:
    """Root's folder of runners, which is not there before."""
    place = Path(slurm.node_env()["TRN_SHARED_ROOT"]) / "efs" / PLACE
    shutil.rmtree(place, ignore_errors=True)
    yield place
    shutil.rmtree(place, ignore_errors=True)


SEEN = make_cluster(fleet(nodes=4), cluster_name=CLUSTER)


def ask(transport: Any, cluster: SlurmCluster, given: Any, *, private: bool = False) -> Any:
    return SlurmBackend(cluster, transport).ask(given, private=private)


def test_one_command_is_one_request_once_the_runner_is_there(ssm: SsmTransport, place: Path) -> None:
    sent: list[str] = ssm.sent  # type: ignore[attr-defined]
    assert ask(ssm, SEEN, ListJobs()) == ()
    assert len(sent) == 3  # asked, placed, asked again
    assert len(ask(ssm, SEEN, ListNodes())) == 4
    assert len(sent) == 4
    (file,) = place.iterdir()
    assert (file.name, file.read_bytes()) == (f"{pyz().name}.pyz", pyz().content)
    assert [one.stat().st_mode & 0o777 for one in (place, file)] == [0o755, 0o644]
    assert ask(ssm, SEEN, JobSettings("a-1"), private=True) == {}
    assert "ubuntu" in sent[-1]


def test_versions_are_there_at_once(ssm: SsmTransport, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(ssm, SEEN, ListJobs()) == ()
    other = Pyz(pyz().content + b"\0", "0" * 64)
    monkeypatch.setattr("trainium_cdk.client.jobs.slurm.ssm.pyz", lambda: other)
    with pytest.raises(
        TransportError, match=r"cannot be placed on jobs-that-ask: the runner has arrived damaged\. Try again"
    ):
        ask(ssm, SEEN, ListJobs())
    assert len(list(place.iterdir())) == 1


@pytest.mark.parametrize(
    "spoiled", ["open folder", "open file", "link of a folder", "link of a file", "open parent", "sticky parent"]
)
def test_a_place_that_others_can_write_is_not_trusted(
    spoiled: str, ssm: SsmTransport, place: Path, tmp_path: Path
) -> None:
    assert ask(ssm, SEEN, ListJobs()) == ()
    (file,) = place.iterdir()
    refused = ""
    if spoiled == "open folder":
        place.chmod(0o777)
        refused = f"/efs/{PLACE} is not a folder of root's alone. An administrator can remove it"
    elif spoiled == "open file":
        file.chmod(0o666)
    elif spoiled == "link of a folder":
        shutil.move(place, tmp_path / "theirs")
        place.symlink_to(tmp_path / "theirs")
        refused = f"/efs/{PLACE} is not a folder of root's alone. An administrator can remove it"
    elif spoiled == "link of a file":
        shutil.move(file, tmp_path / "theirs")
        file.symlink_to(tmp_path / "theirs")
    else:
        shutil.rmtree(place)
        place.parent.chmod(0o777 if spoiled == "open parent" else 0o1777)
        refused = "/efs is not root's, or others can rename what is in it" if spoiled == "open parent" else ""
    try:
        if refused:
            with pytest.raises(TransportError, match=refused):
                ask(ssm, SEEN, ListJobs())
        else:
            assert ask(ssm, SEEN, ListJobs()) == ()
            assert not file.is_symlink()
            assert file.stat().st_mode & 0o777 == 0o644
    finally:
        place.parent.chmod(0o755)
        if place.is_symlink():
            place.unlink()


def test_a_cluster_without_its_file_system(ssm: SsmTransport, place: Path) -> None:
    with pytest.raises(
        TransportError, match="cannot be placed on jobs-that-ask: there is no /fsx: the head node's bootstrap"
    ):
        ask(ssm, SEEN.model_copy(update={"shared_dir": "/fsx"}), ListJobs())


def test_on_a_head_node_the_client_brings_its_own(slurm: LocalSlurm) -> None:
    local = LocalTransport(env=slurm.node_env())
    assert ask(local, SEEN, ListJobs()) == ()
    assert len(ask(local, SEEN, ListNodes())) == 4


class Answers:
    """A transport with one answer."""

    instance, interval = "", 0.0

    def __init__(self, *result: Any) -> None:
        self.result = Result(*result)

    def ask(self, *_: Any) -> Result:
        return self.result


@pytest.mark.parametrize(
    ("result", "error", "message"),
    [
        (('{"error": {"kind": "unknown", "message": "x"}}', "", 0), UnknownJob, "there is no job 'a-1' on trn-slurm"),
        (('{"error": {"kind": "refused", "message": "no such stage"}}', "", 0), JobError, "^no such stage$"),
        (('{"error": {"kind": "theirs", "message": "of alice"}}', "", 0), TransportError, "^of alice$"),
        (('{"error": {"kind": "later", "message": "down"}}', "", 0), TransportError, "does not answer: down"),
        (('{"error": {"kind": "broken", "message": "KeyError"}}', "", 0), TransportError, "KeyError. Please report it"),
        (("", "python3: not found\n", 127), TransportError, "the query on the head node failed: python3: not found"),
        (("[" * 100_000, "", 0), TransportError, "the query on the head node failed: the answer cannot be read: it is no JSON"),
        (("7", "", -9), TransportError, "exit code -9"),
        (('{"error": []}', "", 0), TransportError, "the answer cannot be read: Document.error is not an object"),
    ],
)  # fmt: skip
def test_errors(result: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ask(Answers(*result), make_cluster(), Status("a-1"))


def test_an_unknown_job_on_a_real_cluster(slurm: LocalSlurm) -> None:
    local = LocalTransport(env=slurm.node_env())
    for given in (Status("x-1"), ReadLog("x-1"), ReadLog("../x")):
        with pytest.raises(UnknownJob, match="there is no job"):
            ask(local, SEEN, given)

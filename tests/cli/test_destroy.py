"""What `trn destroy` says of checkpoints before it deletes them: the lines, by what the runner answers."""

from __future__ import annotations

import base64
import gzip
import json
import shlex
from dataclasses import replace
from typing import Any

import pytest

from tests.jobs.conftest import make_cluster
from tests.jobs.kubernetes.conftest import make_cluster as make_eks
from tests.jobs.test_answers import Pods
from tests.operations.teardown.test_requests import FOUND
from trainium_cdk.client.cli.destroy import only_there, plan
from trainium_cdk.client.cli.options import Target
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend
from trainium_cdk.client.jobs.slurm.transport import Result
from trainium_cdk.description.outputs import ClusterOutputs
from trainium_cdk.description.outputs.eks import Team
from trainium_cdk.errors import TransportError
from trainium_cdk.jobs import Backend, SlurmBackend
from trainium_cdk.runner.requests import Checkpoint, FoundCheckpoints
from trainium_cdk.runner.spec import to_json

ON = Target("S", "us-east-1", implied=frozenset())
SURVEY = replace(FOUND, file_systems=("fs-1",))
GENERAL = "   with them, all files on fs-1 are deleted. To keep some, copy them first, for example: trn cp latest:output model"


class Head:
    """A head node whose runner prints this."""

    instance, interval = "", 0.0

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def ask(self, *_: Any) -> Result:
        if isinstance(self._answer, Exception):
            raise self._answer
        return Result(json.dumps({"answer": to_json(self._answer)}), "", 0)


def of(id: str, to: str | None = None, folder: str = "trn", size: int = 12_300_000_000) -> Checkpoint:
    return Checkpoint(id, "checkpoint-300", size, f"/efs/{folder}/jobs/{id}/output", id if to is None else to)


def seen(answers: dict[str, Any], cluster: ClusterOutputs, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A cluster as each of its teams and users sees it, by their names."""

    def connect(*, cluster: Any) -> Backend:
        answer = answers[getattr(cluster, "team", "") or cluster.folder.partition("/")[2]]
        if cluster.containers:
            text = json.dumps({"answer": to_json(answer)}).encode()
            return KubernetesBackend(cluster, Pods(base64.b64encode(gzip.compress(text))))  # type: ignore[arg-type]
        return SlurmBackend(cluster, Head(answer))  # type: ignore[arg-type]

    monkeypatch.setattr("trainium_cdk.client.jobs.connection.connect", connect)
    return connect(cluster=cluster)


def found(*checkpoints: Checkpoint, users: tuple[str, ...] = ()) -> FoundCheckpoints:
    return FoundCheckpoints(checkpoints, users)


AT = "--stack S --region us-east-1"
ONE = "   only there: ft-1: checkpoint-300 (12.3 GB). To keep it: trn cp cluster:/efs/trn/jobs/ft-1/output"
SLURM, KEEPS = make_cluster(), make_cluster(keep="s3://b/kept")
USERS, TEAMS = make_cluster(users="local", keep="s3://b/kept"), make_eks(teams=(Team(namespace="speech"),))


@pytest.mark.parametrize(
    ("cluster", "answers", "lines", "logged"),
    [
        (SLURM, {"": found()}, [], ""),
        (SLURM, {"": found(of("ft-1"))}, [f"{ONE} s3://BUCKET/ft-1 {AT}"], ""),
        (KEEPS, {"": found(of("ft-1"), of("ft-2", to=""))}, [f"{ONE} s3://b/kept/ft-1 {AT}"], ""),
        (KEEPS, {"": found(of("ft-1", to="ft-1/copied"))}, [f"{ONE} s3://b/kept/ft-1/copied {AT}"], ""),
        (KEEPS, {"": found(of("ft-1", to=""), of("ft-2", to=""))}, ["   the newest checkpoints of 2 jobs are in S3"], ""),
        (KEEPS, {"": found(of("ft-1", to=""))}, ["   the newest checkpoints of 1 job are in S3"], ""),
        (USERS, {"": found(users=("ada",)), "ada": found(of("a/3", folder="trn-users/ada"))},
         ["   only there: a/3: checkpoint-300 (12.3 GB). To keep it: trn cp cluster:/efs/trn-users/ada/jobs/a/3/output "
          f"s3://b/kept/ada/a/3 {AT} --user ada"], ""),
        (USERS, {"": found(of("ft-1", to=""), users=("ada", "bob", "-x")), "ada": TransportError("denied", again=False), "bob": found()},
         ["   the newest checkpoints of 1 job are in S3"], "checkpoints of ada could not be listed: denied\n"
         "checkpoints of -x could not be listed: '-x' cannot be the name of a user of TrnPclusterStack"),
        (TEAMS, {"": found(), "speech": found(of("ft-1"))}, [f"{ONE} s3://BUCKET/speech/ft-1 {AT} --team speech"], ""),
        (SLURM, {"": TransportError("no pod starts", again=False)}, [], "checkpoints of S could not be listed: no pod starts"),
        (SLURM, {"": {"checkpoints": [["ft-1", "", 1, "x", ""]]}}, [], "checkpoints of S could not be listed: the runner's answer cannot be read"),
        (SLURM, {"": {"checkpoints": [["ft-1", "a", -1, "x", ""]]}}, [], "checkpoints of S could not be listed: the runner's answer cannot be read"),
        (SLURM, {"": {"checkpoints": 7}}, [], "checkpoints of S could not be listed: the runner's answer cannot be read"),
    ],
)  # fmt: skip
def test_what_is_only_there(
    cluster: ClusterOutputs,
    answers: dict[str, Any],
    lines: list[str],
    logged: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = only_there(seen(answers, cluster, monkeypatch), ON)
    assert made == lines
    assert capsys.readouterr().err.startswith(logged)
    told = plan(SURVEY, "cancel", made)
    assert [line for line in told if "only there" in line or "in S3" in line] == lines
    assert (GENERAL in told) is (not lines)
    assert not any("only there" in line for line in plan(replace(SURVEY, file_systems=()), "cancel", made))


def test_ten_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [of(f"ft-{n}") for n in range(12)]
    made = only_there(seen({"": found(*jobs, of("kept", to=""))}, SLURM, monkeypatch), ON)
    assert [line.split(": ")[1] for line in made[:-1]] == [f"ft-{n}" for n in range(10)]
    assert made[-1] == "   and 2 more"
    assert len(only_there(seen({"": found(*jobs[:10])}, SLURM, monkeypatch), ON)) == 10


def test_a_name_of_a_hostile_job_stays_in_its_word(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = Checkpoint("$(id)", "a\x1b[2J", 1, "/efs/x; rm -rf ~", "'$(id)`")
    [line] = only_there(seen({"": found(evil)}, SLURM, monkeypatch), ON)
    words = shlex.split(line.partition("To keep it: ")[2])
    assert words[:4] == ["trn", "cp", "cluster:/efs/x; rm -rf ~", "s3://BUCKET/'$(id)`"]

"""Clusters of a team as their backends describe them: with jobs that run, wait, fail, and are others'."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tests.jobs.conftest import make_cluster
from tests.jobs.report.runs import BEGAN, CATALOG, status
from trainium_cdk.errors import ApiError
from trainium_cdk.jobs.clusters import Overview, ask
from trainium_cdk.jobs.status import Activity, Foreign, JobStatus, Node, Stage

NOW = BEGAN + 7200
TYPE = "trn1.32xlarge"


@dataclass
class View:
    """A cluster as one team sees it."""

    there: Activity
    refused: bool = False
    cluster: Any = field(default_factory=make_cluster)

    def activity(self, limit: int) -> Activity:
        assert limit >= 50
        if self.refused:
            raise ApiError(403, "Forbidden", "jobsets is forbidden")
        return self.there


def node(number: int, state: str, job: str = "", **changes: Any) -> Node:
    return Node(f"compute1-dy-trn-{number}", "compute1", TYPE, state, job, **changes)


def job(id: str, *stages: Stage, user: str, nodes: int = 1, submitted: int | None = BEGAN, **changes: Any) -> JobStatus:
    return status(*stages, id=id, user=user, nodes=nodes, submitted=submitted, **changes)


def stage(state: str, *, name: str = "train", began: int | None = None, **changes: Any) -> Stage:
    return Stage(name, "7", state, started=began, **changes)


PREPARED = stage("COMPLETED", name="prepare", began=BEGAN, ended=BEGAN + 600)
SLURM = Activity(
    (
        node(1, "allocated+cloud", "bert-large-20261120-4f3a9c:train"),
        node(2, "allocated+cloud", "bert-large-20261120-4f3a9c:train"),
        node(3, "idle+cloud"),
        node(4, "down+cloud", reason="Not responding"),
        node(5, "idle+cloud+powering_up"),
        node(6, "idle+cloud+powered_down", on=False),
    ),
    (
        job("bert-large-20261120-4f3a9c", PREPARED, stage("RUNNING", began=BEGAN + 3600), user="alice", nodes=2),
        job("finetune-20261120-77aa01", PREPARED, stage("PENDING", reason="waits for nodes (Resources)"), user="bob", nodes=4),
        job("llama-20261120-00ffee", stage("FAILED", began=BEGAN, ended=BEGAN + 1800, reason="exit code 1"), user="bob"),
        job("long-ago-20261101-000001", stage("FAILED", began=BEGAN, ended=NOW - 90_000), user="carol"),
    ),
    (Foreign("4711", "sbatch", "PENDING", "compute1", BEGAN + 7000, "dora", nodes=1),),
)  # fmt: skip
NODE = Node("ip-10-0-1-7.ec2.internal", "trn", TYPE, "ready")
EKS = Activity((NODE, replace(NODE, name="system", queue="", instance_type="m5.large")), (), ())
SPEECH = Activity(
    (replace(NODE, job="asr-20261120-beef01:train"),),
    (job("asr-20261120-beef01", stage("RUNNING", began=BEGAN), user="erin", queue="trn", instance_type=TYPE),),
    (),
)


def overview(name: str, engine: str, region: str, views: dict[str, View], **changes: Any) -> Overview:
    """A cluster at `NOW`."""
    seen = Overview(region, name, engine, "CREATE_COMPLETE", **changes)
    return ask(views, seen, CATALOG, NOW)  # type: ignore[arg-type]


def clusters() -> list[Overview]:
    """Three of an account: one does not answer."""
    alarm = "bert: nodes have failed; `trn nodes` names them with their reasons"
    return [
        overview("TrnEksStack", "eks", "us-east-1", {"": View(EKS), "speech": View(SPEECH)}, alarms=()),
        overview("TrnPclusterStack", "slurm", "us-east-1", {"": View(SLURM)}, alarms=(alarm,)),
        Overview(
            "us-west-2", "TrnPclusterStack-west", "slurm", "CREATE_COMPLETE",
            note="SSM does not manage the head node i-0123456789abcdef0: it is stopped, deleted, or has just started",
        ),
    ]  # fmt: skip

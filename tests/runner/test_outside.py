"""Going on from what is in S3: by the AWS CLI and the S3 of the local AWS."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from sandbox import LocalAws
from tests.runner.preparing import Cluster
from tests.runner.test_keep import BUCKET, SCRIPT, TITAN, Kept, cluster, marks, place, s3, step, whole

__all__ = ["cluster", "place", "s3"]


def test_two_clusters_jobs_of_one_id_share_a_prefix(cluster: Cluster, s3: Any, place: str, tmp_path: Path) -> None:
    first, second = Kept(cluster, TITAN, place), Kept(Cluster(tmp_path / "b", cluster.variables), TITAN, place)
    step(first.folder, 100, "a")
    first.look()
    step(second.folder, 10, "b")
    second.look()
    assert {name: len(files) for name, files in whole(s3, place).items()} == {"step-100": 2, "step-10": 2}
    assert len(marks(s3, place)) == 2
    next = cluster.write(id="next", checkpoints=replace(TITAN, source=place))
    code, output = cluster.prepare(next)
    assert code == 0, output
    assert [one.name for one in (next / "output/checkpoint").iterdir()] == ["step-10"], "what was kept last"


def test_what_cannot_be_continued_from_is_refused(cluster: Cluster, s3: Any, place: str, local_aws: LocalAws) -> None:
    same = {"kind": "torchtitan", "workers": "64"}
    job = Kept(cluster, replace(TITAN, same=same), place, kind="torchtitan")
    for number in (10, 11):
        step(job.folder, number)
        job.look()

    def prepare(kind: str = "torchtitan", source: str = place, **other: str) -> tuple[int, str]:
        made = replace(TITAN, source=source, same={**same, **other}, transfer={"eu-north-1": 20.0})
        return cluster.prepare(cluster.write(id=f"n{time.time_ns()}", kind=kind, checkpoints=made))

    code, output = prepare("finetune")
    assert (
        code,
        "is a checkpoint of torchtitan, which finetune does not read. Submit the same kind, or name another" in output,
    ) == (64, True)
    code, output = prepare(workers="32")
    assert (code, "a job with workers 64, and this job has workers 32" in output, "fetching" in output) == (
        64,
        True,
        False,
    )
    assert prepare(source=f"s3://{BUCKET}/nothing")[0] == 64
    code, output = prepare(source="s3://no-such-bucket-1/x")
    assert (code, "s3://no-such-bucket-1/x could not be read: " in output) == (75, True)

    [last] = [one for one in marks(s3, place) if one.endswith("step-11")]
    key = f"{place}/{last}/.metadata".removeprefix(f"s3://{BUCKET}/")
    s3.delete_object(Bucket=BUCKET, Key=key)
    code, output = prepare()
    assert (code, "/step-11 is not whole: the one before it is used" in output, "/step-10: " in output) == (
        0,
        True,
        True,
    )

    north = local_aws.client("s3", "eu-north-1")
    north.create_bucket(Bucket="north", CreateBucketConfiguration={"LocationConstraint": "eu-north-1"})
    for name, text in {"step-3/.metadata": "x", "step-3/a": "y" * 1_000_000, "step-4/a": "z", "trn-checkpoints": "kind torchtitan\nworkers 64\n", "": "", "step-3/": ""}.items():  # fmt: skip
        north.put_object(Bucket="north", Key=f"mine/{name}", Body=text.encode())
    code, output = prepare(source="s3://north/mine")
    assert code == 0, output
    assert "It is in eu-north-1: AWS charges about 0.02 USD for the transfer and the NAT gateway" in output
    code, output = prepare(source="s3://north/mine", workers="32")
    assert (code, "this job has workers 32" in output, "fetching" in output) == (64, True, False)


def test_addresses_of_others_lead_nowhere_else(cluster: Cluster, s3: Any, place: str) -> None:
    """Whoever may write below `jobs.keep` may write such names."""
    key = place.removeprefix(f"s3://{BUCKET}/")
    mark = json.dumps({"kind": "script", "files": {"/files/program": 4}})
    for name, text in {"job/...trn-complete": mark, "job/../files/program": "evil", "job/d/x.trn-complete": "[" * 9_000, "job/d/y.trn-complete": json.dumps({"kind": "script", "files": {"/../z": 1}})}.items():  # fmt: skip
        s3.put_object(Bucket=BUCKET, Key=f"{key}/{name}", Body=text.encode())
    folder = cluster.write(id="next", checkpoints=replace(SCRIPT, source=f"{place}/job"), files={"program": b"mine"})
    code, output = cluster.prepare(folder)
    assert (code, "has no complete checkpoint" in output) == (64, True), output
    assert (folder / "files/program").read_bytes() == b"mine"
    assert sorted(one.name for one in folder.iterdir()) == ["env.json", "files", "job.json", "state"]


def test_an_address_with_checkpoints_of_several_jobs_is_not_enough(
    cluster: Cluster, s3: Any, place: str, local_aws: LocalAws
) -> None:
    """Those of another kind do not count. A bucket without a prefix is an address, too."""
    name = f"all-{time.time_ns()}"
    s3.create_bucket(Bucket=name)
    for id, kind in (("a", "torchtitan"), ("b", "finetune")):
        job = Kept(cluster, TITAN, f"s3://{name}", kind, id)
        step(job.folder, 10)
        job.look()

    def prepare(source: str) -> tuple[int, str]:
        return cluster.prepare(
            cluster.write(id=f"n{time.time_ns()}", kind="torchtitan", checkpoints=replace(TITAN, source=source))
        )

    code, output = prepare(f"s3://{name}")
    assert (code, f"s3://{name} has checkpoints of 2 jobs. Name one, for example s3://{name}/a" in output) == (
        64,
        True,
    ), output
    assert prepare(f"s3://{name}/a")[0] == 0
    s3.put_object(Bucket=name, Key="a.bak/x", Body=b"")
    assert prepare(f"s3://{name}/a")[0] == 0

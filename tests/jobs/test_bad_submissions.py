"""Submissions that cannot work: each is refused with the value and the fix, before anything is sent."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.jobs.conftest import described, fleet, make_cluster
from trainium_cdk.client.jobs.slurm.transport import Result
from trainium_cdk.client.jobs.words import seconds
from trainium_cdk.description.outputs import SlurmCluster
from trainium_cdk.jobs import BertLarge, Gpt, Job, JobError, Script, SlurmBackend, SubmitError, TransportError


class Sent(Exception):
    """Something was sent."""


class Silent:
    """A transport over which nothing may go."""

    interval = 0.0

    def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
        raise Sent(request)


TUTORIAL = make_cluster()
SMALL = make_cluster(fleet("trn1.2xlarge", 4))
LARGE = make_cluster(fleet(nodes=256))
SDK_2_28 = make_cluster(neuron_release="2.28.1")
TRN2 = make_cluster(fleet("trn2.48xlarge", 4))
MIXED = make_cluster(fleet(nodes=2, resource="a"), fleet("trn2.48xlarge", 4, resource="b"))

CLUSTERS = {
    "trn1.2xlarge": SMALL, "256 nodes": LARGE, "Neuron 2.28.1": SDK_2_28, "trn2.48xlarge": TRN2, "mixed": MIXED,
}  # fmt: skip
REFUSED = yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text("utf-8"))


def cluster_of(what: str | dict[str, Any] | None) -> SlurmCluster:
    if what is None or isinstance(what, str):
        return CLUSTERS[what] if what else TUTORIAL
    changes = dict(what)
    return make_cluster(*(fleet(kind, nodes) for kind, nodes in changes.pop("fleets", ())), **changes)


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str) -> None:
    told = REFUSED[case]
    with pytest.raises(JobError, match=told["message"]) as error:
        SlurmBackend(cluster_of(told.get("cluster")), Silent()).submit(described(**told["job"]), "token")
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < 600
    assert text[-1] != "."  # the command ends it, with what it adds


@pytest.mark.parametrize("token", ["", "A", "a b", "-a", "a" * 41, "ä", "a\n"])
def test_invalid_tokens(token: str) -> None:
    backend = SlurmBackend(TUTORIAL, Silent())
    with pytest.raises(
        JobError,
        match=r"token is .*Use small letters, digits and hyphens, at most 40, with a letter or digit as the first",
    ):
        backend.submit(BertLarge(), token)


def test_a_short_trial_may_leave_the_default_warm_up() -> None:
    assert BertLarge(steps=10, run_steps=5).steps == 10
    assert BertLarge(warmup_steps=9, steps=10).warmup_steps == 9


@pytest.mark.parametrize(
    ("kind", "field", "least"),
    [(BertLarge, "warmup_steps", 0), (Gpt, "steps", 1), (Gpt, "checkpoint_interval", 1), (Gpt, "global_batch_size", 1)],
)
def test_counts_have_a_smallest_value(kind: type[Job], field: str, least: int) -> None:
    assert getattr(kind(**{field: least}), field) == least
    with pytest.raises(JobError, match=field):
        kind(**{field: least - 1})


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (Result('{"answer": [{"id": "x", "error": {"kind": "refused", "message": "no"}}]}', "", 0), SubmitError),
        (Result('{"error": {"kind": "refused", "message": "no"}}', "", 0), SubmitError),
        (Result('{"answer": [{"id": "x", "error": {"kind": "later", "message": "no"}}]}', "", 0), TransportError),
        (Result('{"error": {"kind": "later", "message": "no"}}', "", 0), TransportError),
        (Result("", "ended", 129), TransportError),
        (Result("", "ended", -9), TransportError),
        (Result("", "ended", 1), TransportError),
    ],
)
def test_a_submission_that_was_killed_is_not_a_refusal(
    result: Result, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("trainium_cdk.client.jobs.backend.time", SimpleNamespace(monotonic=lambda: now[-1]))

    class Killed(Silent):
        def ask(self, cluster: SlurmCluster, request: str, timeout: float = 120, private: bool = False) -> Result:
            return result

    with pytest.raises(error) as caught:
        SlurmBackend(TUTORIAL, Killed(), sleep=lambda s: now.append(now[-1] + s)).submit(BertLarge(), "token")
    assert ("Submit it again with token token" in str(caught.value)) is (error is TransportError)


def test_without_a_token_a_new_one_is_made() -> None:
    with pytest.raises(Sent):
        SlurmBackend(TUTORIAL, Silent()).submit(BertLarge(), None)


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("1", 60), ("525600", 31_536_000), ("1:30", 90), ("90:00", 5400), ("100:00:00", 360_000), ("1-12", 129_600), ("1-00:30", 88_200), ("365-00:00:00", 31_536_000),
     ("1h", 3600), ("90m", 5400), ("2d", 172_800), ("1d12h", 129_600), ("1h30m", 5400), ("90s", 90)],
)  # fmt: skip
def test_time_limits_are_read_as_slurm_reads_them(limit: str, expected: int) -> None:
    """sbatch(1): minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds. Or with units."""
    job = BertLarge(time_limit=limit)
    assert job.time_limit == limit
    assert seconds(limit) == expected


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/no/such.sh", "cannot read the script /no/such.sh: No such file or directory. Check the path"),
        ("app.yp", r"No such file or directory. Did you mean app.py\?"),
        ("/", "/ is not a file"),
    ],
)
def test_a_script_that_cannot_be_read(path: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        Script.from_file(path)


def test_a_script_too_large(tmp_path: Path) -> None:
    file = tmp_path / "data.bin"
    file.write_bytes(bytes(5_000_001))
    with pytest.raises(JobError, match="5,000,001 bytes; a script may have at most 5,000,000"):
        Script.from_file(file)

"""A bad network between the client and AWS: connections cut at any byte, requests throttled, answers that never come."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.awsrequest import AWSResponse

from sandbox import LocalAws
from sandbox.slurm import LocalSlurm
from tests.support import fetched, put_aside
from tests.trust.conftest import BUCKET
from tests.trust.proxy import Cuts
from trainium_cdk.client.jobs.slurm import ssm as run_command
from trainium_cdk.jobs import Script, SlurmBackend, TransportError
from trainium_cdk.runner.requests import ReadLog

Make = Callable[..., SlurmBackend]
CUTS = 100
TALKS = rb"""#!/bin/bash
for ((i = 0; i < 100000; i++)); do
  printf 'line %d ' "$i"
  head -c "$((RANDOM % 3000))" /dev/urandom
  echo
  if [ -e stop ]; then exit 0; fi
  sleep 0.05
done
"""


def versions(aws: LocalAws) -> set[str]:
    """Whatever the bucket still has, deleted or not."""
    found = aws.client("s3").list_object_versions(Bucket=BUCKET)
    return {v["VersionId"] for v in [*found.get("Versions", []), *found.get("DeleteMarkers", [])]}


def port(aws: LocalAws) -> int:
    return urlsplit(aws.endpoint).port or 80


@pytest.mark.sweep
def test_a_log_is_followed_through_a_hundred_cuts(local_aws: LocalAws, over_ssm: Make, jobs_dir: Path) -> None:
    """Lines of random bytes, while the follower's connection is cut, and the follower itself is interrupted now and then and continues
    where it was."""
    job = over_ssm().submit(Script(filename="talks.sh", content=TALKS), "talks")
    dice, received = random.Random(7), bytearray()  # noqa: S311  the same each time
    log = jobs_dir / job.id / "logs" / "train.log"
    with Cuts(port(local_aws), share=0.3, most=CUTS + 30, seed=7) as cuts:
        backend = over_ssm(cuts.endpoint)
        done = False
        while not done:
            done = True
            try:
                for chunk in backend.logs(job.id, stage="train", follow=True, offset=len(received)):
                    assert chunk.offset == len(received)
                    received += chunk.data
                    if cuts.total >= CUTS:
                        (jobs_dir / job.id / "work" / "stop").touch()
                    elif dice.random() < 0.1:
                        done = False
                        break
            except TransportError as e:  # it gave up; the next request continues at the byte
                assert e.again  # noqa: PT017
                done = False
        seen = dict(cuts.seen)
    assert sum(seen.get(kind, 0) for kind in Cuts.KINDS) >= CUTS
    assert all(seen.get(kind) for kind in Cuts.KINDS), seen
    assert bytes(received) == log.read_bytes()
    assert b"line 20 " in received


@pytest.mark.sweep
def test_submissions_over_a_bad_network_arrive_once(
    local_aws: LocalAws, over_ssm: Make, slurm: LocalSlurm, jobs_dir: Path
) -> None:
    """After any error, the client submits again with the same token until it succeeds."""
    ids = []
    with Cuts(port(local_aws), share=0.35, most=1000, seed=11) as cuts:
        backend = over_ssm(cuts.endpoint)
        for i in range(12):
            job = Script(
                filename="run.sh", content=b'echo "ran with $SECRET"\n', env={"SECRET": f"key-{i}"}, name="net"
            )
            for _ in range(20):
                try:
                    ids.append(backend.submit(job, f"t{i}").id)
                    break
                except TransportError as e:
                    assert e.again  # noqa: PT017  any number of them is borne
    plain = over_ssm()
    assert ids == [f"net-t{i}" for i in range(12)]
    assert all(plain.wait(id, 600).ok for id in ids)
    ran = [(jobs_dir / id / "logs" / "train.log").read_text().count(f"ran with key-{i}\n") for i, id in enumerate(ids)]
    assert set(ran) == {1}
    rows = slurm.run(["squeue", "-h", "-a", "-t", "all", "-o", "%T %k"]).stdout.splitlines()
    rows_of = sorted(r for r in rows if "trn:net-t" in r)
    assert rows_of == sorted(f"COMPLETED trn:{id}" for id in ids)


def test_user_variables_are_not_kept_in_aws(local_aws: LocalAws, over_ssm: Make) -> None:
    """SSM keeps the text of commands, and a versioned bucket what was deleted from it."""
    secret = f"hunter2-{os.urandom(8).hex()}"
    backend = over_ssm()
    before = versions(local_aws)
    commands = local_aws.client("ssm").get_paginator("list_commands")
    earlier = {c["CommandId"] for page in commands.paginate() for c in page["Commands"]}
    job = backend.submit(Script(filename="run.sh", content=b'echo "<${#TOKEN}>"\n', env={"TOKEN": secret}), "secret")
    assert backend.wait(job.id, 600).ok
    sent = [c for page in commands.paginate() for c in page["Commands"] if c["CommandId"] not in earlier]
    assert sent
    # a compressed submission would not be found by its text: so no command contains the submission in any form
    longest = max(len(word) for c in sent for command in c["Parameters"]["commands"] for word in command.split())
    assert longest < 20_000
    assert not [c for c in sent if secret in str(c)]
    uploads = [c for c in sent if "s3api get-object" in str(c["Parameters"])]
    assert uploads
    assert versions(local_aws) == before


@pytest.mark.sweep
def test_without_permission_to_delete_versions_the_payload_gets_a_delete_marker(
    local_aws: LocalAws, over_ssm: Make
) -> None:
    """The bucket's own expiry removes it for good."""
    from botocore.exceptions import ClientError

    backend = over_ssm()
    s3 = backend.transport._s3  # type: ignore[attr-defined]

    def deny(params: dict[str, object], **_: object) -> None:
        if "VersionId" in params:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DeleteObject")

    shown = s3.list_objects_v2(Bucket=BUCKET)["KeyCount"]
    before = versions(local_aws)
    s3.meta.events.register("provide-client-params.s3.DeleteObject", deny)
    assert backend.transport.run("echo $((6 * 7))", private=True).stdout == "42\n"
    assert s3.list_objects_v2(Bucket=BUCKET)["KeyCount"] == shown
    assert len(versions(local_aws) - before) == 2  # the old version, and the marker that hides it


def test_half_a_script_is_never_run(over_ssm: Make, slurm: LocalSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that arrives cut short (for example on a full disk) would run up to the cut."""
    import gzip

    backend, before = over_ssm(), put_aside()
    whole = gzip.compress
    monkeypatch.setattr(
        "trainium_cdk.client.jobs.slurm.ssm.gzip.compress", lambda data, mtime: whole(data, mtime=mtime)[:-9]
    )
    marker = Path(slurm.node_env()["HOME"]) / "half"
    with pytest.raises(TransportError, match="ended as Failed"):
        backend.transport.run(f"touch {marker}\n" + "# words\n" * 50)
    assert not marker.exists()
    fetched(before)


@pytest.mark.parametrize("bad", [-3, 0, 10**15])
def test_an_offset_beyond_the_log_waits(over_ssm: Make, bad: int) -> None:
    backend = over_ssm()
    job = backend.submit(Script(filename="run.sh", content=b"echo hello\n"), "offset")
    backend.wait(job.id, 600)
    assert backend.ask(ReadLog(job.id, "train", offset=max(bad, 0), most=100)).piece.size > 0
    assert (b"".join(c.data for c in backend.logs(job.id, offset=max(bad, 0))) == b"") is (bad > 100)


def throttled(client: Any, operation: str, times: int = 10**6) -> None:
    """The service refuses an operation so often, with the answer that SSM and S3 give."""
    left = [times]

    def refuse(request: Any, **_: Any) -> Any:
        if left[0] <= 0:
            return None
        left[0] -= 1
        body = b'{"__type":"ThrottlingException","message":"Rate exceeded"}'
        if "s3" in operation:
            body = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
        answer: Any = AWSResponse(request.url, 503 if "s3" in operation else 400, {}, None)
        answer._content = body
        return answer

    client.meta.events.register(f"before-send.{operation}", refuse)


@pytest.mark.sweep
def test_a_response_that_is_refused_for_long_is_reported(over_ssm: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command continues; if AWS does not return its result, that is an error in the end."""
    monkeypatch.setattr(run_command, "TELL_SECONDS", 0.2)
    monkeypatch.setattr(run_command, "UNANSWERED_SECONDS", 1.0)
    ssm = over_ssm().transport
    messages: list[str] = []
    ssm._say = messages.append  # type: ignore[attr-defined]
    throttled(ssm._ssm, "ssm.GetCommandInvocation")  # type: ignore[attr-defined]
    with pytest.raises(
        TransportError, match="AWS rejected GetCommandInvocation: ThrottlingException: Rate exceeded"
    ) as error:
        ssm.run("true")
    assert error.value.again
    assert len(messages) == 1
    assert re.fullmatch(
        r"no response from AWS for \d s \(AWS rejected GetCommandInvocation: .*\); still trying", messages[0]
    )


@pytest.mark.parametrize("times", [3, 10**6])
@pytest.mark.sweep
def test_a_payload_whose_deletion_is_throttled_is_deleted_or_reported(
    times: int, over_ssm: Make, local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_command, "REMOVE_SECONDS", 600.0 if times < 10 else 1.0)
    before = versions(local_aws)
    ssm = over_ssm().transport
    messages: list[str] = []
    ssm._say = messages.append  # type: ignore[attr-defined]
    throttled(ssm._s3, "s3.DeleteObject", times)  # type: ignore[attr-defined]
    assert ssm.run("echo $((6 * 7))", private=True).stdout == "42\n"
    left = versions(local_aws) - before
    if times < 10:
        assert (left, messages) == (set(), [])
    else:
        assert len(left) == 1
        assert re.fullmatch(
            rf"a job's script or log is still in s3://{BUCKET}/trn/payloads/\w+: SlowDown. Delete it; the bucket does so after a day",
            messages[0],
        )

"""The checksum of a data set: the functions that fetch one, with the AWS CLI and the local S3."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from sandbox import LocalAws
from tests.jobs.test_unpack import packed
from tests.support import completed, need
from trainium_cdk.catalog.sources import sources
from trainium_cdk.jobs import shell, templates

BUCKET = "checksum-test"
CONTENT = {"set.tar": packed(("set/a", "first"), ("set/b", "second")), "set.bin": bytes(range(256)) * 40}


def fetch(
    aws: LocalAws, folder: Path, key: str, content: bytes, sha256: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Fetch an object of this content with the call that `templates.data` renders for one with this checksum."""
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key=key, Body=content)
    script = folder / "fetch.sh"
    script.write_bytes(shell.fetch())
    call = f"{'data_archive' if key.endswith('.tar') else 'data_file'} corpus s3://{BUCKET}/{key} --no-sign-request"
    made = {
        "PATH": os.environ["PATH"],
        **aws.variables,
        "job": str(folder),
        "trn": str(folder),
        "python": "python3",
        "mode": "fetch",
    }
    made |= {"TRN_PART_BYTES": "6000", "TRN_RETRY_SECONDS": "0"} | environment
    return completed(["bash", "-c", f'. "$0"; {call} {sha256}', str(script)], env=made)


def files_below(folder: Path) -> dict[str, bytes]:
    return (
        {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}
        if folder.exists()
        else {}
    )


@pytest.mark.parametrize(
    ("key", "at"), [("set.tar", 0), ("set.bin", -1)], ids=["archive, first byte", "file, last byte"]
)
def test_an_object_with_one_changed_byte_is_refused(key: str, at: int, local_aws: LocalAws, tmp_path: Path) -> None:
    content = CONTENT[key]
    wanted = hashlib.sha256(content).hexdigest()
    changed = bytearray(content)
    changed[at] ^= 1
    found = hashlib.sha256(changed).hexdigest()
    done = fetch(local_aws, tmp_path, key, bytes(changed), wanted)
    message = f"s3://{BUCKET}/{key} has the SHA-256 {found}, and not {wanted}: it was replaced or damaged. It was deleted. Use another copy"
    assert (done.returncode, done.stderr) == (4, f"trn: {message}\n")
    assert files_below(tmp_path / "data") == {}
    assert not [f for f in (tmp_path / "done").iterdir() if f.suffix != ".lock"]

    # the right one is fetched afterwards: nothing of the refused one is taken for a part of it
    done = fetch(local_aws, tmp_path, key, content, wanted)
    assert done.returncode == 0, done.stderr
    assert f"trn: SHA-256 of s3://{BUCKET}/{key} verified\n" in done.stdout
    expected = {"set/a": b"first", "set/b": b"second"} if key == "set.tar" else {key: content}
    assert files_below(tmp_path / "data/corpus") == expected


def test_without_a_known_checksum_or_by_request_any_content_is_accepted(local_aws: LocalAws, tmp_path: Path) -> None:
    for name, sha256, environment in (("a", "", {}), ("b", "0" * 64, {"TRN_UNVERIFIED_DATA": "1"})):
        (tmp_path / name).mkdir()
        done = fetch(local_aws, tmp_path / name, "set.bin", b"any", sha256, **environment)
        assert done.returncode == 0, done.stderr
        assert "verified" not in done.stdout


def test_a_job_kind_passes_the_checksums_that_the_catalogue_has() -> None:
    recorded = {o.uri: o.sha256 for objects in sources().datasets.values() for o in objects if o.sha256}
    assert sorted(uri.rpartition("/")[2] for uri in recorded) == ["gpt2-merges.txt", "gpt2-vocab.json"]
    lines = [line for name in sources().datasets for line in templates.data(None, name)[0].splitlines()]
    for line in lines:
        uri, _, *sha256 = line.split()[2:]
        assert sha256 == ([recorded[uri]] if uri in recorded else [])


def test_a_prefix_is_fetched_as_it_is_there_also_after_an_interruption(local_aws: LocalAws, tmp_path: Path) -> None:
    """What is left of an attempt before is not a part of the data set: a file that the prefix no longer has, or the folder itself."""
    need(shutil.which("aws") is not None, "the AWS CLI is not installed")
    s3, script = local_aws.client("s3"), tmp_path / "fetch.sh"
    s3.create_bucket(Bucket=BUCKET)
    for name in ("a", "below/b"):
        s3.put_object(Bucket=BUCKET, Key=f"corpus/{name}", Body=name.encode())
    script.write_bytes(shell.fetch())
    made = {
        "PATH": os.environ["PATH"],
        **local_aws.variables,
        "job": "-",
        "trn": str(tmp_path),
        "python": "-",
        "mode": "fetch",
    }
    wanted = {"a": b"a", "below/b": b"below/b"}
    for left in (tmp_path / "data/set.part/removed", tmp_path / "data/set/below/b"):
        left.parent.mkdir(parents=True, exist_ok=True)
        left.write_bytes(b"old")
        (tmp_path / "done/data-set").unlink(missing_ok=True)
        done = completed(["bash", "-c", f'. "$0"; data_prefix set s3://{BUCKET}/corpus', str(script)], env=made)
        assert (done.returncode, files_below(tmp_path / "data/set")) == (0, wanted), done.stderr
        assert not (tmp_path / "data/set.part").exists()

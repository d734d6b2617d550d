"""Buckets of the user's, as `trn cp` reads and writes them: listed here with the caller's credentials, and copied by the cluster itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from trainium_cdk._aws import aws_errors_as, failures
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.jobs import presigned, quote

SCHEME = "s3://"


class Address(NamedTuple):
    """s3://bucket/key."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    @classmethod
    def of(cls, text: str) -> Address:
        """The address that a text is.

        Raises:
            JobError: it is none.
        """
        quote.check(text)
        bucket, _, key = text.removeprefix(SCHEME).partition("/")
        if not text.startswith(SCHEME) or len(bucket) < 3 or not bucket.replace("-", "").replace(".", "").isalnum():
            raise JobError(f"{text[:80]!r} is no address in S3. Write s3://bucket/prefix")
        return cls(bucket, key)


class Object(NamedTuple):
    """An object: its key, size, time of the last change, and ETag."""

    key: str
    size: int
    time: int
    etag: str


@lru_cache
def client(bucket: str, region: str) -> Any:
    """A client of S3 in the region of a bucket.

    Args:
        region: to ask first.
    """
    with aws_errors_as(TransportError, f"cannot read {SCHEME}{bucket}"):
        # it follows S3 into the bucket's region; HeadBucket needs the same permission, and has no reason in its errors
        found = presigned.presigning(region).list_objects_v2(Bucket=bucket, MaxKeys=1)
    return presigned.presigning(found["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", region))


def list_objects(address: Address, region: str) -> Iterator[Object]:
    """The objects whose keys begin with that of an address, in the order of their keys."""
    pages = client(address.bucket, region).get_paginator("list_objects_v2")
    with aws_errors_as(TransportError, f"cannot list {address}"):
        for page in pages.paginate(Bucket=address.bucket, Prefix=address.key):
            for one in page.get("Contents", ()):
                yield Object(one["Key"], one["Size"], int(one["LastModified"].timestamp()), one["ETag"])


def addresses(of: str, what: str, objects: Sequence[dict[str, Any]], region: str) -> dict[str, str]:
    """Presigned addresses of objects of a bucket, by the names that a request has for them.

    Args:
        what: `take`, to read them, or `give`, to write them.
    """
    bucket = Address.of(of).bucket
    s3, made = client(bucket, region), {}
    for one in objects:
        if what == "take":
            made[one["key"]] = presigned.presigned(s3, "get_object", bucket, one["at"])
        elif "upload" in one:
            part = {"UploadId": one["upload"], "PartNumber": one["part"]}
            made[one["key"]] = presigned.presigned(s3, "upload_part", bucket, one["at"], **part)
        else:
            made[one["key"]] = presigned.presigned(s3, "put_object", bucket, one["at"])
    return made


@contextlib.contextmanager
def upload(s3: Any, bucket: str, key: str) -> Iterator[str]:
    """An upload in parts, which is complete afterwards, or nothing of it is left."""
    where = {"Bucket": bucket, "Key": key}
    with aws_errors_as(TransportError, f"cannot write {SCHEME}{bucket}/{key}"):
        id: str = s3.create_multipart_upload(**where)["UploadId"]
        try:
            yield id
            pages = s3.get_paginator("list_parts").paginate(**where, UploadId=id)
            parts = [{name: part[name] for name in ("PartNumber", "ETag")} for page in pages for part in page["Parts"]]
            s3.complete_multipart_upload(**where, UploadId=id, MultipartUpload={"Parts": parts})
        except BaseException:
            with contextlib.suppress(*failures()):
                s3.abort_multipart_upload(**where, UploadId=id)
            raise

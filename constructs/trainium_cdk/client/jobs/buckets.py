"""S3 as `trn cp` uses it: buckets of the user's, listed here with the caller's credentials; and objects that a cluster reads or writes at
presigned addresses. With such an address, a program may read, or write, that object for some minutes, without an identity on AWS. Addresses are
secrets: they go through a private request, never into a command line, a log or a file of a job."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

from trainium_cdk._aws import aws_errors_as, failures
from trainium_cdk._aws import client as aws_client
from trainium_cdk.client.jobs import quote
from trainium_cdk.errors import JobError, TransportError
from trainium_cdk.runner.head import copying

SCHEME = "s3://"
ADDRESS_SECONDS = 900
"""An address is used at once, in one request of at most ten minutes. It ends sooner if the credentials of the one who signed it do."""


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
            raise JobError(f"{text[:80]!r} is not an address in S3. Write s3://bucket/prefix")
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
        found = presigning(region).list_objects_v2(Bucket=bucket, MaxKeys=1)
    return presigning(found["ResponseMetadata"]["HTTPHeaders"].get("x-amz-bucket-region", region))


def list_objects(address: Address, region: str) -> Iterator[Object]:
    """The objects whose keys begin with an address's key, in the order of their keys."""
    pages = client(address.bucket, region).get_paginator("list_objects_v2")
    with aws_errors_as(TransportError, f"cannot list {address}"):
        for page in pages.paginate(Bucket=address.bucket, Prefix=address.key):
            for one in page.get("Contents", ()):
                yield Object(one["Key"], one["Size"], int(one["LastModified"].timestamp()), one["ETag"])


def presigning(region: str) -> Any:
    """A client of S3 whose addresses work with every key and in every region: signature version 4, and the region's own host."""
    from botocore.config import Config

    # with "auto", an address has the global host, which redirects to other regions, and the signature is of the host
    return aws_client("s3", region, config=Config(signature_version="s3v4", s3={"addressing_style": "virtual"}))


def presigned(
    s3: Any,
    action: Literal["get_object", "put_object", "upload_part"],
    bucket: str,
    key: str,
    *,
    seconds: int = ADDRESS_SECONDS,
    **more: str | int,
) -> str:
    """The address of one object.

    Args:
        s3: of `presigning`.
        seconds: for which it is valid.
        more: other parameters of the action.

    Raises:
        botocore.exceptions.NoCredentialsError: there are no credentials to sign with.
    """
    address: str = s3.generate_presigned_url(action, Params={"Bucket": bucket, "Key": key, **more}, ExpiresIn=seconds)
    return address


class Upload:
    """An object that a cluster writes: in parts where it is large. It is there when it is complete, or nothing of it.

    Attributes:
        to: offset and length of its spans, each with a presigned address.
    """

    def __init__(self, s3: Any, at: Address, size: int, seconds: int) -> None:
        """Args:
        seconds: for which the addresses are valid.
        """
        self._s3, self._where, self._id = s3, {"Bucket": at.bucket, "Key": at.key}, ""
        spans = copying.spans(size)
        if len(spans) == 1:
            self.to: tuple[tuple[int, int, str], ...] = ((0, size, presigned(s3, "put_object", *at, seconds=seconds)),)
            return
        self._id = s3.create_multipart_upload(**self._where)["UploadId"]
        signed = partial(presigned, s3, "upload_part", *at, seconds=seconds, UploadId=self._id)
        self.to = tuple((*span, signed(PartNumber=number)) for number, span in enumerate(spans, 1))

    def complete(self, etags: Sequence[str]) -> None:
        if self._id:
            parts = [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(etags, 1)]
            self._s3.complete_multipart_upload(**self._where, UploadId=self._id, MultipartUpload={"Parts": parts})
            self._id = ""

    def abort(self) -> None:
        """Leave no parts behind. Without effect where it is complete."""
        if self._id:
            with contextlib.suppress(*failures()):
                self._s3.abort_multipart_upload(**self._where, UploadId=self._id)

"""Presigned addresses of single objects in S3: with one, a program may read, or write, that object for some minutes, without an identity on AWS.
They are secrets: they go through a private request, never into a command line, a log or a file of a job.
"""

from __future__ import annotations

from typing import Any, Literal

from trainium_cdk._aws import client

SECONDS = 900
"""An address is used at once, in one request of at most ten minutes. It ends sooner if the credentials of the one who signed it do."""


def presigning(region: str) -> Any:
    """A client of S3 whose addresses work with every key and in every region: signature version 4, and the region's own host."""
    from botocore.config import Config

    # with "auto", an address has the global host, which redirects to other regions, and the signature is of the host
    return client("s3", region, config=Config(signature_version="s3v4", s3={"addressing_style": "virtual"}))


def presigned(
    s3: Any,
    action: Literal["get_object", "put_object", "upload_part"],
    bucket: str,
    key: str,
    *,
    seconds: int = SECONDS,
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

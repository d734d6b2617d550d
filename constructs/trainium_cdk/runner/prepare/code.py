"""The files of a submission's `--workdir`: one object of the bucket, named by the SHA-256 of the tar archive in it; other jobs may write there.

A head node gives no job its identity, so a submission fetches a small folder there by a presigned address.
Where that is not possible, a node with an identity does, in `prepare`.
"""

from __future__ import annotations

import gzip
import http.client
import subprocess
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from ..errors import Refused
from .archives import Hashed
from .making import Failed, Here, NotFetched, check_room, remove, say
from .unpack import Damaged, unpack

AT_ONCE = 50_000_000
"""Bytes of a folder that a head node fetches while a job is submitted."""
SECONDS = 60.0
MOST_FILES = 20_000
"""Most files of a folder (`jobs.workdir.MAX_FILES`)."""


def code(here: Here, uri: str, digest: str, size: int) -> None:
    """Put the folder's files into the job's `code`: all, or none.

    Args:
        size: bytes of all files.
    """
    target = here.job / "code"
    if target.is_dir():
        return
    if here.check and (size > AT_ONCE or digest not in here.addresses):
        raise NotFetched("code")
    part = here.job / "code.part"
    remove(part)
    check_room("the workdir", size, here.job)
    try:
        with _by_address(here.addresses[digest]) if here.check else _by_node(here, uri) as packed:
            found = Hashed(gzip.GzipFile(fileobj=packed))  # type: ignore[arg-type]
            count, _ = unpack(found, part, size, size, MOST_FILES)
            if found.digest() != digest:
                raise Refused("the workdir has another content than was sent. Submit the job again")
        part.rename(target)
    except (Damaged, EOFError, zlib.error, gzip.BadGzipFile) as e:
        raise Refused(f"the workdir has another content than was sent: {e}") from None
    finally:
        remove(part)
    say(f"{count} files of the workdir are in {target}")


@contextmanager
def _by_node(here: Here, uri: str) -> Iterator[IO[bytes]]:
    """The object, with the node's identity."""
    words = ["aws", "s3", "cp", "--only-show-errors", uri, "-"]
    try:
        aws = subprocess.Popen(words, env=dict(here.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    except FileNotFoundError:
        raise Refused(f"the workdir cannot be fetched: {here.without('aws')}") from None
    with aws:
        try:
            yield aws.stdout  # type: ignore[misc]
        except (Damaged, EOFError, Refused):
            try:
                failed = aws.wait(5)  # it ends before what it sends does; else it waits for a reader
            except subprocess.TimeoutExpired:
                aws.kill()
                failed = 0
            if not failed:
                raise
            raise Failed("the workdir could not be fetched: see what aws says above. Submit the job again") from None
        if aws.wait():
            raise Failed("the workdir could not be fetched: see what aws says above. Submit the job again")


@contextmanager
def _by_address(address: str) -> Iterator[IO[bytes]]:
    """The object, by the client's presigned address."""
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as found:  # noqa: S310  signed by our client
            yield found
    except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as e:  # none has the address
        say(f"the workdir is fetched on another node: {e}")
        raise NotFetched("code") from None

"""Archives of S3: unpacked while they arrive, so that they are nowhere whole; the folder gets its name once all is compared."""

from __future__ import annotations

import hashlib
import subprocess
from functools import partial
from pathlib import Path
from typing import IO

from ..errors import Refused
from .data import READ, size_of, unsigned, verify, wanted
from .making import Failed, Here, check_room, once, remove, say
from .unpack import Damaged, unpack


def archive(here: Here, name: str, uri: str, sha256: str = "", public: bool = False) -> None:
    """Fetch a tar archive, and unpack it into the data set's folder. `public`: without the node's identity."""
    target = here.trn / "data" / name
    once(here, f"data-{name}", target, partial(_fetch, here, uri, target, wanted(here, sha256), public))


class Hashed:
    """A stream that is read, and the SHA-256 of what was read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._found = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._found.update(piece)
        return piece

    def digest(self) -> str:
        """Read the rest, and return the digest of all of it."""
        while self.read(READ):
            pass
        return self._found.hexdigest()


def _fetch(here: Here, uri: str, target: Path, sha256: str, public: bool) -> None:
    part = target.with_name(f"{target.name}.part")
    remove(part)
    size = size_of(here, uri, public)
    check_room(uri, size, target.parent)
    say(f"fetching and unpacking {uri}: {size} bytes")
    words = ["aws", "s3", "cp", "--only-show-errors", *unsigned(public), uri, "-"]
    try:
        with subprocess.Popen(words, env=dict(here.variables), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as aws:
            stream = Hashed(aws.stdout)  # type: ignore[arg-type]
            try:
                entries, bytes_ = unpack(stream, part, size)
            except Refused as e:
                raise Refused(f"{uri} is refused: {e}") from None
            except (Damaged, OSError) as e:
                raise _failed(uri, aws, e) from None
            found = stream.digest()
            if aws.wait():
                raise _failed(uri, aws, None)
        verify(uri, found, sha256)
    except BaseException:
        remove(part)
        raise
    say(f"{entries:,} entries, {bytes_:,} bytes unpacked, {size:,} bytes packed")
    remove(target)
    part.rename(target)


def _failed(uri: str, aws: subprocess.Popen[bytes], error: Exception | None) -> Failed:
    """Return the error of an archive that did not arrive, or is damaged."""
    try:
        code = aws.wait(5)  # it ends before what it sends does; else it waits for a reader
    except subprocess.TimeoutExpired:
        aws.kill()
        code = 0
    if isinstance(error, OSError):
        return Failed(f"{uri} could not be unpacked: {error}")
    if code:
        return Failed(f"{uri} could not be fetched: see what aws says above. Submit the job again")
    return Failed(f"{uri} could not be unpacked: the archive is damaged: {error}")

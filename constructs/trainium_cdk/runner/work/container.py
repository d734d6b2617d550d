"""What Kubernetes runs in a job's pods in addition to its program.

`runner ready`, the readiness probe of a container that trains, fails while the training makes no progress, and prints why. A job's pods have no key of
the Kubernetes API. So the runner writes what is wrong into a file of its pod, and the kubelet reads it by this probe: it then reports the pod as not
ready, which the function that starts nodes, and `trn list`, read. A job can only report itself by it.

`runner folder PLACE`, an init container of each pod, makes the jobs' folder on a new file system: as root where the file system's root belongs to root.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from pathlib import Path

from .. import files

TYPE_CHECKING = False
if TYPE_CHECKING:  # else the probe would load all that judges: it runs each minute
    from collections.abc import Sequence

    from ..readers import Finding

WRONG = Path("/tmp/trn-wrong")  # noqa: S108  a volume of this pod alone
_KINDS = ("hang", "nan", "budget")
"""What needs a person, or costs money that nobody wanted to spend. After the others a job continues, or has begun again."""
_MOST = 1000


def tell(findings: Sequence[Finding]) -> None:
    """Let the probe fail while one of its kinds is there."""
    text = "; ".join(one.text for one in findings if one.kind in _KINDS)
    with contextlib.suppress(OSError):
        if text:
            files.write(WRONG, text.encode())
        else:
            WRONG.unlink(missing_ok=True)


def ready() -> None:
    try:
        text = files.read(WRONG, _MOST).decode(errors="replace")
    except OSError:
        return
    if text:
        print(text)
        sys.exit(1)


# --- the jobs' folder, on a new file system ---------------------------------------------------------------------------------------------


def folder(place: str, *others: str) -> None:
    """Make the jobs' folder, and folders that files are copied into."""
    try:
        make(place)
        for other in others:
            make_below(Path(other))
    except OSError as e:
        sys.exit(f"trn: the jobs' folder {place} cannot be made: {e.strerror}")


def make(place: str) -> None:
    """A folder in which each user may make files, and delete only their own. One that is there stays as it is, and so does a link.

    Raises:
        OSError: it cannot be made, or is not a folder.
    """
    Path(place).mkdir(parents=True, exist_ok=True)
    if Path(place).is_symlink():  # of an administrator: whoever could change it afterwards, it is not followed
        return
    folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if not os.fstat(folder).st_mode & stat.S_ISVTX:
            os.fchmod(folder, 0o1777)
    finally:
        os.close(folder)


def make_below(place: Path) -> None:
    """Make the first folder that is missing on the way to this one, as `make` does, if only root may: in it, others make the rest themselves.
    Where others may write already, a link could come meanwhile. Nothing is made through a link.

    Raises:
        OSError: it cannot be made.
    """
    if place.exists() or Path(os.path.realpath(place)) != place:
        return
    missing = [place, *(one for one in place.parents if not one.exists())]
    above = missing[-1].parent.stat()
    if above.st_uid != 0 or above.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    before = os.umask(0)
    try:
        missing[-1].mkdir(0o1777)
    finally:
        os.umask(before)

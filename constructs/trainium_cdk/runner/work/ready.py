"""The readiness probe of a container that trains on Kubernetes: `runner ready`. It fails while the training makes no progress, and prints why.

A job's pods have no key of the Kubernetes API. So the runner writes what is wrong into a file of its pod, and the kubelet reads it by this probe: it
then reports the pod as not ready, which the function that starts nodes, and `trn list`, read. A job can only report itself by it.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

from .. import files

TYPE_CHECKING = False
if TYPE_CHECKING:  # else the probe would load all that judges: it runs each minute
    from collections.abc import Sequence

    from ..readers.records import Finding

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


def main() -> None:
    try:
        text = files.read(WRONG, _MOST).decode(errors="replace")
    except OSError:
        return
    if text:
        print(text)
        sys.exit(1)

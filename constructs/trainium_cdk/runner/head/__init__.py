"""The program on the head or login node, run as the jobs' user. One request on standard input, one answer on standard output: `{"answer": ...}`,
or `{"error": {"kind": ..., "message": ...}}`.

A request names a job as a user does (`jobs.named`). The answer has its `id` where that is another text.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from .. import blocks, layout
from ..errors import ReportedError, Unknown, place_of
from ..requests import Error, read_request
from ..spec import SpecError, to_json

MOST = 400_000_000
"""Characters of a request."""


def main(file: str = "") -> None:
    """Answer the request on standard input. With a file, as in a pod, which has no input, and whose log has a limit: the request is there, and
    both are compressed."""
    os.environ["LC_ALL"] = "C.UTF-8"
    if file:
        text = json.dumps(answer(gzip.decompress(Path(file).read_bytes()).decode()))
        print(base64.b64encode(gzip.compress(text.encode())).decode())
        return
    json.dump(answer(sys.stdin.read(MOST)), sys.stdout)
    sys.stdout.write("\n")


def answer(text: str) -> Any:
    """The answer to a request. It never raises: an error is an answer, too."""
    try:
        name, cluster, given = read_request(json.loads(text))
        layout.check_folder(cluster)
        if cluster.blocks:
            blocks.note(cluster.jobs, cluster.blocks)
        more = {}
        if id := getattr(given, "id", ""):
            from .jobs import named

            try:
                given = replace(given, id=named(cluster, id))
            except Unknown as e:
                return _error(e.kind, str(e))
            more = {"id": given.id} if given.id != id else {}
        module, _, function = name.rpartition(".")
        try:
            reply = getattr(import_module(f"..{module}", __package__), function)(cluster, given)
            return {"answer": to_json(reply), **more}
        except Unknown as e:
            from .jobs import similar

            return _error(e.kind, str(e), similar(cluster, id))
    except ReportedError as e:
        return _error(e.kind, str(e))
    except (json.JSONDecodeError, RecursionError):
        return _error("refused", "the runner does not understand the request: it is no JSON")
    except SpecError as e:
        return _error("refused", f"the runner does not understand the request: {e}")
    except OSError as e:
        where = f": {e.filename}" if e.filename else ""
        return _error("refused", f"{e.strerror or e}{where}")
    except Exception as e:  # a traceback helps nobody who asks
        return _error("broken", f"the runner failed on this request, which is a fault of it: {place_of(e)}")


def _error(kind: str, message: str, similar: Sequence[str] = ()) -> Any:
    return {"error": to_json(Error(kind, message, tuple(similar)))}

"""Through how many files somebody follows a submission."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest

import trainium_cdk
from tests.jobs.kubernetes.conftest import make_cluster, script
from trainium_cdk.errors import ApiError
from trainium_cdk.jobs import BertLarge, Job
from trainium_cdk.jobs.kubernetes import Api, KubernetesBackend
from trainium_cdk.jobs.pyz import pyz

PACKAGE = Path(trainium_cdk.__file__).parent


class Empty(Api):
    """An API with a queue, which takes what it is given."""

    def __init__(self) -> None:
        self.namespace = "training"

    def _send(self, method: str, path: str, body: Any = None, **_: Any) -> Any:
        if method == "GET" and "localqueues" not in path:
            raise ApiError(404, "NotFound", "it is not there")
        given = {**(body or {}), "metadata": {**(body or {}).get("metadata", {}), "uid": "u"}}
        return SimpleNamespace(data=json.dumps(given))


def way(make: Callable[[], Job]) -> set[str]:
    """The files of the client and the runner in which something is called, from the job to its last request."""
    backend, found = KubernetesBackend(make_cluster(image="x/y:z"), Empty), set[str]()
    backend.render(make())  # what is imported or loaded once is no part of it
    pyz.cache_clear()

    def called(frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and frame.f_code.co_name != "<module>" and file.is_relative_to(PACKAGE):
            found.add(file.relative_to(PACKAGE).as_posix())

    before = sys.getprofile()
    sys.setprofile(cast("Any", called))
    try:
        backend.send(backend.render(make(), "t"))
    finally:
        sys.setprofile(before)
    return {file for file in found if file.startswith(("jobs/", "runner/"))}


@pytest.mark.parametrize(
    ("make", "most"),
    [(lambda: script(b"true", env={"A": "1"}, args=("x",)), 15), (lambda: BertLarge(nodes=2), 18)],
    ids=["script", "bert-large"],
)
def test_a_submission_passes_few_files(make: Callable[[], Job], most: int) -> None:
    """A kind of ours adds what it fetches, corrects and installs."""
    files = way(make)
    assert {"jobs/job_spec.py", "jobs/plan.py", "jobs/kubernetes/submit.py", "runner/spec.py"} <= files
    assert len(files) <= most, sorted(files)

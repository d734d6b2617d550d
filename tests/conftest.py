"""Fixtures that every part of the tests may use."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from sandbox import LocalAws
from tests.support import need_local_aws

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

_SHARED = ("tests/jobs/kubernetes/", "tests/sandbox/test_kubernetes", "tests/trust/")
"""Files that share what is slow to start (a Kubernetes API, a Slurm): one worker runs all of them. Else one runs each file."""
_LONGEST = (
    "tests/audit/test_zero.py", "tests/jobs/kubernetes/", "tests/stacks/test_deploy_eks.py", "tests/trust/", "tests/stacks/test_deploy.py",
    "tests/sandbox/test_demo.py", "tests/stacks/test_eks.py", "tests/sandbox/test_kubernetes", "tests/jobs/test_slurm.py",
    "tests/bootstrap/test_ubuntu.py", "tests/test_app.py", "tests/storage/test_storage.py", "tests/test_packaging.py",
)  # fmt: skip
"""These begin first, so that no worker is left with a long one while the others have nothing more to do."""


def _share(nodeid: str) -> str:
    return next((share for share in _SHARED if nodeid.startswith(share)), nodeid.partition("::")[0])


class _Shares(LoadScopeScheduling):
    """Schedules whole files, and those that share a slow fixture together."""

    def _split_scope(self, nodeid: str) -> str:
        return _share(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Shares:
    return _Shares(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {share: i for i, share in enumerate(_LONGEST)}
    items.sort(key=lambda item: order.get(_share(item.nodeid), len(order)))


def pytest_collection_finish() -> None:
    """What collection made stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


@pytest.fixture(scope="session")
def local_aws() -> Iterator[LocalAws]:
    """One local AWS for the whole run (of a worker), bootstrapped for the CDK; started at first use, stopped at the end.

    Tests share it: use unique names, and compare what is left with what existed before
    (`sandbox.leftovers.beyond`).
    """
    need_local_aws()
    with LocalAws.start() as aws:
        aws.bootstrap()
        yield aws

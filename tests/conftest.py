"""Fixtures that every part of the tests may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from sandbox import LocalAws
from sandbox.local_aws import CDK, EMULATOR_PYTHON
from tests.support import need

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

_LONGEST = (
    "tests/audit/test_zero", "kubernetes", "tests/stacks/test_deploy_eks", "tests/trust", "tests/sandbox/test_readme", "tests/stacks/test_deploy",
    "tests/sandbox/test_demo", "tests/sandbox", "tests/bootstrap",
)  # fmt: skip
"""Groups that begin first, so that no worker is left with a long one while the others have nothing more to do."""


def _group(item: pytest.Item) -> str:
    """The tests of a file share its fixtures; some folders have fixtures that are shared by their files."""
    folder = item.path.relative_to(item.config.rootpath).parent.as_posix()
    used = set(getattr(item, "fixturenames", ()))
    if folder == "tests/trust" and "slurm" in used:
        return folder
    if folder == "tests/jobs/kubernetes" and "running" in used:
        return "kubernetes"
    if folder == "tests/sandbox" and "cluster" in used:
        return folder
    return item.nodeid.partition(".py::")[0]


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: _LONGEST.index(groups[item]) if groups[item] in _LONGEST else len(_LONGEST))


@pytest.fixture(scope="session")
def local_aws() -> Iterator[LocalAws]:
    """One local AWS for the whole run (of a worker), bootstrapped for the CDK; started at first use, stopped at the end.

    Tests share it: use names of your own, and judge what is left by what was there before
    (`sandbox.leftovers.beyond`).
    """
    need(EMULATOR_PYTHON.exists(), f"the emulator is not installed ({EMULATOR_PYTHON}): make setup")
    need(CDK.exists(), f"the CDK command line is not installed ({CDK}): make setup")
    with LocalAws.start() as aws:
        aws.bootstrap()
        yield aws

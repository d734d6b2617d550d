"""Fixtures that every part of the tests may use."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from sandbox import LocalAws
from sandbox.pcluster_validator import PclusterValidator
from sandbox.testing import need_local_aws, need_pcluster
from trainium_cdk.description import engines

_CONFIG = tempfile.TemporaryDirectory(prefix="trn-tests-config-")
# the file that this user has chosen with `trn use` is none of the tests'
os.environ["XDG_CONFIG_HOME"] = _CONFIG.name
os.environ["CDK_VALIDATION"] = "false"  # takes most of the time of a synthesis

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

_ROOT = Path(__file__).parent
_LINES = (_ROOT / "tests/scenes.txt").read_text("utf-8").splitlines()
_SCENES = {line for line in _LINES if line and not line.startswith("#")}
"""What `make scenes` runs: folders, files and tests. `make test` runs all others."""
_ADDED = [line[3:] for line in _LINES if line.startswith("## ")]

_SHARED = (
    "tests/audit/", "tests/eks/", "tests/faults/", "tests/foreign/", "tests/jobs/kubernetes/", "sandbox/tests/test_kubernetes", "tests/trust/",
)  # fmt: skip
"""Files that share what is slow to start (a Kubernetes API, a Slurm, an installed wheel, synthesised stacks): one worker runs all of them, and stops it after the last one.
Else one runs each file."""
_LONGEST = (
    "tests/jobs/kubernetes/", "tests/trust/", "tests/eks/", "tests/sandbox/test_demo.py", "tests/sandbox/test_pages.py", "tests/audit/",
    "tests/stacks/test_deploy_eks.py", "tests/stacks/test_deploy.py", "tests/stacks/test_pcs.py", "tests/stacks/test_eks.py", "tests/jobs/test_slurm.py",
    "tests/jobs/test_prepare.py", "tests/operations/teardown/test_destroy.py", "tests/bootstrap/test_ubuntu.py", "tests/cli/test_trn.py", "tests/jobs/test_users.py",
    "tests/conformance/test_launch.py", "tests/jobs/test_own_packages.py", "tests/operations/updates/test_compare.py", "tests/test_app.py",
    "sandbox/tests/test_kubernetes", "sandbox/tests/test_slurm.py", "sandbox/tests/test_training.py", "tests/storage/test_storage.py", "tests/test_packaging.py",
)  # fmt: skip
"""These begin first, so that no worker is left with a long one while the others have nothing more to do."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--layer", choices=("test", "scenes"), help="the tests of `make test`, or of `make scenes` (default: both)"
    )


def _is_scene(nodeid: str) -> bool:
    """Whether it, or what it is in, has a line of tests/scenes.txt."""
    name = nodeid.partition("[")[0]
    folders = [f"{folder.as_posix()}/" for folder in Path(name.partition("::")[0]).parents]
    return not _SCENES.isdisjoint((name, name.partition("::")[0], *folders))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A layer does not import the files of the other one."""
    layer = config.getoption("layer")
    if layer is None or collection_path.suffix != ".py":
        return None
    path = collection_path.relative_to(_ROOT).as_posix()
    if layer == "test":
        return _is_scene(path) or None
    return None if _is_scene(path) or any(line.startswith(f"{path}::") for line in _SCENES) else True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if config.getoption("layer") == "test":
        terminalreporter.write_line(f"`make scenes` adds: {'; '.join(_ADDED)}.")


def _share(nodeid: str) -> str:
    return next((share for share in _SHARED if nodeid.startswith(share)), nodeid.partition("::")[0])


class _Shares(LoadScopeScheduling):
    """Schedules whole files, and those that share a slow fixture together."""

    def _split_scope(self, nodeid: str) -> str:
        return _share(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Shares:
    return _Shares(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if layer := config.getoption("layer"):
        layers: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            layers[_is_scene(item.nodeid)].append(item)
        items[:] = layers[layer == "scenes"]
        config.hook.pytest_deselected(items=layers[layer != "scenes"])
    order = {share: i for i, share in enumerate(_LONGEST)}
    items.sort(key=lambda item: order.get(_share(item.nodeid), len(order)))


class _EndsWithShare:
    """Ends what such files share: a Kubernetes or a Slurm without jobs uses the processor too, which other tests need."""

    def __init__(self) -> None:
        self._begun: list[tuple[pytest.FixtureDef[Any], Any]] = []

    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        folder = fixturedef.baseid
        if fixturedef.scope == "session" and any(s.startswith(f"{folder}/") for s in _SHARED):
            self._begun.append((fixturedef, request))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        try:
            yield
        finally:
            share = _share(item.nodeid)
            if share in _SHARED and (nextitem is None or _share(nextitem.nodeid) != share):
                while self._begun:
                    fixture, request = self._begun.pop()
                    fixture.finish(request)


def pytest_configure(config: pytest.Config) -> None:
    # the workers of a run share its templates
    if not hasattr(config, "workerinput"):
        os.environ["TRN_TEST_TEMPLATES"] = tempfile.mkdtemp(prefix="trn-tests-templates-")
    # a class: the hooks of this file are not called for fixtures of the session
    config.pluginmanager.register(_EndsWithShare())


def pytest_unconfigure(config: pytest.Config) -> None:
    _CONFIG.cleanup()
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["TRN_TEST_TEMPLATES"], ignore_errors=True)


def pytest_collection_finish() -> None:
    """What collection made stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


@pytest.fixture(autouse=True)
def _nothing_in_use() -> Iterator[None]:
    """What a test chooses with `trn use`, or `trn init`, is not in use in the next one."""
    yield
    engines.place().unlink(missing_ok=True)


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


@pytest.fixture(scope="session")
def validator(local_aws: LocalAws) -> PclusterValidator:
    """AWS ParallelCluster's own schema, validators and update policy, which read that local AWS."""
    need_pcluster()
    return local_aws.pcluster_validator

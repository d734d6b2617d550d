"""Nodes for the tests of the node scripts."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bootstrap import node as nodes
from tests.bootstrap import standins
from tests.support import need

NewNode = Callable[..., nodes.Node]


@pytest.fixture(scope="session")
def base_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lacking = nodes.missing_parts()
    need(not lacking, f"the node scripts cannot be run here: {lacking}")
    try:
        tarball = nodes.base_tarball()
    except RuntimeError as error:
        need(condition=False, reason=str(error))
        raise
    root = tmp_path_factory.mktemp("base") / "root"
    root.mkdir()
    subprocess.run(["tar", "-C", root, "--numeric-owner", "-xf", tarball], check=True)
    return root


@pytest.fixture(scope="session")
def vendor(base_root: Path, tmp_path_factory: pytest.TempPathFactory) -> standins.Vendor:
    # gpg's agent refuses socket paths longer than 108 characters: keep the keys' home short
    work = tmp_path_factory.mktemp("k")
    return standins.build(tmp_path_factory.mktemp("vendor"), work)


@pytest.fixture(scope="session")
def fingerprints(vendor: standins.Vendor) -> dict[str, str]:
    return {
        "TRN_NEURON_KEY_FINGERPRINT": vendor.neuron_key.fingerprint,
        "TRN_EFA_KEY_FINGERPRINT": vendor.efa_key.fingerprint,
    }


@pytest.fixture
def new_node(
    base_root: Path, vendor: standins.Vendor, fingerprints: dict[str, str], tmp_path: Path
) -> Iterator[NewNode]:
    """Make nodes: ``new_node(system, **settings)``; they are gone when the test ends."""
    with ExitStack() as stack:
        count = 0

        def make(system: str = "ubuntu-22.04", **settings: str) -> nodes.Node:
            nonlocal count
            count += 1
            node = stack.enter_context(nodes.start(base_root, tmp_path / f"node{count}", vendor, system))
            node.settings(**(fingerprints | settings))
            return node

        yield make

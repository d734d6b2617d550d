"""Nodes for the tests of the node scripts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bootstrap import fake_vendor, roots
from tests.bootstrap import node as nodes
from tests.support import need

NewNode = Callable[..., nodes.Node]


@pytest.fixture(scope="session")
def vendor(tmp_path_factory: pytest.TempPathFactory) -> fake_vendor.Vendor:
    lacking = roots.missing_parts()
    need(not lacking, f"the node scripts cannot be run here: {lacking}")
    # gpg's agent refuses socket paths longer than 108 characters: keep the keys' home short
    work = tmp_path_factory.mktemp("k")
    return fake_vendor.build(tmp_path_factory.mktemp("vendor"), work)


@pytest.fixture(scope="session")
def root_of(vendor: fake_vendor.Vendor) -> Callable[[str], roots.Root]:
    """The root of a system; Ubuntu's archive then has the packages that were fetched for it."""

    def made(system: str) -> roots.Root:
        try:
            found = roots.root(system)
        except RuntimeError as error:
            need(condition=False, reason=str(error))
            raise
        if system.startswith("ubuntu"):
            fake_vendor.distribution(vendor, roots.RECIPES[system].suite, found.downloads)
        return found

    return made


@pytest.fixture(scope="session")
def fingerprints(vendor: fake_vendor.Vendor) -> dict[str, str]:
    return {
        "TRN_NEURON_KEY_FINGERPRINT": vendor.neuron_key.fingerprint,
        "TRN_EFA_KEY_FINGERPRINT": vendor.efa_key.fingerprint,
        "TRN_AGENT_KEY_FINGERPRINT": vendor.efa_key.fingerprint,
    }


@pytest.fixture
def new_node(
    root_of: Callable[[str], roots.Root], vendor: fake_vendor.Vendor, fingerprints: dict[str, str], tmp_path: Path
) -> Iterator[NewNode]:
    """Create nodes: ``new_node(system, **settings)``; they are deleted when the test ends."""
    with ExitStack() as stack:
        count = 0

        def make(system: str = "ubuntu-24.04", **settings: str) -> nodes.Node:
            nonlocal count
            count += 1
            node = stack.enter_context(nodes.start(root_of(system), tmp_path / f"node{count}", vendor, system))
            node.settings(**(fingerprints | settings))
            return node

        yield make

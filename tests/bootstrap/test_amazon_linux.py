"""The same scripts on an Amazon-Linux-like root: real dnf and rpm, signed packages, a release file of 2023."""

from __future__ import annotations

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import AMAZON_KERNEL, EFA_VERSION, NEURON_DEBS
from tests.bootstrap.node import SERVER, Node
from tests.support import swept

pytestmark = pytest.mark.sweep

COMPUTE = ("TRN_NEURON_DEVICES_EXPECTED=16", "TRN_EFA_EXPECTED=8")
WANTED = {name: f"{versions[0].replace('-', '_')}-1" for name, versions in NEURON_DEBS.items()}


def installed(node: Node) -> dict[str, str]:
    listing = node.run("rpm", "-qa", "--qf", "%{NAME} %{VERSION}-%{RELEASE}\\n", "aws-neuronx-*").out
    return dict(line.split() for line in listing.splitlines())


@pytest.fixture
def node(new_node: NewNode) -> Node:
    made = new_node("amzn-2023", TRN_EFA_INSTALLER=EFA_VERSION, TRN_OS_PACKAGES="jq")
    made.become("ComputeFleet")
    made.devices(16)
    return made


@pytest.mark.sweep
def test_a_compute_node_gets_everything_once(node: Node) -> None:
    assert node.run("python3", "--version").out.startswith(f"Python {node.python}.")
    first = node.configure(*COMPUTE)
    assert first.code == 0, first.err
    assert installed(node) == WANTED
    assert node.path(f"/lib/modules/{AMAZON_KERNEL}/build/Makefile").exists()
    repository = node.read("/etc/yum.repos.d/neuron.repo")
    assert "gpgcheck=1" in repository
    assert node.path("/usr/bin/jq").exists()
    # a plain upgrade does not see the newer release
    assert "aws-neuronx" not in node.run("dnf", "--assumeno", "upgrade").out
    assert node.status()["result"] == "ok"

    before = node.snapshot()
    log = node.inner.parent / "server.log"
    requests = log.read_text()
    second = node.configure(*COMPUTE)
    assert second.code == 0, second.err
    assert node.status()["changes"] == []
    assert node.snapshot() == before
    assert log.read_text() == requests


@pytest.mark.sweep
def test_another_release_replaces_the_first_and_back(node: Node) -> None:
    newer = {"DKMS": "2.31.7.0", "COLLECTIVES": "2.35.43.0", "RUNTIME": "2.35.30.0", "TOOLS": "2.33.38.0"}
    up = node.configure(*(f"TRN_NEURON_{key}={value}" for key, value in newer.items()))
    assert up.code == 0, up.err
    assert installed(node)["aws-neuronx-tools"] == "2.33.38.0-1"
    down = node.configure()
    assert down.code == 0, down.err
    assert installed(node) == WANTED


FAILURES = {
    "packages without a signature": (
        f"TRN_NEURON_YUM_URL={SERVER}/yum-unsigned",
        "neuron-packages",
        "dnf cannot download aws-neuronx-dkms-2.29.0.0-1",
    ),
    "a release that is not published": (
        "TRN_NEURON_RUNTIME=2.99.0.0",
        "neuron-packages",
        f"aws-neuronx-runtime-lib 2.99.0.0 is not in {SERVER}/yum; it offers: 2.35.30.0_0aa0b0c0d-1 2.33.10.0_c101c322e-1",
    ),
    "a repository that does not answer": (
        "TRN_NEURON_YUM_URL=http://127.0.0.1:1/yum",
        "neuron-packages",
        "the Neuron repository http://127.0.0.1:1/yum cannot be read",
    ),
    "wheels that need a newer glibc": (
        "TRN_TORCH_NEURONX=2.9.0.2.15.32035",
        "framework",
        "torch-neuronx 2.9.0.2.15.32035 needs glibc 2.35 or newer, amzn 2023 has 2.34. Use Ubuntu 22.04 or 24.04",
    ),
}


@pytest.mark.parametrize("name", swept(FAILURES, "packages without a signature", "wheels that need a newer glibc"))
def test_errors_are_logged_with_their_reason(node: Node, name: str) -> None:
    argument, step, message = FAILURES[name]
    done = node.configure(argument, "TRN_VENV=venv")
    assert done.code != 0
    assert f"step '{step}' failed on compute node" in done.err
    assert message in done.err
    if "unsigned" in argument:
        assert installed(node) == {}

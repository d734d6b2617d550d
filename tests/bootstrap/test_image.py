"""The script that bakes an image, really run on a clean root; and a node that starts from what it leaves."""

from __future__ import annotations

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import FI_INFO, KERNEL, NEURON_DEBS
from tests.bootstrap.test_ubuntu import COMPUTE, FRAMEWORK, VENV, installed
from trainium_cdk.description.node.image import script


@pytest.mark.sweep
def test_a_node_from_a_baked_image_installs_nothing(new_node: NewNode) -> None:
    node = new_node(TRN_OS_PACKAGES="jq", TRN_VENV_SHARED="no", **FRAMEWORK)
    node.write("/opt/amazon/efa/bin/fi_info", FI_INFO, 0o755)  # ParallelCluster's own images carry EFA
    node.write("/root/bake.sh", script(node.read("/opt/trn/node.env")), 0o755)
    done = node.run("/root/bake.sh")  # no device, no cluster
    assert done.code == 0, done.err
    assert installed(node) == {name: f"{versions[0]} hold" for name, versions in NEURON_DEBS.items()}
    assert node.path(f"/lib/modules/{KERNEL}/build/Makefile").exists()
    assert node.path(f"{VENV}/bin/python").is_symlink()
    for trace in ("/var/lib/trn-bootstrap", "/var/log/trn-bootstrap.log"):
        assert not node.path(trace).exists()

    node.become("ComputeFleet")
    node.devices(16)
    log = node.inner.parent / "server.log"
    requests = log.read_text()
    started = node.configure(*COMPUTE)
    assert started.code == 0, started.err
    assert log.read_text() == requests
    assert not [change for change in node.status()["changes"] if "install" in change]


def test_a_shared_environment_is_not_in_the_image(new_node: NewNode) -> None:
    node = new_node(
        TRN_NEURON_DKMS="", TRN_NEURON_COLLECTIVES="", TRN_NEURON_RUNTIME="", TRN_NEURON_TOOLS="", **FRAMEWORK
    )
    done = node.configure("TRN_NODE_ROLE=image")
    assert done.code == 0, done.err
    assert not node.path(VENV).is_symlink()


def test_the_script_is_the_same_for_the_same_content() -> None:
    assert script("TRN_USER='ubuntu'\n") == script("TRN_USER='ubuntu'\n") != script("TRN_USER='ec2-user'\n")

"""What an EKS node installs before it joins, the driver and the Lustre client: the scripts as they are in the user data, with real dnf,
rpm and gpg on an Amazon-Linux-like root whose image has another driver, installed and loaded."""

from __future__ import annotations

import email
import re

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import AMAZON_KERNEL, NEURON_DEBS
from tests.bootstrap.node import SERVER, Node
from tests.support import swept
from trainium_cdk.cdk.eks.user_data import Driver, user_data

IMAGES, WANTED = NEURON_DEBS["aws-neuronx-dkms"]
GATE = "/etc/systemd/system/nodeadm-run.service.d/trn-driver.conf"
LOADED = "/sys/module/neuron/version"
# As the kernel: a loaded module stays until it is removed, and another version is not loaded over it
MODPROBE = f"""#!/bin/sh
[ "$1" = neuron ] || exit 1
[ ! -e {LOADED} ] || exit 0
file=/lib/modules/{AMAZON_KERNEL}/extra/neuron.version
[ -e $file ] || {{ echo "modprobe: FATAL: Module neuron not found in directory /lib/modules/{AMAZON_KERNEL}" >&2; exit 1; }}
mkdir -p {LOADED.rpartition("/")[0]} && cp $file {LOADED}
"""
RMMOD = f"#!/bin/sh\nrm {LOADED}\n"


@pytest.fixture
def node(new_node: NewNode, fingerprints: dict[str, str]) -> Node:
    """A node of EKS's image at its first start: its driver is built and loaded, and systemd waits for the scripts of cloud-init."""
    made = new_node("amzn-2023")
    made.write("/usr/sbin/modprobe", MODPROBE, 0o755)
    made.write("/usr/sbin/rmmod", RMMOD, 0o755)
    made.write(
        "/usr/bin/systemctl", '#!/bin/sh\n[ "$*" = daemon-reload ] && echo "$*" >> /etc/standin/systemctl\n', 0o755
    )
    made.write(f"/lib/modules/{AMAZON_KERNEL}/build/Makefile", "all:\n")
    made.write("/etc/yum.repos.d/image.repo", f"[image]\nname=image\nbaseurl={SERVER}/yum\nenabled=1\ngpgcheck=0\n")
    there = made.run("dnf", "-y", "install", f"aws-neuronx-dkms-{IMAGES}")
    assert there.code == 0, there.err
    made.path("/etc/yum.repos.d/image.repo").unlink()
    assert made.run("modprobe", "neuron").code == 0
    assert made.read(LOADED).strip() == IMAGES
    made.own_fingerprint = fingerprints["TRN_NEURON_KEY_FINGERPRINT"]  # type: ignore[attr-defined]
    return made


def start(
    node: Node, *, version: str = WANTED, yum: str = f"{SERVER}/yum", key: str = "", fingerprint: str = ""
) -> str:
    """Run the script as cloud-init does; what it printed. Whether the node then joins is what `joins` says."""
    found = fingerprint or str(node.own_fingerprint)  # type: ignore[attr-defined]
    driver = Driver(version, yum, key or f"{SERVER}/apt/KEY.PUB", found)
    node.write("/var/lib/cloud/instance/scripts/part-002", driver.script, 0o700)
    done = node.run("/var/lib/cloud/instance/scripts/part-002", env={"TRN_RETRY_DELAY": "0"})
    assert (done.code == 0) is joins(node)
    return done.out + done.err


def joins(node: Node, gate: str = GATE) -> bool:
    """Whether systemd would start nodeadm: by the assertion of the drop-in, which it has read."""
    if not node.path(gate).exists():
        return True
    [asserted] = re.findall(r"^AssertPathExists=!(.*)$", node.read(gate), re.MULTILINE)
    assert node.read(gate).startswith("[Unit]\n")
    assert node.read("/etc/standin/systemctl") == "daemon-reload\n"
    return not node.path(asserted).exists()


def version(node: Node) -> str:
    return node.run("rpm", "-q", "--qf", "%{VERSION}", "aws-neuronx-dkms").out


def test_a_node_gets_the_releases_driver_and_joins(node: Node) -> None:
    printed = start(node)
    assert node.read(LOADED).strip() == version(node) == WANTED, printed
    repository = node.read("/etc/yum.repos.d/neuron.repo")
    assert "gpgcheck=1" in repository
    assert "enabled=0" in repository  # nothing else is taken from it
    # the same image again, with the driver: nothing is done
    node.path("/etc/yum.repos.d/neuron.repo").unlink()
    assert start(node) == ""
    assert not node.path("/etc/yum.repos.d/neuron.repo").exists()


FAILURES = {
    "another key": ({"fingerprint": "0" * 40}, r"no Neuron driver .* does not join the cluster: the key .* has the fingerprint [0-9A-F]{40}"),
    "a key that is not there": ({"key": f"{SERVER}/none"}, "cannot download http.*/none"),
    "packages without a signature": ({"yum": f"{SERVER}/yum-unsigned"}, "is not signed"),
    "a version that is not published": ({"version": "2.99.0.0"}, r"the loaded one is ''"),
}  # fmt: skip


@pytest.mark.parametrize("name", swept(FAILURES, "another key"))
def test_a_node_without_the_driver_does_not_join(node: Node, name: str) -> None:
    given, message = FAILURES[name]
    assert re.search(message, start(node, **given))
    assert not joins(node)


def test_a_driver_that_does_not_build_keeps_the_node_out(node: Node) -> None:
    node.write("/etc/standin/driver-does-not-build", "")
    printed = start(node)
    assert "too many arguments" not in printed
    assert "see /var/log/cloud-init-output.log and /var/lib/dkms/aws-neuronx/*/build/make.log" in printed
    assert not joins(node)


LUSTRE_GATE = GATE.replace("driver", "lustre")
KERNEL = f"""#!/bin/sh
[ "$1" = lustre ] || exit 1
[ -e /lib/modules/{AMAZON_KERNEL}/extra/lustre.ko ] || {{ echo "modprobe: FATAL: Module lustre not found" >&2; exit 1; }}
"""


@pytest.mark.parametrize(
    ("client", "module", "message"),
    [
        (True, True, ""),
        (False, True, "no Lustre client, so this node does not join the cluster: lustre-client cannot be installed"),
        pytest.param(
            True,
            False,
            "no Lustre client, so this node does not join the cluster: its kernel module cannot be loaded",
            marks=pytest.mark.sweep,
        ),
        pytest.param(False, False, "lustre-client cannot be installed", marks=pytest.mark.sweep),
    ],
)
def test_a_node_without_lustre_does_not_join(node: Node, client: bool, module: bool, message: str) -> None:
    """Real dnf, which finds no such package; an image that has the client is as if dnf had installed it."""
    text = email.message_from_string(user_data(lustre=True))
    [script] = [str(p.get_payload()) for p in text.walk() if p.get_content_type() == "text/x-shellscript"]
    node.write("/usr/sbin/modprobe", KERNEL, 0o755)
    if client:
        node.write("/usr/sbin/mount.lustre", "#!/bin/sh\n", 0o755)
    if module:
        node.write(f"/lib/modules/{AMAZON_KERNEL}/extra/lustre.ko", "")
    node.write("/var/lib/cloud/instance/scripts/part-002", script, 0o700)
    done = node.run("/var/lib/cloud/instance/scripts/part-002", env={"TRN_RETRY_DELAY": "0"})
    assert (done.code == 0) is joins(node, LUSTRE_GATE) is (client and module)
    assert message in done.out

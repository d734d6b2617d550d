"""The node scripts, really run on an Ubuntu-like root against signed fakes of the vendor's servers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.fake_vendor import EFA_VERSION, KERNEL, NEURON_DEBS, Vendor
from tests.bootstrap.node import ADDRESS, HOSTNAME, SERVER, Node
from tests.support import swept, until
from trainium_cdk.description.node.scripts import own_files
from trainium_cdk.description.settings import Bootstrap, Environment, OwnScript

FRAMEWORK = {
    "TRN_VENV": "aws_neuron_venv_pytorch",
    "TRN_NEURON_CC": "2.26.6360.0",
    "TRN_TORCH_NEURONX": "2.9.0.2.15.32035",
}
VENV = "/home/ubuntu/aws_neuron_venv_pytorch"
COMPUTE = ("TRN_NEURON_DEVICES_EXPECTED=16", "TRN_EFA_EXPECTED=8")


def installed(node: Node) -> dict[str, str]:
    listing = node.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Want}\\n", "aws-neuronx-*").out
    return {line.split()[0]: " ".join(line.split()[1:]) for line in listing.splitlines()}


def compute_node(new_node: NewNode, system: str = "ubuntu-24.04", **settings: str) -> Node:
    node = new_node(system, **({"TRN_EFA_INSTALLER": EFA_VERSION} | settings))
    node.become("ComputeFleet")
    node.devices(16)
    return node


@pytest.mark.parametrize("system", swept(["ubuntu-22.04", "ubuntu-24.04"], "ubuntu-24.04"))
def test_a_compute_node_gets_everything_once(new_node: NewNode, system: str) -> None:
    node = compute_node(new_node, system, TRN_MOUNTS="/shared", TRN_OS_PACKAGES="jq")
    node.path("/shared").mkdir()
    subprocess.run(
        ["nsenter", "-t", str(node.pid), "-m", "mount", "-t", "tmpfs", "t", node.inner / "shared"], check=True
    )

    first = node.configure(*COMPUTE)
    assert first.code == 0, first.err
    # the exact release with the build suffix the repository gives it, though newer ones are published; and held
    assert installed(node) == {name: f"{versions[0]} hold" for name, versions in NEURON_DEBS.items()}
    assert node.path(f"/lib/modules/{KERNEL}/build/Makefile").exists()
    assert "signed-by=/etc/apt/keyrings/neuron.gpg" in node.read("/etc/apt/sources.list.d/neuron.list")
    assert not list(node.path("/etc/apt/trusted.gpg.d").glob("*euron*"))
    assert node.path("/usr/bin/jq").exists()
    # neither a plain upgrade nor the removal of the hold moves the packages: the pin stays
    node.run("apt-mark", "unhold", *NEURON_DEBS)
    assert "aws-neuronx" not in node.run("apt-get", "-s", "dist-upgrade").out
    node.run("apt-mark", "hold", *NEURON_DEBS)
    # EFA came from the verified installer; its low limit for open files is raised
    assert node.path("/opt/amazon/efa/bin/fi_info").exists()
    assert node.read("/etc/security/limits.d/01_efa.conf").count("8192") == 0
    # the node's name leads to its card's address, the other names on the loopback line stay
    assert node.run("getent", "ahostsv4", HOSTNAME).out.split()[0] == ADDRESS
    assert node.read("/etc/hosts").splitlines()[0] == "127.0.0.1 localhost # by cloud-init"
    assert node.run("cat", "/proc/sys/net/ipv4/ip_local_reserved_ports").out == "48620\n"
    assert "ip_local_reserved_ports = 48620" in node.read("/etc/sysctl.d/99-trn.conf")
    assert "/opt/aws/neuron/bin" in node.run("bash", "-lc", "command -v neuron-ls").out
    status = node.status()
    assert (status["result"], status["role"], status["neuron_sdk"]) == ("ok", "compute", "2.31.0")

    before = node.snapshot()
    second = node.configure(*COMPUTE)
    assert second.code == 0, second.err
    assert node.status()["changes"] == []
    assert node.snapshot() == before
    # quick because no server is queried again
    log = (node.inner.parent / "server.log").read_text()
    assert node.configure(*COMPUTE).code == 0
    assert (node.inner.parent / "server.log").read_text() == log


@pytest.mark.sweep
def test_a_login_really_gets_the_limits(new_node: NewNode) -> None:
    node = new_node()
    node.become("LoginNode")
    assert node.configure().code == 0
    # The installer writes its low limit again. Where root may not raise a hard limit (a container without
    # CAP_SYS_RESOURCE) the same file is tried with values that are allowed.
    node.write("/etc/security/limits.d/01_efa.conf", "* soft nofile 512\n* hard nofile 512\n")
    allowed = int(node.run("sh", "-c", "ulimit -Hn 1048576 2>/dev/null; ulimit -Hn").out)
    limits = node.read("/etc/security/limits.d/99-trn.conf")
    node.write(
        "/etc/security/limits.d/99-trn.conf",
        limits.replace("1048576", str(allowed)).replace("65535", str(min(65535, allowed // 2))),
    )
    login = node.run("su", "ubuntu", "-c", "ulimit -Sn; ulimit -Hn")
    assert login.out.split() == [str(min(65535, allowed // 2)), str(allowed)]


def test_head_and_compute_differ_and_share_the_environment(new_node: NewNode) -> None:
    head = new_node(**FRAMEWORK)
    head.become("HeadNode")
    done = head.configure()
    assert done.code == 0, done.err
    # no device there: no driver, no headers, no EFA
    assert sorted(installed(head)) == ["aws-neuronx-collectives", "aws-neuronx-runtime-lib", "aws-neuronx-tools"]
    assert not head.path("/lib/modules").joinpath(KERNEL).exists()
    assert not head.path("/opt/amazon").exists()
    version = head.run(f"{VENV}/bin/python", "-c", "import torch_neuronx as t; print(t.__version__)")
    assert version.out.startswith("2.9.0.2.15.32035+")
    assert head.path(f"{VENV}/bin/pip").stat().st_uid == 1000
    before = head.snapshot()
    assert head.configure().code == 0
    assert head.snapshot() == before

    compute = compute_node(new_node, **FRAMEWORK)
    alone = compute.configure(*COMPUTE, "TRN_VENV_WAIT=1")
    assert alone.code != 0
    assert f"the shared virtual environment {linked(head)} is not finished after 1 s" in alone.err
    assert compute.status()["failed_step"] == "framework"
    # the head node's home arrives (here by copy instead of NFS), its marker last: the node waits for that
    run = subprocess.Popen(
        compute.words("/opt/trn/configure-node.sh", *COMPUTE),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    home = share(head, compute, "--exclude=.trn-requirements")
    assert until(lambda: compute.read("/var/log/trn-bootstrap.log").count("waiting for") > 1)
    assert run.poll() is None
    share(head, compute)
    _, err = run.communicate(timeout=600)
    assert run.returncode == 0, err
    assert linked(compute) == linked(head)
    assert home.name == "ubuntu"


def linked(node: Node) -> str:
    """Where the link to the virtual environment leads."""
    return node.run("readlink", "-f", VENV).out.strip()


def share(head: Node, other: Node, *options: str) -> Path:
    """The head node's home, on another node: copied, as there is no network between them."""
    target = other.path("/home/ubuntu")
    tar = ["tar", "-C", str(head.path("/home/ubuntu")), *options, "-c", "."]
    packed = subprocess.run(tar, capture_output=True, check=True)
    subprocess.run(["tar", "-C", str(target), "-x"], input=packed.stdout, check=True)
    return target


LISTENER = """
import select, socket, sys
log = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
log.bind("/dev/log")
print("ready", flush=True)
while log in select.select([log, sys.stdin], [], [])[0]:  # until stdin has ended and no message is left
    print(log.recv(65536).decode())
"""


def test_a_head_nodes_reason_reaches_the_logs_that_survive(new_node: NewNode) -> None:
    """ParallelCluster drops the stderr of a head node's script; stdout and the system log are kept."""
    head = new_node(TRN_MOUNTS="/proc /fsx")
    head.become("HeadNode")
    head.path("/fsx").mkdir()
    listener = subprocess.Popen(
        head.words("/usr/bin/python3", "-c", LISTENER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert listener.stdout is not None
    assert listener.stdout.readline() == "ready\n"
    done = head.configure()
    refused = head.configure("TRN_MOUNTS=fsx")
    updated = head.configure("TRN_ON_FAILURE=report")
    logged, _ = listener.communicate(timeout=600)
    for result, reason in (
        (done, f"step 'check-mounts' failed on head node {HOSTNAME}: /fsx is not mounted. Check the file system's"),
        (refused, "argument: TRN_MOUNTS='fsx' is not absolute paths separated by one space"),
    ):
        assert result.code != 0
        assert reason in result.out
        assert reason in result.err
        assert f"trn-bootstrap: trn-bootstrap: {reason}" in logged
    assert "trn-bootstrap: --- the last 20 lines of step check-mounts ---" in logged
    # an update of the cluster does not fail, and reports as much
    assert updated.code == 0
    assert "step 'check-mounts' failed on head node" in updated.out
    assert (
        "the cluster's update continues without it. Remove the cause and run on this node: sudo /opt/trn/configure-node.sh"
        in updated.out
    )
    assert logged.count("step 'check-mounts' failed on head node") == 2
    assert head.status()["result"] == "failed"
    assert len(done.err.splitlines()) == 2  # a compute node's stderr becomes one event: only the reason


def test_a_login_node_gets_limits_and_path_only(new_node: NewNode) -> None:
    node = new_node(TRN_OS_PACKAGES="jq", **FRAMEWORK)
    node.become("LoginNode")
    # its image has Neuron's repository with a key that is not valid any more, with which apt-get update fails
    node.write("/etc/hosts", f"{node.read('/etc/hosts')}127.0.0.1 apt.repos.neuron.amazonaws.com\n")
    old = SERVER.replace("127.0.0.1", "apt.repos.neuron.amazonaws.com")
    signed = "signed-by=/etc/apt/keyrings/distribution.asc"
    node.write("/etc/apt/sources.list.d/aws-neuron.list", f"deb [{signed}] {old}/apt noble main\n")
    done = node.configure()
    assert done.code == 0, done.err
    assert installed(node) == {}
    assert node.path("/etc/profile.d/trn-neuron.sh").exists()


@pytest.mark.sweep
def test_a_node_of_the_cpu_queue_gets_the_framework_and_no_neuron_packages(new_node: NewNode) -> None:
    own = OwnScript(name="role", script="#!/bin/sh\necho $TRN_NODE_ROLE > /root/own\n", nodes=("compute",))
    node = new_node(TRN_VENV_SHARED="no", **FRAMEWORK)
    node.become("ComputeFleet")
    for name, content in own_files(Environment(bootstrap=Bootstrap(scripts=(own,)))).items():
        node.write(f"/opt/trn/{name}", content.decode())
    done = node.configure("TRN_NODE_ROLE=cpu")
    assert done.code == 0, done.err
    assert (installed(node), node.read("/root/own")) == ({}, "cpu\n")
    assert node.path(f"{linked(node)}/bin/python").is_symlink()


def test_own_scripts_run_last_in_their_order_and_fail_the_node(new_node: NewNode) -> None:
    own = [
        OwnScript(name="first", script="#!/bin/sh\necho $TRN_NODE_ROLE >> /root/own\nid -u >> /root/own\n"),
        OwnScript(name="second", script="#!/bin/bash\nset -e\necho two >> /root/own\nls /nowhere\n", nodes=("login",)),
        OwnScript(name="third", script="#!/bin/sh\necho three >> /root/own\n"),
    ]
    node = new_node(**FRAMEWORK)
    node.become("LoginNode")
    for name, content in own_files(Environment(bootstrap=Bootstrap(scripts=tuple(own)))).items():
        node.write(f"/opt/trn/{name}", content.decode())
    done = node.configure()
    assert done.code == 1
    assert node.read("/root/own") == "login\n0\ntwo\n"
    assert "your script second ended with status 2" in done.err
    assert "ls: cannot access '/nowhere'" in node.read("/var/log/trn-bootstrap.log")
    assert node.status()["failed_step"] == "own-scripts"


@pytest.mark.sweep
def test_a_standalone_node_needs_no_parallelcluster(new_node: NewNode) -> None:
    node = new_node(TRN_VENV_SHARED="no", **FRAMEWORK)
    node.devices(1)
    refused = node.configure()
    assert refused.code != 0
    assert "the node's role is unknown" in refused.err
    done = node.configure("TRN_NODE_ROLE=standalone", "TRN_NEURON_DEVICES_EXPECTED=1")
    assert done.code == 0, done.err
    assert node.path(f"{linked(node)}/bin/python").is_symlink()
    assert HOSTNAME in node.read("/etc/hosts").splitlines()[0]


@pytest.mark.sweep
def test_another_release_replaces_the_first(new_node: NewNode) -> None:
    node = compute_node(new_node)
    newer = {"DKMS": "2.31.7.0", "COLLECTIVES": "2.35.43.0", "RUNTIME": "2.35.30.0", "TOOLS": "2.33.38.0"}
    up = node.configure("TRN_NEURON_SDK=2.33.0", *(f"TRN_NEURON_{key}={value}" for key, value in newer.items()))
    assert up.code == 0, up.err
    assert installed(node)["aws-neuronx-tools"] == "2.33.38.0 hold"
    down = node.configure()
    assert down.code == 0, down.err
    assert installed(node) == {name: f"{versions[0]} hold" for name, versions in NEURON_DEBS.items()}


@pytest.mark.sweep
def test_the_later_json_of_neuron_ls_is_read_too(new_node: NewNode) -> None:
    node = compute_node(new_node)
    node.devices(16, later=True)
    done = node.configure(*COMPUTE)
    assert done.code == 0, done.err


@pytest.mark.sweep
def test_a_mirror_that_answers_late_is_waited_for(new_node: NewNode, vendor: Vendor) -> None:
    """apt-get update succeeds without it, and leaves no lists."""
    node = new_node(TRN_OS_PACKAGES="jq", TRN_RETRY_DELAY="1")
    node.become("LoginNode")
    node.write("/etc/apt/sources.list", node.read("/etc/apt/sources.list").replace("8099", "8098"))
    run = subprocess.Popen(
        node.words("/opt/trn/configure-node.sh"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log = node.path("/var/log/trn-bootstrap.log")
    assert until(lambda: log.exists() and "installation of jq: attempt 1 failed" in log.read_text())
    serve = ["-m", "http.server", "--bind", "127.0.0.1", "--directory", str(vendor.folder), "8098"]
    with subprocess.Popen(["nsenter", "--target", str(node.pid), "--net", sys.executable, *serve]) as mirror:
        _, err = run.communicate(timeout=300)
        mirror.kill()
    assert run.returncode == 0, err
    assert node.path("/usr/bin/jq").exists()


@pytest.mark.sweep
def test_an_image_with_its_own_neuron_source_is_taken_over(new_node: NewNode) -> None:
    node = compute_node(new_node)
    own = "/etc/apt/sources.list.d/aws-neuron.list"
    node.write(own, "deb [signed-by=/usr/share/keyrings/n.gpg] https://apt.repos.neuron.amazonaws.com noble main\n")
    done = node.configure(*COMPUTE)
    assert done.code == 0, done.err
    assert not node.path(own).exists()
    assert node.path(f"{own}.replaced-by-trn").exists()


@pytest.mark.sweep
def test_a_repository_that_becomes_invalid_is_not_used_from_the_cache(new_node: NewNode, vendor: Vendor) -> None:
    """apt's default here is a warning, and an installation from the lists that it has."""
    turning = vendor.folder / "apt-turning"
    turning.symlink_to("apt")
    try:
        node = compute_node(new_node, TRN_NEURON_APT_URL=f"{SERVER}/apt-turning")
        assert node.configure(*COMPUTE).code == 0
        turning.unlink()
        turning.symlink_to("apt-other-key")
        for file in vendor.folder.glob("apt-other-key/dists/*/InRelease"):
            os.utime(
                file, (time.time() + 5, time.time() + 5)
            )  # made in the same second, the server calls it unmodified
        done = node.configure("TRN_NEURON_TOOLS=2.33.38.0")
    finally:
        turning.unlink()
    assert done.code != 0
    assert "its signature is not that of key" in done.err
    assert installed(node)["aws-neuronx-tools"] == "2.31.13.0 hold"


FAILURES = yaml.safe_load(Path(__file__).with_name("failures.yaml").read_text("utf-8"))
SHORT = (
    "one device of sixteen is missing",
    "a package was replaced after signing",
)


@pytest.mark.parametrize("name", swept(FAILURES, *SHORT))
def test_errors_are_logged_with_their_reason(new_node: NewNode, name: str) -> None:
    def filled(text: str) -> str:
        return text.format(SERVER=SERVER, KERNEL=KERNEL)

    case = FAILURES[name]
    node = compute_node(new_node, **{key: filled(value) for key, value in case.get("settings", {}).items()})
    if "without" in case:
        node.devices(16, without=(case["without"],))
    for path, content in case.get("files", {}).items():
        if content is None:
            node.path(path).unlink()
        else:
            node.write(path, content, 0o755)
    done = node.configure(*map(filled, case.get("arguments", COMPUTE)))
    step, message = case["step"], filled(case["message"])
    assert done.code != 0, done.out
    assert f"step '{step}' failed on compute node {HOSTNAME}: " in done.err
    assert message in done.err
    status = node.status()
    assert (status["result"], status["failed_step"]) == ("failed", step)
    assert message in str(status["message"])
    if "signature" in message or "expected AAAA" in message:
        assert "aws-neuronx-tools" not in installed(node)
        assert not node.path("/opt/amazon/efa/bin/fi_info").exists()


@pytest.mark.sweep
def test_a_node_killed_half_way_recovers(new_node: NewNode) -> None:
    node = compute_node(new_node)
    node.write("/etc/standin/driver-does-not-build", "")
    assert node.configure().code != 0
    node.path("/etc/standin/driver-does-not-build").unlink()
    done = node.configure(*COMPUTE)
    assert done.code == 0, done.err


def hold(node: Node, path: str, how: str) -> subprocess.Popen[str]:
    """Hold the lock on ``path`` on the node until ``communicate`` closes its input."""
    code = (
        f"import fcntl, sys; f = open({path!r}, 'a'); fcntl.{how}(f, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        node.words("/usr/bin/python3", "-c", code), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    return holder


@pytest.mark.sweep
def test_two_runs_do_not_interleave(new_node: NewNode) -> None:
    node = new_node()
    node.become("LoginNode")
    node.path("/var/lib/trn-bootstrap").mkdir()
    holder = hold(node, "/var/lib/trn-bootstrap/lock", "flock")
    try:
        done = node.configure("TRN_LOCK_WAIT=1")
    finally:
        holder.communicate()
    assert done.code != 0
    assert "another run still holds /var/lib/trn-bootstrap/lock after 1 s" in done.out
    assert node.configure("TRN_LOCK_WAIT=30").code == 0


@pytest.mark.sweep
def test_it_waits_for_unattended_upgrades(new_node: NewNode) -> None:
    node = compute_node(new_node)
    holder = hold(node, "/var/lib/apt/lists/lock", "lockf")
    try:
        refused = node.configure("TRN_LOCK_WAIT=1")
        assert "another package manager holds apt's locks for 1 s" in refused.err
        run = subprocess.Popen(
            node.words("/opt/trn/configure-node.sh", *COMPUTE),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        time.sleep(1.5)
        assert run.poll() is None
    finally:
        holder.communicate()
    _, err = run.communicate(timeout=900)
    assert run.returncode == 0, err

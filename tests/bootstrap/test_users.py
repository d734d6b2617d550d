"""The accounts of a cluster's users, on head and compute nodes, really added and removed."""

from __future__ import annotations

import subprocess

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.node import Node
from tests.support import swept
from trainium_cdk.client.jobs.slurm import transport

BARE = {"TRN_NEURON_COLLECTIVES": "", "TRN_NEURON_RUNTIME": "", "TRN_NEURON_TOOLS": "", "TRN_NEURON_DKMS": ""}


def mount(node: Node, place: str) -> None:
    node.path(place).mkdir(exist_ok=True)
    subprocess.run(
        ["nsenter", "-t", str(node.pid), "-m", "mount", "-t", "tmpfs", "-o", "mode=755", "t", f"{node.inner}{place}"],
        check=True,
    )


@pytest.mark.parametrize("system", swept(["ubuntu-22.04", "ubuntu-24.04", "amzn-2023"], "ubuntu-24.04"))
def test_users_are_the_same_on_every_node(new_node: NewNode, system: str) -> None:
    users = {
        "TRN_JOBS_USER": "trn-jobs:1999",
        "TRN_USERS": "alice:2001 bob.lee:2002",
        "TRN_MOUNTS": "/efs",
        "TRN_VENV": "venv",
    }
    head, compute = (new_node(system, **BARE, **users) for _ in range(2))
    for node, role in ((head, "HeadNode"), (compute, "ComputeFleet")):
        node.become(role)
        mount(node, "/efs")
    mount(compute, "/home")  # the head node's
    head.path("/home/ubuntu").chmod(0o750)
    for node in (head, compute):
        done = node.configure()
        assert done.code == 0, done.err
        for name, number in (("alice", 2001), ("bob.lee", 2002)):
            assert node.run("id", name).out == f"uid={number}({name}) gid={number}({name}) groups={number}({name})\n"
            assert node.run("passwd", "--status", name).out.split()[1] in ("L", "LK")
            assert node.run("getent", "passwd", name).out.strip().endswith(f":/home/{name}:/bin/bash")
        assert node.configure().code == 0
        assert node.status()["changes"] == []
    assert not compute.path("/home/alice").exists()  # nothing is written into the head node's homes from here
    places = ("/home/alice", "/home/ubuntu", "/efs/trn", "/efs/trn-users", "/efs/trn-users/alice")
    assert head.run("stat", "-c", "%a %U", *places).out.splitlines() == [
        "700 alice", "751 ubuntu", "755 trn-jobs", "755 root", "700 alice",
    ]  # fmt: skip
    for command in (
        "mv /efs/trn-users/alice /efs/trn-users/b",
        "mkdir /efs/trn-users/carol",
        "ln -s /tmp /efs/trn-users/carol",
    ):
        assert head.run("runuser", "-u", "bob.lee", "--", *command.split()).code == 1, command

    head.settings(**BARE, **{**users, "TRN_USERS": "bob.lee:2002"})
    assert head.configure().code == 0
    assert head.status()["changes"] == ["removed user alice"]
    assert head.run("id", "alice").code == 1
    assert head.path("/home/alice").exists()
    head.settings(**BARE, **{**users, "TRN_USERS": ""})
    assert head.configure().code == 0
    assert head.run("id", "bob.lee").code == 1


@pytest.mark.sweep
def test_homes_on_a_shared_file_system_keep_what_is_there(new_node: NewNode) -> None:
    """On AWS PCS, where the node mounts it: /home of the image moves there once. The `mount` of the test binds a folder."""
    users = {"TRN_JOBS_USER": "trn-jobs:1999", "TRN_USERS": "alice:2001", "TRN_MOUNTS": "/home", "TRN_USER": "ubuntu"}
    node = new_node(**BARE, **users, TRN_NODE_ROLE="head")
    node.write("/usr/local/sbin/mount", "#!/bin/bash\n/bin/mount --bind /srv/homes /home\n", 0o755)
    node.path("/srv/homes").mkdir()
    node.write("/home/ubuntu/.image", "of the image")
    source = "TRN_MOUNT_SOURCES=efs:fs-0123456789abcdef0:/home"
    for _ in range(2):
        done = node.configure(source)
        assert done.code == 0, done.err
    assert node.status()["changes"] == []
    assert node.read("/srv/homes/ubuntu/.image") == "of the image"
    listed = node.run("stat", "-c", "%a %U %n", "/home/ubuntu", "/home/alice", "/home/trn", "/home/trn-users").out
    assert listed.split("\n")[1:4] == ["700 alice /home/alice", "755 trn-jobs /home/trn", "755 root /home/trn-users"]
    assert " ubuntu /home/ubuntu" in listed
    node.write("/srv/homes/ubuntu/.image", "of the user")
    assert node.run("umount", "/home").code == 0
    assert node.configure(source).code == 0  # another node of the same image
    assert node.read("/srv/homes/ubuntu/.image") == "of the user"
    assert not [name for name in node.run("ls", "-A", "/home").out.split() if name.startswith(".")]


@pytest.mark.sweep
def test_a_user_who_is_removed_while_a_program_runs_can_come_back(new_node: NewNode) -> None:
    node = new_node(**BARE, TRN_USERS="alice:2001")
    node.become("HeadNode")
    assert node.configure().code == 0
    job = node.words("runuser", "-u", "alice", "--", "sh", "-c", "echo runs; read end")
    with subprocess.Popen(job, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "runs\n"
        node.settings(**BARE)
        assert node.configure().code == 0
        assert node.run("runuser", "-l", "alice", "-c", "id -u").code == 1
        running.communicate()
    node.settings(**BARE, TRN_USERS="alice:2001")
    assert node.configure().code == 0
    assert node.status()["changes"] == ["opened the account of user alice"]
    assert node.run("runuser", "-l", "alice", "-c", "id -u").out == "2001\n"
    assert node.run("su", "alice", "-c", "id -u").out == "2001\n"
    assert node.configure().code == 0
    assert node.status()["changes"] == []


def test_nobody_logs_in_as_the_account_of_jobs(new_node: NewNode) -> None:
    """Root and Slurm become that user. What checks an account, as sshd and cron do, refuses it, whatever keys its jobs have written."""
    head = new_node(**BARE, TRN_JOBS_USER="trn-jobs:1999", TRN_MOUNTS="/efs")
    head.become("HeadNode")
    mount(head, "/efs")
    assert head.configure().code == 0
    assert head.run("id", "trn-jobs").out == "uid=1999(trn-jobs) gid=1999(trn-jobs) groups=1999(trn-jobs)\n"
    assert head.run("passwd", "--status", "trn-jobs").out.split()[1] in ("L", "LK")
    assert "expired" in head.run("su", "trn-jobs", "-c", "id -u").err
    command = transport.as_user("trn-jobs", "id -u; pwd; mkdir /efs/trn/jobs", "runuser")
    assert head.run("sh", "-c", command).out == "1999\n/home/trn-jobs\n"
    assert head.configure().code == 0
    assert head.status()["changes"] == []
    # files of an earlier version's jobs stay with whom they belong to
    for place in ("/efs/trn", "/efs/trn/jobs"):
        assert head.run("chown", "ubuntu:", place).code == 0
    done = head.configure()
    assert (done.code, head.status()["changes"]) == (0, [])
    assert head.run("stat", "-c", "%U", "/efs/trn").out == "ubuntu\n"
    assert "/efs/trn is not a folder of trn-jobs, but a directory of ubuntu" in head.read("/var/log/trn-bootstrap.log")


@pytest.mark.parametrize("system", swept(["ubuntu-22.04", "ubuntu-24.04", "amzn-2023"], "ubuntu-24.04"))
def test_no_user_comes_by_ssh_to_a_node_with_jobs(new_node: NewNode, system: str) -> None:
    """By the system's own PAM: what it answers to sshd, `su` is told here. A login with a key asks for the account, too."""
    node = new_node(system, **BARE, TRN_JOBS_USER="trn-jobs:1999", TRN_USERS="alice:2001")
    node.become("ComputeFleet")
    rules = node.read("/etc/pam.d/su")
    node.write("/etc/pam.d/sshd", rules)
    node.write("/usr/local/sbin/sshd", "#!/bin/sh\necho usepam yes\n", 0o755)
    assert node.configure().code == 0
    assert node.run("su", "alice", "-c", "id -un").out == "alice\n"
    node.write("/etc/pam.d/su", node.read("/etc/pam.d/sshd"))
    for user in ("alice", "trn-jobs"):
        assert node.run("su", user, "-c", "id -un").code != 0
    for user in ("ubuntu", "root"):  # administrators
        assert node.run("su", user, "-c", "id -un").out == f"{user}\n"
    assert node.run("sh", "-c", transport.as_user("alice", "id -un", "runuser")).out == "alice\n"
    assert node.configure().code == 0
    assert node.status()["changes"] == []

    head = new_node(system, **BARE, TRN_USERS="alice:2001")
    head.become("HeadNode")
    head.write("/etc/pam.d/sshd", rules)
    assert head.configure().code == 0
    assert head.read("/etc/pam.d/sshd") == rules


def test_users_that_cannot_be(new_node: NewNode) -> None:
    node = new_node()
    node.become("LoginNode")
    for users, message in {
        "ubuntu:2001": "user ubuntu has uid 1000 on this node, and not 2001",
        "alice:1000": "uid 1000 of user alice belongs to ubuntu on this node",
        "alice": "TRN_USERS='alice' is not NAME:UID",
    }.items():
        node.settings(**BARE, TRN_USERS=users)
        done = node.configure()
        assert done.code == 1
        assert message in done.err


def test_users_of_a_directory_need_no_list(new_node: NewNode) -> None:
    head = new_node(**BARE, TRN_DIRECTORY="yes", TRN_MOUNTS="/efs")
    head.become("HeadNode")
    mount(head, "/efs")
    assert head.configure().code == 0
    assert head.run("stat", "-c", "%a %U", "/efs/trn-users").out == "1777 root\n"

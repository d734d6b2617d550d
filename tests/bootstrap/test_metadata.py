"""Who reaches the metadata service and the file systems of a node: nftables of the kernel, in the node's own network."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.node import Node
from tests.bootstrap.test_users import BARE
from tests.support import need, swept, until

METADATA = ("169.254.169.254", "fd00:ec2::254")
OTHER, AWAY = "10.0.0.9", "10.7.0.1"
SETTINGS = {
    **BARE,
    "TRN_JOBS_USER": "trn-jobs:1999",
    "TRN_USERS": "alice:2001",
    "TRN_OS_PACKAGES": "",
}
SERVICES = [(host, 80) for host in METADATA] + [("127.0.0.1", 20049), ("127.0.0.1", 21049), (OTHER, 2049)]
SERVE = """
import selectors, socket, sys
listening = selectors.DefaultSelector()
for place in sys.argv[1:]:
    host, _, port = place.rpartition("/")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening.register(socket.create_server((host, int(port)), family=family), selectors.EVENT_READ)
print("listening", flush=True)
while True:
    for key, _ in listening.select():
        key.fileobj.accept()[0].close()
"""
CONNECT = """
import socket, sys, time
began = time.monotonic()
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2])), 3).close()
    print("open")
except OSError as error:
    print(type(error).__name__)
if time.monotonic() - began > 0.9:
    print("late")
"""


@contextmanager
def services(node: Node) -> Iterator[None]:
    """What stands in for the metadata service, for the mount helper's proxy and for a server of NFS."""
    for place in (f"{METADATA[0]}/32", f"{METADATA[1]}/128", f"{OTHER}/32"):
        assert node.run("ip", "address", "add", place, "dev", "lo").code == 0
    words = node.words("python3", "-c", SERVE, *(f"{host}/{port}" for host, port in [*SERVICES, ("127.0.0.1", 20048)]))
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "listening\n"
        try:
            yield
        finally:
            server.kill()


def tries(node: Node, user: str, host: str, port: int) -> str:
    done = node.run("setpriv", f"--reuid={user}", "--clear-groups", "python3", "-c", CONNECT, host, str(port))
    return done.out.replace("\n", " ").strip() or done.err


@pytest.mark.parametrize("system", swept(["ubuntu-22.04", "ubuntu-24.04", "amzn-2023"], "ubuntu-24.04"))
@pytest.mark.parametrize("role", swept(["compute", "cpu", "login", "head"], "compute"))
def test_no_user_of_a_node_reaches_its_role_or_speaks_to_its_file_systems(
    new_node: NewNode, system: str, role: str
) -> None:
    node = new_node(system, **SETTINGS, TRN_NODE_ROLE=role)
    accounts = ["pcluster-admin:x:400:400::/:/bin/false", "ec2-instance-connect:x:998:998::/:/bin/false"]
    node.write("/etc/passwd", node.read("/etc/passwd") + "".join(f"{line}\n" for line in accounts))
    with services(node):
        assert tries(node, "1000", METADATA[0], 80) == "open"
        done = node.configure()
        assert done.code == 0, done.err
        for host, port in SERVICES:
            assert tries(node, "0", host, port) == "open"
            for user in ("1000", "2001", "10001"):
                assert tries(node, user, host, port) == "ConnectionRefusedError", (host, port, user)
        for number in ("400", "998"):
            assert tries(node, number, METADATA[0], 80) == "open"
            assert tries(node, number, OTHER, 2049) == "ConnectionRefusedError"
        assert tries(node, "1000", "127.0.0.1", 20048) == "open"  # all else
        assert node.configure().code == 0
        assert node.status()["changes"] == []
        # a start of the node: what the service runs brings the same rules back
        rules = node.run("nft", "list", "ruleset").out
        assert node.run("nft", "flush", "ruleset").code == 0
        assert tries(node, "2001", METADATA[0], 80) == "open"
        unit = node.read("/etc/systemd/system/trn-metadata.service")
        [start] = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
        assert node.run(*start.removeprefix("ExecStart=").split()).code == 0
        assert node.run("nft", "list", "ruleset").out == rules
    assert "enable trn-metadata.service" in node.read("/var/log/systemctl").splitlines()


def test_a_user_with_the_name_of_an_agent_is_no_agent(new_node: NewNode) -> None:
    node = new_node(**SETTINGS | {"TRN_USERS": "ec2-instance-connect:2001 ssm-user:2002"}, TRN_NODE_ROLE="compute")
    with services(node):
        assert node.configure().code == 0
        for user in ("2001", "2002"):
            assert tries(node, user, METADATA[0], 80) == "ConnectionRefusedError"


BRIDGED = f"""
ip link add name way type bridge
ip link set way up
ip route add {AWAY}/32 dev way
ip link add tunnel type vxlan id 1 remote {AWAY} dstport 2049
ip address add 10.9.9.1/24 dev tunnel
ip link set tunnel up
nft table ip sent {{ counter kernel {{}}; counter users {{}}; chain output {{ type filter hook output priority 9; }}; }}
nft add rule ip sent output udp dport 2049 udp length 9 counter name users
nft add rule ip sent output udp dport 2049 udp length != 9 counter name kernel
"""


def test_what_the_kernel_sends_itself_passes(new_node: NewNode) -> None:
    """As its mounts do. A tunnel of the kernel stands for them, on the port of NFS: this machine may have no NFS."""
    node = new_node(**SETTINGS, TRN_NODE_ROLE="compute")
    assert node.configure().code == 0
    for line in BRIDGED.strip().splitlines():
        done = node.run(*line.split())
        need(done.code == 0 or "Unknown device type" not in done.err, f"this kernel has not what {line} needs")
        assert done.code == 0, done.err

    def sent(counter: str) -> int:
        return int(node.run("nft", "list", "counter", "ip", "sent", counter).out.partition("packets ")[2].split()[0])

    say = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('{}', {}))"
    as_user = ("setpriv", "--reuid=2001", "--clear-groups", "python3", "-c")
    assert node.run(*as_user, say.format("10.9.9.2", 9)).code == 0  # the kernel asks through the tunnel who that is
    assert until(lambda: sent("kernel") > 0)
    assert "Operation not permitted" in node.run(*as_user, say.format(AWAY, 2049)).err
    assert sent("users") == 0
    assert node.run("python3", "-c", say.format(AWAY, 2049)).code == 0
    assert sent("users") == 1
    # no rule says who passes, so that what has no owner passes wherever it goes
    rules = node.run("nft", "list", "table", "inet", "trn").out.replace("policy accept", "")
    assert "accept" not in rules
    assert rules.count("meta skuid !=") == rules.count(" reject") == 8


def test_the_head_node_of_parallelcluster_keeps_its_own_rules_for_the_role(new_node: NewNode) -> None:
    node = new_node(**SETTINGS)
    node.become("HeadNode")
    with services(node):
        assert node.configure().code == 0
        assert tries(node, "2001", METADATA[0], 80) == "open"
        assert tries(node, "2001", OTHER, 2049) == "ConnectionRefusedError"


def test_a_node_without_rules_takes_no_jobs(new_node: NewNode) -> None:
    node = new_node(**SETTINGS, TRN_NODE_ROLE="compute")
    node.write("/usr/local/sbin/nft", "#!/bin/sh\necho 'Operation not supported' >&2; exit 1\n", 0o755)
    assert node.configure().code == 1
    assert node.status()["failed_step"] == "metadata"
    assert "cannot load /etc/trn-metadata.nft" in node.status()["message"]

"""A node to run the scripts on: a clean root in namespaces of its own, without any network but its loopback.

Below is a root of tests/bootstrap/roots.py; user, kernel version, package sources and, where the root is another system's,
/etc/os-release are those of the system it stands for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bootstrap.fake_vendor import AMAZON_KERNEL, KERNEL, WANTED, Vendor
from tests.bootstrap.roots import RECIPES, Root
from tests.support import completed

REPOSITORY = Path(__file__).parents[2]
OS_RELEASE = {
    "ubuntu-22.04": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\n',
    "ubuntu-24.04": 'NAME="Ubuntu"\nID=ubuntu\nVERSION_ID="24.04"\nVERSION_CODENAME=noble\n',
    "amzn-2023": 'NAME="Amazon Linux"\nVERSION="2023"\nID="amzn"\nVERSION_ID="2023"\n',
}
HOSTNAME = "queue1-st-i1-1"
ADDRESS = "10.0.0.5"
SERVER = "http://127.0.0.1:8099"


@dataclass(frozen=True)
class Result:
    """What one run ended with."""

    code: int
    out: str
    err: str


class Node:
    """One node: its root seen from here (``root``), and a way to run commands on it."""

    def __init__(self, pid: int, inner: Path, base: Root) -> None:
        self.pid = pid
        self.python = base.python
        """Minor version of its own Python."""
        self.own = base.own
        """Whether its root is made of the system's own packages."""
        self.inner = inner
        self.root = Path(f"/proc/{pid}/root{inner}")

    def run(self, *words: str, env: dict[str, str] | None = None, timeout: int = 900) -> Result:
        """Run a command as root with nothing but PATH in its environment: HOME is unset, as in a custom action."""
        done = completed(self.words(*words, env=env), timeout=timeout)
        return Result(done.returncode, done.stdout, done.stderr)

    def words(self, *words: str, env: dict[str, str] | None = None) -> list[str]:
        path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        given = [f"{key}={value}" for key, value in (env or {}).items()]
        enter = ["nsenter", "--target", str(self.pid), "--mount", "--net", "--uts", "--pid"]
        return [*enter, "chroot", str(self.inner), "/usr/bin/env", "-i", path, *given, *words]

    def path(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        target = self.path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.is_symlink():  # an absolute one leads out of the root, to this machine's own file
            target.unlink()
        target.write_text(text)
        target.chmod(mode)

    def read(self, path: str) -> str:
        return self.path(path).read_text()

    def settings(self, **changes: str) -> None:
        """Render node.env: the wanted versions, this machine's server, then ``changes``."""
        own = {"TRN_USER": "ubuntu", "TRN_RETRY_DELAY": "0", "TRN_PYTHON": f"python{self.python}"}
        values = WANTED | node_urls() | own | changes
        self.write("/opt/trn/node.env", "".join(f"{key}='{value}'\n" for key, value in values.items()))

    def configure(self, *arguments: str) -> Result:
        return self.run("/opt/trn/configure-node.sh", *arguments)

    def status(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.read("/var/lib/trn-bootstrap/status.json"))
        return loaded

    def become(self, node_type: str) -> None:
        """ParallelCluster's own record of what this node is: HeadNode, ComputeFleet or LoginNode."""
        self.write(
            "/etc/parallelcluster/cfnconfig", f"stack_name=trn\ncfn_node_type={node_type}\ncfn_region=us-east-1\n"
        )

    def devices(self, count: int, *, without: tuple[int, ...] = (), later: bool = False) -> None:
        """Make neuron-ls report ``count`` devices but those in ``without``, in today's or the later JSON form."""
        listing: object = [
            {
                "neuron_device": index,
                "bdf": f"{index:02x}:1e.0",
                "connected_to": [(index + 1) % count, (index - 1) % count],
                "nc_count": 2,
                "memory_size": 34359738368,
                "neuron_processes": [],
            }
            for index in range(count)
            if index not in without
        ]
        if later:
            listing = {"instance_type": "trn1.32xlarge", "neuron_devices": listing}
            self.write("/etc/standin/new-json", "")
        self.write("/etc/standin/neuron-ls.json", json.dumps(listing))

    def snapshot(self) -> dict[str, str]:
        """Path to content hash of all that configuration could touch, but for logs and records of the run itself."""
        seen = {}
        for top in ("etc", "opt", "usr/local", "home", "var/lib/dpkg", "var/lib/rpm"):
            for folder, _, names in os.walk(self.path(top)):
                for name in names:
                    file = Path(folder, name)
                    if file.is_file() and not file.is_symlink():
                        digest = hashlib.sha256(file.read_bytes()).hexdigest()
                        seen[str(file.relative_to(self.root))] = (
                            f"{digest} {file.stat().st_mode:o} {file.stat().st_mtime_ns}"
                        )
        return seen


def fake_uname(kernel: str) -> str:
    """A uname that prints ``kernel`` as the running one."""
    return f'#!/bin/sh\n[ "$1" = -r ] && echo {kernel} || exec uname.real "$@"\n'


def node_urls() -> dict[str, str]:
    """The fake servers' addresses; the fingerprints are added by the fixture that has the keys."""
    return {
        "TRN_NEURON_APT_URL": f"{SERVER}/apt",
        "TRN_NEURON_YUM_URL": f"{SERVER}/yum",
        "TRN_NEURON_PIP_URL": f"{SERVER}/pip",
        "TRN_PIP_INDEX_URL": f"{SERVER}/pip",
        "TRN_NEURON_KEY_URL": f"{SERVER}/apt/KEY.PUB",
        "TRN_EFA_URL": f"{SERVER}/efa",
        "TRN_AGENT_URL": f"{SERVER}/agent",
    }


# Runs in the new namespaces: mounts the root, names the node, then becomes its web server.
HOLDER = """
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/merged"
mount -t proc proc "$2/merged/proc"
mount -t tmpfs -o mode=0755 dev "$2/merged/dev"
for device in null zero full random urandom tty; do
  touch "$2/merged/dev/$device"
  mount --bind "/dev/$device" "$2/merged/dev/$device"
done
ln -s /proc/self/fd "$2/merged/dev/fd"
mount -t tmpfs tmpfs "$2/merged/tmp"
hostname "$5"
ip link set lo up
ip addr add "$6/32" dev lo
exec "$3" -m http.server --bind 127.0.0.1 --directory "$4" 8099
"""


@contextmanager
def start(base: Root, work: Path, vendor: Vendor, system: str) -> Iterator[Node]:
    """A running node on ``base``; its changes go to ``work`` and it is deleted at the end."""
    for name in ("upper", "work", "merged"):
        (work / name).mkdir(parents=True)
    _dress(work / "upper", base, vendor, system)
    space = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "--kill-child", "sh", "-c", HOLDER, "holder"]
    words = [*space, str(base.path), str(work), sys.executable, str(vendor.folder), HOSTNAME, ADDRESS]
    with (work / "server.log").open("wb") as log:
        holder = subprocess.Popen(words, stdout=log, stderr=log)
    try:
        pid = _inner_pid(holder, work)
        node = Node(pid, work / "merged", base)
        for _ in range(1200):
            if node.run("curl", "-fso", "/dev/null", f"{SERVER}/apt/KEY.PUB").code == 0:
                break
            time.sleep(0.05)
        else:
            raise AssertionError((work / "server.log").read_text())
        yield node
    finally:
        holder.kill()
        holder.wait()


def _inner_pid(holder: subprocess.Popen[bytes], work: Path) -> int:
    for _ in range(3000):
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        if children and (Path(f"/proc/{children[0]}/root{work}/merged/proc/1")).exists():
            return int(children[0])
        if holder.poll() is not None:
            break
        time.sleep(0.02)
    raise AssertionError(f"the node did not start: {(work / 'server.log').read_text()}")


def _dress(upper: Path, base: Root, vendor: Vendor, system: str) -> None:
    """What the root lacks of a node: user, kernel, package sources, and another system's release file."""

    def put(path: str, text: str, mode: int = 0o644) -> None:
        target = upper / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    if not base.own:
        put("usr/lib/os-release", OS_RELEASE[system])
    # in /usr/bin, because dpkg and rpm run package scripts with a PATH of their own
    put("usr/bin/uname", fake_uname(KERNEL if system.startswith("ubuntu") else AMAZON_KERNEL), 0o755)
    shutil.copy(base.path / "usr" / "bin" / "uname", upper / "usr" / "bin" / "uname.real")
    for name in ("passwd", "group", "shadow"):
        text = (base.path / "etc" / name).read_text()
        line = {
            "passwd": "ubuntu:x:1000:1000::/home/ubuntu:/bin/bash",
            "group": "ubuntu:x:1000:",
            "shadow": "ubuntu:*:20000::::::",
        }
        put(f"etc/{name}", f"{text}{line[name]}\n", 0o640 if name == "shadow" else 0o644)
    (upper / "home" / "ubuntu").mkdir(parents=True)
    os.chown(upper / "home" / "ubuntu", 1000, 1000)
    put(
        "etc/hosts",
        f"127.0.0.1 localhost {HOSTNAME} {HOSTNAME}.trn.pcluster  # by cloud-init\n::1 localhost ip6-localhost\n",
    )
    put("etc/standin/efa-count", "8\n")
    put("usr/bin/systemctl", '#!/bin/sh\necho "$*" >>/var/log/systemctl\n', 0o755)  # nothing is started here
    if system.startswith("ubuntu"):
        put("etc/apt/keyrings/distribution.asc", (vendor.folder / "ubuntu" / "KEY.PUB").read_text())
        signed = "signed-by=/etc/apt/keyrings/distribution.asc"
        put("etc/apt/sources.list", f"deb [{signed}] {SERVER}/ubuntu {RECIPES[system].suite} main\n")
    else:
        repo = f"[amazonlinux]\nname=amazonlinux\nbaseurl={SERVER}/amazonlinux\nenabled=1\ngpgcheck=0\n"
        put("etc/yum.repos.d/amazonlinux.repo", repo)
        put("etc/dnf/vars/releasever", "2023.9.20251117\n")
        put("etc/dnf/plugins/local.conf", "[main]\nenabled = false\n")  # Debian turns it on, Amazon Linux does not
        put("usr/local/bin/getconf", '#!/bin/sh\n[ "$1" = GNU_LIBC_VERSION ] && echo "glibc 2.34"\n', 0o755)
    for source in ("configure-node.sh", "entry.sh", "lib"):
        origin = REPOSITORY / "bootstrap" / source
        target = upper / "opt" / "trn" / source
        if origin.is_dir():
            shutil.copytree(origin, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(origin, target)

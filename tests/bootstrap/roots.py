"""Clean roots of the systems that nodes run, made by debootstrap once and kept in ``.cache/node-roots``.

Ubuntu's roots are Ubuntu's own packages, with its own Python; so are the packages that its virtual environments need, kept
next to the root for the fake of its archive. Amazon Linux 2023 is not available from a registry: Debian 11 comes nearest, with
the same Python (3.9) and rpm (4.16). Where an archive cannot be reached, Debian 12 replaces it, with its Python 3.11, and
standard error reports that.

``python -m tests.bootstrap.roots`` creates the roots ahead of time.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import sys
import urllib.request
import uuid
from dataclasses import dataclass
from pathlib import Path

from tests.support import completed

CACHE = Path(__file__).parents[2] / ".cache" / "node-roots"
TOOLS = (
    "debootstrap",
    "unshare",
    "nsenter",
    "gpg",
    "dpkg-deb",
    "dpkg-scanpackages",
    "rpmbuild",
    "rpmsign",
    "createrepo_c",
)
DEBIAN = "http://deb.debian.org/debian"
UBUNTU = "http://archive.ubuntu.com/ubuntu"
# Debian does not trust Ubuntu's keys: they are in a package whose hash is pinned.
UBUNTU_KEYRING = "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
UBUNTU_KEYRING_SHA256 = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
COMMON = "ca-certificates,curl,gnupg,python3,iproute2,procps,kmod,hostname"


@dataclass(frozen=True)
class Recipe:
    """How a root is made.

    Attributes:
        suite: release of the distribution.
        mirror: its archive.
        packages: beside the minimal ones.
        python: minor version of its own Python; a root with another is refused.
        downloads: packages that are not installed, but offered by the fake of the archive.
    """

    suite: str
    mirror: str
    packages: str
    python: str
    downloads: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        tag = hashlib.sha256(f"{self} {UBUNTU_KEYRING_SHA256}".encode()).hexdigest()[:12]
        return CACHE / f"{self.suite}-{tag}"


RECIPES = {
    "ubuntu-22.04": Recipe("jammy", UBUNTU, COMMON, "3.10", ("python3.10-venv", "nftables")),
    "ubuntu-24.04": Recipe("noble", UBUNTU, COMMON, "3.12", ("python3.12-venv", "nftables")),
    "amzn-2023": Recipe("bullseye", DEBIAN, f"{COMMON},dnf,rpm,nftables", "3.9"),
}
NEWEST = Recipe("forky", DEBIAN, "python3", "3.14")
"""Of no node: the newest Python that the runner is for."""
SUBSTITUTE = Recipe("bookworm", DEBIAN, f"{COMMON},python3-venv,python3-pip,dnf,rpm,dnf-plugins-core,nftables", "3.11")


@dataclass(frozen=True)
class Root:
    """A clean root.

    Attributes:
        path: never written to; nodes lay their own files over it.
        python: minor version of its Python.
        own: whether it is made of the system's own packages.
        downloads: Debian packages for the fake of its archive.
    """

    path: Path
    python: str
    own: bool
    downloads: tuple[Path, ...]


def missing_parts() -> str:
    """What this machine lacks to make roots and to run nodes on them; empty when nothing."""
    if os.geteuid() != 0:
        return "root is needed (chroot and mounts)"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    if absent:
        return f"missing programs: {', '.join(absent)} (make test-system installs them)"
    probe = ["unshare", "--mount", "--net", "--uts", "--pid", "--fork", "true"]
    if subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        return "this machine allows no new namespaces (a container without CAP_SYS_ADMIN?)"
    return ""


@functools.cache  # an archive that does not answer is waited for once
def root(system: str) -> Root:
    """The root of a system, made when it is not in the cache.

    Raises:
        RuntimeError: neither its archive nor Debian's can be reached.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:  # the tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        recipe = RECIPES[system]
        try:
            folder = _made(recipe)
        except RuntimeError as error:
            print(f"{system}: Debian 12 with Python {SUBSTITUTE.python} stands in: {error}", file=sys.stderr)
            recipe, folder = SUBSTITUTE, _made(SUBSTITUTE)
    own = recipe.mirror == UBUNTU
    return Root(folder / "root", recipe.python, own, tuple(sorted((folder / "downloads").iterdir())))


def newest() -> Root:
    """The root with the newest Python, made when it is not in the cache.

    Raises:
        RuntimeError: Debian's archive cannot be reached, or has another Python by now.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return Root(_made(NEWEST) / "root", NEWEST.python, False, ())


def _made(recipe: Recipe) -> Path:
    if recipe.folder.exists():
        return recipe.folder.resolve()
    work = CACHE / f"new.{uuid.uuid4().hex}"
    try:
        work.mkdir()
        root, downloads = work / "root", work / "downloads"
        options, script = [], ["sid"]  # debootstrap's one script for Debian
        if recipe.mirror == UBUNTU:
            options = [f"--keyring={_ubuntu_keyring(work)}"]
            script = ["gutsy"]  # debootstrap's one script for Ubuntu; it may not know the name of a later release
        _run("debootstrap", "--variant=minbase", *options, f"--include={recipe.packages}", recipe.suite, root,
             recipe.mirror, *script)  # fmt: skip
        found = _run("chroot", root, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
        if found != recipe.python:
            raise RuntimeError(f"{recipe.suite} has Python {found}, not {recipe.python}")
        archives = root / "var/cache/apt/archives"
        for spent in archives.glob("*.deb"):
            spent.unlink()
        downloads.mkdir()
        sources = root / "etc/apt/sources.list"
        if recipe.downloads:  # debootstrap itself takes minutes over the long list of universe
            sources.write_text(f"deb {recipe.mirror} {recipe.suite} main universe\n")
            _run("chroot", root, "apt-get", "update", "-qq")
            _run("chroot", root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "--download-only",
                 *recipe.downloads)  # fmt: skip
        for package in archives.glob("*.deb"):
            package.rename(downloads / package.name)
        for spent in (root / "var/lib/apt/lists").glob("*_*"):
            spent.unlink()
        sources.unlink()
        work.rename(recipe.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return recipe.folder


def _ubuntu_keyring(work: Path) -> Path:
    package = work / "keyring.deb"
    try:
        with urllib.request.urlopen(f"{UBUNTU}/{UBUNTU_KEYRING}", timeout=60) as response:  # noqa: S310  a fixed http address
            package.write_bytes(response.read())
    except OSError as error:
        raise RuntimeError(f"Ubuntu's archive does not answer: {error}") from error
    found = hashlib.sha256(package.read_bytes()).hexdigest()
    if found != UBUNTU_KEYRING_SHA256:
        raise RuntimeError(f"{UBUNTU_KEYRING} has the SHA-256 {found}, not {UBUNTU_KEYRING_SHA256}")
    _run("dpkg-deb", "-x", package, work / "keyring")
    return work / "keyring/usr/share/keyrings/ubuntu-archive-keyring.gpg"


def _run(*command: str | Path) -> str:
    done = completed(command)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


if __name__ == "__main__":
    for name in RECIPES:
        print(root(name).path)
    print(newest().path)

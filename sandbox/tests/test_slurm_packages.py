"""Slurm from the distribution's packages: what apt's output means, and what is left after an error."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandbox import slurm, slurm_packages
from sandbox.slurm_packages import Package, SlurmNotProvided, describe, parse_uris, release_key
from sandbox.testing import need

DEBIAN_12 = """\
'http://deb.debian.org/debian/pool/main/m/munge/munge_0.5.15-2%2bdeb12u1_amd64.deb' munge_0.5.15-2+deb12u1_amd64.deb 106096 MD5Sum:06fe9c
'http://deb.debian.org/debian/pool/main/s/slurm-wlm/slurmd_22.05.8-4%2bdeb12u3_amd64.deb' slurmd_22.05.8-4+deb12u3_amd64.deb 198316 MD5Sum:b220
"""
UBUNTU_24_04 = """\
Reading package lists...
'http://ports.ubuntu.com/ubuntu-ports/pool/main/h/hwloc/libhwloc15_2.10.0-1build1_arm64.deb' libhwloc15_2.10.0-1build1_arm64.deb 164000 SHA512:5e
'file:/srv/mirror/pool/slurmctld_1%3a23.11.4-1.2ubuntu5_arm64.deb' slurmctld_1%3a23.11.4-1.2ubuntu5_arm64.deb 634000
"""


@pytest.mark.parametrize(
    ("output", "packages"),
    [
        (
            DEBIAN_12,
            [
                Package("munge", "0.5.15-2+deb12u1", 106096, "deb.debian.org"),
                Package("slurmd", "22.05.8-4+deb12u3", 198316, "deb.debian.org"),
            ],
        ),
        (
            UBUNTU_24_04,
            [
                Package("libhwloc15", "2.10.0-1build1", 164000, "ports.ubuntu.com"),
                Package("slurmctld", "1:23.11.4-1.2ubuntu5", 634000, "this machine"),
            ],
        ),
        ("", []),
        ("E: Unable to locate package slurmctld\n", []),
    ],
)
def test_what_apt_would_download(output: str, packages: list[Package]) -> None:
    assert parse_uris(output) == packages


def test_the_download_is_named_with_its_sizes() -> None:
    assert describe(parse_uris(DEBIAN_12)).splitlines() == [
        "slurm: downloading 2 packages, 0.3 MB, from deb.debian.org (no root, nothing is installed)",
        "      106 kB  munge 0.5.15-2+deb12u1",
        "      198 kB  slurmd 22.05.8-4+deb12u3",
    ]


@pytest.mark.parametrize(
    ("os_release", "key"),
    [
        ('PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n', "debian-12-x86_64"),
        ('ID=ubuntu\nVERSION_ID="24.04"\nID_LIKE=debian\n', "ubuntu-24.04-x86_64"),
        ("ID=debian\n", "debian-rolling-x86_64"),
        ("", "linux-rolling-x86_64"),
    ],
)
def test_each_release_has_a_folder_of_its_own(os_release: str, key: str) -> None:
    assert release_key(os_release, "x86_64") == key


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Slurm and with an empty cache; returns the folder that is its whole PATH."""
    commands = tmp_path / "bin"
    commands.mkdir()
    monkeypatch.setenv("PATH", str(commands))
    monkeypatch.setattr(slurm_packages, "SYSTEM_PATH", str(commands))
    monkeypatch.setattr(slurm_packages, "CACHE", tmp_path / "cache")
    return commands


def program(file: Path, text: str = "exit 0") -> None:
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_without_apt_the_reason_is_given(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "apt-get is not available" in str(slurm.available())
    assert slurm_packages.main(["--optional"]) == 0
    assert capsys.readouterr() == ("", "")
    assert slurm_packages.main([]) == 1
    assert "install Slurm and MUNGE" in capsys.readouterr().err


def test_systems_other_than_linux_are_named(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox.slurm_packages.sys.platform", "darwin")
    assert str(slurm.available()).startswith("a local Slurm needs Linux, and this is ")


def test_before_the_download_the_target_is_named(bare: Path) -> None:
    for command in ("apt-get", "dpkg-deb", "git"):
        program(bare / command)
    assert "`make slurm` downloads Slurm" in str(slurm.available())
    (bare / "git").unlink()
    assert str(slurm.available()).startswith("git is not installed")


def test_a_slurm_of_the_system_is_used_as_it_is(bare: Path) -> None:
    for command in slurm_packages.COMMANDS:
        program(bare / command)
    assert slurm_packages.provide() is None
    assert slurm_packages.which("srun") == str(bare / "srun")
    assert not slurm_packages.CACHE.exists()


def test_a_failed_download_reports_the_reason_and_leaves_nothing(
    bare: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (slurm_packages.CACHE / ".part-killed").mkdir(parents=True)
    program(bare / "dpkg-deb")
    program(bare / "apt-get", "echo 'E: Could not resolve deb.example' >&2; exit 100")
    with pytest.raises(SlurmNotProvided, match=r"Could not resolve deb.example\. Check the network"):
        slurm_packages.provide()
    assert [file.name for file in slurm_packages.CACHE.iterdir()] == ["lock"]
    assert slurm_packages.unpacked() is None
    assert slurm_packages.main(["--optional"]) == 0
    assert "Could not resolve" in capsys.readouterr().err


def test_the_unpacked_programs_find_their_libraries_by_themselves() -> None:
    unpacked = slurm_packages.unpacked()
    need(unpacked, "the system's own Slurm is used, or `make slurm` was not run")
    assert unpacked is not None
    for command in ("slurmd", "srun", "munged"):
        done = subprocess.run(
            [str(unpacked.commands / command)], env={"LD_TRACE_LOADED_OBJECTS": "1"}, capture_output=True, text=True
        )
        assert done.returncode == 0
        libraries = dict(line.split(" => ") for line in done.stdout.splitlines() if " => " in line)
        own = [place for name, place in libraries.items() if name.strip() in ("libslurmfull.so", "libmunge.so.2")]
        assert own
        assert all(os.path.realpath(place.split()[0]).startswith(str(unpacked.folder.resolve())) for place in own)

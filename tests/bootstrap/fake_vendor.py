"""A fake of the vendor's servers: signed apt and rpm repositories, a wheel index, the EFA installer.

Everything has the vendor's layout, names, version suffixes and signatures, so that key handling, pinning and
verification really happen; only the programs inside are small scripts that print the content of /etc/standin.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from trainium_cdk.description.catalog import Catalog

KERNEL = "6.8.0-1021-aws"
AMAZON_KERNEL = "6.12.40-63.114.amzn2023.x86_64"

NEURON_LS = """#!/bin/sh
# Tools up to 2.33 know -j; a file /etc/standin/new-json makes this one a later one.
case "$1" in
  -j) [ -e /etc/standin/new-json ] && { echo "unknown option -j" >&2; exit 1; }; cat /etc/standin/neuron-ls.json ;;
  --output-format) cat /etc/standin/neuron-ls.json ;;
esac
"""
FI_INFO = """#!/bin/sh
count=$(cat /etc/standin/efa-count)
i=0
while [ "$i" -lt "$count" ]; do
  for fabric in efa-direct efa; do
    printf 'provider: efa\\n    fabric: %s\\n    domain: rdmap%ss0-rdm\\n' "$fabric" "$i"
    printf '    version: 201.0\\n    type: FI_EP_RDM\\n    protocol: FI_PROTO_EFA\\n'
  done
  i=$((i + 1))
done
"""
# As dkms does: build for the running kernel when the package is configured.
DKMS_POSTINST = """#!/bin/sh
set -e
kernel=$(uname -r)
[ -e "/lib/modules/$kernel/build/Makefile" ] || { echo "Error! Your kernel headers for kernel $kernel cannot be found"; exit 1; }
if [ -e /etc/standin/driver-does-not-build ]; then
  mkdir -p /var/lib/dkms/aws-neuronx/standin/build
  echo "neuron_dma.c:1131: error: too many arguments to function" >/var/lib/dkms/aws-neuronx/standin/build/make.log
  echo "Error! Bad return status for module build on kernel: $kernel (x86_64)"
  exit 1
fi
"""
# The package loads what dkms has built, and unloads it before it is removed; it cannot load it over another version
DKMS_BUILT = """mkdir -p "/lib/modules/$kernel/extra"
echo {version} >"/lib/modules/$kernel/extra/neuron.version"
if [ -e /sys/module/neuron/version ] && [ "$(cat /sys/module/neuron/version)" != {version} ]; then
  echo "modprobe: ERROR: could not insert 'neuron': File exists"
  exit 1
fi
"""
DKMS_PREUN = """[ "$1" = 0 ] || exit 0 # an update
rm -f "/lib/modules/$(uname -r)/extra/neuron.version"
[ ! -e /sys/module/neuron/version ] || rmmod neuron
"""
EFA_INSTALLER = """#!/bin/sh
set -e
[ "$1" = --yes ]
install -D -m 0755 fi_info /opt/amazon/efa/bin/fi_info
mkdir -p /etc/security/limits.d
printf '*  soft memlock unlimited\\n*  hard memlock unlimited\\n*  soft nofile 8192\\n*  hard nofile 8192\\n' \
  >/etc/security/limits.d/01_efa.conf
"""

# name -> versions as published: the wanted one with its build suffix, and a newer one that must not be chosen
NEURON_DEBS = {
    "aws-neuronx-dkms": ("2.29.0.0", "2.31.7.0"),
    "aws-neuronx-collectives": ("2.33.10.0-1b3ca6425", "2.35.43.0-7fe1ad909"),
    "aws-neuronx-runtime-lib": ("2.33.10.0-c101c322e", "2.35.30.0-0aa0b0c0d"),
    "aws-neuronx-tools": ("2.31.13.0", "2.33.38.0"),
}
SUFFIX = "+90ad365c"
"""What the vendor adds to the version of a wheel."""
EFA_VERSION = "1.44.0"

WANTED = {
    "TRN_NEURON_SDK": "2.31.0",
    "TRN_NEURON_DKMS": "2.29.0.0",
    "TRN_NEURON_COLLECTIVES": "2.33.10.0",
    "TRN_NEURON_RUNTIME": "2.33.10.0",
    "TRN_NEURON_TOOLS": "2.31.13.0",
}


@dataclass(frozen=True)
class Key:
    """A throw-away signing key."""

    home: Path
    fingerprint: str

    def gpg(self, *command: str | Path) -> bytes:
        return _run(
            ["gpg", "--homedir", self.home, "--batch", "--yes", "--quiet", "--pinentry-mode", "loopback", *command]
        )

    def stop_agent(self) -> None:
        """End the agent that gpg started for this key."""
        subprocess.run(["gpgconf", "--homedir", self.home, "--kill", "gpg-agent"], check=True)

    def publish(self, path: Path) -> None:
        path.write_bytes(self.gpg("--armor", "--export", self.fingerprint))


def _run(command: list[str | Path], **kwargs: object) -> bytes:
    done = subprocess.run(command, capture_output=True, check=False, **kwargs)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
    return bytes(done.stdout)


def make_key(folder: Path, name: str) -> Key:
    """RSA, as the vendor's, because rpm's own signature check wants it."""
    home = folder / f"gnupg-{name}"
    home.mkdir(mode=0o700)
    command: list[str | Path] = [
        "gpg",
        "--homedir",
        home,
        "--batch",
        "--passphrase",
        "",
        "--quick-gen-key",
        f"{name} <{name}@example.com>",
    ]
    _run([*command, "rsa2048", "sign", "never"])
    listing = _run(["gpg", "--homedir", home, "--batch", "--with-colons", "--list-keys"]).decode()
    fingerprint = next(line.split(":")[9] for line in listing.splitlines() if line.startswith("fpr"))
    return Key(home, fingerprint)


def _deb(pool: Path, name: str, version: str, files: dict[str, str], postinst: str = "") -> None:
    tree = pool / f"tree-{name}-{version}"
    for path, text in files.items():
        target = tree / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(0o755)
    control = tree / "DEBIAN"
    control.mkdir(parents=True)
    (control / "control").write_text(
        f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: Stand In <standin@example.com>\n"
        f"Description: stand-in for {name}\n"
    )
    if postinst:
        (control / "postinst").write_text(postinst)
        (control / "postinst").chmod(0o755)
    _run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, pool / f"{name}_{version}_all.deb"])
    shutil.rmtree(tree)


def _apt_index(repository: Path, codenames: tuple[str, ...], key: Key, pool: str = "pool") -> None:
    packages = _run(["dpkg-scanpackages", "--multiversion", pool], cwd=repository)
    for codename in codenames:
        dist = repository / "dists" / codename
        binary = dist / "main" / "binary-amd64"
        binary.mkdir(parents=True)
        (binary / "Packages").write_bytes(packages)
        (binary / "Packages.gz").write_bytes(gzip.compress(packages))
        lines = [f"Origin: {repository.name}", f"Codename: {codename}", f"Suite: {codename}", "Components: main"]
        lines += ["Architectures: amd64 all", "Date: Fri, 20 Nov 2026 00:00:00 UTC", "SHA256:"]
        for file in sorted(binary.iterdir()):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            lines.append(f" {digest} {file.stat().st_size} {file.relative_to(dist)}")
        (dist / "Release").write_text("\n".join(lines) + "\n")
        key.gpg("--clearsign", "--local-user", key.fingerprint, "--output", dist / "InRelease", dist / "Release")


def _apt(folder: Path, vendor: Key, distribution: Key) -> None:
    pool = folder / "apt" / "pool"
    pool.mkdir(parents=True)
    for name, versions in NEURON_DEBS.items():
        for version in versions:
            files = {f"opt/aws/neuron/share/{name}": version}
            if name == "aws-neuronx-tools":
                files["opt/aws/neuron/bin/neuron-ls"] = NEURON_LS
            _deb(pool, name, version, files, DKMS_POSTINST if name.endswith("dkms") else "")
    _apt_index(folder / "apt", ("jammy", "noble"), vendor)

    # A tampered repository: one package replaced after signing; and one signed with another key.
    shutil.copytree(folder / "apt", folder / "apt-tampered")
    deb = folder / "apt-tampered" / "pool" / "aws-neuronx-tools_2.31.13.0_all.deb"
    deb.write_bytes(deb.read_bytes()[:-1] + b"\\0")
    shutil.copytree(folder / "apt", folder / "apt-other-key", ignore=shutil.ignore_patterns("dists"))
    _apt_index(folder / "apt-other-key", ("jammy", "noble"), distribution)


def distribution(vendor: Vendor, codename: str, packages: tuple[Path, ...]) -> None:
    """Ubuntu's own archive for one release: ``packages`` are its real ones, the kernel's headers are not."""
    repository = vendor.folder / "ubuntu"
    if (repository / "dists" / codename).exists():
        return
    pool = repository / "pool" / codename
    pool.mkdir(parents=True)
    for package in packages:
        shutil.copy(package, pool)
    _deb(pool, f"linux-headers-{KERNEL}", "6.8.0-1021.23", {f"lib/modules/{KERNEL}/build/Makefile": "all:\n"})
    _deb(pool, "jq", "1.6-2.1", {"usr/bin/jq": "#!/bin/sh\n"})
    try:
        _apt_index(repository, (codename,), vendor.other_key, f"pool/{codename}")
    finally:
        vendor.other_key.stop_agent()


SPEC = """
Name: {name}
Version: {version}
Release: 1
Summary: stand-in for {name}
License: none
BuildArch: noarch
{provides}
%description
Stand-in.
%prep
%build
%install
{install}
{post}
{preun}
%files
{files}
"""


def _rpm(
    repository: Path,
    work: Path,
    name: str,
    version: str,
    path: str,
    text: str,
    *,
    post: str = "",
    preun: str = "",
    provides: str = "",
) -> None:
    source = work / "payload"
    source.write_text(text)
    spec = work / f"{name}-{version}.spec"
    install = f"install -D -m 0755 {source} %{{buildroot}}{path}"
    post = f"%post\n{post}" if post else ""
    preun = f"%preun\n{preun}" if preun else ""
    given = {"name": name, "version": version, "install": install, "files": path, "provides": provides}
    spec.write_text(SPEC.format(post=post, preun=preun, **given))
    _run(["rpmbuild", "-bb", "--quiet", "--define", f"_topdir {work}", "--define", f"_rpmdir {repository}", spec])


def _yum(folder: Path, work: Path, vendor: Key) -> None:
    work.mkdir()
    repository = folder / "yum"
    repository.mkdir()
    for name, versions in NEURON_DEBS.items():
        for version in (v.replace("-", "_") for v in versions):
            path, text = f"/opt/aws/neuron/share/{name}", version
            if name == "aws-neuronx-tools":
                path, text = "/opt/aws/neuron/bin/neuron-ls", NEURON_LS
            dkms = name.endswith("dkms")
            post = DKMS_POSTINST.removeprefix("#!/bin/sh\n") + DKMS_BUILT.format(version=version) if dkms else ""
            _rpm(repository, work, name, version, path, text, post=post, preun=DKMS_PREUN if dkms else "")
    shutil.copytree(repository, folder / "yum-unsigned")
    gpg = shutil.which("gpg")
    sign = ["rpmsign", "--addsign", "--define", f"_gpg_name {vendor.fingerprint}", "--define", f"__gpg {gpg}"]
    _run([*sign, *sorted(repository.rglob("*.rpm"))], env={**os.environ, "GNUPGHOME": str(vendor.home)})
    amazon = folder / "amazonlinux"
    amazon.mkdir()
    makefile = f"/lib/modules/{AMAZON_KERNEL}/build/Makefile"
    provides = f"Provides: kernel-devel-uname-r = {AMAZON_KERNEL}"
    _rpm(amazon, work, "kernel6.12-devel", "6.12.40", makefile, "all:\n", provides=provides)
    # the root's own programs are Debian's, unknown to rpm
    _rpm(amazon, work, "bash", "5.2.15", "/usr/share/standin/bash", "", provides="Provides: /bin/sh")
    _rpm(amazon, work, "jq", "1.7", "/usr/bin/jq", "#!/bin/sh\n")
    for each in (repository, folder / "yum-unsigned", amazon):
        _run(["createrepo_c", "--quiet", each])


def _wheels(folder: Path) -> None:
    """The compiler's wheels are for one Python each, those that the release supports; the framework's are for all."""
    for name, files in published_wheels().items():
        index = folder / "pip" / name.replace("_", "-")
        index.mkdir(parents=True)
        for version, tag in files:
            info = f"{name}-{version}.dist-info"
            metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n"
            content = {
                f"{name}.py": f"__version__ = '{version}'\n",
                f"{info}/METADATA": metadata,
                f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: standin\nRoot-Is-Purelib: true\nTag: {tag}\n",
            }
            record = "".join(f"{path},sha256={_record_hash(text)},{len(text)}\n" for path, text in content.items())
            with zipfile.ZipFile(index / f"{name}-{version}-{tag}.whl", "w") as archive:
                for path, text in content.items():
                    archive.writestr(path, text)
                archive.writestr(f"{info}/RECORD", record + f"{info}/RECORD,,\n")
        wheels = (wheel.name for wheel in sorted(index.iterdir()))
        links = [f'<a href="{name.replace("+", "%2B")}">{name}</a>' for name in wheels]
        (index / "index.html").write_text("<!DOCTYPE html><html><body>" + "\n".join(links) + "</body></html>")


def published_wheels() -> dict[str, set[tuple[str, str]]]:
    """Name -> versions with their build suffix, each with its tag, as the catalogue has them."""
    found: dict[str, set[tuple[str, str]]] = {"neuronx_cc": set()}
    for release in Catalog.load().releases.values():
        for framework in release.frameworks.values():
            for pin in (f"{framework.package}=={framework.version}", *framework.requires):
                name, _, version = pin.partition("==")
                found.setdefault(name.replace("-", "_"), set()).add((f"{version}{SUFFIX}", "py3-none-any"))
            for python in framework.pythons:
                tag = f"cp{python.replace('.', '')}"
                found["neuronx_cc"].add((f"{release.compiler}{SUFFIX}", f"{tag}-{tag}-linux_x86_64"))
    return found


def _record_hash(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def _efa(folder: Path, work: Path, key: Key) -> None:
    tree = work / "aws-efa-installer"
    tree.mkdir(parents=True)
    for name, text in (("efa_installer.sh", EFA_INSTALLER), ("fi_info", FI_INFO)):
        (tree / name).write_text(text)
        (tree / name).chmod(0o755)
    efa = folder / "efa"
    efa.mkdir()
    archive = efa / f"aws-efa-installer-{EFA_VERSION}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(tree, "aws-efa-installer")
    key.gpg("--detach-sign", "--local-user", key.fingerprint, "--output", f"{archive}.sig", archive)
    key.publish(efa / "aws-efa-installer.key")
    shutil.copytree(efa, folder / "efa-tampered")
    (folder / "efa-tampered" / archive.name).write_bytes(archive.read_bytes() + b" ")


AGENT = "/opt/aws/amazon-cloudwatch-agent"
AGENT_CTL = f"""#!/bin/sh
# accepts what the node scripts use of the original's options, and keeps the configuration as the original does
[ "$*" = "-a append-config -m ec2 -s -c file:/opt/trn-metrics/agent.json" ] || {{ echo "unknown: $*" >&2; exit 1; }}
mkdir -p {AGENT}/etc && cp /opt/trn-metrics/agent.json {AGENT}/etc/appended.json
"""


AGENT_VERSION = "1.300072.0b1"


def _agent(folder: Path, key: Key) -> None:
    """The CloudWatch agent, below the paths of the vendor's bucket."""
    packages, assets = folder / "agent/ubuntu/amd64" / AGENT_VERSION, folder / "agent/assets"
    packages.mkdir(parents=True)
    assets.mkdir()
    _deb(packages, "amazon-cloudwatch-agent", "1", {f"{AGENT[1:]}/bin/amazon-cloudwatch-agent-ctl": AGENT_CTL})
    package = (packages / "amazon-cloudwatch-agent_1_all.deb").rename(packages / "amazon-cloudwatch-agent.deb")
    key.gpg("--detach-sign", "--local-user", key.fingerprint, "--output", f"{package}.sig", package)
    key.publish(assets / "amazon-cloudwatch-agent.gpg")


@dataclass(frozen=True)
class Vendor:
    """The folder a node's web server serves, and the keys it is signed with."""

    folder: Path
    neuron_key: Key
    other_key: Key
    efa_key: Key


def build(folder: Path, work: Path) -> Vendor:
    """Make everything under ``folder``, with keys and intermediate files under ``work``."""
    keys = [make_key(work, name) for name in ("neuron", "other", "efa")]
    neuron, other, efa = keys
    try:
        _apt(folder, neuron, other)
        _yum(folder, work / "rpm", neuron)
        _wheels(folder)
        _efa(folder, work / "efa", efa)
        _agent(folder, efa)
        neuron.publish(folder / "apt" / "KEY.PUB")
        (folder / "ubuntu").mkdir()
        other.publish(folder / "ubuntu" / "KEY.PUB")
    finally:
        for key in keys:
            key.stop_agent()
    return Vendor(folder, neuron, other, efa)

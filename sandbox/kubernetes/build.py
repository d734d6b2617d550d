"""The programs of a Kubernetes cluster, built from their Go modules and kept in `.cache/kubernetes/<key>/`.

`module/go.mod` alone pins the modules and versions. `<key>` is a digest of that folder, so that only a change causes a new
build. One binary contains all programs (see main.go); `bin/` has a link to it for each name.

Two modules are built from a patched copy (`PATCHES`): kwok's newest release for this Kubernetes still requires an
annotation that Kubernetes 1.34 removed, and the newest release of Volcano's API module on the module proxy is one behind
Volcano's own and lacks one constant.
"""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sandbox import paths
from sandbox.kubernetes import golang
from sandbox.kubernetes.progress import shown

MODULE = Path(__file__).parent / "module"
CACHE = paths.CACHE / "kubernetes"
PROGRAMS = (
    "certificates",
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
    "kwok",
    "network-policies",
    "vc-controller-manager",
    "vc-scheduler",
    "vc-webhook-manager",
)
_BINARY = "kubernetes"
_MODULES_MB = 125
"""Size of the modules' archives, in MB (measured 2026-11-22)."""
PATCHES = (
    (
        "sigs.k8s.io/kwok",
        "pkg/utils/informer/informer.go",
        "metav1.InitialEventsListBlueprintAnnotationKey",
        "metav1.InitialEventsAnnotationKey",
    ),
    (
        "volcano.sh/apis",
        "pkg/apis/scheduling/v1beta1/labels.go",
        "",
        '\nconst QueueAllocationGateKey = GroupName + "/queue-allocation-gate"\n',
    ),
)
"""(module, file, old text, new text; without an old text the new one is appended)."""
_CRDS = {"volcano.sh/volcano": "config/crd/volcano/bases", "sigs.k8s.io/kwok": "kustomize/crd/bases"}


class BuildFailed(RuntimeError):
    """The programs could not be built; the message has the reason and the fix."""


@functools.cache
def key() -> str:
    """Digest of the inputs: the module's files and the build options."""
    digest = hashlib.sha256(repr((PATCHES, _command(Path()))).encode())
    for file in sorted(MODULE.iterdir()):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def directory() -> Path:
    """The folder of this key's programs."""
    return CACHE / key()


def program(name: str) -> Path:
    """The path of one of `PROGRAMS`."""
    return directory() / "bin" / name


def crds(module: str) -> list[Path]:
    """The custom resource definitions of `volcano.sh/volcano` or `sigs.k8s.io/kwok`."""
    return sorted((directory() / "crds" / module.rpartition("/")[2]).glob("*.yaml"))


def version(module: str) -> str:
    """The version of a module in `go.mod`, without the `v`.

    Raises:
        KeyError: the module is not in it.
    """
    found = re.search(rf"^\t(?:require )?{re.escape(module)} v(\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise KeyError(module)
    return found[1]


def available() -> str | None:
    """Why the programs are not available, or None."""
    if all(program(name).exists() for name in PROGRAMS):
        return None
    reason = cannot_build()
    return f"Kubernetes is not built ({reason})" if reason else "Kubernetes is not built (run `make kubernetes`)"


def cannot_build() -> str | None:
    """Why this machine cannot build it, as far as can be checked before the build."""
    if sys.platform != "linux":
        return f"its nodes and pods need Linux, and this is {sys.platform}"
    if golang.find(_needed()) is None and platform.machine() not in ("x86_64", "aarch64"):
        return f"Go {_needed()} or newer is not installed, and {golang.pinned()} is not made for {platform.machine()}"
    return None


def build(report: Callable[[str], None] = print) -> Path:
    """Build what is missing; returns the folder with the programs. Takes minutes the first time.

    If no Go on the PATH is new enough, one is installed into `.venvs/go` first.

    Raises:
        BuildFailed: Go is not available, the module proxy does not respond, or the code does not compile.
    """
    target = directory()
    if available() is None:
        report(f"kubernetes: already built, {target}")
        return target
    if (reason := cannot_build()) is not None:
        raise BuildFailed(reason)
    (target / "bin").mkdir(parents=True, exist_ok=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("k8s.io/kubernetes", "volcano.sh/volcano"))
    began = time.monotonic()
    try:
        go = golang.get(_needed(), report)
        report(f"kubernetes: downloading the Go modules of {versions} and their dependencies, about {_MODULES_MB} MB")
        with shown("downloading") as progress:
            modules, size = golang.download(go, MODULE, progress)
        report(f"kubernetes: {modules} modules, {size:.0f} MB, downloaded in {time.monotonic() - began:.0f} s")
        source = _source(go, target)
        for module, folder in _CRDS.items():
            place = target / "crds" / module.rpartition("/")[2]
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(_folder_of(go, module, source) / folder, place, copy_function=shutil.copyfile)
            _make_writable(place)
        part = target / "bin" / f"{_BINARY}.part"
        with shown("compiling") as progress:
            golang.compile(go, _command(part), source, progress)
    except golang.GoFailed as problem:
        raise BuildFailed(str(problem)) from None
    part.replace(target / "bin" / _BINARY)
    for name in PROGRAMS:
        link = target / "bin" / name
        link.unlink(missing_ok=True)
        link.symlink_to(_BINARY)
    shutil.rmtree(source)
    current = CACHE / "current"
    current.unlink(missing_ok=True)
    current.symlink_to(target.name)
    _drop_older(target)
    report(f"kubernetes: built in {time.monotonic() - began:.0f} s, {target}")
    return target


def _needed() -> str:
    found = re.search(r"^go (\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    return found[1] if found else "1.25"


def _command(output: Path) -> list[str]:
    """Without inlining (-l), which makes compilation a fifth shorter; the programs mostly wait."""
    kubernetes = version("k8s.io/kubernetes")
    major, minor, _ = kubernetes.split(".", 2)
    fields = {"gitVersion": f"v{kubernetes}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    stamps = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in fields.items())
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-l", f"-ldflags=-s -w {stamps}"]
    return ["build", *flags, f"-o={output}", "."]


def _source(go: Path, target: Path) -> Path:
    """The sources to compile: the module, and the patched copies of others."""
    source = target / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(MODULE, source)
    for module, name, old, new in PATCHES:
        copy = source / "mended" / module.rpartition("/")[2]
        shutil.copytree(_folder_of(go, module, MODULE), copy, copy_function=shutil.copyfile)
        _make_writable(copy)
        file = copy / name
        text = file.read_text()
        if old not in text:
            raise BuildFailed(f"{module} no longer needs the patch: {old!r} is not in {name}. Remove it from PATCHES")
        file.write_text(text.replace(old, new) if old else text + new)
        replace = f"-replace={module}=./{copy.relative_to(source)}"
        golang.run(go, ["mod", "edit", replace], "use the changed copy", source)
    return source


def _folder_of(go: Path, module: str, where: Path) -> Path:
    return Path(golang.run(go, ["list", "-m", "-f", "{{.Dir}}", module], "find its modules", where).strip())


def _make_writable(folder: Path) -> None:
    """Make copies from the read-only module cache writable, so that they can be removed."""
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        place.chmod(0o755)


def _drop_older(target: Path) -> None:
    """Remove earlier builds: each is about 150 MB."""
    for other in CACHE.iterdir():
        if other != target and re.fullmatch(r"[0-9a-f]{16}", other.name):
            shutil.rmtree(other, ignore_errors=True)

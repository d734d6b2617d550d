"""The programs of a Kubernetes cluster, built from their Go modules and kept outside the checkout, in `paths.COMPILED`.

There are four parts. Each has a folder there, named by the sum of its module's files and by Go's version. A change in one part does not build
the others again, and two checkouts with the same modules share the programs:

- `module/`: Kubernetes, kwok and Helm's engine in one binary (see main.go), to which `bin/` has a link for each name;
- `module_volcano/`: Volcano's programs in one binary, built only where they are asked for. Libraries that both binaries need have the same
  versions, and are compiled once. The others take 2 of 12 minutes of processor time (measured 2026-11-28);
- `module_kueue/`: Kueue, JobSet and Kubeflow Trainer, which need newer libraries of Kubernetes, as their own projects build them;
- `module_session_manager/`: AWS's session-manager-plugin, for tunnels and shells. It names no versions of its libraries: these are the newest, and
  of twinj/uuid the last one that still has what it calls.

A folder's go.mod alone pins modules and versions. `module_1_35` has that of the Kubernetes before, for the same programs: one version a
build, and `TRN_SANDBOX_KUBERNETES_VERSION=1.35` chooses it. Three modules are built from a patched copy (`patches`): kwok's release for Kubernetes
1.35 still requires an annotation that Kubernetes 1.34 removed; the newest release of Volcano's API module on the module proxy
is one behind Volcano's own and lacks one constant; Kueue looks for certificates of its metrics where only root can write.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sandbox import paths
from sandbox.kubernetes import golang

CACHE = paths.COMPILED
UNUSED_DAYS = 30
"""After so many days without use, a build removes the programs of other versions."""
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """Programs that are built together from one go.mod.

    Attributes:
        folder: with go.mod.
        programs: their names.
        packages: what is compiled: "." makes one binary with all programs, others one each with the last part of its path as name.
        modules: those named in messages.
        kept: parts of modules that are copied: (module, its folder or file, name under `directory`).
        patches: (module, file, old text, new text; without an old text the new one is appended).
        size: of the modules' archives, in MB (measured 2026-11-28).
        code: the folder with the Go files, if it is another one.
    """

    folder: Path
    programs: tuple[str, ...]
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    kept: tuple[tuple[str, str, str], ...]
    patches: tuple[tuple[str, str, str, str], ...]
    size: int
    code: Path | None = None

    @property
    def files(self) -> list[Path]:
        """What is compiled: the Go files, and go.mod and go.sum."""
        code = sorted((self.code or self.folder).glob("*.go"))
        return [*code, self.folder / "go.mod", self.folder / "go.sum"]

    @functools.cached_property
    def key(self) -> str:
        """Digest of the inputs: the folder's files, the build options, and the processor, as machines may share a home folder."""
        options = (self.patches, self.kept, self.command(Path()), platform.machine())
        digest = hashlib.sha256(repr(options).encode())
        for file in self.files:
            digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
        return digest.hexdigest()[:16]

    def place(self, go: str) -> Path:
        """The folder of the programs that this version of Go compiles, such as go1.26.8. It exists only once they are complete."""
        return CACHE / f"{self.folder.name}-{self.key}-{go}"

    @property
    def directory(self) -> Path:
        """The folder of the programs, whichever Go compiled them; of several the one that was used last. Marks it as used."""
        found = max(CACHE.glob(f"{self.folder.name}-{self.key}-*"), key=_used, default=None)
        if found is None:
            return CACHE / f"{self.folder.name}-{self.key}"
        _use(found)
        return found

    @property
    def built(self) -> bool:
        return self.directory.exists()

    @property
    def go(self) -> str:
        """The Go version that it needs."""
        found = re.search(r"^go (\S+)", (self.folder / "go.mod").read_text(), re.MULTILINE)
        return found[1] if found else "1.26"

    def version(self, module: str) -> str | None:
        """The version of a module in go.mod, without the `v`; None if it is not there."""
        text = (self.folder / "go.mod").read_text()
        found = re.search(rf"^\t(?:require )?{re.escape(module)} v(\S+)", text, re.MULTILINE)
        return found[1] if found else None

    def command(self, output: Path) -> list[str]:
        """The words of `go` that compile it."""
        stamps = ""
        if kubernetes := self.version("k8s.io/kubernetes"):
            major, minor, _ = kubernetes.split(".", 2)
            fields = {"gitVersion": f"v{kubernetes}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
            stamps = "".join(f" -X k8s.io/component-base/version.{name}={value}" for name, value in fields.items())
        flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", f"-ldflags=-s -w{stamps}"]
        return ["build", *flags, f"-o={output}", *self.packages]


VERSIONS = {"1.36": "module", "1.35": "module_1_35"}
"""The versions of Kubernetes that can be built, the default first, and their folders."""
VERSION = os.environ.get("TRN_SANDBOX_KUBERNETES_VERSION") or next(iter(VERSIONS))
if VERSION not in VERSIONS:
    raise ValueError(f"TRN_SANDBOX_KUBERNETES_VERSION = {VERSION}: write {' or '.join(VERSIONS)}")
CLUSTER = Part(
    folder=_HERE / VERSIONS[VERSION],
    code=_HERE / "module",
    programs=(
        "certificates",
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kwok",
        "network-policies",
        "render-chart",
    ),
    packages=(".",),
    modules=("k8s.io/kubernetes",),
    kept=(("sigs.k8s.io/kwok", "kustomize/crd/bases", "crds/kwok"),),
    patches=(
        (
            "sigs.k8s.io/kwok",
            "pkg/utils/informer/informer.go",
            "metav1.InitialEventsListBlueprintAnnotationKey",
            "metav1.InitialEventsAnnotationKey",
        ),
    )
    if VERSION == "1.35"
    else (),
    size=104,
)
VOLCANO = Part(
    folder=_HERE / "module_volcano",
    programs=("vc-controller-manager", "vc-scheduler", "vc-webhook-manager"),
    packages=(".",),
    modules=("volcano.sh/volcano",),
    kept=(("volcano.sh/volcano", "config/crd/volcano/bases", "crds/volcano"),),
    patches=(
        (
            "volcano.sh/apis",
            "pkg/apis/scheduling/v1beta1/labels.go",
            "",
            '\nconst QueueAllocationGateKey = GroupName + "/queue-allocation-gate"\n',
        ),
    ),
    size=92,
)
KUEUE = Part(
    folder=_HERE / "module_kueue",
    programs=("jobset", "kueue", "trainer-controller-manager"),
    packages=(
        "github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager",
        "sigs.k8s.io/jobset",
        "sigs.k8s.io/kueue/cmd/kueue",
    ),
    modules=("sigs.k8s.io/kueue", "sigs.k8s.io/jobset", "github.com/kubeflow/trainer/v2"),
    kept=(
        ("github.com/kubeflow/trainer/v2", "charts/kubeflow-trainer", "charts/trainer"),
        ("sigs.k8s.io/jobset", "charts/jobset", "charts/jobset"),
        ("sigs.k8s.io/kueue", "charts/kueue", "charts/kueue"),
        ("k8s.io/autoscaler/cluster-autoscaler/apis", "config/crd", "crds/autoscaler"),
    ),
    patches=(
        (
            "sigs.k8s.io/kueue",
            "cmd/kueue/main.go",
            'metricsCertPath := "/etc/kueue/metrics/certs"',
            "metricsCertPath := cfg.Webhook.CertDir",
        ),
    ),
    size=114,
)
SESSION_MANAGER = Part(
    folder=_HERE / "module_session_manager",
    programs=("session-manager-plugin",),
    packages=("github.com/aws/session-manager-plugin/src/sessionmanagerplugin-main",),
    modules=("github.com/aws/session-manager-plugin",),
    kept=(),
    patches=(),
    size=20,
)
KUBERNETES = (CLUSTER, KUEUE)
PARTS = (*KUBERNETES, SESSION_MANAGER, VOLCANO)
ALL = "python -m sandbox.kubernetes build --all"
"""The command that builds Volcano too."""


class BuildFailed(RuntimeError):
    """The programs could not be built; the message has the reason and the fix."""


def program(name: str) -> Path:
    """The path of one of the parts' programs."""
    [part] = [part for part in PARTS if name in part.programs]
    return part.directory / "bin" / name


def crds(name: str) -> list[Path]:
    """The custom resource definitions of volcano, kwok or autoscaler."""
    [folder] = [f for part in PARTS if (f := part.directory / "crds" / name).exists()]
    return sorted(folder.glob("*.yaml"))


def chart(name: str) -> Path:
    """The folder of the Helm chart of jobset, kueue or trainer."""
    return KUEUE.directory / "charts" / name


def version(module: str) -> str:
    """The version of a module, without the `v`.

    Raises:
        KeyError: no part requires it.
    """
    for part in PARTS:
        if (found := part.version(module)) is not None:
            return found
    raise KeyError(module)


def available(*, volcano: bool = False) -> str | None:
    """Why the programs are not available, or None.

    Args:
        volcano: whether Volcano's are needed too.
    """
    if all(part.built for part in KUBERNETES):
        return f"Volcano is not built (run `{ALL}`)" if volcano and not VOLCANO.built else None
    reason = cannot_build()
    return f"Kubernetes is not built ({reason})" if reason else f"Kubernetes is not built (run `{paths.KUBERNETES}`)"


def cannot_build() -> str | None:
    """Why this machine cannot build it, as far as can be checked before the build."""
    if sys.platform != "linux":
        return f"its nodes and pods need Linux, and this is {sys.platform}"
    needed = max(part.go for part in PARTS)
    if golang.find(needed) is None and platform.machine() not in ("x86_64", "aarch64"):
        return f"Go {needed} or newer is not installed, and {golang.pinned()} is not made for {platform.machine()}"
    return None


def build(report: Callable[[str], None] = print, *, volcano: bool = True) -> None:
    """Build what this machine's Go has not built yet, in any checkout. Takes minutes the first time.

    If no Go on the PATH is new enough, one is installed into `.venvs/go` first. While another process builds, it waits.

    Args:
        volcano: whether to build Volcano too.

    Raises:
        BuildFailed: Go is not available, the module proxy does not respond, or the code does not compile.
    """
    for part in [part for part in PARTS if volcano or part is not VOLCANO]:
        place = part.place(golang.version(part.go))
        if not place.exists():
            if (reason := cannot_build()) is not None:
                raise BuildFailed(reason)
            with _alone(report):
                if not place.exists():  # the process before this one may have built it
                    try:
                        _build(part, place, report)
                    except golang.GoFailed as problem:
                        raise BuildFailed(str(problem)) from None
                    _drop_unused()
                    continue
        _use(place)
        report(f"kubernetes: already built, {place}")


@contextlib.contextmanager
def _alone(report: Callable[[str], None]) -> Iterator[None]:
    """Only one process of the machine at a time; the system frees the lock of one that is killed."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"kubernetes: another process builds in {CACHE}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(part: Part, place: Path, report: Callable[[str], None]) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=CACHE) as name:
        target = Path(name) / "target"
        _make(part, target, Path(name) / "source", report)
        target.rename(place)
    disk = sum(file.stat().st_size for file in place.rglob("*") if not file.is_symlink()) / 1e6
    report(f"kubernetes: built in {time.monotonic() - began:.0f} s, {disk:.0f} MB, {place}")


def _make(part: Part, target: Path, source: Path, report: Callable[[str], None]) -> None:
    """Compile a part's programs into a new folder."""
    began = time.monotonic()
    names = ", ".join(f"{name} {part.version(name)}" for name in part.modules)
    go = golang.get(part.go, report)
    report(f"kubernetes: downloading the Go modules of {names} and their dependencies, about {part.size} MB")
    modules, size = golang.download(go, part.folder, report)
    report(f"kubernetes: {modules} modules, {size:.0f} MB, downloaded in {time.monotonic() - began:.0f} s")
    _copy_source(go, part, source)
    for module, origin, name in part.kept:
        kept = target / name
        shutil.copytree(_folder_of(go, module, part.folder) / origin, kept, copy_function=shutil.copyfile)
        _make_writable(kept)
    programs = target / "bin"
    programs.mkdir(parents=True)
    golang.compile(go, part.command(programs), source, report)
    if len(part.packages) == 1:
        for name in part.programs:
            (programs / name).symlink_to("sandbox" if part.packages == (".",) else part.packages[0].rpartition("/")[2])


def _copy_source(go: Path, part: Part, source: Path) -> None:
    """The sources to compile: the part's folder, and the patched copies of modules."""
    source.mkdir()
    for file in part.files:
        shutil.copyfile(file, source / file.name)
    for module, name, old, new in part.patches:
        copy = source / "mended" / module.rpartition("/")[2]
        shutil.copytree(_folder_of(go, module, part.folder), copy, copy_function=shutil.copyfile)
        _make_writable(copy)
        file = copy / name
        text = file.read_text()
        if old not in text:
            raise BuildFailed(f"{module} no longer needs the patch: {old!r} is not in {name}. Remove it from `patches`")
        file.write_text(text.replace(old, new) if old else text + new)
        replace = f"-replace={module}=./{copy.relative_to(source)}"
        golang.run(go, ["mod", "edit", replace], "use the changed copy", source)


def _folder_of(go: Path, module: str, where: Path) -> Path:
    return Path(golang.run(go, ["list", "-m", "-f", "{{.Dir}}", module], "find its modules", where).strip())


def _make_writable(folder: Path) -> None:
    """Make copies from the read-only module cache writable, so that they can be removed."""
    for place in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        place.chmod(0o755)


def _used(folder: Path) -> float:
    """When it was used last, in seconds since 1970."""
    return folder.stat().st_mtime


def _use(folder: Path) -> None:
    with contextlib.suppress(OSError):  # it is another user's
        os.utime(folder)


def _drop_unused() -> None:
    """Remove the folders that no checkout has used for `UNUSED_DAYS`: each is about 150 MB."""
    for folder in CACHE.iterdir():
        if folder.is_dir() and _used(folder) < time.time() - UNUSED_DAYS * 86400:
            # at once under another name: a half removed one would count as complete
            shutil.rmtree(folder.rename(CACHE / f"removed-{folder.name}"), ignore_errors=True)

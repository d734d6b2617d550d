"""The head node of a local Slurm: a private home, the cluster's shared directories, and the commands of a real node.

Nothing outside its directory is changed: `sudo`, `modprobe` and `sysctl` on the virtual nodes have no effect on this machine.
"""

from __future__ import annotations

import compileall
import contextlib
import ensurepip
import importlib.util
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from sandbox import paths
from sandbox.slurm_config import ClusterPlan
from sandbox.slurm_packages import SYSTEM_PATH, which
from sandbox.training.fakes import compile_cache, neuron_tools
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.errors import UnknownCatalogEntry

VENV = "aws_neuron_venv_pytorch"
"""The virtual environment's name in the home directory, as in AWS's tutorials."""

REF = "main"
"""The only ref of the fake repositories: TRN_SAMPLES_REF and TRN_NXDT_REF make jobs fetch it instead of their pinned commit."""

_HERE = Path(__file__).parent
_REPOSITORIES = {
    "aws-neuron-samples": "https://github.com/aws-neuron/aws-neuron-samples.git",
    "neuronx-distributed-training": "https://github.com/aws-neuron/neuronx-distributed-training.git",
}
MODULES = {
    "huggingface-hub": '''"""Downloads nothing: the sandbox's model does not read these files. Like the original, it asks the hub for a
model's newest commit first, which HF_HUB_OFFLINE=1 forbids; then it returns what is in the cache, whole or not."""

import os
from pathlib import Path


class OfflineModeIsEnabled(ConnectionError):
    pass


def snapshot_download(repo_id: str, *, revision: str = "main", allow_patterns: list[str]) -> str:
    place = Path(os.environ["HF_HOME"]) / "hub" / f"models--{repo_id.replace('/', '--')}" / "snapshots" / "sandbox"
    offline = os.environ.get("HF_HUB_OFFLINE") or os.environ.get("TRANSFORMERS_OFFLINE") or ""
    if offline.upper() in ("1", "ON", "YES", "TRUE"):
        if place.exists():
            return str(place)
        raise OfflineModeIsEnabled(f"Cannot reach .../api/models/{repo_id}/revision/main: offline mode is enabled.")
    place.mkdir(parents=True, exist_ok=True)
    for name in allow_patterns:
        (place / name).write_text("{}")
    return str(place)
''',
    "datasets": '''"""Downloads nothing, and like the original not even that if HF_DATASETS_OFFLINE=1. It writes some conversations for the small model."""

import json
import os
from pathlib import Path

_ASKED = ("what is a cluster", "how does a queue work", "why does a job wait", "when does a node start", "who pays for a node")
_ANSWERED = "a job waits until all of its nodes are there, then it trains, and then they stop."


def load_dataset(path: str, name: str | None = None, *, split: str) -> None:
    if os.environ.get("HF_DATASETS_OFFLINE") == "1":
        raise ConnectionError(f"Couldn't reach {path} on the Hub (OfflineModeIsEnabled)")
    place = Path(os.environ["HF_HOME"]) / "datasets" / path.replace("/", "___")
    place.mkdir(parents=True, exist_ok=True)
    if os.path.isabs(path):
        (place / split).touch()
        return
    lines = (
        {"messages": [{"role": "user", "content": _ASKED[i % 5]}, {"role": "assistant", "content": _ANSWERED[i % 7 :]}]}
        for i in range(200)
    )
    (place / split).write_text("".join(f"{json.dumps(line)}\\n" for line in lines))
''',
}
_PROGRAMS = {
    "trl": {
        "trl/__init__.py": "",
        "trl/scripts/__init__.py": "",
        "trl/scripts/sft.py": 'import sys\n\nfrom fakes.sft import main\n\nif __name__ == "__main__":\n    sys.exit(main())\n',
    }
}
"""Packages whose programs jobs start."""
"""Modules of packages that jobs import here. The pinned packages of all kinds are wheels for pip, which resolves and installs
them without the network; most have an empty module."""


def quoted(text: str) -> str:
    return shlex.quote(text)


def prepare(directory: Path, link: Path, plan: ClusterPlan, environment: Mapping[str, str]) -> dict[str, str]:
    """Create the head node's files below `directory` and return the environment of a shell on it.

    The home and the shared directories are kept when the same directory is used again; commands, virtual environment and
    repositories are replaced.

    Args:
        directory: the local Slurm's directory.
        link: a short path to the same directory.
        plan: has the mount directories and instance types.
        environment: additional variables, which take precedence.
    """
    home = directory / "home"
    shared = directory / "shared"
    for mount in ("", *plan.mount_dirs):
        (shared / mount.strip("/")).mkdir(parents=True, exist_ok=True)
    home.mkdir(mode=0o700, exist_ok=True)
    commands = _commands(directory)
    virtual_environment(shared / plan.venv.strip("/") if plan.venv else home / VENV)
    cloned = repositories(directory / "repositories")
    git_config(home, cloned)
    built = wheels(directory / "wheels")
    user = pwd.getpwuid(os.getuid()).pw_name
    env = {
        "HOME": str(home),
        "USER": user,
        "LOGNAME": user,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "PATH": os.pathsep.join([str(commands), *_slurm_path(), SYSTEM_PATH]),
        "SLURM_CONF": f"{link}/etc/slurm.conf",
        "TRN_SANDBOX": str(directory),
        "TRN_SANDBOX_HOSTNAME": "ip-10-0-0-10",
        "TRN_SANDBOX_DEVICES": _devices(plan),
        "TRN_SANDBOX_RUNTIME": Catalog.load().release().runtime,
        "TRN_SYS_ROOT": str(driver(directory / "sys_root", environment.get("TRN_SANDBOX_DRIVER", ""))),
        "TRN_SHARED_ROOT": str(shared),
        "TRN_SAMPLES_REF": REF,
        "TRN_NXDT_REF": REF,
        "TRN_UNVERIFIED_DATA": "1",  # the data sets are generated
        "GIT_CONFIG_GLOBAL": str(home / ".gitconfig"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(built),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
        **environment,
    }
    _profile(home, env)
    return env


def write_environment(directory: Path, env: dict[str, str]) -> None:
    """What the bootstrap's step `environment` writes on a real node: the variables with which scripts start as a user. Its place is added to
    the head node's environment."""
    env["TRN_NODE_ENVIRONMENT"] = str(directory / "environment")
    kept = {name: value for name, value in env.items() if name not in ("USER", "LOGNAME", "SHELL")}
    (directory / "environment").write_text("".join(f"{name}={value}\0" for name, value in kept.items()))


def _slurm_path() -> list[str]:
    """Folders of Slurm's commands and git, if not one of the system's (for example /opt/slurm/bin)."""
    places = {str(Path(found).parent) for name in ("srun", "git") if (found := which(name))}
    return sorted(places - set(SYSTEM_PATH.split(os.pathsep)))


def _devices(plan: ClusterPlan) -> str:
    """The devices of each node, for the nodes' tools (see `neuron_tools.layout`), with EFA interfaces if EFA is enabled."""
    entries = []
    for node in plan.nodes:
        try:
            facts = Catalog.load().instance(node.instance_type)
        except UnknownCatalogEntry:
            continue
        efa = facts.efa_interfaces if "efa" in node.features else 0
        cores = facts.logical_cores() // facts.neuron_devices
        entries.append(f"{node.name}={facts.neuron_devices}x{cores}x{efa}")
    return " ".join(entries)


def driver(root: Path, version: str = "") -> Path:
    """A folder used as / for the driver's version. Default: the default Neuron release's."""
    file = root / "sys/module/neuron/version"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{version or Catalog.load().release().dkms}\n")
    return root


def _commands(directory: Path) -> Path:
    """The commands of head node and compute nodes, before the system's on PATH."""
    commands = _fresh(directory / "bin")
    for script in (_HERE / "node_bin").iterdir():
        _write(commands / script.name, script.read_text())
    for name in neuron_tools.NAMES:
        run = f"PYTHONPATH={quoted(str(_HERE / 'training'))} exec {quoted(sys.executable)} -m fakes.neuron_tools {name}"
        _write(commands / name, f'#!/bin/sh\n{run} "$@"\n')
    aws = Path(sys.executable).with_name("aws")
    found = str(aws) if aws.exists() else which("aws")
    if found is not None:
        # a Python in another user's home: users of the cluster run its modules with the system's
        modules = quoted(sysconfig.get_path("purelib"))
        plain = f'[ -x {quoted(sys.executable)} ] || PYTHONPATH={modules} exec /usr/bin/python3 -m awscli "$@"\n'
        _write(commands / "aws", f'#!/bin/sh\n{plain}exec {quoted(found)} "$@"\n')
    if shutil.which("python3", path=SYSTEM_PATH) is None:
        (commands / "python3").symlink_to(sys.executable)
    return commands


def virtual_environment(where: Path) -> None:
    """A small virtual environment with pip, torchrun and neuron_parallel_compile."""
    venv.EnvBuilder(symlinks=True, with_pip=False, clear=True).create(where)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(where), "platbase": str(where)}))
    packages.mkdir(parents=True, exist_ok=True)
    found_pip = pip()
    if found_pip is not None:
        (packages / "sandbox-pip.pth").write_text(f"{found_pip}\n")
    training = _HERE / "training"
    (packages / "sandbox-training.pth").write_text(f"{training}\n{training / 'modules'}\n")
    compiler(packages)
    for script in (_HERE / "venv_bin").iterdir():
        _write(where / "bin" / script.name, script.read_text())
    _write(where / "bin" / "pip", '#!/bin/sh\nexec "$(dirname "$0")/python3" -m pip "$@"\n')
    (where / "bin" / "pip3").symlink_to("pip")


def compiler(packages: Path) -> None:
    """What `importlib.metadata` knows of the compiler, in a folder of packages."""
    version = compile_cache.COMPILER.partition("-")[2]
    info = packages / f"neuronx_cc-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: neuronx-cc\nVersion: {version}\n")


def pip() -> Path | None:
    """The folder of a pip that runs without installation: Python's bundled one, else the one in our environment."""
    bundled = Path(ensurepip.__file__).parent / "_bundled"
    for place in (bundled, Path("/usr/share/python-wheels")):
        wheels = sorted(place.glob("pip-*.whl"))
        if wheels:
            return _unpacked(wheels[-1])
    spec = importlib.util.find_spec("pip")
    return Path(spec.origin).parent.parent if spec and spec.origin else None


def _unpacked(pip: Path) -> Path:
    """The folder of this wheel's content, compiled, once: out of the wheel it is compiled at each start, which takes 0.8 s."""
    place = paths.CACHE / "pip" / f"{pip.stem}-{sys.implementation.cache_tag}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as temporary:
            with zipfile.ZipFile(pip) as archive:
                archive.extractall(made := Path(temporary) / "pip")
            compileall.compile_dir(made, quiet=2)
            with contextlib.suppress(OSError):  # another process was first
                made.rename(place)
    return place


def repositories(where: Path) -> dict[str, Path]:
    """Local git repositories that replace the vendor's, by name."""
    _fresh(where)
    made = {}
    for name in _REPOSITORIES:
        made[name] = where / name
        shutil.copytree(
            _HERE / "training" / "repositories" / name, made[name], ignore=shutil.ignore_patterns("__pycache__")
        )
        make_repository(made[name])
    return made


def make_repository(folder: Path) -> None:
    """Make a folder a git repository with one commit of its content, on the branch `REF`."""
    env = {
        "PATH": os.pathsep.join([*_slurm_path(), SYSTEM_PATH]),
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        **{f"GIT_{who}_NAME": "sandbox" for who in ("AUTHOR", "COMMITTER")},
        **{f"GIT_{who}_EMAIL": "sandbox@localhost" for who in ("AUTHOR", "COMMITTER")},
    }
    for command in (["init", "-q", "-b", REF], ["add", "-A"], ["commit", "-q", "-m", "Fake repository of the sandbox"]):
        subprocess.run(["git", *command], cwd=folder, env=env, check=True, capture_output=True)


def git_config(home: Path, repositories: Mapping[str, Path]) -> None:
    """Redirect the vendor's URLs, with and without `.git`, to the local repositories."""
    lines = []
    for name, path in repositories.items():
        address = _REPOSITORIES[name]
        lines += [
            f'[url "file://{path}"]',
            f"\tinsteadOf = {address}",
            f"\tinsteadOf = {address.removesuffix('.git')}",
        ]
    (home / ".gitconfig").write_text("\n".join(["[safe]", "\tdirectory = *", *lines, ""]))


def wheels(where: Path) -> Path:
    """The packages that jobs install with pip, as wheels in a directory."""
    _fresh(where)
    for name, version in sorted(_pins()):
        modules = _PROGRAMS.get(name) or {f"{name.replace('-', '_')}.py": MODULES.get(name, "")}
        wheel(where, name, version, modules)
    return where


def _pins() -> set[tuple[str, str]]:
    """Name and version of all packages of all kinds; one that is not pinned has the version of a pin's bound, or 1."""
    from trainium_cdk.client.jobs.kinds import kinds

    found = set()
    for packages in filter(None, (kind.PACKAGES for kind in kinds().values())):
        for pin in packages.pins:
            name, version = re.fullmatch(r"([\w-]+)(?:\[\w+\])?[=>]*([\d.]*).*", pin).groups()  # type: ignore[union-attr]
            found.add((name, version or "1"))
        releases = Catalog.load().releases.values()
        found |= {(name, r.libraries[name]) for name in packages.libraries for r in releases if name in r.libraries}
    return found


def wheel(where: Path, name: str, version: str, files: Mapping[str, str], requires: Iterable[str] = ()) -> None:
    """Write the wheel of a package with these files."""
    package = name.replace("-", "_")
    info = f"{package}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {other}\n" for other in requires)
    with zipfile.ZipFile(where / f"{package}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "".join(f"{path},,\n" for path in files))


def _profile(home: Path, env: Mapping[str, str]) -> None:
    """A login shell's system profile resets PATH: restore ours, as a user's profile would."""
    kept = {name: value for name, value in env.items() if not name.startswith("AWS_")}
    text = "".join(f"export {name}={quoted(value)}\n" for name, value in kept.items())
    for name in (".bash_profile", ".profile"):
        (home / name).write_text(text)


def _fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o755)

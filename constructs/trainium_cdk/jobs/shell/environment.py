"""The Python environment of a job's packages: the parts of `environments.sh` for which shell is too clumsy. It runs in the Python
that the environment is made on; standard library only."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import platform
import site
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

FRAMEWORK = ("torch", "torch-xla", "torch-neuronx", "libneuronxla", "neuronx-cc", "nki")
"""What no package of a job may replace: the vendor releases these together."""
RECORD = "trn-environment.json"


def name(base: str, *parts: str) -> str:
    """The name of the environment of these parts on this Python: requirements, and the text of further steps."""
    installed = sorted({f"{d.metadata['Name']}=={d.version}".lower() for d in distributions()})
    known = [base, sys.prefix, platform.machine(), "{}.{}".format(*sys.version_info), *installed, "", *parts]
    return hashlib.sha256("\0".join(known).encode()).hexdigest()[:12]


def layer(place: str, programs: str, index: str) -> None:
    """Put the packages and programs of this Python below those of the virtual environment at `place`.

    `--system-site-packages` would not do: of a virtual environment, it adds the packages of the Python that this one was made with.

    Args:
        programs: folder of this Python's programs.
        index: of the Neuron packages, beside pip's own; the pip.conf of this Python wins.
    """
    there = Path(place)
    # not this Python's own scheme: that of Debian and Ubuntu is local/lib/python3.X/dist-packages
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"  # as the module venv does
    packages = Path(sysconfig.get_path("purelib", scheme, vars={"base": place, "platbase": place}))
    found = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    (packages / "trn-base.pth").write_text(
        "".join(f"import site; site.addsitedir({p!r})\n" for p in found if Path(p).is_dir())
    )
    pins = []
    for package in FRAMEWORK:
        try:
            pins.append(f"{package}=={version(package)}\n")
        except PackageNotFoundError:
            continue
    (there / "constraints.txt").write_text("".join(pins))
    configuration = Path(sys.prefix) / "pip.conf"
    text = configuration.read_text() if configuration.exists() else f"[global]\nextra-index-url = {index}\n"
    (there / "pip.conf").write_text(text)
    pip = there / "bin" / "pip"
    pip.write_text('#!/bin/sh\nexec "$(dirname "$0")/python3" -m pip "$@"\n')
    pip.chmod(0o755)
    with (there / "bin" / "activate").open("a") as activate:
        activate.write(f'PATH="$VIRTUAL_ENV/bin:{programs}:${{PATH#"$VIRTUAL_ENV/bin:"}}"\nexport PATH\n')


def record(place: str, name: str, kind: str, base: str, megabytes: str, seconds: str, *requirements: str) -> None:
    """Write what `trn environments` shows."""
    described = {
        "name": name,
        "kind": kind,
        "base": base,
        "python": "{}.{}".format(*sys.version_info),
        "requirements": requirements,
        "megabytes": int(megabytes),
        "seconds": int(seconds),
        "made": dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds"),  # noqa: UP017  Python 3.10
    }
    (Path(place) / RECORD).write_text(json.dumps(described) + "\n")


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "name":
        print(name(*arguments))
    elif command == "layer":
        layer(*arguments)
    else:
        record(*arguments)

"""Questions that only a Python can answer about itself: it runs in the one that a virtual environment is made on, or in that environment.

The runner starts it there by its text alone (`prepare.packages.inside`); arguments are JSON, and so is what it prints.
"""

from __future__ import annotations

import json
import platform
import re
import site
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

FRAMEWORK = ("torch", "torch-xla", "torch-neuronx", "jax", "jaxlib", "jax-neuronx", "libneuronxla", "neuronx-cc", "nki")
"""What no package of a kind may replace: the vendor releases these together."""
PROTECTED = (
    *FRAMEWORK, "torch-neuron", "neuronx-cc-stubs", "nki-library", "neuronx-distributed", "neuronx-distributed-training",
    "neuronx-distributed-inference", "transformers-neuronx", "aws-neuronx-runtime-discovery",
)  # fmt: skip
"""What no requirement of a user replaces where it is installed."""


def canonical(name: str) -> str:
    """A package's name as pip compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def describe() -> Any:
    """Describe this Python: all that decides what a virtual environment on top of it is, and the packages that nothing replaces."""
    found = [d for d in distributions() if d.metadata["Name"]]
    there = {canonical(d.metadata["Name"]): d.version for d in reversed(found)}  # of two, the first is imported
    return {
        "identity": [
            sys.prefix,
            platform.machine(),
            "{}.{}".format(*sys.version_info),
            *sorted(f"{name}=={version}".lower() for name, version in there.items()),
        ],
        "python": "{}.{}".format(*sys.version_info),
        "protected": {name: there[name] for name in PROTECTED if name in there},
    }


def lay(place: str, index: str) -> Any:
    """Put the packages of this Python below the packages of the virtual environment at `place`.

    `--system-site-packages` would not do: of a virtual environment, it adds the packages of the Python that this one was made with.

    Args:
        index: of the Neuron packages, in addition to pip's own; the pip.conf of this Python wins.
    """
    there = Path(place)
    # not this Python's own scheme: that of Debian and Ubuntu is local/lib/python3.X/dist-packages
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else "posix_prefix"  # as the module venv does
    packages = Path(sysconfig.get_path("purelib", scheme, vars={"base": place, "platbase": place}))
    found = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    (packages / "trn-base.pth").write_text(
        "".join(f"import site; site.addsitedir({p!r})\n" for p in found if Path(p).is_dir())
    )
    protected = describe()["protected"]
    pins = [f"{name}=={protected[name]}\n" for name in FRAMEWORK if name in protected]
    (there / "constraints.txt").write_text("".join(pins))
    configuration = Path(sys.prefix) / "pip.conf"
    text = configuration.read_text() if configuration.exists() else f"[global]\nextra-index-url = {index}\n"
    (there / "pip.conf").write_text(text)
    pip = there / "bin" / "pip"
    pip.write_text(f"#!{place}/bin/python3\nimport runpy\n\nrunpy.run_module('pip', run_name='__main__')\n")
    pip.chmod(0o755)


def brought(kept: dict[str, str]) -> Any:
    """List the copies of protected packages in this virtual environment: name, version, and the packages that brought them."""
    own = [*distributions(path=[sysconfig.get_path("purelib")])]
    there = {canonical(d.metadata["Name"]): d for d in own}
    found = []
    for name in sorted(kept.keys() & there.keys()):
        wants = (rf"{re.escape(name)}\b").replace(r"\-", "[-_.]")
        by = [d.metadata["Name"] for d in own if any(re.match(wants, r, re.IGNORECASE) for r in d.requires or ())]
        found.append([name, there[name].version, by])
    return found


def main() -> None:
    """The first argument is a function's name, the second its arguments."""
    functions: dict[str, Any] = {"describe": describe, "lay": lay, "brought": brought}
    print(json.dumps(functions[sys.argv[1]](*json.loads(sys.argv[2]))))


if __name__ == "__main__":
    main()

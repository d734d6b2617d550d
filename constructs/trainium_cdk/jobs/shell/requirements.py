"""The packages of a user's requirements file: the parts of `requirements.sh` for which shell is too clumsy. It runs in the Python that the
environment is made on, or has; standard library only."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote

PROTECTED = (
    "torch", "torch-xla", "torch-neuronx", "torch-neuron", "libneuronxla", "neuronx-cc", "neuronx-cc-stubs", "nki", "nki-library",
    "neuronx-distributed", "neuronx-distributed-training", "neuronx-distributed-inference", "jax-neuronx", "transformers-neuronx",
    "aws-neuronx-runtime-discovery",
)  # fmt: skip
"""What no requirement replaces where it is installed: the vendor releases these together."""
SHORTEST = 4
"""Characters of a value that is hidden: a shorter one is no secret, and hiding it would hide parts of words."""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def protected() -> None:
    """Print constraints with which pip keeps what is installed of them."""
    there = {canonical(d.metadata["Name"]): d.version for d in distributions() if d.metadata["Name"]}
    print("".join(f"{name}=={there[name]}\n" for name in PROTECTED if name in there), end="")


def relay(said: str, *variables: str) -> None:
    """Pass lines on, and keep them in a file, without the values of these variables."""
    values = {os.environ.get(name, "") for name in variables}
    hidden = sorted({text for value in values for text in (value, unquote(value)) if len(text) >= SHORTEST}, key=len)
    with Path(said).open("wb") as kept:
        for line in sys.stdin.buffer:
            for text in reversed(hidden):
                line = line.replace(text.encode(), b"****")
            for out in (sys.stdout.buffer, kept):
                out.write(line)
                out.flush()


def explain(constraints: str, said: str, label: str) -> None:
    """Say why pip did not install a file: which package wants another version of what is protected."""
    kept = _kept(constraints)
    for line in Path(said).read_text(errors="replace").splitlines():
        wants = re.match(r"\s+(.+) depends on ([A-Za-z0-9._-]+)(.*)", line) or re.match(
            r"\s+(The user) requested ([A-Za-z0-9._-]+)(.*)", line
        )
        if wants and canonical(wants[2]) in kept:
            name, version = wants[2], kept[canonical(wants[2])]
            package = label if wants[1] == "The user" else wants[1]
            take = "" if wants[1] == "The user" else f"Take a version of {wants[1].split()[0]} that goes with it, or "
            remove = "remove it from the file" if take else f"Write {name} without a version, or remove it"
            print(
                f"trn: {package} wants {name}{wants[3]}, and {name} {version} is never replaced: Neuron needs it. {take}{remove}"
            )
            return
    if not any(line.startswith("trn: requirements: ") for line in Path(said).read_text(errors="replace").splitlines()):
        print(f"trn: {label} could not be installed: see what pip says above")


def finish(place: str, constraints: str, file: str) -> None:
    """Refuse an environment with a copy of what is protected, which a package may bring by its address; else keep what it is made of."""
    kept = _kept(constraints)
    of_its_own = [*distributions(path=[sysconfig.get_path("purelib")])]
    brought = {canonical(d.metadata["Name"]): d for d in of_its_own}
    for name in kept.keys() & brought.keys():
        wants = (rf"{re.escape(name)}\b").replace(r"\-", "[-_.]")
        by = [
            d.metadata["Name"] for d in of_its_own if any(re.match(wants, r, re.IGNORECASE) for r in d.requires or ())
        ]
        print(
            f"trn: requirements: {', '.join(by) or 'a line of the file'} brings {name} {brought[name].version}, and {name} {kept[name]} is never "
            "replaced: Neuron needs it. Remove it from the file",
            file=sys.stderr,
        )
        raise SystemExit(1)
    lines = (line.partition(" --hash")[0] for line in Path(file).read_text().splitlines())
    (Path(place) / "requirements.txt").write_text("".join(f"{line}\n" for line in lines if line))


def _kept(constraints: str) -> dict[str, str]:
    pairs = (line.partition("==") for line in Path(constraints).read_text().splitlines())
    return {name: version for name, _, version in pairs}


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "protected":
        protected()
    elif command == "relay":
        relay(*arguments)
    elif command == "explain":
        explain(*arguments)
    else:
        finish(*arguments)

"""The packages of a user's requirements file. What the vendor releases together is never replaced, and no secret is shown."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from ..errors import Refused
from ..files import write
from .layer import canonical
from .making import Failed, Here
from .packages import Layer, inside, use

SHORTEST = 4
"""Characters of a value that is hidden: a shorter one is not a secret, and hiding it would hide parts of words."""
MOST = 4_000_000
"""Bytes of pip's words that are kept, to explain them."""


def requirements(
    here: Here,
    base: str,
    index: str,
    lines: Sequence[str],
    label: str,
    constraints: Sequence[str] = (),
    files: Sequence[str] = (),
    variables: Sequence[str] = (),
) -> None:
    """Make the virtual environment of a requirements file, or find it.

    Args:
        base: the image; empty: the cluster's packages.
        lines: of the file. Paths begin in the folder of the code.
        files: what decides of the files that it names.
        label: the file, for the user.
        variables: those that pip replaces in it: their values are not shown.
    """
    kept: dict[str, str] = inside(here, here.python, "describe")["protected"]
    limits = [*constraints, *(f"{name}=={version}" for name, version in kept.items())]
    given = {"requirements": lines, "constraints": limits}
    for name, content in given.items():
        write(here.job / f"{name}.txt", "".join(f"{line}\n" for line in content).encode())
    decides = [hashlib.sha256("\0".join([*lines, "", *limits, "", *files]).encode()).hexdigest()]
    told = [line.partition(" --hash")[0] for line in lines]
    words = ["-r", "requirements.txt", "-c", "constraints.txt"]
    said: list[bytes] = []
    hidden = secrets([here.variables.get(name, "") for name in variables])
    try:
        use(
            here,
            Layer("script", base or str(here.base), index, words, told, decides),
            partial(_compare, here, kept, label),
            partial(_relay, said, hidden),
        )
    except Failed:
        why = explain(kept, b"".join(said).decode(errors="replace"), label) if said else ""
        if why:
            raise Refused(why) from None
        if said:
            raise Failed(f"{label} could not be installed: see what pip says above") from None
        raise


def secrets(values: Sequence[str]) -> list[bytes]:
    """Return the texts to hide for variables with these values: each value, and its URL-decoded form."""
    every = {text for value in values for text in (value, unquote(value)) if len(text) >= SHORTEST}
    return [text.encode() for text in sorted(every, key=len, reverse=True)]


def _relay(
    said: list[bytes], hidden: Sequence[bytes], words: Sequence[str], folder: Path, variables: Mapping[str, str]
) -> int:
    """Run pip, in the folder of the code, whose files it must not import. What it says is passed on, and kept, without what is hidden."""
    size, code = 0, folder / "code"
    files = {name: str(folder / name) for name in ("requirements.txt", "constraints.txt")}
    words = [words[0], "-I", *(files.get(word, word) for word in words[1:])]
    with subprocess.Popen(
        words,
        cwd=code if code.is_dir() else folder,
        env=dict(variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as pip:
        for line in pip.stdout or ():
            for text in hidden:
                line = line.replace(text, b"****")
            sys.stdout.write(line.decode(errors="replace"))
            sys.stdout.flush()
            size += len(line)
            if size < MOST:
                said.append(line)
    return pip.returncode


def explain(kept: Mapping[str, str], said: str, label: str) -> str:
    """Describe why pip did not install a file: which package wants another version of what is protected; empty if that is not why."""
    for line in said.splitlines():
        wants = re.match(r"\s+(.+) depends on ([A-Za-z0-9._-]+)(.*)", line) or re.match(
            r"\s+(The user) requested ([A-Za-z0-9._-]+)(.*)", line
        )
        if wants and canonical(wants[2]) in kept:
            name, version, user = wants[2], kept[canonical(wants[2])], wants[1] == "The user"
            what = f"{label if user else wants[1]} wants {name}{wants[3]}, and {name} {version} is never replaced: Neuron needs it"
            if user:
                return f"{what}. Write {name} without a version, or remove it"
            return f"{what}. Take a version of {wants[1].split()[0]} that goes with it, or remove it from the file"
    return ""


def _compare(here: Here, kept: Mapping[str, str], label: str, place: Path, _: Mapping[str, str]) -> None:
    """Refuse a virtual environment with a copy of what is protected, which a package may bring by its address."""
    for name, version, by in inside(here, str(place / "bin" / "python3"), "brought", kept):
        who = ", ".join(by) or f"a line of {label}"
        raise Refused(
            f"{who} brings {name} {version}, and {name} {kept[name]} is never replaced: Neuron needs it. Remove it from the file"
        )

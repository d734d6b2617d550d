"""The parameters that slurm.conf may have, for each Slurm release that can be deployed, and for that of the sandbox.

Slurm stops at a name that it does not know, and at a value of another type: the controller and all commands then end with
"fatal: Unable to process configuration file".

>>> from trainium_cdk.catalog.slurm import check_line, release_of
>>> check_line("25.11", {"MaxJobCont": 20000})
Wrong(name='MaxJobCont', reason='Slurm 25.11 has no such parameter', fix='write MaxJobCount, or remove it')
>>> release_of("25.11.8")
'25.11'
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

from trainium_cdk.catalog.files import read
from trainium_cdk.errors import similar

Line = Literal["SlurmConf", "NodeName", "PartitionName", "NodeSet", "DownNodes"]
"""A line of slurm.conf: one parameter of the whole cluster, or several of nodes or of a partition."""
Kind = Literal["text", "uint16", "uint32", "uint64", "boolean", "float"]
_LARGEST: dict[str, int] = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}
_UNLIMITED = ("unlimited", "infinite")
_BOOLEANS = ("yes", "up", "true", "1", "no", "down", "false", "0")


class Wrong(NamedTuple):
    """Why Slurm would stop at a parameter.

    Attributes:
        name: the parameter.
        reason: what is wrong, in one clause.
        fix: what to write instead.
    """

    name: str
    reason: str
    fix: str


def releases() -> tuple[str, ...]:
    """The Slurm releases whose parameters are known, oldest first, for example 25.11."""
    return tuple(_data()["releases"])


def release_of(version: str | None) -> str:
    """The known release of a version, for example 25.11 of 25.11.8; the newest one for a version that is not known."""
    first = ".".join((version or "").split(".")[:2])
    return first if first in releases() else releases()[-1]


def parameters(release: str, line: Line = "SlurmConf") -> dict[str, Kind]:
    """The parameters of a line and their types, by name as Slurm writes it."""
    return {
        name: entry["type"] for name, entry in _data()["lines"][line].items() if release in entry.get("in", releases())
    }


def check_line(release: str, line: Mapping[str, Any], of: Line | None = None) -> Wrong | None:
    """The first parameter of a line at which Slurm would stop; None if it takes the line.

    Args:
        line: parameters and values, in the order of the line.
        of: what the line is about. Default: what its first parameter names.
    """
    kind = of or _kind(next(iter(line), ""))
    known = parameters(release, kind)
    by_name = {name.lower(): name for name in known}
    for name, value in line.items():
        if name.lower() == kind.lower():
            continue
        if name.lower() not in by_name:
            return Wrong(name, *_unknown(release, name, kind, known))
        if wrong := _wrong_value(known[by_name[name.lower()]], str(value).strip()):
            return Wrong(name, *wrong)
    return None


def _kind(first: str) -> Line:
    """What a line is about, by the name of its first parameter."""
    return next((line for line in get_args(Line) if line.lower() == first.lower()), "SlurmConf")


def _unknown(release: str, name: str, kind: Line, known: Mapping[str, Kind]) -> tuple[str, str]:
    elsewhere = next((e for n, e in _data()["lines"][kind].items() if n.lower() == name.lower()), None)
    if elsewhere:
        return f"Slurm {release} does not have it: it is a parameter of Slurm {', '.join(elsewhere['in'])}", "remove it"
    where = "" if kind == "SlurmConf" else f" in a line of {kind}"
    close = similar(name, list(known))
    return f"Slurm {release} has no such parameter{where}", f"write {close}, or remove it" if close else "remove it"


def _wrong_value(kind: Kind, value: str) -> tuple[str, str] | None:
    if kind == "text":
        return None
    if kind == "boolean":
        return None if value.lower() in _BOOLEANS else ("it is neither yes nor no", "write yes or no")
    if value.lower() in _UNLIMITED:
        return None
    if kind == "float":
        try:
            float(value)
        except ValueError:
            return "it is not a number", "write a number, or INFINITE"
        return None
    number = _number(value[:-1] if kind != "uint16" and value[-1:] in ("k", "K") else value)
    most = _LARGEST[kind]
    if number is None or not 0 <= number <= most:
        return f"it is not a whole number from 0 to {most}", "write a whole number, or INFINITE"
    return None


def _number(text: str) -> int | None:
    """As the C library reads it: also 0x10, and 010 with base 8."""
    base = 16 if text.lower().startswith("0x") else 8 if text.startswith("0") and len(text) > 1 else 10
    try:
        return int(text, base)
    except ValueError:
        return None


@cache
def _data() -> dict[str, Any]:
    return read("slurm")

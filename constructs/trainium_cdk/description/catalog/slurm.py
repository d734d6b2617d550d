"""The parameters that slurm.conf may have and their values, for each Slurm release that can be deployed, and for the sandbox's.

Slurm stops at a name that it does not know, at a value of another type, and at most words that it does not know: the controller and all
commands then end with "fatal: Unable to process configuration file". Other words it ignores.

>>> from trainium_cdk.description.catalog.slurm import check_line, release_of
>>> check_line("25.11", {"MaxJobCont": 20000})
Wrong(name='MaxJobCont', reason='Slurm 25.11 has no such parameter', fix='write MaxJobCount, or remove it', stops=True)
>>> release_of("25.11.8")
'25.11'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, get_args

from trainium_cdk.description.catalog.lookup import read
from trainium_cdk.errors import similar

Line = Literal["SlurmConf", "NodeName", "PartitionName", "NodeSet", "DownNodes"]
"""A line of slurm.conf: one parameter of the whole cluster, or several of nodes or of a partition."""
Kind = Literal["text", "uint16", "uint32", "uint64", "boolean", "float"]
_LARGEST: dict[str, int] = {"uint16": 2**16 - 1, "uint32": 2**32 - 1, "uint64": 2**64 - 1}
_UNLIMITED = ("unlimited", "infinite")
_BOOLEANS = ("yes", "up", "true", "1", "no", "down", "false", "0")
_OUTCOMES = {
    "refused": "the controller of Slurm {} stops",
    "ignored": "Slurm {} ignores it",
    "commands": "sbatch and srun of Slurm {} stop",
    "nodes": "slurmd of Slurm {} stops on the nodes",
    "depends": "else the controller of Slurm {} stops",
}
"""Consequence of a value, by its word in the data."""


class Wrong(NamedTuple):
    """Fault of a parameter: Slurm would stop at it, or not use it.

    Attributes:
        name: the parameter.
        reason: what is wrong, in one clause.
        fix: what to write instead.
        stops: whether Slurm's controller stops at it; else it ignores the value, or something else stops.
    """

    name: str
    reason: str
    fix: str
    stops: bool = True


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
    """The first parameter of a line at which Slurm would stop, or else that it would not use; None if it takes the line.

    Args:
        line: parameters and values, in the order of the line.
        of: kind of the line. Default: by its first parameter.
    """
    kind = of or _kind(next(iter(line), ""))
    known = parameters(release, kind)
    by_name = {name.lower(): name for name in known}
    faults = []
    for name, value in line.items():
        given, proper = str(value).strip(), by_name.get(name.lower(), "")
        if not given or (re.search(r"\s[^=]*$", given) and '"' not in given):
            found: tuple[Any, ...] | None = _unparsed(given)
        elif name.lower() == kind.lower():
            continue
        elif not proper:
            found = _unknown(release, name, kind, known)
        else:
            found = _wrong_value(known[proper], given)
            found = found or _unusable(release, _values()["lines"].get(kind, {}).get(proper, {}), given)
        faults += [Wrong(name, *found)] if found else []
    return next((fault for fault in faults if fault.stops), faults[0] if faults else None)


def check_together(
    release: str, settings: Mapping[str, Any], line: Mapping[str, Any], of: Line | None = None, *, accounting: bool
) -> Iterator[Wrong]:
    """Find values that Slurm does not take in a line: with other values, without accounting, or without a file.

    Args:
        settings: all parameters of the cluster.
        line: the line that is judged.
        of: kind of the line. Default: by its first parameter.
        accounting: whether the cluster has a slurmdbd.
    """
    kind = of or _kind(next(iter(line), ""))
    given = {name.lower(): str(value).strip() for name, value in {**settings, **line}.items()}
    names = {name.lower(): name for name in line}
    for pair in _values()["pairs"]:
        first = names.get(next(iter(pair["when"])).lower())
        met = all(re.fullmatch(p, given.get(n.lower(), ""), re.IGNORECASE) for n, p in pair["when"].items())
        applies = pair.get("line", "SlurmConf") == kind and not (accounting and pair.get("accounting"))
        if first and met and applies and release in pair.get("in", releases()):
            outcome = pair.get("outcome", "refused")
            yield Wrong(first, f"{pair['reason']}: {_result(outcome, release)}", pair["fix"], outcome == "refused")


def unjudged(release: str, line: Mapping[str, Any], of: Line | None = None) -> list[str]:
    """The parameters of a line that are wrong, or whose values nobody here can judge: text that Slurm may or may not take."""
    kind = of or _kind(next(iter(line), ""))
    judged = {n.lower() for n in _values()["lines"].get(kind, {})}
    judged |= {n.lower() for n, k in parameters(release, kind).items() if k != "text"}
    return [
        name for name, value in line.items() if name.lower() not in judged or check_line(release, {name: value}, kind)
    ]


def _kind(first: str) -> Line:
    """Return the kind of a line, by the name of its first parameter."""
    return next((line for line in get_args(Line) if line.lower() == first.lower()), "SlurmConf")


def _unknown(release: str, name: str, kind: Line, known: Mapping[str, Kind]) -> tuple[str, str]:
    elsewhere = next((e for n, e in _data()["lines"][kind].items() if n.lower() == name.lower()), None)
    if elsewhere:
        return f"Slurm {release} does not have it: it is a parameter of Slurm {', '.join(elsewhere['in'])}", "remove it"
    where = "" if kind == "SlurmConf" else f" in a line of {kind}"
    included = "CustomSlurmSettingsIncludeFile in pcluster.overrides, and no slurm_settings"
    close = included if name.lower() == "include" else similar(name, list(known))
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


def _unparsed(value: str) -> tuple[str, str]:
    if not value:
        return "it is empty, and Slurm's parser stops at it", "remove it"
    return "Slurm reads it to the first space, and stops at the rest", "write it without spaces"


def _unusable(release: str, entry: Mapping[str, Any], value: str) -> tuple[str, str, bool] | None:
    """Explain why a parameter cannot have a value, or a part of a list: (reason, fix, whether the controller stops)."""
    outcome, number = entry.get("outcome", "refused"), _number(value)
    result, stops = _result(outcome, release), outcome == "refused"
    if number is not None and not entry.get("least", number) <= number <= entry.get("most", number):
        bound = f"at least {entry['least']}" if "least" in entry else f"at most {entry['most']}"
        return f"it must be {bound}: {result}", f"write {bound}", stops
    words = [word for word in entry.get("words", ()) if release in entry.get("in", {}).get(word, releases())]
    pattern = entry.get("pattern", "" if words else ".*")
    for part in [p.strip() for p in value.split(",") if p.strip()] if "list" in entry else [value]:
        pairs = [(part, word) if "case" in entry else (part.lower(), word.lower()) for word in words]
        if any(word == given or ("anywhere" in entry and word in given) for given, word in pairs):
            continue
        if not re.fullmatch(pattern, part, re.IGNORECASE):
            meant = similar(part, words) or entry.get("form") or ", ".join(words)
            return f"{part} is unknown: {result}", f"write {meant}, or remove it", stops
    for option, _, given in (part.partition("=") for part in value.split(",") if "options" in entry):
        least = entry["options"].get(option, 0)
        if option in entry["gone"]:
            return f"{option} is gone: {_result('refused', release)}", f"remove {option}", True
        if least and (_number(given) or 0) < least and given != "-1":
            return f"{option} must be at least {least}: {result}", f"write {option}={least}, or remove it", False
    return None


def _result(outcome: str, release: str) -> str:
    return _OUTCOMES[outcome].format(release)


def _number(text: str) -> int | None:
    """Read a number like the C library: also 0x10, and 010 with base 8."""
    base = 16 if text.lower().startswith("0x") else 8 if text.startswith("0") and len(text) > 1 else 10
    try:
        return int(text, base)
    except ValueError:
        return None


@cache
def _data() -> dict[str, Any]:
    return read("slurm")


@cache
def _values() -> dict[str, Any]:
    return read("slurm_values")

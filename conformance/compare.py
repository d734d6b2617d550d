"""A job beside the vendor's own launch script: launcher, the program's effective options, and environment, as recorded in
surfaces.yaml. What differs on purpose is listed in differences.yaml, with our value and the reason."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from conformance import surface, surfaces
from conformance.launched import Launched

RECORDED = surfaces.load()
_YAML = YAML(typ="safe")


@dataclass(frozen=True)
class Difference:
    """What we set, as a pattern of fnmatch (None: nothing), and why it is not the vendor's value."""

    ours: str | None
    reason: str


def listed() -> dict[str, dict[str, Difference]]:
    """The deliberate differences, by kind (`all`: of every kind) and by name."""
    entries = _YAML.load(Path(__file__).with_name("differences.yaml"))
    return {
        kind: {
            name: Difference(None if d["ours"] is None else str(d["ours"]), d["reason"]) for name, d in found.items()
        }
        for kind, found in entries.items()
    }


def settings(kind: str, start: Launched) -> dict[str, str]:
    """Everything that a start decides: options of the launcher, the program's options with their defaults, and variables.

    Raises:
        surface.Refused: the recorded parser of the kind's program does not take an argument.
    """
    found = {f"launcher {name}": value for name, value in _pairs(start.launcher)}
    found["program"] = start.program
    found |= {f"option {name}": _shown(value) for name, value in options(kind, start.arguments).items()}
    return found | {f"variable {name}": value for name, value in start.environment.items()}


def vendor(name: str, engine: str) -> Launched:
    """What the recorded launch script of a case starts: Open MPI's on Kubernetes, where the script knows it."""
    places = RECORDED[f"launch of {name}"].recorded["launch"]
    place = places["mpi"] if engine == "kubernetes" and "mpi" in places else next(iter(places.values()))
    words = ("-m", "torch.distributed.run", *_split(shlex.split(place["command"])))
    return Launched("", words, place["environment"])


def differing(ours: Mapping[str, str], theirs: Mapping[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """The names whose values differ: (ours, theirs), None where one does not have it. Numbers are compared as numbers."""
    pairs = {name: (ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})}
    return {name: pair for name, pair in pairs.items() if not _same(*pair)}


def unexplained(found: Mapping[str, tuple[str | None, str | None]], reasons: Mapping[str, Difference]) -> list[str]:
    """The differences that are not listed, or that have another value than the list says."""

    def explained(name: str, ours: str | None) -> bool:
        entry = reasons.get(name)
        if entry is None or ours is None or entry.ours is None:
            return entry is not None and ours is entry.ours
        return fnmatchcase(ours, entry.ours)

    return [
        f"{name}: ours {ours!r}, the vendor's {theirs!r}"
        for name, (ours, theirs) in found.items()
        if not explained(name, ours)
    ]


def options(kind: str, arguments: Iterable[str]) -> dict[str, Any]:
    """The options that the kind's program ends up with, by name."""
    if kind == "gpt-6.7b":
        return _hydra(arguments)
    parsed = parser(kind).parse_args(list(arguments))
    return {name: value for name, value in vars(parsed).items() if value is not None}


def parser(kind: str) -> argparse.ArgumentParser:
    """The recorded parser of a kind's program: `surface.Refused` where it does not take an argument."""
    if kind.startswith("torchtitan"):
        parts = ("trainer", "config", "checkpoint", "metrics", "loader", "text")
        classes = {
            name: fields
            for part in parts
            for name, fields in RECORDED[f"torchtitan-{part}"].recorded["classes"].items()
        }
        loaders = ("ParallelAwareDataloader.Config", "HuggingFaceTextDataLoader.Config")  # derived from the first
        for name in loaders:
            classes["BaseDataLoader.Config"] = {**classes["BaseDataLoader.Config"], **classes[name]}
        module = {name: {"required": True} for name in RECORDED["torchtitan-manager"].recorded["literals"]}
        return surface.parser({**surface.class_options(classes, "Trainer.Config"), **module})
    return surface.parser(RECORDED[kind].recorded["options"])


def _hydra(arguments: Iterable[str]) -> dict[str, Any]:
    """The configuration's values with overrides; a key or a type that it does not have is refused, as Hydra does."""
    values = dict(RECORDED["gpt-6.7b"].recorded["values"])
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name.startswith("--config-"):
            values[name] = value
            continue
        if name not in values:
            raise surface.Refused(f"Could not override '{name}'")
        given, old = _YAML.load(value), values[name]
        if isinstance(old, int | float | list) and isinstance(given, str):
            raise surface.Refused(f"{name} is {given!r}, and the configuration has {old!r}")
        values[name] = given
    return values


def _split(words: Iterable[str]) -> list[str]:
    """`--name=value` as two words, as far as it is the launcher's: up to the program."""
    found: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("--"):
        name, equals, value = rest.pop(0).partition("=")
        found += [name, value if equals else rest.pop(0)]
    return [*found, *rest]


def _pairs(words: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    return zip(words[::2], words[1::2], strict=True)


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _same(one: str | None, other: str | None) -> bool:
    if one == other or one is None or other is None:
        return one == other
    try:
        return float(one) == float(other)
    except ValueError:
        return sorted(one.split()) == sorted(other.split())  # flags, in any order

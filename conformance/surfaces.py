"""The recorded interfaces of the vendors' programs: names of options, fields and functions at the commits that job kinds use.

Only names are recorded, nothing else of the sources. `python -m conformance.surfaces` updates them from the trees that
`upstream` finds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from conformance import surface
from conformance.upstream import find, why_not

FILE = Path(__file__).with_name("surfaces.yaml")

_READERS: Mapping[str, Callable[[str], Any]] = {
    "options": surface.argparse_options,
    "torch_xla": lambda source: surface.attributes(source, "torch_xla"),
    "names": surface.top_level,
    "keys": surface.yaml_keys,
    "lines": surface.requirement_lines,
    "examples": surface.yaml_options,
    "schema": surface.crd_schema,
    "interface": surface.cfn_interface,
    "attachable": surface.attachable_policies,
    "sections": surface.yaml_sections,
}


@dataclass(frozen=True)
class Surface:
    """The recorded names of one file of a repository, by reader (`options`, `names`, ...)."""

    repository: str
    commit: str
    path: str
    recorded: Mapping[str, Any]

    def read(self) -> dict[str, Any] | None:
        """The names in the source itself; None where the tree is not available."""
        tree = find(self.repository, self.commit)
        source = tree.read(self.path) if tree else None
        return None if source is None else {reader: _READERS[reader](source) for reader in self.recorded}


def load() -> dict[str, Surface]:
    """All recorded interfaces, by name."""
    entries = YAML(typ="safe").load(FILE)
    readers = {name: {key: value for key, value in e.items() if key in _READERS} for name, e in entries.items()}
    return {name: Surface(e["repository"], e["commit"], e["path"], readers[name]) for name, e in entries.items()}


def main() -> int:
    """Update the recorded names. Exit code 1 where a source is not available; its names are kept."""
    writer = YAML()
    writer.width = 140
    entries, code = writer.load(FILE), 0
    for name, one in load().items():
        read = one.read()
        if read is None:
            print(f"{name}: {why_not(one.repository, one.commit)}", file=sys.stderr)
            code = 1
            continue
        entries[name].update(read)
    writer.dump(entries, FILE)
    return code


if __name__ == "__main__":
    raise SystemExit(main())

"""The recorded interfaces of the vendors' programs at the commits that job kinds use: options with their types and defaults, names of
functions, and what launch scripts start.

Only facts are recorded, nothing else of the sources. `python -m conformance.surfaces` updates them from the trees that
`upstream` finds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from conformance import launch_scripts, surface
from conformance.upstream import NotAvailable, Tree, find

FILE = Path(__file__).with_name("surfaces.yaml")

_READERS: Mapping[str, Callable[[str], Any]] = {
    "options": surface.argparse_options,
    "literals": surface.literal_options,
    "values": surface.yaml_values,
    "objects": surface.s3_objects,
    "torch_xla": lambda source: surface.attributes(source, "torch_xla"),
    "names": surface.top_level,
    "keys": surface.yaml_keys,
    "lines": surface.requirement_lines,
    "examples": surface.yaml_options,
    "schema": surface.crd_schema,
    "interface": surface.cfn_interface,
    "attachable": surface.attachable_policies,
    "sections": surface.yaml_sections,
    "files": surface.agent_files,
    "metrics": surface.node_metrics,
}


@dataclass(frozen=True)
class Surface:
    """The recorded names of one file of a repository, by reader (`options`, `names`, ...)."""

    repository: str
    commit: str
    path: str
    recorded: Mapping[str, Any]

    def read(self) -> dict[str, Any]:
        """What the source itself has.

        Raises:
            NotAvailable: its tree is not available.
        """
        tree = find(self.repository, self.commit)
        source = tree.read(self.path)
        if source is None:
            raise NotAvailable(f"{self.repository} has no {self.path} at {self.commit[:12]}")
        return {reader: self._read(reader, tree, source) for reader in self.recorded}

    def _read(self, reader: str, tree: Tree, source: str) -> Any:
        if reader == "classes":
            return surface.class_fields(source, self.recorded[reader])
        if reader == "launch":
            return launch_scripts.launches(tree, self.path, self.recorded[reader])
        return _READERS[reader](source)


def load() -> dict[str, Surface]:
    """All recorded interfaces, by name."""
    entries = YAML(typ="safe").load(FILE)
    names = ("repository", "commit", "path")
    return {
        name: Surface(e["repository"], e["commit"], e["path"], {k: v for k, v in e.items() if k not in names})
        for name, e in entries.items()
    }


def main() -> int:
    """Update the recorded names. Exit code 1 where a source is not available; its names are kept."""
    writer = YAML()
    writer.width = 140
    entries, code = writer.load(FILE), 0
    for name, one in load().items():
        try:
            entries[name].update(_short(one.read()))
        except NotAvailable as e:
            print(f"{name}: {e}", file=sys.stderr)
            code = 1
    writer.dump(entries, FILE)
    return code


def _short(value: Any) -> Any:
    """The same with a line for each option: mappings without a mapping or list in them, unless they are long."""
    if not isinstance(value, dict):
        return value
    made = CommentedMap({key: _short(inner) for key, inner in value.items()})
    if value.keys() <= {"type", "default", "choices", "action", "required", "nargs", "const", "dest"}:
        made.fa.set_flow_style()
    return made


if __name__ == "__main__":
    raise SystemExit(main())

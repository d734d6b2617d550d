"""The location of the scripts that run on the nodes: in the source tree, or in an installed package."""

from __future__ import annotations

from pathlib import Path

from trainium_cdk.description.settings import Environment

ENTRY = "entry.sh"
"""The fixed script that a cluster refers to; its content never changes (see bootstrap/README.md)."""

CONFIGURE = "configure-node.sh"
"""The script that entry.sh runs; the node zip file has it, lib/ and a rendered node.env."""


OWN = "own"
"""The folder of a user's scripts in the zip file: one folder for each role, in which their names order them."""


def own_files(env: Environment) -> dict[str, bytes]:
    """A user's scripts (`bootstrap.scripts`), by path in the zip file: numbers of one width, as nodes run them in the order of their names."""
    width = max(2, len(str(len(env.bootstrap.scripts) - 1)))
    return {
        f"{OWN}/{role}/{i:0{width}}-{script.name}": script.script.encode()
        for i, script in enumerate(env.bootstrap.scripts)
        for role in script.nodes
    }


def files(folder: Path, node_settings: str) -> dict[str, bytes]:
    """Return the files that configure-node.sh needs on a node, by path: the folder's scripts, and `node_settings` as node.env. Documentation is
    left out, so that a word there replaces no node."""
    found = {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.suffix in (".sh", ".py") and file.name != ENTRY
    }
    return found | {"node.env": node_settings.encode()}


def scripts_dir() -> Path:
    """Return the folder that holds entry.sh, configure-node.sh and lib/.

    In a wheel it is ``trainium_cdk/description/node/bootstrap``; in an editable install or a source tree ``bootstrap/`` at
    the tree's root.

    Raises:
        FileNotFoundError: neither place has the scripts (a broken installation).
    """
    here = Path(__file__).resolve().parent
    candidates = (here / "bootstrap", here.parents[2] / "bootstrap")
    for folder in candidates:
        if (folder / ENTRY).is_file() and (folder / CONFIGURE).is_file():
            return folder
    places = " nor ".join(str(folder) for folder in candidates)
    raise FileNotFoundError(
        f"The node scripts ({ENTRY}, {CONFIGURE}) are neither in {places}. "
        "Reinstall trainium-cdk, or run from a complete source tree."
    )

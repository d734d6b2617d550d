"""The pictures of docs/pictures: `make pictures` writes them, tests hold them current."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tests.stacks import eks_synthesis, synthesis
from trainium_cdk.drawing.markup import svg
from trainium_cdk.operations.graph import mermaid, picture, read

FOLDER = Path(__file__).parent.parent / "docs/pictures"


@cache
def templates() -> Mapping[str, dict[str, Any]]:
    """The stacks of the default environment."""
    return {
        "TrnPclusterStack": dict(synthesis.template("default").to_json()),
        "TrnEksStack": eks_synthesis.document("default"),
    }


def graphs() -> Iterator[tuple[Path, str]]:
    """Each picture of an architecture: its file, and what it should contain."""
    for name, template in templates().items():
        architecture = read(name, template)
        yield FOLDER / f"{name}.svg", svg(picture(architecture)) + "\n"
        yield FOLDER / f"{name}.mmd", mermaid(architecture)


def main() -> int:
    """Write them; returns the exit code."""
    FOLDER.mkdir(exist_ok=True)
    for file, text in graphs():
        file.write_text(text, "utf-8")
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())

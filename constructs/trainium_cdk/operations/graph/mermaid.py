"""An architecture as text of Mermaid, which GitHub and others draw."""

from __future__ import annotations

import re

from trainium_cdk.operations.graph.model import Architecture, Box


def mermaid(found: Architecture) -> str:
    """A flowchart."""
    names = {box.id: f"n{i}" for i, box in enumerate(found.boxes)}
    lines = ["flowchart LR", f"  subgraph vpc[{_quoted(found.network)}]"] if found.network else ["flowchart LR"]
    for area in ("public", "private", "storage"):
        boxes = [box for box in found.boxes if box.area == area]
        if boxes:
            title = found.subnets.get(area, "network")
            lines.append(
                f"    subgraph {area}[{_quoted(title if area != 'storage' else 'file systems and endpoints')}]"
            )
            lines += [f"      {names[box.id]}[{_label(box)}]" for box in boxes]
            lines.append("    end")
    lines += ["  end"] if found.network else []
    lines += [f"  {names[box.id]}[{_label(box)}]" for box in found.boxes if box.area == "region"]
    lines += [f"  {names[f.source]} -->|{_quoted(f.label)}| {names[f.target]}" for f in found.flows]
    return "\n".join(lines) + "\n"


def _label(box: Box) -> str:
    return _quoted("<br/>".join([f"<b>{_escaped(box.title)}</b>", *map(_escaped, box.lines)]), escape=False)


def _quoted(text: str, *, escape: bool = True) -> str:
    return f'"{_escaped(text) if escape else text}"'


def _escaped(text: str) -> str:
    """Letters that mean something to Mermaid are written as their codes."""
    return re.sub(r"[\"#<>&;`\\[\](){}|]", lambda found: f"#{ord(found[0])};", re.sub(r"\s+", " ", text).strip())

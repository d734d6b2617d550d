"""`python -m tools.reference FOLDER`: writes every page of the site as Markdown, for the site's builder."""

from __future__ import annotations

import argparse
import os
import re
import shutil
from pathlib import Path

from sandbox.paths import HOME as ROOT
from tools.reference import commands, constructs, environment, errors, home, instances

GENERATED = {
    "reference/environment.md": environment.page,
    "reference/commands.md": commands.page,
    "reference/constructs.md": constructs.page,
    "reference/instances.md": instances.page,
    "reference/errors.md": errors.page,
    "reference/messages.md": errors.messages,
}
ROOT_PAGES = {"README.md": "start/readme.md", "CHANGELOG.md": "about/changes.md", "SECURITY.md": "about/reporting.md"}
"""Pages in the folder above docs/, which code hosts look for there -> their names in the site."""
BEHIND = 0.1
"""The rank in the search of a page that lists everything, so it has each word in some heading."""
RANKS = {"about/": BEHIND, "guides/jobs.md": 2.0}
"""Beginning of a page's name -> its rank in the search. Others have 1."""
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")


def linked(text: str, source: Path, name: str) -> str:
    """The text of a page of the site with links as they must be there: to pages and pictures. Other files of the project become
    their paths, addresses of other hosts text: the site refers to none."""

    def replace(found: re.Match[str]) -> str:
        mark, words, target, anchor = found[1], found[2], found[3], found[4] or ""
        if target.startswith("http"):
            return f"{words} ({target.partition('//')[2]})"
        if not target:
            return found[0]
        path = (source.parent / target).resolve().relative_to(ROOT)
        page = ROOT_PAGES.get(str(path), str(path).removeprefix("docs/"))
        if page != str(path):
            return f"{mark}[{words}]({os.path.relpath(page, Path(name).parent)}{anchor})"
        return f"{words} (`{path}`)" if words.strip("`") not in str(path) else f"`{path}`"

    return _LINK.sub(replace, text)


def ranked(text: str, boost: float) -> str:
    """A page with its rank in the search; 1 is a guide's."""
    meta, body = (text[4:].split("---\n", 1)) if text.startswith("---\n") else ("", text)
    return f"---\n{meta}search: {{boost: {boost}}}\n---\n{body}"


def write(folder: Path) -> None:
    """Write the site's sources into a folder, which is emptied first."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", folder, ignore=shutil.ignore_patterns("*.md"))
    pages = {str(file.relative_to(ROOT / "docs")): file for file in (ROOT / "docs").rglob("*.md")}
    pages |= {name: ROOT / source for source, name in ROOT_PAGES.items()}
    for name, source in pages.items():
        text = linked(source.read_text("utf-8"), source, name)
        text = home.page(text, folder / "assets") if name == "index.md" else text
        rank = next((rank for part, rank in RANKS.items() if name.startswith(part)), 1)
        (folder / name).write_text(ranked(text, rank), "utf-8")
    for name, page in GENERATED.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(ranked(page(), BEHIND), "utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tools.reference", description="Write every page of the site as Markdown."
    )
    parser.add_argument("folder", type=Path, help="It is emptied first.")
    write(parser.parse_args().folder.resolve())

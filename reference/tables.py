"""`python -m reference.tables`: writes the tables that tests hold as data into the pages of docs/ that name their files."""

from __future__ import annotations

import re

import yaml

from reference.markdown import table
from sandbox.paths import HOME as ROOT

_MARKED = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- /table -->)", re.DOTALL)


def filled(page: str) -> str:
    """The page with each marked table as its file has it."""

    def replace(found: re.Match[str]) -> str:
        rows = yaml.safe_load((ROOT / found[2]).read_text("utf-8"))
        return found[1] + table([*rows[0]], [[*row.values()] for row in rows]) + found[3]

    return _MARKED.sub(replace, page)


def main() -> None:
    """Write every page of docs/."""
    for page in (ROOT / "docs").rglob("*.md"):
        text = page.read_text("utf-8")
        if (made := filled(text)) != text:
            page.write_text(made, "utf-8")


if __name__ == "__main__":
    main()

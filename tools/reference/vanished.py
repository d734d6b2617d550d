"""`python -m tools.reference.vanished OLD [NEW]`: what README and docs/ say in one revision, and nowhere in another. Exit code 1:
something has no reason in a `vanished*.yaml` of this folder, a list of `{what: TEXT, why: REASON}`; `*` in TEXT is any text."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from sandbox.paths import HOME as ROOT
from tests.support import completed
from tools.reference.__main__ import GENERATED

_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
_UNITS = r"%|percent|[kMGT]i?B|bytes|USD|ms|s|min|h|(?:second|minute|hour|day|week|month|year|node|member|word|time|step|job|file|port)s?"
_ITEMS = {
    "command": r"\b((?:trn|cdk|make|pcluster|kubectl|python -m)(?: [a-z][a-z-]+(?=[\s`]))+)",
    "option": r"(?<![\w-])(--[a-z][\w-]+)",
    "name": r"\b([A-Za-z]+(?:_[A-Za-z]+)+)\b",
    "code": r"`([^`\n]+)`",
    "text": r"(?<![^\s(])\"([^\"\n]{4,})\"",
    "number": rf"(?<![\w.])(\d+(?:[.,]\d+)*(?: |-)?(?:{_UNITS}))(?!\w)",
}


def pages(revision: str) -> dict[str, str]:
    """The text of each page of a revision; the working tree's if it is empty."""
    if not revision:
        files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        return {str(file.relative_to(ROOT)): file.read_text("utf-8") for file in files}
    listed = ["git", "ls-tree", "-r", "--name-only", revision, "README.md", "docs"]
    names = [name for name in completed(listed, cwd=ROOT, check=True).stdout.splitlines() if name.endswith(".md")]
    return {n: completed(["git", "show", f"{revision}:{n}"], cwd=ROOT, check=True).stdout for n in names}


def plain(text: str) -> str:
    """A text without the marks of code blocks, and with digits for `two` to `twelve`."""
    digits = {word: str(number) for number, word in enumerate(_WORDS.split()) if number > 1}
    return re.sub(r"\b[a-z]+\b", lambda word: digits.get(word[0], word[0]), re.sub(r"```\w*", "", text))


def items(text: str) -> Iterator[tuple[str, str]]:
    """Kind and text of each command, option, name, piece of code, text in quotes and number with a unit."""
    for kind, pattern in _ITEMS.items():
        yield from ((kind, " ".join(found.split())) for found in re.findall(pattern, plain(text)))


def stands(item: str, text: str) -> bool:
    """Return whether a text has these words."""
    return re.search(rf"(?<!\w){re.escape(item)}(?![\w-])", text) is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old")
    parser.add_argument("new", nargs="?", default="", help="default: the working tree")
    given = parser.parse_args()
    now = " ".join(plain("\n".join(pages(given.new).values())).split())
    made = " ".join(plain("\n".join(page() for page in GENERATED.values())).split())
    tables = sorted(Path(__file__).parent.glob("vanished*.yaml"))
    reasons = [row for file in tables for row in yaml.safe_load(file.read_text("utf-8")) or ()]
    said = {(*item, name) for name, text in pages(given.old).items() for item in items(text)}
    rows = [row for row in sorted(said) if not stands(row[1], now)]
    missing = 0
    for kind, item, name in rows:
        fits = (row["why"] for row in reasons if re.fullmatch(re.escape(row["what"]).replace(r"\*", ".*"), item))
        why = next(fits, "in the generated reference" if stands(item, made) else "NO REASON")
        missing += why == "NO REASON"
        print(kind, item, name, why, sep="\t")
    print(f"{missing} of {len(rows)} without a reason", file=sys.stderr)
    return min(missing, 1)


if __name__ == "__main__":
    sys.exit(main())

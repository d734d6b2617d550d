"""The commands that docs/on-aws.md prints, in the order in which it does."""

from __future__ import annotations

import re
import textwrap

from sandbox.paths import HOME as ROOT

PAGE = ROOT / "docs/on-aws.md"
_PROGRAMS = ("cdk ", "trn ", "export ", "python -m sandbox ")


def example() -> str:
    """Its environment file."""
    return next(textwrap.dedent(body) for language, body in _blocks(PAGE.read_text()) if language == "yaml")


def commands() -> list[str]:
    """Every command, whether in a block or in a sentence, without its comment."""
    text = PAGE.read_text()
    found: list[tuple[int, str]] = []
    for block in re.finditer(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        if block[1] == "bash":
            for line in block[2].splitlines():
                found += [(block.start(), one.strip()) for one in line.partition("  #")[0].split(";") if one.strip()]
    prose = re.sub(r"^ *```.*?^ *```$", lambda b: " " * len(b[0]), text, flags=re.MULTILINE | re.DOTALL)
    found += [
        (span.start(), " ".join(span[1].split()))
        for span in re.finditer(r"`([^`]+)`", prose)
        if span[1].startswith(_PROGRAMS)
    ]
    return [command for _, command in sorted(found, key=lambda one: one[0])]


def _blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)

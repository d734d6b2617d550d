"""The commands that the README prints, in the order in which it does."""

from __future__ import annotations

import re

from sandbox.paths import HOME as ROOT

_PROGRAMS = ("cdk ", "trn ", "export ", "python -m sandbox ")


def section(title: str) -> str:
    """The text below a heading of the second level."""
    found = re.search(
        rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    if found is None:
        raise KeyError(title)
    return found[1]


def example() -> str:
    """The environment file of the section on AWS."""
    return next(_unindented(body) for language, body in _blocks(section("On AWS, step by step")) if language == "yaml")


def commands() -> list[str]:
    """Every command of the section on AWS, whether in a block or in a sentence, without its comment."""
    text = section("On AWS, step by step")
    found: list[tuple[int, str]] = []
    for block in re.finditer(r"^ *```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        if block[1] == "":
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


def _unindented(text: str) -> str:
    import textwrap

    return textwrap.dedent(text)

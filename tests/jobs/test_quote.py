"""Arguments of users arrive unchanged, whatever they contain."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainium_cdk.client.jobs import quote
from trainium_cdk.jobs import JobError

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)
NASTY = [
    "",
    " ",
    "$(touch /tmp/x)",
    "`id`",
    "'",
    '"',
    "a'b\"c",
    "\n",
    "-n",
    "--",
    "*",
    "~",
    "\\",
    "é\u2028",
    "!x",
    "#",
    "%j",
    "a\rb",
    "\x1b[0m",
]


def bash(script: str) -> bytes:
    return subprocess.run(["bash", "-s"], input=script.encode(), capture_output=True, check=True).stdout


@settings(max_examples=40)
@given(st.lists(TEXT | st.sampled_from(NASTY), max_size=8))
def test_arguments_reach_a_program_unchanged(arguments: list[str]) -> None:
    output = bash(f'set -- {quote.words(arguments)}\nprintf \'%s\\0\' "$#" "$@"').split(b"\0")[:-1]
    assert output == [str(len(arguments)).encode(), *(w.encode() for w in arguments)]


@pytest.mark.parametrize("argument", ["\0", "a\0b", "\udcff"])
def test_text_that_cannot_be_quoted_is_refused(argument: str) -> None:
    with pytest.raises(JobError, match=r"NUL byte|not UTF-8"):
        quote.word(argument)


def test_nothing_else_quotes() -> None:
    """No other module quotes."""
    package = Path(quote.__file__).parents[1]
    others = [
        f
        for f in [*package.glob("jobs/**/*.py"), *package.glob("cli/**/*.py")]
        if "shlex" in f.read_text() and f.name != "quote.py"
    ]
    assert others == []

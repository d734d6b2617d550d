"""Removes control characters from untrusted text (logs, job files, responses of AWS) before it is shown on a terminal.
 A terminal obeys control characters: text can set the clipboard (OSC 52) and the title, move the cursor over other lines, and change the
order of letters.
"""

from __future__ import annotations

import codecs
import os
import re
import unicodedata
from typing import TextIO

_FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Unicode categories: control and format characters, surrogates, line and paragraph separators."""
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_COLOUR = re.compile(r"\x1b\[[0-?]{0,64}[ -/]{0,16}[@-~]")
"""A control sequence (CSI), which sets colours or moves the cursor: removed. All others stay visible, without their ESC."""
_BEGUN = re.compile(r"(?:\x1b(?:\[[0-?]{0,64}[ -/]{0,16})?|\r)\Z")
_SUSPECT = re.compile(r"[^\n\t -~]+")


def clean(text: str) -> str:
    """Text of one or more lines. Control sequences are removed; line ends of other systems become plain ones; any other control or
    format character becomes U+FFFD.

    >>> clean("\\x1b[2Jloss\\r\\n\\x1b]52;c;Zm9v\\a")
    'loss\\n�]52;c;Zm9v�'
    """
    text = _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _SUSPECT.sub(lambda found: "".join(map(_shown, found[0])), text)


def line(text: str) -> str:
    """Text for one line, or one column of a table.

    >>> line("a\\nb\\tc")
    'a b c'
    """
    return clean(text).replace("\n", " ").replace("\t", " ")


def draws(stream: TextIO) -> bool:
    """Whether it is a terminal that can move its cursor: one of an editor (`TERM=dumb`) shows lines alone."""
    return stream.isatty() and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")


class Cleaner:
    """`clean` for bytes that arrive in pieces, cut anywhere.

    Args:
        encoding: of the terminal. The bytes are read as UTF-8.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> bytes:
        """The text of the bytes so far, without an incomplete control sequence, character or line end."""
        text = self._held + self._decoder.decode(data)
        begun = _BEGUN.search(text)
        self._held = begun[0] if begun else ""
        return clean(text.removesuffix(self._held)).encode(self._encoding, "replace")


def _shown(character: str) -> str:
    return _REPLACEMENT if unicodedata.category(character) in _FORBIDDEN else character

"""Output of commands: messages to standard error, results to standard output or a file.

Control characters of untrusted text (logs, job files, responses of AWS) are removed before it is shown on a terminal, which obeys them: text can
set the clipboard (OSC 52) and the title, move the cursor over other lines, and change the order of letters.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import re
import select
import signal
import sys
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from trainium_cdk._aws import SANDBOX, sandboxed
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from trainium_cdk.client.jobs.status import JobStatus

Row = Sequence[str]
"""Cells of a row of a table."""
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
    """Return the text for one line, or one column of a table.

    >>> line("a\\nb\\tc")
    'a b c'
    """
    return clean(text).replace("\n", " ").replace("\t", " ")


def draws(stream: TextIO) -> bool:
    """Return whether the stream is a terminal that can move its cursor. A terminal in an editor (`TERM=dumb`) only shows lines."""
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


def log(text: str) -> None:
    """Print a message on standard error."""
    print(clean(text), file=sys.stderr, flush=True)


def echo(text: str, end: str = "\n") -> None:
    """Print a result on standard output. On a terminal, control characters are removed."""
    print(clean(text) if sys.stdout.isatty() else text, end=end, flush=True)


def write_file(file: Path, text: str, mode: int) -> None:
    """Write a file completely or not at all: the old content stays until the new one is on the disk.

    Raises:
        TrnError: it cannot be written.
    """
    import tempfile

    place = file.resolve()  # the target of a link, so that the link is kept
    new = None
    try:
        if place.exists() and not place.is_file():
            place.write_text(text, "utf-8")  # /dev/stdout, a pipe
            return
        descriptor, new = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")  # readable only by this user
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        Path(new).replace(place)
        new = None
    except OSError as e:
        raise TrnError(f"cannot write {file}: {e.strerror}. Give another file") from None
    finally:
        if new:
            Path(new).unlink(missing_ok=True)


def output_filter(*, raw: bool = False) -> Callable[[bytes], bytes]:
    """A filter for bytes on standard output: it removes control characters on a terminal, unless `raw`."""
    if raw or not sys.stdout.isatty():
        return bytes
    return Cleaner(sys.stdout.encoding).feed


@contextlib.contextmanager
def status_when_interrupted(status: Callable[[], str]) -> Iterator[None]:
    """Print the line that `status` returns if Ctrl-C or SIGTERM ends the command."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        log(f"\n{status()}")  # below the ^C of a terminal
        raise


def still_runs(jobs: str) -> str:
    """The end of a line that is printed when following is interrupted: the jobs continue to run."""
    pressed = isinstance(sys.exception(), KeyboardInterrupt)
    return f"{'Ctrl-C does not end a job: ' if pressed else ''}{jobs} continues to run"


def write_bytes(data: bytes, handed_out: Callable[[int], None], show: Callable[[bytes], bytes] = bytes) -> None:
    """Write to standard output, and report the size of each piece: Ctrl-C takes effect before a piece or after its report.

    Args:
        show: see `output_filter`.
    """
    out, left = sys.stdout.fileno(), memoryview(data)
    while left:
        select.select([], [out], [])  # waits here for a slow reader, so that the write itself does not block
        with _signals_wait():
            if show is bytes:
                size = os.write(out, left[: select.PIPE_BUF])
            else:
                size = min(len(left), select.PIPE_BUF // 4)  # a byte may become three
                text = show(bytes(left[:size]))
                while text:
                    text = text[os.write(out, text) :]
            handed_out(size)
        left = left[size:]


@contextlib.contextmanager
def _signals_wait() -> Iterator[None]:
    """Block signals until the end of the block, which must be short."""
    came: list[int] = []
    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for caught in came:
        signal.raise_signal(caught)


def log_if_sandbox() -> None:
    """Log above a table that it was made in the sandbox, if it was."""
    if sandboxed():
        log(SANDBOX)


def with_sandbox(data: Any) -> Any:
    """An object, or each of a list, with the field `sandbox`: whether it was made there."""
    here = sandboxed()
    return [{**one, "sandbox": here} for one in data] if isinstance(data, list) else {**data, "sandbox": here}


def echo_json(data: Any) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(data, indent=2), flush=True)


def table(title: str, columns: list[str], rows: list[list[str]], drop: Row = ()) -> None:
    """Print a table on standard output; if that is not a terminal, plain columns with one line per row. With `drop`, as `lines`."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            print("\t".join(line(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    if drop:
        for text in lines(console, columns, rows, drop):
            console.print(text, soft_wrap=True)
        return
    cells = [[line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    if sum(widths[:-1]) + min(widths[-1], _LAST_COLUMN) + 3 * len(widths) + 1 > console.width:
        for row in cells:  # too narrow for a table: whole words, which can be copied
            console.print(state_text(row[0]), soft_wrap=True)
            for column, cell in zip(columns[1:], row[1:], strict=True):
                if cell:
                    console.print(Text(f"  {column}: ").append(state_text(cell)), soft_wrap=True)
        return
    made = Table(title=Text(line(title)) if title else None, title_justify="left")
    for number, column in enumerate(columns, 1):
        made.add_column(Text(line(column)), no_wrap=number < len(columns), overflow="fold")
    for row in cells:
        made.add_row(*map(state_text, row))
    console.print(made)


def lines(console: Console, columns: Row, rows: Sequence[Row], drop: Row, most: int = 1_000_000) -> list[Text]:
    """A table as lines, one for each row. The first column has ids, which are never cut; of the last one the first sentence is shown, cut at the
    console's width. Where that is too narrow, the columns `drop` are left out, in this order. `most`: lines, with the columns' names."""
    from rich.cells import cell_len, set_cell_size
    from rich.text import Text

    shown = rows if len(rows) < most else rows[: max(0, most - 2)]
    cells = [[*map(line, row[:-1]), line(row[-1]).partition(". ")[0]] for row in (columns, *shown)]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    kept, last, ends = list(range(len(columns))), len(columns) - 1, widths[-1]
    widths[-1] = min(ends, _SENTENCE)
    for name in drop:
        if sum(widths[i] + _GAP for i in kept) - _GAP > console.width:
            kept = [i for i in kept if columns[i] != name]
    widths[-1] = min(ends, max(0, console.width - sum(widths[i] + _GAP for i in kept if i != last)))
    more = "\N{HORIZONTAL ELLIPSIS}" if console.encoding.startswith("utf") else "..."
    texts: list[Text] = []
    for row in cells:
        text = Text(no_wrap=True, overflow="crop", style="" if texts else "bold")
        for i in kept:
            wide = cell_len(row[i]) > widths[i]
            cell = set_cell_size(row[i], widths[i] - len(more)) + more if wide else row[i]
            text.append_text(state_text(cell)).append(" " * (widths[i] + _GAP - cell_len(cell)))
        text.rstrip()
        texts.append(text)
    return texts if shown is rows else [*texts, Text(f"and {len(rows) - len(shown)} more", "dim")]


_GAP, _SENTENCE = 2, 25
"""Columns between two cells, and the least of a sentence that is cut."""
_LAST_COLUMN = 20
"""The least width to which the last column of a table, which has sentences, is folded."""
_COLOURS = {"COMPLETED": "green", "RUNNING": "cyan", "PENDING": "yellow", "FAILED": "red", "LOST": "red", "TIMEOUT": "red",
    "NODE_FAIL": "red", "OUT_OF_MEMORY": "red", "CANCELLED": "magenta"}  # fmt: skip


def state_text(cell: str) -> Any:
    """A cell, in the colour of the state that it ends with."""
    from rich.text import Text

    return Text(cell, style=_COLOURS.get(cell.rpartition(" ")[2], ""))


def one_line(status: JobStatus) -> str:
    """A job's status in one line."""
    parts = [f"{s.name} {s.state}" + (f" ({s.reason})" if s.reason else "") for s in status.stages]
    return line(f"{status.id}: {', '.join(parts)}")

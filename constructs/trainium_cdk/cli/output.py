"""What commands print and write: messages to standard error, results to standard output or a file."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainium_cdk._aws import SANDBOX, sandboxed
from trainium_cdk.cli import terminal
from trainium_cdk.errors import TrnError

if TYPE_CHECKING:
    from trainium_cdk.jobs import JobStatus


def log(text: str) -> None:
    """Print a message on standard error."""
    print(terminal.clean(text), file=sys.stderr, flush=True)


def echo(text: str, end: str = "\n") -> None:
    """Print a result on standard output. On a terminal, control characters are removed."""
    print(terminal.clean(text) if sys.stdout.isatty() else text, end=end, flush=True)


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
    return terminal.Cleaner(sys.stdout.encoding).feed


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
    """One JSON document on standard output."""
    print(json.dumps(data, indent=2), flush=True)


def table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Print a table on standard output; if that is not a terminal, plain columns with one line per row."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            print("\t".join(terminal.line(cell) for cell in row))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    clean = [[terminal.line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *clean, strict=True)]
    console = Console(highlight=False)
    if sum(widths[:-1]) + min(widths[-1], _LAST_COLUMN) + 3 * len(widths) + 1 > console.width:
        for row in clean:  # too narrow for a table: whole words, which can be copied
            console.print(state_text(row[0]), soft_wrap=True)
            for column, cell in zip(columns[1:], row[1:], strict=True):
                if cell:
                    console.print(Text(f"  {column}: ").append(state_text(cell)), soft_wrap=True)
        return
    made = Table(title=title or None, title_justify="left")
    for number, column in enumerate(columns, 1):
        made.add_column(column, no_wrap=number < len(columns), overflow="fold")
    for row in clean:
        made.add_row(*map(state_text, row))
    console.print(made)


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
    return terminal.line(f"{status.id}: {', '.join(parts)}")

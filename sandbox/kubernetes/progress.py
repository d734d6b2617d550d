"""Progress of a long step: a bar on a terminal, otherwise a line every few percent."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

_EVERY = 0.05


@contextlib.contextmanager
def shown(
    step: str, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[float, str], None]]:
    """Yield a function to call with the completed fraction, 0 to 1, and the current item.

    Args:
        step: for example "compiling".
        clock: seconds.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    began = clock()
    if console.is_terminal:
        with Progress(
            TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), TimeElapsedColumn(),
            TextColumn("{task.fields[left]}  [dim]{task.fields[now]}[/]"), console=console, transient=True,
        ) as bar:  # fmt: skip
            task = bar.add_task(step, total=1.0, left="", now="")

            def draw(done: float, now: str) -> None:
                bar.update(task, completed=done, left=remaining(done, clock() - began), now=now[-40:])

            yield draw
        return
    reached = 0

    def write(done: float, _: str) -> None:
        nonlocal reached
        if (step_now := int(done / _EVERY + 1e-9)) > reached:
            reached = step_now
            left = remaining(done, clock() - began)
            console.print(
                f"  {step}: {done:4.0%} after {clock() - began:.0f} s{', ' + left if left else ''}", markup=False
            )

    yield write


def remaining(done: float, elapsed: float) -> str:
    """An estimate of the remaining time, as text; empty at the start.

    Args:
        done: completed fraction, 0 to 1.
        elapsed: seconds.

    >>> remaining(0.25, 60)
    'about 3 min left'
    """
    if done < 0.03 or elapsed < 1:
        return ""
    seconds = elapsed / done - elapsed
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {max(seconds, 1):.0f} s left"

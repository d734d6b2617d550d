"""Why a program failed, in one line for its record. What `trn` shows of it is read from the whole log (`readers`)."""

from __future__ import annotations

import re
import signal

_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:(?:\[\w+\]: ?)?[ \t].*\n)*(?:\[\w+\]: ?)?(\S.*)")
_LAUNCHER = "ChildFailedError"


def last_words(text: str, code: int) -> str:
    """The line of the last exception of a program's output, but not of its launcher's; else its last line; else how it ended.

    >>> last_words("Traceback (most recent call last):\\n  File x\\nValueError: no tokens\\n", 1)
    'ValueError: no tokens'
    >>> last_words("", -9)
    'killed by SIGKILL'
    """
    traces = [one for one in _TRACE.findall(text) if _LAUNCHER not in one]
    lines = traces or [line for line in text.splitlines() if line.strip()]
    if lines:
        return str(lines[-1].strip())
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"

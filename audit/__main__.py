"""`python -m audit`: every judge over everything, and one table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from audit import acknowledged, judges, subjects, table
from audit.findings import Finding, JudgeFailed, Subjects

_AT_ONCE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """0: nothing open. 1: open findings, or entries of acknowledged.yaml that nothing needs. 2: a judge failed."""
    options = _options(arguments)
    whole = not (options.judge or options.environment or options.template)
    known = [] if options.template else acknowledged.load()
    impossible: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            if options.template:
                what = subjects.given(folder, options.template)
            else:
                what, impossible = subjects.make(folder, options.environment)
            names = options.judge or list(judges.OF_TEMPLATES if options.template else judges.ALL)
            began = time.monotonic()
            found = judged(names, what)
        except (JudgeFailed, ValueError) as e:
            print(f"audit: {e}", file=sys.stderr)
            return 2
        result = acknowledged.sort(found, known)
        stale = result.stale if whole else []
        table.show(names, what, result, stale, impossible, seconds=time.monotonic() - began)
        if options.json:
            options.json.write_text(json.dumps([vars(f) for f in result.open], indent=1), "utf-8")
        if options.figures:
            options.figures.write_text(json.dumps(table.figures(names, what, result), indent=1), "utf-8")
    return 1 if result.open or stale else 0


def judged(names: Sequence[str], what: Subjects) -> list[Finding]:
    """All findings of the judges named.

    Raises:
        JudgeFailed: one of them did not finish.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [finding for part in pool.map(lambda name: judges.ALL[name](what), names) for finding in part]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m audit", description=main.__doc__)
    add = parser.add_argument
    add("--judge", action="append", choices=list(judges.ALL), help="only this judge (may be given again)")
    add("--environment", action="append", choices=list(subjects.ENVIRONMENTS), default=[], help="only this environment")
    add("--template", action="append", type=Path, help="a template of your own; nothing is acknowledged")
    add("--json", type=Path, help="write the open findings to this file")
    add("--figures", type=Path, help="write how much was judged and found to this file, as JSON")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

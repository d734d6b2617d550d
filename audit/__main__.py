"""`python -m audit`: every scanner over everything, in one table."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from audit import acknowledged, scanners, subjects, table
from audit.findings import Finding, ScannerFailed, Subjects

_AT_ONCE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0: nothing open. 1: open findings, or unused entries in acknowledged.yaml. 2: a scanner failed."""
    options = _options(arguments)
    whole = not (options.scanner or options.environment or options.template)
    known = [] if options.template else acknowledged.load()
    impossible: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        try:
            if options.template:
                what = subjects.given(folder, options.template)
            else:
                what, impossible = subjects.make(folder, options.environment)
            names = options.scanner or list(scanners.OF_TEMPLATES if options.template else scanners.ALL)
            began = time.monotonic()
            found = scan(names, what)
        except (ScannerFailed, ValueError) as e:
            print(f"audit: {e}", file=sys.stderr)
            return 2
        result = acknowledged.sort(found, known)
        stale = result.stale if whole else []
        table.show(names, what, result, stale, impossible, seconds=time.monotonic() - began)
        if options.json:
            options.json.write_text(json.dumps([vars(f) for f in result.open], indent=1), "utf-8")
    return 1 if result.open or stale else 0


def scan(names: Sequence[str], what: Subjects) -> list[Finding]:
    """All findings of the named scanners.

    Raises:
        ScannerFailed: a scanner did not finish.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [finding for part in pool.map(lambda name: scanners.ALL[name](what), names) for finding in part]


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m audit", description=main.__doc__)
    add = parser.add_argument
    add("--scanner", action="append", choices=list(scanners.ALL), help="only this scanner (can be repeated)")
    add("--environment", action="append", choices=list(subjects.ENVIRONMENTS), default=[], help="only this environment")
    add("--template", action="append", type=Path, help="your own template; acknowledgements do not apply")
    add("--json", type=Path, help="write the open findings to this file")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())

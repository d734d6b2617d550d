"""The table of an audit: open and acknowledged findings, by subject and scanner."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from audit.acknowledged import Sorted
from audit.findings import REPOSITORY, Finding, Subjects

_SHORT = {
    "cloudformation-validate": "CDK validator",
    "NIST.800.53.R5": "NIST 800-53 R5",
    "checkov-kubernetes": "checkov k8s",
}

_WIDTH = 210


def show(
    names: Sequence[str],
    what: Subjects,
    result: Sorted,
    stale: Sequence[str],
    impossible: Mapping[str, str],
    *,
    seconds: float,
) -> None:
    """Print the table, then every open finding."""
    console = Console(highlight=False, soft_wrap=True)
    console.width = max(console.width, _WIDTH)
    console.print(_table(names, what, result))
    console.print("Open findings (acknowledged ones with their reasons in audit/acknowledged.yaml).")
    for subject, reason in impossible.items():
        console.print(f"not scanned: {subject}: {reason}")
    for line in _grouped(result.open):
        console.print(f"[red]open[/red] {escape(line)}")
    for pattern in stale:
        console.print(f"[red]stale[/red] acknowledged.yaml: nothing matches {escape(pattern)}")
    numbers = figures(names, what, result)
    console.print(
        f"{len(result.open)} open; {len(result.acknowledged)} acknowledged: {numbers['rules']} rules, {numbers['reasons']} reasons; "
        f"{numbers['templates']} templates, {numbers['scripts']} scripts of jobs, {numbers['objects']} files of Kubernetes "
        f"objects; {seconds:.0f} s"
    )


def figures(names: Sequence[str], what: Subjects, result: Sorted) -> dict[str, Any]:
    """The numbers of an audit."""
    opened, known = Counter(f.scanner for f in result.open), Counter(f.scanner for f, _ in result.acknowledged)
    raw = Counter((f.subject, f.scanner) for f in (*result.open, *(f for f, _ in result.acknowledged)))
    sizes = _sizes(what)
    return {
        "templates": len(what.templates),
        "resources": sum(sizes.values()),
        "scripts": len(what.scripts),
        "objects": len(what.objects),
        "rules": len({(f.scanner, f.rule.partition("[")[0]) for f, _ in result.acknowledged}),
        "reasons": len({id(entry) for _, entry in result.acknowledged}),
        "raw": {s: {"resources": n, **{name: raw[s, name] for name in names}} for s, n in sizes.items()},
        "scanners": {name: {"open": opened[name], "acknowledged": known[name]} for name in names},
    }


def _sizes(what: Subjects) -> dict[str, int]:
    """Subject -> resources of its template."""
    return {s: len(json.loads(path.read_text("utf-8"))["Resources"]) for s, path in what.templates.items()}


def _table(names: Sequence[str], what: Subjects, result: Sorted) -> Table:
    table = Table(title="Audit")
    table.add_column("scanned", no_wrap=True)
    table.add_column("resources", justify="right", no_wrap=True)
    for name in names:
        table.add_column(_SHORT.get(name, name), justify="right", no_wrap=True)
    opened = Counter((f.subject, f.scanner) for f in result.open)
    known = Counter((f.subject, f.scanner) for f, _ in result.acknowledged)
    sizes = _sizes(what)
    for subject in [*what.templates, REPOSITORY]:
        cells = [_cell(opened[subject, name], known[subject, name]) for name in names]
        if subject in sizes or any(c != "0" for c in cells):
            table.add_row(subject, str(sizes.get(subject, "")), *cells)
    table.add_section()
    totals = [
        _cell(sum(n for (_, j), n in opened.items() if j == name), sum(n for (_, j), n in known.items() if j == name))
        for name in names
    ]
    table.add_row("all", str(sum(sizes.values())), *totals)
    return table


def _grouped(findings: Sequence[Finding]) -> list[str]:
    """One line for each finding, with the number of subjects that have it."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for f in findings:
        groups.setdefault((f.scanner, f.rule, f.resource, f.message), []).append(f.subject)
    return [
        f"{scanner} {rule} {resource}: {message} [{in_[0] + (f' and {len(in_) - 1} more' if in_[1:] else '')}]"
        for (scanner, rule, resource, message), in_ in groups.items()
    ]


def _cell(opened: int, known: int) -> str:
    first = f"[red]{opened}[/red]" if opened else "0"
    return f"{first} [dim]({known})[/dim]" if known else first

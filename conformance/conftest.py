"""The table at the end of `make conformance`: each artefact, the original it was compared with, and the verdict."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from conformance.upstream import NotAvailable


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "original(artefact, original): the row of the table")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (mark := item.get_closest_marker("original")) is not None:
        report.user_properties.append(("original", mark.args))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = {}
    for outcome in ("passed", "skipped", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            named = dict(getattr(report, "user_properties", ())).get("original")
            if named and (report.when == "call" or outcome != "passed"):
                rows[report.nodeid] = (*named, _verdict(report))
    if not rows:
        return
    table = [("artefact", "original", "verdict"), *sorted(rows.values())]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    terminalreporter.section("conformance")
    for artefact, original, verdict in table:
        terminalreporter.write_line(f"{artefact:{widths[0]}}  {original:{widths[1]}}  {verdict}")


def _verdict(report: pytest.TestReport) -> str:
    if report.passed:
        return "accepted"
    if report.skipped and isinstance(report.longrepr, tuple):
        return f"not checked: {report.longrepr[2].removeprefix('Skipped: ').removeprefix('not checked: ')}"
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = crash.message.splitlines()[0] if crash else report.longreprtext[-200:]
    missing, _, why = reason.partition(f"{NotAvailable.__name__}: ")
    return f"not checked: {why}" if why and missing.endswith("upstream.") else f"refused: {reason}"

"""The table at the end of `make conformance`: each artefact, the original it was compared with, and the verdict."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from conformance import record
from conformance.upstream import NotAvailable

_TESTS = {file.name for file in Path(__file__).parent.glob("test_*.py")}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="write the result into recorded.yaml, with the commit")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "original(artefact, original): the row of the table")
    config.addinivalue_line("markers", "shown(text): what of the artefact this test shows")
    if config.getoption("--record") and (files := record.uncommitted()):
        raise pytest.UsageError(
            f"a run is recorded with its commit, and these files are not committed: {', '.join(files)}"
        )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if (mark := item.get_closest_marker("original")) is not None:
        artefact, original = mark.args
        shown = item.get_closest_marker("shown")
        report.user_properties.append(("original", (f"{artefact}: {shown.args[0]}" if shown else artefact, original)))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    rows, modules = {}, set()
    for outcome in ("passed", "skipped", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            named = dict(getattr(report, "user_properties", ())).get("original")
            if named and (report.when == "call" or outcome != "passed"):
                rows[report.nodeid] = (*named, _verdict(report))
                modules.add(Path(report.nodeid.partition("::")[0]).name)
    if not rows:
        return
    table = [("artefact", "original", "verdict"), *sorted(rows.values())]
    widths = [max(len(row[column]) for row in table) for column in (0, 1)]
    terminalreporter.section("conformance")
    for artefact, original, verdict in table:
        terminalreporter.write_line(f"{artefact:{widths[0]}}  {original:{widths[1]}}  {verdict}")
    if config.getoption("--record"):
        if exitstatus or config.getoption("keyword") or any("::" in given for given in config.args):
            terminalreporter.write_line("not recorded: only a run of whole modules without a failure is")
        else:
            record.write(list(rows.values()), () if modules == _TESTS else modules)
            terminalreporter.write_line(f"recorded in {record.FILE.name}: commit it")


def _verdict(report: pytest.TestReport) -> str:
    if report.passed:
        return "accepted"
    if report.skipped and isinstance(report.longrepr, tuple):
        return f"cannot be checked: {report.longrepr[2].removeprefix('Skipped: ')}"
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = crash.message.splitlines()[0] if crash else report.longreprtext[-200:]
    kind, _, why = reason.partition(": ")
    return f"not checked: {why}" if kind.endswith(f".{NotAvailable.__name__}") else f"refused: {reason}"

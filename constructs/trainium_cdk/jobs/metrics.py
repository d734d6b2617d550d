"""The reader of logs (`readers.log`) with what every kind of job prints."""

from __future__ import annotations

from functools import cache

from trainium_cdk.jobs.kinds import kinds
from trainium_cdk.runner.readers.log import JobLog, Lines
from trainium_cdk.runner.readers.records import Record


@cache
def lines() -> Lines:
    """Reads the lines of all kinds of jobs."""
    return Lines(reader for kind in kinds().values() for reader in kind.LOGS)


def job_log() -> JobLog:
    """A reader of one job's log."""
    return JobLog(lines())


def parse_line(line: bytes | str) -> list[Record]:
    """All records in a line, in their order."""
    return lines().parse(line)[0]


def read_log(text: bytes, stage: str = "train") -> list[Record]:
    """All records of a stage's log."""
    log = job_log()
    return [record for _, record in [*log.feed(stage, text), *log.close()]]

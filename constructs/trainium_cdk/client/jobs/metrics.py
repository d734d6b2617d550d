"""The reader of logs (`readers.log`) with what every kind of job prints."""

from __future__ import annotations

from functools import cache

from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.runner.readers import Record
from trainium_cdk.runner.readers.course import Course
from trainium_cdk.runner.readers.log import JobLog, Lines, label


@cache
def lines() -> Lines:
    """Reads the lines of all kinds of jobs."""
    return Lines(reader for kind in kinds().values() for reader in kind.LOGS)


def job_log() -> JobLog:
    """A reader of one job's log."""
    return JobLog(lines())


def parse_line(line: bytes | str) -> list[Record]:
    """All records in a line alone, in their order."""
    data = line if isinstance(line, bytes) else line.encode()
    return lines().parse(data, Course(), label(data))


def read_log(text: bytes, stage: str = "train") -> list[Record]:
    """All records of a stage's log."""
    log = job_log()
    return [record for _, record in [*log.feed(stage, text), *log.close()]]

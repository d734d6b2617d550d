"""The logs of a job's stages, for a caller that decides in between whether it follows on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainium_cdk.cli.follow import say_why, summarize
from trainium_cdk.cli.output import hand_out, say, shown
from trainium_cdk.errors import JobTimeout
from trainium_cdk.jobs.backend import Changes

if TYPE_CHECKING:
    from trainium_cdk.jobs import Backend, JobStatus


class StageLog:
    """Prints the logs of a job's stages, each as far as it has not been printed."""

    def __init__(self, jobs: Backend[Any], id: str) -> None:
        from trainium_cdk.jobs import Follower

        self._jobs, self._id, self._reader = jobs, id, Follower()
        self._offsets: dict[str, int] = {}
        self._printed: set[str] = set()

    def print(self, job: JobStatus, told: Changes) -> None:
        """Follow the stages that have begun, until one waits."""
        for stage in job.stages:
            if stage.name in self._printed:
                continue
            if stage.state == "PENDING" or (stage.state == "CANCELLED" and not (stage.started or stage.nodes)):
                return
            try:
                self._print(stage.name, told)
            except JobTimeout:
                self._read(stage.name)  # what its nodes wrote before they were lost
                return
            self._printed.add(stage.name)

    def _print(self, name: str, told: Changes) -> None:
        def changed(job: JobStatus) -> None:
            told(job)
            if any(stage.name == name and stage.state == "PENDING" for stage in job.stages):
                raise JobTimeout(f"{name} waits again")

        self._read(name, follow=True, changed=changed)

    def _read(self, name: str, **how: Any) -> None:
        offset = self._offsets.get(name, 0) if self._jobs.ordered_logs else 0
        if offset == 0 and name in self._offsets and not how:
            return  # its lines have no order, so that the rest cannot be told from what is printed
        show = shown()
        for chunk in self._jobs.logs(self._id, stage=name, offset=offset, **how):
            if chunk.data and name not in self._offsets:
                say(f"--- {name}")
            hand_out(chunk.data, lambda _: None, show)
            self._offsets[name] = chunk.next_offset
            self._reader.feed_many(chunk.data)

    def close(self, job: JobStatus) -> None:
        """What the log tells, at its end or where the job leaves."""
        self._reader.close()
        for line in summarize(self._reader.summary, job.expected):
            say(line)
        say_why(self._jobs, job)

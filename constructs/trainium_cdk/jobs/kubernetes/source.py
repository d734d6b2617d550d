"""The part of the backend that logs, shells and TensorBoard use."""

from __future__ import annotations

from typing import Protocol

from trainium_cdk.jobs.kubernetes.api import Api
from trainium_cdk.jobs.kubernetes.status import Seen
from trainium_cdk.jobs.status import JobStatus
from trainium_cdk.outputs import EksCluster


class JobSource(Protocol):
    cluster: EksCluster

    @property
    def api(self) -> Api: ...

    def seen(self, id: str, *, any_member: bool = False) -> Seen: ...

    def status(self, id: str) -> JobStatus: ...

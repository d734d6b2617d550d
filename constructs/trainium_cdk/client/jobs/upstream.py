"""The source of the program of a kind of job."""

from __future__ import annotations

from typing import NamedTuple


class Upstream(NamedTuple):
    """The origin of the program that a kind runs.

    Attributes:
        repository: `owner/name` on GitHub; empty for a program of the Neuron SDK itself.
        commit: the pinned commit; empty if none is pinned.
        path: the file in the repository, or the program's name.
        note: for users: legacy, beta, not pinned.
    """

    repository: str
    commit: str
    path: str
    note: str = ""

    def __str__(self) -> str:
        where = f"{self.repository}@{self.commit[:12] or 'main'}: {self.path}" if self.repository else self.path
        return f"{where} ({self.note})" if self.note else where

"""Sources of the job templates' code and data: pinned commits and public data sets, with source and date."""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import Annotated

from pydantic import Field, StringConstraints

from trainium_cdk.catalog.lookup import _read
from trainium_cdk.catalog.models import Fact, HttpsUrl


class SourceTree(Fact):
    """A git repository at one commit."""

    url: HttpsUrl
    commit: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    ref_variable: Annotated[str, StringConstraints(pattern=r"^[A-Z_]+$")]
    """Environment variable on the nodes that overrides the commit with another ref."""


class PublicObject(Fact):
    """One object in a public S3 bucket."""

    uri: Annotated[str, StringConstraints(pattern=r"^s3://[a-z0-9.-]+/[\w./-]+$")]
    size_gb: float | None = Field(default=None, gt=0)
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] | None = None
    """Of the whole object, where it is known."""


class Sources(Fact):
    source: str
    date: dt.date
    repositories: dict[str, SourceTree]
    datasets: dict[str, tuple[PublicObject, ...]]


@cache
def sources() -> Sources:
    """The source trees and data sets of the job templates."""
    return Sources.model_validate(_read("models"))

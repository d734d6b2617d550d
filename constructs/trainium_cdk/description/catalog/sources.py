"""Sources of the job templates' code and data: pinned commits and public data sets, with source and date.
Plain data classes: commands that only list the kinds of jobs need no validation of our own file, which the tests do.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from trainium_cdk.description.catalog.lookup import read


class SourceTree(NamedTuple):
    """A git repository at one commit.

    Attributes:
        ref_variable: variable on the nodes that overrides the commit with another ref.
    """

    url: str
    commit: str
    ref_variable: str


class PublicObject(NamedTuple):
    """One object in a public S3 bucket.

    Attributes:
        sha256: of the whole object, where it is known.
    """

    uri: str
    size_gb: float | None = None
    sha256: str | None = None


class Sources(NamedTuple):
    repositories: dict[str, SourceTree]
    datasets: dict[str, tuple[PublicObject, ...]]


@cache
def sources() -> Sources:
    """The source trees and data sets of the job templates."""
    found = read("models")
    return Sources(
        {name: SourceTree(**tree) for name, tree in found["repositories"].items()},
        {name: tuple(PublicObject(**one) for one in objects) for name, objects in found["datasets"].items()},
    )

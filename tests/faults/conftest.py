"""A local AWS for these tests alone: they make hundreds of stacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import LocalAws
from tests.support import need_local_aws


@pytest.fixture(scope="session")
def local_aws() -> Iterator[LocalAws]:
    need_local_aws()
    with LocalAws.start() as aws:
        aws.bootstrap()
        yield aws

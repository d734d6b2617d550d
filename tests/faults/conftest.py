"""A local AWS for these tests alone: they make hundreds of stacks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import LocalAws
from sandbox.local_aws import CDK, EMULATOR_PYTHON
from tests.support import need


@pytest.fixture(scope="session")
def local_aws() -> Iterator[LocalAws]:
    need(EMULATOR_PYTHON.exists(), f"the emulator is not installed ({EMULATOR_PYTHON}): make setup")
    need(CDK.exists(), f"the CDK command line is not installed ({CDK}): make setup")
    with LocalAws.start() as aws:
        aws.bootstrap()
        yield aws

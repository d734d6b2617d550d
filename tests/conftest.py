"""Fixtures that every part of the tests may use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from sandbox import LocalAws
from sandbox.local_aws import CDK, EMULATOR_PYTHON
from tests.support import need

settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


@pytest.fixture(scope="session")
def local_aws() -> Iterator[LocalAws]:
    """One local AWS for the whole run (of a worker), bootstrapped for the CDK; started at first use, stopped at the end.

    Tests share it: use names of your own, and judge what is left by what was there before
    (`sandbox.leftovers.beyond`).
    """
    need(EMULATOR_PYTHON.exists(), f"the emulator is not installed ({EMULATOR_PYTHON}): make setup")
    need(CDK.exists(), f"the CDK command line is not installed ({CDK}): make setup")
    with LocalAws.start() as aws:
        aws.bootstrap()
        yield aws

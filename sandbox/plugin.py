"""pytest fixtures for testing an app in the local AWS; pytest finds them where the sandbox is installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox.local_aws import LocalAws


@pytest.fixture(scope="session")
def local_aws() -> Iterator[LocalAws]:
    """A local AWS in region us-east-1 for the whole session, bootstrapped for the CDK, and stopped at the end.

    `local_aws.cdk("deploy", ..., cwd=FOLDER)` runs the CDK command line with it, `local_aws.client("s3")` is a boto3 client,
    `local_aws.env` is the environment for commands, and `local_aws.leftovers()` lists resources beyond the bootstrap.

    Raises:
        SandboxError: not installed (`python -m sandbox setup`), or does not start.
    """
    with LocalAws.start() as aws:
        aws.bootstrap()
        yield aws

"""Fixtures of the sandbox's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandbox import LocalAws
from sandbox.kubernetes import LocalKubernetes, eks
from sandbox.kubernetes.build import VOLCANO
from sandbox.testing import need_kubernetes
from trainium_cdk.description.catalog import Catalog


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, local_aws: LocalAws) -> Iterator[LocalKubernetes]:
    """Two trn1.32xlarge nodes and a system node; tokens are verified by the local EKS; jobs run for real. With Volcano if it is built."""
    need_kubernetes()
    secret, name = eks.new_secret(), "kubernetes-test"
    webhook = eks.webhook_url(local_aws.endpoint, name, secret)
    folder = tmp_path_factory.mktemp("kubernetes")
    with LocalKubernetes.start(
        folder, name=name, token_webhook=webhook, run_jobs=True, volcano=VOLCANO.built
    ) as running:
        trn1 = Catalog.load().instance("trn1.32xlarge")
        running.add_nodes(trn1, 2, zone="us-east-1b", zone_id="use1-az5", labels={"trainium/group": "trn"})
        running.add_system_nodes()
        eks.attach(local_aws.directory, running, secret)
        try:
            yield running
        finally:
            eks.detach(local_aws.directory, name)

"""Variables whose values are kept in AWS, on a real API server: pods read them, and no object has them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sandbox import LocalAws
from sandbox.kubernetes.api import path_of
from tests.jobs.kubernetes.conftest import Running, script, text
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, parts

VALUE = "value-of-the-parameter"


@pytest.fixture
def parameter(local_aws: LocalAws) -> Iterator[str]:
    ssm, name = local_aws.client("ssm"), "/team/token"
    ssm.put_parameter(Name=name, Value=VALUE, Type="SecureString")
    yield f"ssm:{name}"
    ssm.delete_parameter(Name=name)


def test_pods_have_the_value_and_objects_the_reference(
    backend: KubernetesBackend, running: Running, parameter: str
) -> None:
    body = b'test "${#TOKEN}" = 22 && echo it is there'
    sent = backend.submit(script(body, nodes=1, env={"TOKEN": parameter}), "secret")
    objects = "".join(
        json.dumps(running.kubernetes.api().get(path_of(version, kind, namespace="training")))
        for version, kind in (
            ("v1", "Secret"),
            ("v1", "ConfigMap"),
            ("v1", "Pod"),
            ("v1", "Event"),
            (parts.JOBSET, "JobSet"),
        )
    )
    ended = backend.wait(sent.id, 120)
    assert ended.state == "COMPLETED", ended
    assert "it is there" in text(backend.logs(sent.id))
    after = json.dumps(running.kubernetes.api().get(path_of("v1", "Pod", namespace="training")))
    folder = running.shared / sent.directory.removeprefix("/efs/")
    files = "".join(one.read_text(errors="replace") for one in folder.rglob("*") if one.is_file())
    assert VALUE not in objects + after + files


def test_a_reference_that_cannot_be_read_is_told_before_trainium_nodes_start(backend: KubernetesBackend) -> None:
    sent = backend.submit(script(b"true", nodes=1, env={"TOKEN": "ssm:/none"}), "no-secret")
    ended = backend.wait(sent.id, 120)
    assert [(one.name, one.state) for one in ended.stages] == [("prepare", "FAILED"), ("train", "CANCELLED")]
    assert "env TOKEN: /none cannot be read" in text(backend.logs(sent.id, stage="prepare"))

"""Images from folders: when one is built again, and the errors where it cannot be."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.hooks import HierarchicalEmitter

from sandbox import LocalAws
from tests.jobs.kubernetes.conftest import make_cluster
from tests.support import completed
from trainium_cdk.client.jobs import images
from trainium_cdk.client.jobs.images import find_example
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.errors import TransportError, TrnError
from trainium_cdk.jobs import Script


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    (tmp_path / ".env").write_text("TOKEN=secret\n")
    return tmp_path


@pytest.fixture(scope="module")
def cluster(local_aws: LocalAws) -> Iterator[EksCluster]:
    ecr, s3, codebuild = (local_aws.client(s) for s in ("ecr", "s3", "codebuild"))
    uri = ecr.create_repository(repositoryName="images-test")["repository"]["repositoryUri"]
    s3.create_bucket(Bucket="images-test")
    s3.put_bucket_versioning(Bucket="images-test", VersioningConfiguration={"Status": "Enabled"})
    codebuild.create_project(
        name="images-test",
        source={"type": "S3", "location": "images-test/images/source.zip"},
        artifacts={"type": "NO_ARTIFACTS"},
        environment={"type": "LINUX_CONTAINER", "image": "x", "computeType": "BUILD_GENERAL1_LARGE"},
        serviceRole="arn:aws:iam::000000000000:role/build",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials it was made with
        for name, value in local_aws.variables.items():
            patch.setenv(name, value)
        yield make_cluster(registry_uri=uri, build_project="images-test", bucket="images-test")
    codebuild.delete_project(name="images-test")
    ecr.delete_repository(repositoryName="images-test", force=True)


def test_a_build_is_started_with_its_source_and_tag(
    cluster: EksCluster, local_aws: LocalAws, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The local AWS records builds and runs none: the request can be checked, the image cannot."""
    requests: list[dict[str, Any]] = []
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", boto3.Session())
    event = "provide-client-params.codebuild.StartBuild"
    boto3.DEFAULT_SESSION.events.register(event, lambda params, **_: requests.append(params))
    source, messages = images.pack(folder), []
    made = images.build(cluster, source, say=messages.append, log=messages.append, sleep=lambda _: None)
    assert made.built
    assert made.name == f"{cluster.registry_uri}:{source.tag()}"
    [call] = requests
    assert call["projectName"] == "images-test"
    assert (call["sourceTypeOverride"], call["sourceLocationOverride"]) == ("S3", f"images-test/{source.key}")
    # a later write to the same key does not change this build
    s3 = local_aws.client("s3")
    s3.put_object(Bucket="images-test", Key=source.key, Body=b"another")
    pinned = s3.get_object(Bucket="images-test", Key=source.key, VersionId=call["sourceVersion"])
    assert pinned["Body"].read() == source.content
    variables = {v["name"]: v["value"] for v in call["environmentVariablesOverride"]}
    assert variables == {"IMAGE_TAG": source.tag(), "DOCKERFILE": "Dockerfile"}
    assert messages[0] == f"sending 1 file, {len(source.content):,} bytes, to s3://images-test/{source.key}"
    assert messages[1].startswith("CodeBuild runs images-test:")


def test_the_last_lines_of_a_builds_log_are_printed(local_aws: LocalAws) -> None:
    """They arrive after its end; before a page with lines comes an empty one."""
    logs, where, printed = local_aws.client("logs"), {"groupName": "build", "streamName": "1"}, list[str]()
    logs.create_log_group(logGroupName="build")
    logs.create_log_stream(logGroupName="build", logStreamName="1")

    def arrive(_: float) -> None:
        lines = [{"timestamp": int(time.time() * 1000), "message": f"{text}\n"} for text in ("pulling", "no such file")]
        logs.put_log_events(logGroupName="build", logStreamName="1", logEvents=lines)

    class Builds:
        def batch_get_builds(self, **_: Any) -> dict[str, Any]:
            return {"builds": [{"buildStatus": "FAILED", "logs": where}]}

    images._follow(Builds(), logs, "build:1", printed.append, lambda _: None, arrive)
    logs.delete_log_group(logGroupName="build")
    assert printed == ["pulling", "no such file"]


def test_an_existing_image_is_not_built_again(cluster: EksCluster, local_aws: LocalAws, folder: Path) -> None:
    (folder / "more").write_text("x")
    source, ecr = images.pack(folder), local_aws.client("ecr")
    ecr.put_image(repositoryName="images-test", imageManifest="{}", imageTag=source.tag())
    ecr.put_image(repositoryName="images-test", imageManifest='{"x": 1}', imageTag="mine")
    made = images.build(cluster, source, say=lambda _: None)
    assert not made.built
    assert re.fullmatch(rf"{re.escape(cluster.registry_uri)}@sha256:[0-9a-f]{{64}}", made.pinned)
    with pytest.raises(TrnError, match=r":mine already exists, and tags are immutable. Give another --tag"):
        images.build(cluster, source, "mine", say=lambda _: None)


def test_another_dockerfile_of_the_folder_is_another_image(
    cluster: EksCluster, local_aws: LocalAws, folder: Path
) -> None:
    (folder / "eval").mkdir()
    (folder / "eval/Dockerfile").write_text("FROM other\n")
    first, second = images.pack(folder), images.pack(folder, "eval/Dockerfile")
    assert first.content == second.content
    local_aws.client("ecr").put_image(repositoryName="images-test", imageManifest='{"first": 1}', imageTag=first.tag())
    assert not images.build(cluster, first, say=lambda _: None).built
    assert images.build(cluster, second, say=lambda _: None, log=lambda _: None, sleep=lambda _: None).built


@pytest.mark.parametrize("status", ["IN_PROGRESS", "FAILED"])
def test_a_build_that_runs_is_followed(
    status: str, cluster: EksCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same command, which was interrupted. The local AWS runs no build, so that its answers are given here, as
    BatchGetBuilds has them."""
    source = images.pack(folder)
    tag, states, started = "later", [status, "IN_PROGRESS", "SUCCEEDED"], []

    def build(id: str, status: str, tag: str) -> dict[str, Any]:
        variables = [{"name": "IMAGE_TAG", "value": tag}, {"name": "DOCKERFILE", "value": "Dockerfile"}]
        where = {"type": "S3", "location": f"images-test/{source.key}"}
        return {"id": id, "buildStatus": status, "source": where, "environment": {"environmentVariables": variables}}

    def batch_get_builds(ids: list[str]) -> Any:
        if len(ids) > 1:
            return {"builds": [build("p:other", "IN_PROGRESS", "other"), build("p:same", states.pop(0), tag)]}
        return {"builds": [build(ids[0], states.pop(0), tag)]}

    codebuild = SimpleNamespace(
        meta=SimpleNamespace(events=HierarchicalEmitter()),
        list_builds_for_project=lambda **_: {"ids": ["p:other", "p:same"]},
        batch_get_builds=batch_get_builds,
        start_build=lambda **_: started.append("p:new") or {"build": {"id": "p:new"}},
    )
    real = images.client
    monkeypatch.setattr(images, "client", lambda name, *given: codebuild if name == "codebuild" else real(name, *given))
    said: list[str] = []
    made = images.build(cluster, source, tag, say=said.append, log=said.append, sleep=lambda _: None)
    assert made.built
    assert started == ([] if status == "IN_PROGRESS" else ["p:new"])
    followed = (started or ["p:same"])[0]
    assert said[-1] == (f"CodeBuild runs {followed}. Ctrl-C does not end it: run the same command again to follow it")


def test_a_build_that_cannot_be_followed_goes_on(
    cluster: EksCluster, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(**_: Any) -> None:
        raise EndpointConnectionError(endpoint_url="https://codebuild")

    codebuild = SimpleNamespace(
        meta=SimpleNamespace(events=HierarchicalEmitter()),
        list_builds_for_project=lambda **_: {"ids": []},
        batch_get_builds=unreachable,
        start_build=lambda **_: {"build": {"id": "p:1"}},
    )
    real = images.client
    monkeypatch.setattr(images, "client", lambda name, *given: codebuild if name == "codebuild" else real(name, *given))
    with pytest.raises(TransportError, match="p:1 continues: run the same command again to follow it"):
        images.build(cluster, images.pack(folder), "cut", say=lambda _: None)


@pytest.mark.parametrize("tag", ["a b", "$(x)", "-a", "a" * 129])
def test_invalid_tags(cluster: EksCluster, folder: Path, tag: str) -> None:
    with pytest.raises(TrnError, match=r"tag is "):
        images.build(cluster, images.pack(folder), tag)


def test_a_stack_without_a_registry(folder: Path) -> None:
    with pytest.raises(TrnError, match=r"TrnEksStack has no registry. Turn it on \(registry.enabled\)"):
        images.build(make_cluster(), images.pack(folder))


def test_the_command_lists_the_files_that_it_leaves_out(cluster: EksCluster, local_aws: LocalAws, folder: Path) -> None:
    described = folder.with_name("cluster.json")
    described.write_text(cluster.model_dump_json())
    done = completed(
        [Path(sys.executable).with_name("trn"), "image", "build", folder, "--cluster", described],
        env={"PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], **local_aws.variables},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    said = [
        line for line in done.stderr.splitlines() if not line.startswith("building the image: ")
    ]  # where it takes a while
    assert said[:2] == ["packed 1 file, 13 bytes", "left out: .env (1 file, 13 bytes)"]
    assert said[2].startswith("sending 1 file, ")


def test_the_command_finds_an_example_in_any_folder(cluster: EksCluster, local_aws: LocalAws, tmp_path: Path) -> None:
    """The command that "no container image" names, and its answer as --image."""
    described = tmp_path / "cluster.json"
    described.write_text(cluster.model_dump_json())
    done = completed(
        [Path(sys.executable).with_name("trn"), "image", "build", "torchneuron", "--cluster", described],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"], **local_aws.variables},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    example = find_example(Path("torchneuron"))
    assert f"torchneuron is an example: copy {example} to change it" in done.stderr
    name = done.stdout.strip()
    assert (
        name.startswith(f"{cluster.registry_uri}@sha256:")
        or name == f"{cluster.registry_uri}:{images.pack(example).tag()}"
    )
    assert Script(filename="x.sh", content=b"true", image=name).image == name

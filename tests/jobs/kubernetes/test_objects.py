"""A job's objects, from a description made by hand: what each container runs and gets, what ends a job, and what tells two jobs apart."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from sandbox.kubernetes import schemas
from tests.jobs.kubernetes.conftest import fleet, make_cluster
from trainium_cdk.client.jobs.kubernetes import parts, status
from trainium_cdk.client.jobs.kubernetes.objects import Object, Objects, objects
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.client.jobs.runner import Pyz, pyz
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.outputs import EksCluster
from trainium_cdk.jobs import JobError, Script
from trainium_cdk.runner import spec

CLUSTER = make_cluster(fleet(nodes=16))
SECRET = {"TOKEN": "s3cret $(HOME) $$ '\"\n"}


def described(name: str, script: Script, *stages: str) -> spec.JobSpec:
    program = spec.Program(("bash", "run.sh"), (spec.Place("job"), "/work"))
    made = [spec.StageSpec(s, script.nodes, None if s == "prepare" else program) for s in stages]
    files = {"run.sh": script.content}
    shown = {"nodes": script.nodes, "instance_type": "trn1.32xlarge"}
    around = spec.NodeEnvironment(cache=script.cache_set)
    rest: dict[str, Any] = {"shown": shown, "files": files, "variables": script.env, "array": script.array or ""}
    return spec.JobSpec(name, "script", tuple(made), around, **rest)


def made(
    *stages: str, cluster: EksCluster = CLUSTER, runner: Pyz | None = None, name: str = "run-t", **fields: Any
) -> Objects:
    script = Script(**{"filename": "run.sh", "content": b"true", "nodes": 2, **fields})
    job = described(name, script, *(stages or ("train",)))
    return objects(replace(plan(script, cluster), spec=job), cluster, runner)


ALL = ("prepare", "precompile", "train")


def pod_specs(found: Objects) -> list[Object]:
    prepare = [one["spec"]["template"]["spec"] for one in found.parts if one["kind"] == "Job"]
    return [*(status.train_spec(job) for job in found.jobs), *prepare]


def containers(pod: Object) -> dict[str, Object]:
    return {one["name"]: one for one in [*pod["initContainers"], *pod["containers"]]}


@pytest.mark.parametrize("fields", [{}, {"array": "0-2"}, {"env": SECRET, "priority": "high", "nodes": 1}])
def test_they_match_the_official_schemas(fields: dict[str, Any]) -> None:
    found = made(*ALL, **fields)
    assert schemas.validate_all([found.runner, *found.all]) == []


def test_each_container_starts_the_runner_with_words_and_no_shell() -> None:
    train, prepare = (containers(pod) for pod in pod_specs(made(*ALL)))
    runner = ["python3", "-I", "/trn/runner/runner.pyz"]
    assert [*train] == ["folder", "precompile", "train"]
    assert [*prepare] == ["folder", "prepare"]
    for found in (train, prepare):
        for name, one in found.items():
            words = ["folder", "/efs/trn"] if name == "folder" else ["pod", name]
            assert one["command"] == [*runner, *words]
            places = [mount["mountPath"] for mount in one["volumeMounts"]]
            assert len(places) == len(set(places))
            assert set(places) >= {"/trn/runner", "/efs"}
            assert ("/trn/job" in places) is (name != "folder")
    for one in train.values():
        assert ("/dev/shm" in [mount["mountPath"] for mount in one["volumeMounts"]]) is (one["name"] != "folder")


def test_a_container_knows_its_job_its_rank_and_its_peers() -> None:
    def given(found: Objects, stage: str) -> dict[str, str]:
        pods = [containers(pod) for pod in pod_specs(found)]
        [env] = [pod[stage]["env"] for pod in pods if stage in pod][-1:]
        return {
            one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"]
            for one in env
            if one["name"] != "TRN_HOST" or one["value"]
        }

    own = {
        "HOME": "/home/trn",
        "USER": "trn",
        "LOGNAME": "trn",
        "TRN_NODE": "spec.nodeName",
        "TRN_JOB": "/efs/trn/jobs/run-t",
    }
    label = "metadata.labels['jobset.sigs.k8s.io/{}']"
    attempt = {"TRN_ATTEMPT": label.format("restart-attempt"), "TRN_RUN": label.format("jobset-uid")}
    assert given(made(*ALL), "prepare") == own
    assert given(made(*ALL), "precompile") == own | attempt | {"MASTER_ADDR": "run-t-train-0-0.run-t"}
    member = {"MASTER_ADDR": "run-t-7-train-0-0.run-t-7", "TRN_ARRAY_INDEX": "7", "TRN_HOST": "member-7-"}
    assert given(made(array="3,7"), "train") == own | attempt | member
    team = make_cluster(fleet(nodes=16), team="blue")
    assert given(made(cluster=team), "train")["TRN_HOST"] == "team-blue-"


def test_variables_are_in_a_file_of_their_own_and_in_no_other_object() -> None:
    found = made(*ALL, env=SECRET)
    [kept] = [one for one in found.parts if one["kind"] == "Secret"]
    assert json.loads(kept["stringData"]["env.json"]) == SECRET
    others = [one for one in found.parts if one is not kept]
    assert "s3cret" not in json.dumps([found.runner, *found.jobs, *others, kept["stringData"]["job.json"]])
    for fields, names_of in (({"env": SECRET}, ["job.json", "env.json"]), ({}, ["job.json"])):
        for pod in pod_specs(made(*ALL, **fields)):
            kept = [volume["secret"]["items"][0]["path"] for volume in pod["volumes"] if "secret" in volume]
            assert kept == names_of


def test_the_job_arrives_as_it_was_described() -> None:
    content = bytes(range(256))
    found = made(filename="tool", content=b"#!" + content)
    [kept] = [one["stringData"]["job.json"] for one in found.parts if one["kind"] == "Secret"]
    job = spec.from_json(spec.JobSpec, json.loads(kept))
    assert job.files == {"run.sh": b"#!" + content}
    assert job.id == "run-t"


def test_the_runner_is_named_by_its_content_and_never_changes() -> None:
    runner = made().runner
    assert runner["metadata"]["name"] == parts.runner(pyz().name)
    assert base64.b64decode(runner["binaryData"]["runner.pyz"]) == pyz().content
    assert runner["immutable"] is True
    assert len(json.dumps(runner)) < 1_000_000


def test_a_job_is_the_same_with_another_runner_and_another_one_with_other_variables() -> None:
    one, other = made(*ALL, env=SECRET), made(*ALL, env=SECRET, runner=Pyz(b"other", "0" * 64))
    assert one.digest == other.digest
    assert one.jobs != other.jobs
    different: list[dict[str, Any]] = [
        {"env": {"TOKEN": "x"}},
        {"content": b"false"},
        {"nodes": 4},
        {"restarts": 0},
        {"after": "first-t"},
    ]
    digests = {made("train", **fields).digest for fields in [{}, *different]}
    assert len(digests) == len(different) + 1


@pytest.mark.parametrize(
    ("stages", "fields", "release"),
    [
        (("train",), {}, {"kueue.x-k8s.io/queue-name": "trn"}),
        (ALL, {}, {"trainium-cdk/after-job": "run-t-prepare"}),
        (ALL, {"after": "first-t"}, {"trainium-cdk/after-job": "run-t-prepare"}),
        (("train",), {"after": "first-t"}, {"trainium-cdk/after-job": "first-t"}),
    ],
)
def test_a_jobset_is_in_no_queue_until_all_is_there(
    stages: tuple[str, ...], fields: dict[str, Any], release: dict[str, str]
) -> None:
    found = made(*stages, **fields)
    [job] = found.jobs
    assert found.release == release
    assert job["spec"]["suspend"] is True
    assert not {parts.QUEUE_LABEL, parts.AFTER_LABEL} & job["metadata"]["labels"].keys()
    assert job["metadata"]["annotations"].get(parts.AFTER) == fields.get("after")
    assert job["metadata"]["annotations"][parts.QUEUE] == "trn"


def test_of_an_array_the_first_member_decides_and_all_share_the_rest() -> None:
    found = made(*ALL, array="0-999", env=SECRET)
    assert [len(found.jobs), len(found.parts)] == [1000, 4]
    labels = [job["metadata"]["labels"] for job in found.jobs]
    assert [parts.AFTER_LABEL in one for one in labels[:3]] == [False, True, True]
    assert {one[parts.ARRAY_LABEL] for one in labels} == {"run-t"}
    assert len(json.dumps(found.jobs[-1])) < 8_000
    folders = [json.loads(job["metadata"]["annotations"][parts.DESCRIPTION])["directory"] for job in found.jobs]
    assert folders[7] == "/efs/trn/jobs/run-t/7"


def test_exit_codes_that_end_a_job() -> None:
    found = made(*ALL)
    [job] = found.jobs
    [prepare] = [one for one in found.parts if one["kind"] == "Job"]
    train = job["spec"]["replicatedJobs"][0]["template"]["spec"]
    for policy, first in (
        (
            train["podFailurePolicy"],
            {"operator": "In", "values": [64, 65, 66, 124]},
        ),  # of an init container too: precompile
        (prepare["spec"]["podFailurePolicy"], {"containerName": "prepare", "operator": "NotIn", "values": [137, 143]}),
    ):
        assert [(rule["action"], rule.get("onExitCodes")) for rule in policy["rules"]] == [
            ("FailJob", first),
            ("FailJob", {"containerName": "folder", "operator": "In", "values": [128]}),  # an image without python3
            ("Count", None),
            ("FailJob", {"operator": "In", "values": [137]}),
        ]
    assert (train["backoffLimit"], prepare["spec"]["backoffLimit"]) == (0, 3)
    assert job["spec"]["failurePolicy"]["rules"][0]["onJobFailureReasons"] == ["PodFailurePolicy"]


def test_pods_have_minimal_permissions() -> None:
    for pod in pod_specs(made(*ALL)):
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
        assert pod["securityContext"].items() >= {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001}.items()
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "hostNetwork" not in pod
        for one in containers(pod).values():
            may = one["securityContext"]
            assert (may["allowPrivilegeEscalation"], may["readOnlyRootFilesystem"]) == (False, True)
            assert may["capabilities"] == {"drop": ["ALL"]}
            assert "runAsUser" not in may
            assert one["resources"]["limits"]["memory"]


def test_devices_are_the_catalogues_in_requests_and_limits() -> None:
    known = Catalog.load().eks.resources
    for kind, devices, efa in (
        ("trn1.32xlarge", "16", "8"),
        ("trn1n.32xlarge", "16", "16"),
        ("trn2.48xlarge", "16", "16"),
    ):
        [pod] = pod_specs(made("precompile", "train", cluster=make_cluster(fleet(kind))))
        for stage in ("precompile", "train"):
            for which in ("requests", "limits"):
                found = containers(pod)[stage]["resources"][which]
                assert (found[known.device], found[known.efa], found["hugepages-2Mi"]) == (devices, efa, "5120Mi")
        assert pod["nodeSelector"]["node.kubernetes.io/instance-type"] == kind
    text = json.dumps(made(cluster=make_cluster(fleet("trn1.2xlarge")), nodes=1).jobs)
    assert (known.efa in text, "hugepages" in text) == (False, False)


def test_a_type_that_only_the_environment_describes() -> None:
    unknown = fleet().model_copy(update={"instance_type": "trn9.96xlarge", "devices": 48, "efa": 24})
    found = made(cluster=make_cluster(unknown))
    limits = pod_specs(found)[0]["containers"][0]["resources"]["limits"]
    assert (limits["aws.amazon.com/neuron"], limits["vpc.amazonaws.com/efa"]) == ("48", "24")
    assert schemas.validate_all(found.all) == []


@pytest.mark.parametrize(
    ("restarts", "capacity_type", "most"),
    [(None, "on-demand", 3), (None, "capacity-block", 3), (None, "spot", 20), (0, "spot", 0), (7, "on-demand", 7)],
)
def test_restarts(restarts: int | None, capacity_type: str, most: int) -> None:
    [job] = made(cluster=make_cluster(fleet(capacity_type=capacity_type)), restarts=restarts).jobs
    assert job["spec"]["failurePolicy"]["maxRestarts"] == most


@pytest.mark.parametrize(("priority", "found"), [(None, None), ("high", "trn-high"), ("urgent", "urgent")])
def test_priority(priority: str | None, found: str | None) -> None:
    assert made(priority=priority).jobs[0]["metadata"]["labels"].get("kueue.x-k8s.io/priority-class") == found


def test_a_job_that_is_too_large_is_refused() -> None:
    with pytest.raises(
        JobError, match=r"the job and its files have 1,2\d\d,\d\d\d bytes as JSON.*allows 1,000,000.*trn image build"
    ):
        made(filename="x.bin", content=b"#!" + bytes(900_000))


def test_a_jobs_record_tells_its_settings_and_none_of_its_variables() -> None:
    script = Script(filename="run.sh", content=b"true", nodes=2)
    job = replace(described("run-t", script, "train"), settings={"nodes": 2, "args": ["a"]})
    [found] = objects(replace(plan(script, CLUSTER), spec=job), CLUSTER).jobs
    record = status.described(found)
    assert record["job"] == {"nodes": 2}
    assert record["directory"] == "/efs/trn/jobs/run-t"

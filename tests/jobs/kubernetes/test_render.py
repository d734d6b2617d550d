"""What is sent: readable golden files, objects that the official schemas take, scripts in which shellcheck finds nothing."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from sandbox import head_node
from sandbox.kubernetes import schemas
from tests.jobs.kubernetes.conftest import fleet, make_cluster
from tests.support import SHELLCHECK, completed, golden, swept
from trainium_cdk.catalog import Catalog
from trainium_cdk.jobs import AnyJob, BertLarge, Gpt, JobError, Script, TorchTitan
from trainium_cdk.jobs.kubernetes import KubernetesSubmission, names, render, status
from trainium_cdk.jobs.kubernetes.names import MAX_NAME, object_name
from trainium_cdk.jobs.status import settings_in
from trainium_cdk.outputs import EksCluster

GOLDEN = Path(__file__).parent / "golden"
CLUSTER = make_cluster(fleet(nodes=16), neuron_release="2.28.1")
BOTH = make_cluster(
    neuron_release="2.28.1", mount_dirs=("/efs", "/fsx"), claims=("efs-claim", "fsx-claim"), shared_dir="/fsx"
)
SCRIPT = b'#!/bin/bash\ntorchrun --nnodes "$NNODES" --node_rank "$NODE_RANK" train.py "$@"\n'
JOBS: dict[str, AnyJob] = {
    "bert-large": BertLarge(nodes=2),
    "gpt-6.7b": Gpt(nodes=4),
    "script": Script(
        filename="run.sh", content=SCRIPT, nodes=2, args=("--name", "it's $(HOME) $HOME"), time_limit="90"
    ),
}
MORE: dict[str, AnyJob] = {
    "phase-2": BertLarge(nodes=2, phase=2, checkpoint="bert-large-20261120-4f3a9c", time_limit="2-00:00:00"),
    "phase-2-file": BertLarge(phase=2, checkpoint="/efs/it's/ckpt_28125.pt", data="s3://bucket/my data.tar"),
    "own-data": Gpt(nodes=2, data="/efs/corpus", precompile=False, env={"A": "x y\n$z"}),
    "python": Script(filename="train+1.py", content=b"print(1)", tasks_per_node=4, precompile=True, args=("a\nb", "")),
    "binary": Script(filename="tool", content=b"#!/bin/true\n\xff\x00", cache="My.Cache"),
    "image": BertLarge(image="111122223333.dkr.ecr.us-east-1.amazonaws.com/trn@sha256:" + "0" * 64),
}
REF = "0123456789abcdef0123456789abcdef01234567"
NATIVE = make_cluster(
    fleet("trn2.48xlarge", 16),
    neuron_release="2.33.0",
    neuron_driver="2.31.7.0",
    framework="torch-native",
    image="111122223333.dkr.ecr.us-east-1.amazonaws.com/torch-neuron:1",
)
NEWER: dict[str, tuple[AnyJob, EksCluster]] = {
    "torchtitan-qwen3-8b": (TorchTitan(nodes=2, ref=REF, preset="qwen3-8b"), NATIVE),
    "torchtitan-llama3.1-8b": (
        TorchTitan(
            nodes=2,
            ref=REF,
            preset="llama3.1-8b",
            assets="/efs/it's llama",
            data="/efs/it's text",
            override=("compile.enable", "training.seq_len=4 k"),
        ),
        NATIVE,
    ),
}
ALL = {**JOBS, **MORE, **{name: job for name, (job, _) in NEWER.items()}}
WORDS = {"script", "phase-2-file", "own-data", "python"}


def home(name: str) -> EksCluster:
    """A cluster whose release and instance types the job runs on."""
    return NEWER[name][1] if name in NEWER else CLUSTER


def readable(submission: KubernetesSubmission) -> str:
    """The objects with the two files that are the same in every submission left out."""
    objects = json.loads(json.dumps(submission.objects))
    for name in ("pod.sh", "fetch.sh"):
        if name in objects[0]["stringData"]:
            objects[0]["stringData"][name] = "[as in constructs/trainium_cdk/jobs/shell]"
    for thing in objects:
        thing["metadata"]["annotations"]["trainium-cdk/digest"] = "[SHA-256]"
    from trainium_cdk.jobs.kubernetes.render import to_yaml

    return to_yaml(tuple(objects))


def train(submission: KubernetesSubmission) -> dict[str, Any]:
    return status.train_spec(submission.jobs[0])


@pytest.mark.parametrize("name", JOBS)
def test_golden(name: str) -> None:
    text = readable(render(JOBS[name], CLUSTER, "20261120-4f3a9c"))
    assert text == golden(GOLDEN / f"{name}.yaml", text)


def test_a_job_tells_its_settings_but_neither_its_variables_nor_a_scripts_content_and_arguments() -> None:
    made = Script(
        filename="run.sh", content=b"true secret", args=("secret",), env={"TOKEN": "secret"}, nodes=2, name="own"
    )
    record = render(made, CLUSTER, "t").jobs[0]["metadata"]["annotations"][names.DESCRIPTION]
    assert settings_in(record) == {"filename": "run.sh", "nodes": 2, "name": "own"}
    assert "secret" not in record
    assert [settings_in(damaged) for damaged in ("", "{}", "[]", '{"job": 1}', "[" * 10_000)] == [{}] * 5


@pytest.mark.parametrize("cluster", [CLUSTER, BOTH], ids=["efs", "efs and fsx"])
@pytest.mark.parametrize("name", ALL)
def test_objects_match_the_official_schemas_and_the_dry_run_shows_what_is_sent(name: str, cluster: Any) -> None:
    submission = render(ALL[name], cluster if ALL[name].nodes <= 2 and name not in NEWER else home(name), "t")
    assert schemas.validate_all(submission.objects) == []
    assert list(YAML(typ="safe").load_all(submission.text)) == list(submission.objects)


@pytest.mark.parametrize("name", swept(ALL, "phase-2-file", "script", "gpt-6.7b"))
def test_shellcheck_finds_nothing(name: str, tmp_path: Path) -> None:
    submission = render(ALL[name], home(name), "20261120-4f3a9c")
    scripts = []
    for path, content in submission.files.items():
        target = tmp_path / path
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(content)
        if path.endswith(".sh") and not path.startswith("script/"):
            scripts.append(path)
    # SC1090/SC1091: files found only in the pod. SC2154, SC2034: variables that a sourced file sets or uses.
    # SC2329, SC2317: functions that are called by their name in a variable
    apart = "SC1090,SC1091,SC2154,SC2034,SC2329,SC2317" + (",SC2016,SC2089,SC2090" if name in WORDS else "")
    if isinstance(ALL[name], Gpt):  # its `steps` are called by that name in the subshell that sets PIP_CONSTRAINT
        apart += ",SC2031"
    found = completed([SHELLCHECK, "-s", "bash", "-e", apart, *scripts], cwd=tmp_path)
    assert found.stdout + found.stderr == ""
    assert len(scripts) >= 2


def test_devices_are_the_catalogues_in_requests_and_limits() -> None:
    names = Catalog.load().eks.resources
    for kind, devices, efa in (
        ("trn1.32xlarge", "16", "8"),
        ("trn1n.32xlarge", "16", "16"),
        ("trn2.48xlarge", "16", "16"),
    ):
        sent = render(Script(filename="x.sh", content=b"true", nodes=2), make_cluster(fleet(kind)), "t")
        spec = train(sent)
        [main] = spec["containers"]
        for which in ("requests", "limits"):
            found = main["resources"][which]
            assert (found[names.device], found[names.efa], found["hugepages-2Mi"]) == (devices, efa, "5120Mi")
        assert spec["nodeSelector"]["node.kubernetes.io/instance-type"] == kind
        assert "aws.amazon.com/neurondevice" not in json.dumps(sent.jobs[0])
    small = render(Script(filename="x.sh", content=b"true"), make_cluster(fleet("trn1.2xlarge")), "t").jobs[0]
    text = json.dumps(small)
    assert (names.efa in text, "hugepages" in text) == (False, False)


def test_the_compiler_gets_the_lnc_of_the_node_group() -> None:
    other = make_cluster(fleet("trn2.48xlarge", cores=128, lnc=1))
    text = render(Script(filename="x.sh", content=b"true"), other, "t").files["node.sh"].decode()
    assert "export NPROC_PER_NODE=128" in text or "NPROC_PER_NODE=128 " in text
    assert "export NEURON_LOGICAL_NC_CONFIG=1\n" in text
    assert "export NEURON_CC_FLAGS=--logical-nc-config=1\n" in text
    assert "LOGICAL_NC" not in render(Script(filename="x.sh", content=b"true"), CLUSTER, "t").files["node.sh"].decode()


def test_a_type_that_only_the_environment_describes() -> None:
    unknown = fleet().model_copy(update={"instance_type": "trn9.96xlarge", "devices": 48, "efa": 24})
    sent = render(Script(filename="x.sh", content=b"true", nodes=2), make_cluster(unknown), "t")
    limits = train(sent)["containers"][0]["resources"]["limits"]
    assert (limits["aws.amazon.com/neuron"], limits["vpc.amazonaws.com/efa"]) == ("48", "24")
    assert schemas.validate_all(sent.objects) == []


@pytest.mark.parametrize(
    ("restarts", "capacity_type", "most"),
    [(None, "on-demand", 3), (None, "capacity-block", 3), (None, "spot", 20), (0, "spot", 0), (7, "on-demand", 7)],
)
def test_restarts(restarts: int | None, capacity_type: str, most: int) -> None:
    job = Script(filename="x.sh", content=b"true", restarts=restarts)
    made = render(job, make_cluster(fleet(capacity_type=capacity_type)), "t").jobs[0]
    assert made["spec"]["failurePolicy"]["maxRestarts"] == most


@pytest.mark.parametrize(("priority", "found"), [(None, None), ("high", "trn-high"), ("urgent", "urgent")])
def test_priority(priority: str | None, found: str | None) -> None:
    job = render(Script(filename="x.sh", content=b"true", priority=priority), CLUSTER, "t").jobs[0]
    assert job["metadata"]["labels"].get("kueue.x-k8s.io/priority-class") == found


def test_pods_have_minimal_permissions() -> None:
    for name, job in ALL.items():
        sent = render(job, home(name), "t")
        prepare = [o["spec"]["template"]["spec"] for o in sent.objects if o["kind"] == "Job"]
        assert len(prepare) == ("prepare" in sent.plan.stages)
        for spec in (train(sent), *prepare):
            assert spec["automountServiceAccountToken"] is False
            assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
            assert "hostNetwork" not in spec
            for container in [*spec.get("initContainers", []), *spec["containers"]]:
                may = container["securityContext"]
                assert (may["allowPrivilegeEscalation"], may["readOnlyRootFilesystem"]) == (False, True)
                assert may["capabilities"] == {"drop": ["ALL"]}
                assert may.get("runAsUser") == (0 if container["name"] == "folder" else None)
                assert container["resources"]["limits"]["memory"]


def test_the_environment_of_a_user_is_only_in_the_secret() -> None:
    submission = render(BertLarge(env={"TOKEN": "s3cret"}), CLUSTER, "t")
    assert "s3cret" in submission.secret["stringData"]["node.sh"]
    assert "s3cret" not in json.dumps(submission.objects[1:])


@pytest.mark.parametrize(
    ("id", "name"),
    [
        ("bert-large-t", "bert-large-t"),
        ("gpt-6.7b-t", "gpt-6-7b-t"),
        ("2.x-t", "job-2-x-t"),
        ("a" * MAX_NAME, "a" * MAX_NAME),
    ],
)
def test_names(id: str, name: str) -> None:
    assert object_name(id) == name


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=15)
@given(st.binary(min_size=1, max_size=200))
def test_scripts_arrive_byte_for_byte(content: bytes) -> None:
    try:
        job = Script(filename="show", content=content)
    except JobError:
        return  # an empty script
    submission = render(job, CLUSTER, "t")
    secret = next(YAML(typ="safe").load_all(submission.text))
    assert secret == submission.secret
    kept = secret["stringData"].get("script")
    assert (kept.encode() if kept is not None else base64.b64decode(secret["data"]["script"])) == content


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, max_size=4), st.dictionaries(st.from_regex(r"X_[A-Z]{1,8}", fullmatch=True), words, max_size=3))
def test_arguments_and_environment_arrive_byte_for_byte(tmp_path: Path, args: list[str], env: dict[str, str]) -> None:
    """The files of the Secret, run as the container runs them."""
    show = "".join(f' "${name}"' for name in env)
    content = f'#!/bin/bash\nprintf "%s\\0" "$#" "$@"{show} > /dev/fd/9\n'
    submission = render(Script(filename="show.sh", content=content.encode(), args=tuple(args), env=env), CLUSTER, "t")
    for path, text in submission.files.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(text.replace(b"files=/trn/job\n", b'files="$TRN_TEST_FILES"\n'))
    out = tmp_path / "out"
    variables = {"TRN_SHARED_ROOT": str(tmp_path), "TRN_TEST_FILES": str(tmp_path), "HOME": str(tmp_path / "home")}
    variables["TRN_SYS_ROOT"] = str(head_node.driver(tmp_path))
    done = subprocess.run(
        ["bash", "-c", 'exec 9> "$0"; exec bash "$1" train', str(out), str(tmp_path / "node.sh")],
        env={**variables, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert out.read_bytes() == b"".join(w.encode() + b"\0" for w in [str(len(args)), *args, *env.values()])

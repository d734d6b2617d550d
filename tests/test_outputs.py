"""The contract between stacks and jobs: what one side exports, the other reads, and nothing else is taken for it."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError
from botocore.hooks import HierarchicalEmitter
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.support import golden, many, table
from trainium_cdk import outputs, settings
from trainium_cdk.client.cli.options import read_cluster
from trainium_cdk.client.jobs.plan import plan
from trainium_cdk.description.outputs.contract import KEPT_DAYS
from trainium_cdk.description.outputs.read import deployed, deployment, elsewhere, stacks
from trainium_cdk.description.outputs.slurm import pcs_outputs
from trainium_cdk.description.settings.inventory import inventory
from trainium_cdk.jobs import JobError, Script

FOLDER = Path(__file__).parent / "environments"
ENVIRONMENTS = sorted(FOLDER.rglob("*.yaml"))
GOLDEN = Path(__file__).parent / "outputs.txt"
LARGEST = (
    """
name: a-name-of-exactly-thirty-chars
storage:
  efs: {mount_dir: /MOUNT}
  fsx: {mount_dir: /NOUNT}
bootstrap: {venv: /MOUNT/VENV}
pcluster:
  cluster_name: CLUSTER
  queues:
    - name: q123456789012345678901234
      compute_resources: [{name: r123456789012345678901234, instance_type: trn1n.32xlarge, max_nodes: 1000000}]
""".replace("MOUNT", "m" * 99)
    .replace("NOUNT", "n" * 99)
    .replace("CLUSTER", "c" * 60)
    .replace("VENV", "v" * 200)
)


def exports(env: settings.Environment, **more: str) -> outputs.Exports:
    """What the stack of its engine would export."""
    uri = "111122223333.dkr.ecr.us-east-1.amazonaws.com/trn" if env.registry.enabled else ""
    if "eks" in env.model_fields_set:
        role = "arn:aws:iam::111122223333:role/role"
        more = {
            "bastion_host_id": "i-0123456789abcdef0",
            "build_project": "build" if uri else "",
            "access_role": role,
        } | more
        return outputs.eks_outputs(env, **{"bucket": "trn-bucket", "registry_uri": uri} | more)
    if "pcs" in env.model_fields_set:
        more = {"cluster_id": "pcs_0123456789", "login_group_id": "pcs_abcdef0123"} | more
        return pcs_outputs(env, **{"bucket": "trn-bucket", "registry_uri": uri} | more)
    more = {"head_node_id": "i-0123456789abcdef0"} | more
    return outputs.slurm_outputs(env, **{"bucket": "trn-bucket", "registry_uri": uri} | more)


def exported(env: settings.Environment, **more: str) -> dict[str, str]:
    return {key: value for key, (value, _) in exports(env, **more).items()}


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda f: f"{f.parent.stem}-{f.stem}")
def test_round_trip(file: Path) -> None:
    env = settings.load(file)
    cluster = outputs.parse("Stack", env.region, exported(env))
    assert cluster.queues == tuple(dict.fromkeys(f.queue for f in cluster.fleets))
    assert [f for queue in cluster.queues for f in cluster.queue(queue)] == list(cluster.fleets)
    assert cluster.queue() == cluster.queue(cluster.queues[0])
    assert outputs.from_json(cluster.model_dump_json()) == cluster
    engine = next((name for name in ("eks", "pcs") if name in env.model_fields_set), "slurm")
    assert cluster.engine == engine
    assert list(cluster.queues) == list(dict.fromkeys(n.queue.name for n in inventory(env, engine).nodes))
    assert (cluster.containers, getattr(cluster, "shares_ssh_keys", None), getattr(cluster, "identity", None)) == {
        "slurm": (False, True, "i-0123456789abcdef0"), "eks": (True, None, None), "pcs": (False, False, "pcs_0123456789"),
    }[engine]  # fmt: skip


@pytest.mark.parametrize("section", ["", "eks: {}\n", "pcs: {}\n"])
def test_what_is_done_about_jobs_that_do_not_go_on(section: str) -> None:
    """Nothing is exported where they are only told of, so that a cluster needs no update."""
    env = settings.parse(f"{section}jobs: {{health: {{hang: restart, nan: stop}}}}\n")
    assert exported(env)["JobHealth"] == "hang=restart nan=stop"
    assert outputs.parse("Stack", env.region, exported(env)).health == "hang=restart nan=stop"
    plain = exported(settings.parse(f"{section}jobs: {{health: {{hang: tell}}}}\n"))
    assert "JobHealth" not in plain
    with pytest.raises(outputs.OutputsError, match="are not believed: health is 'hang=; rm'"):
        outputs.parse("Stack", env.region, {**plain, "JobHealth": "hang=; rm"})


@pytest.mark.parametrize("section", ["", "eks: {}\n", "pcs: {}\n"])
@pytest.mark.parametrize(("setting", "key"), [("keep", "JobKeep"), ("cache", "JobCache")])
def test_what_outlives_a_cluster(section: str, setting: str, key: str) -> None:
    """Without it nothing is exported, so that a cluster needs no update."""
    env = settings.parse(f"{section}jobs: {{{setting}: 's3://my-bucket/bert/2026/'}}\n")
    assert exported(env)[key] == "s3://my-bucket/bert/2026"
    assert getattr(outputs.parse("Stack", env.region, exported(env)), setting) == "s3://my-bucket/bert/2026"
    plain = exported(settings.parse(section))
    assert not {"JobKeep", "JobCache"} & set(plain)
    assert getattr(outputs.parse("Stack", env.region, plain), setting) == ""
    for bad in ("s3://my-bucket/a b", "s3://my-bucket/$(id)", "s3://my-bucket/../x", "s3://my-bucket/", "/my-bucket"):
        with pytest.raises(outputs.OutputsError, match=f"are not believed: {setting} is "):
            outputs.parse("Stack", env.region, {**plain, key: bad})


def test_the_contract() -> None:
    """What stacks export, and what a job reads: others depend on both."""
    lines = [f"kept in the bucket: {prefix} for {days} days" for prefix, days in KEPT_DAYS.items()]
    for name in (
        "trn1-2xlarge",
        "fsx-persistent-s3",
        "trn2u-reserved",
        "eks/all-settings",
        "eks/trn2u-reserved",
        "eks/claims",
        "eks/public",
        "pcs/all-settings",
    ):
        env = settings.load(FOLDER / f"{name}.yaml")
        lines += [f"{name}: {key} = {value} ({text})" for key, (value, text) in exports(env).items()]
        cluster = outputs.parse("Stack", env.region, exported(env)).model_dump(exclude={"fleets"})
        lines += [f"{name}: cluster.{field} = {value!r}" for field, value in cluster.items()]
    text = "\n".join([*lines, ""])
    assert golden(GOLDEN, text) == text


@pytest.mark.parametrize("text", [LARGEST, *(f.read_text("utf-8") for f in ENVIRONMENTS)])
def test_outputs_fit_cloudformation(text: str) -> None:
    """Names of letters and digits, values of 1 to 1,024 bytes, at most 200 of them, each described."""
    found = exports(settings.parse(text), bucket="b" * 63)
    assert len(found) <= 200
    for key, (value, description) in found.items():
        assert re.fullmatch(r"[A-Za-z0-9]{1,255}", key)
        assert 1 <= len(value.encode()) <= 1024, key
        assert 1 <= len(description) <= 1024


def test_many_fleets_keep_their_order() -> None:
    queues = ", ".join(f"{{name: q{i}}}" for i in range(12))
    found = exported(settings.parse(f"pcluster: {{queues: [{queues}]}}"))
    shuffled = dict(sorted(found.items()))  # as text, Fleet10 comes before Fleet2
    cluster = outputs.parse("Stack", "us-east-1", shuffled)
    assert cluster.queues == tuple(f"q{i}" for i in range(12))


def test_outputs_of_an_older_release_with_fewer_keys_are_read() -> None:
    env = settings.load(FOLDER / "eks/all-settings.yaml")
    fewer = {k: v for k, v in exported(env).items() if k not in {"RegistryUri", "MountDirs", "Claims"}}
    cluster = outputs.parse("S", env.region, fewer)
    assert isinstance(cluster, outputs.EksCluster)
    assert (cluster.registry_uri, cluster.mount_dirs, cluster.claims) == ("", (), ())


def test_outputs_of_a_newer_release_with_more_keys_are_read() -> None:
    found = exported(settings.Environment())
    fleet = json.loads(found["Fleet0"]) | {"colour": "blue"}
    more = found | {"Colour": "blue", "Fleet0": json.dumps(fleet), "FleetOwner": "me"}
    assert outputs.parse("S", "us-east-1", more) == outputs.parse("S", "us-east-1", found)


GOOD = exported(settings.Environment())


@pytest.mark.parametrize(
    ("bad", "message"),
    table(__file__, "invalid outputs"),
)
def test_invalid_outputs_are_refused(bad: dict[str, str], message: str) -> None:
    with pytest.raises(outputs.OutputsError) as caught:
        outputs.parse("S", "us-east-1", bad)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


EKS = exported(settings.load(FOLDER / "eks/all-settings.yaml"))
PCS = exported(settings.load(FOLDER / "pcs/all-settings.yaml"))
HOSTILE = (
    "--command=id",
    "-x",
    "a b",
    "$(id)",
    "`id`",
    "a;id",
    "a\nb",
    "../x",
    "/a/../b",
    "a\x1b]0;x\x07",
    "\u202ea",
    "a'b",
    "\u0661",
    "x" * 1000,
)
UNREAD = {"TrnContract", "TrnEngine", "NextStep", "WhenDestroyed"}


@pytest.mark.parametrize("good", [GOOD, EKS, PCS], ids=["slurm", "eks", "pcs"])
def test_no_hostile_output_is_believed(good: dict[str, str]) -> None:
    """Whoever may create a stack waits for an administrator's `trn clusters`, which asks every stack."""
    for key in set(good) - UNREAD:
        for value in HOSTILE:
            bad = [value]
            if good[key].startswith("{"):  # each text of a fleet or a team, and its numbers
                one = json.loads(good[key])
                texts = [name for name in one if isinstance(one[name], str)]
                numbers = [name for name in one if type(one[name]) is int]
                bad = [json.dumps({**one, name: value}) for name in texts]
                bad += [json.dumps({**one, name: n}) for name in numbers for n in (-1, 10**9)]
            for each in bad:
                with pytest.raises(outputs.OutputsError, match="outputs of stack S") as caught:
                    outputs.parse("S", "us-east-1", {**good, key: each})
                assert len(str(caught.value).splitlines()) == 1, key
                assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "user", ["root", "daemon", "slurm", "munge", "pcluster-admin", "ssm-user", "systemd-network", "0", ""]
)
def test_jobs_are_no_account_of_the_system(user: str) -> None:
    with pytest.raises(outputs.OutputsError, match="are not believed: job_user is"):
        outputs.parse("S", "us-east-1", {**GOOD, "JobUser": user})


KEYS = st.sampled_from(sorted(GOOD)) | st.text(max_size=20) | st.from_regex(r"Fleet[0-9]{0,6}", fullmatch=True)
VALUES = st.text(max_size=60) | st.sampled_from(["-", "", "{}", "[]", "null", "slurm", "eks", GOOD["Fleet0"]])


@hypothesis_settings(max_examples=many(300))
@given(other=st.dictionaries(KEYS, VALUES, max_size=4), missing=st.sets(st.sampled_from(sorted(GOOD)), max_size=2))
def test_any_outputs_are_a_cluster_or_an_error(other: dict[str, str], missing: set[str]) -> None:
    found = {k: v for k, v in (GOOD | other).items() if k not in missing}
    try:
        cluster = outputs.parse("S", "us-east-1", found)
    except outputs.OutputsError as e:
        error_text = str(e)
    else:
        assert outputs.parse("S", "us-east-1", found) == cluster
        assert cluster.queue() == cluster.queue(cluster.queues[0])
        return
    assert "stack S" in error_text
    assert len(error_text.splitlines()) == 1


@hypothesis_settings(max_examples=many(200))
@given(data=st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["engine", "stack", "fleets"]) | st.text(max_size=5), inner),
    max_leaves=8,
).map(lambda data: json.dumps(data).encode()))  # fmt: skip
def test_any_file_is_a_cluster_or_an_error(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        with pytest.raises(outputs.OutputsError, match="does not describe a cluster"):
            read_cluster(Path(file.name))


def test_an_unknown_queue() -> None:
    cluster = outputs.parse("S", "us-east-1", GOOD | {"Os": "x"})
    assert cluster.os == "x", "only - is empty"
    with pytest.raises(outputs.OutputsError, match="S has no queue 'gpu'; it has compute1"):
        cluster.queue("gpu")


class CloudFormation:
    """An account: region -> stacks. A region without an entry does not answer."""

    def __init__(self, account: dict[str, dict[str, dict[str, Any]]], region: str, quick: Config | None) -> None:
        self.meta = SimpleNamespace(region_name=region, events=HierarchicalEmitter())
        self.regions, self.quick = account, quick

    def describe_stacks(self, StackName: str) -> dict[str, Any]:  # noqa: N803
        if self.quick is not None:
            assert (self.quick.connect_timeout, self.quick.read_timeout) == (2, 5), "many regions are asked"
            assert self.quick.retries["total_max_attempts"] == 1
        if self.meta.region_name not in self.regions:
            raise EndpointConnectionError(endpoint_url=self.meta.region_name)
        found = self.regions[self.meta.region_name].get(StackName)
        if found is None:
            message = "is not allowed" if StackName == "denied" else f"Stack with id {StackName} does not exist"
            raise ClientError({"Error": {"Code": "ValidationError", "Message": message}}, "DescribeStacks")
        return {"Stacks": [found]}

    def get_paginator(self, operation: str) -> SimpleNamespace:
        assert operation == "describe_stacks"
        if self.meta.region_name not in self.regions:
            raise EndpointConnectionError(endpoint_url=self.meta.region_name)
        stacks = [{"StackName": n} | s for n, s in self.regions[self.meta.region_name].items()]
        return SimpleNamespace(paginate=lambda: [{"Stacks": stacks[:1]}, {"Stacks": stacks[1:]}])


def stack(status: str = "CREATE_COMPLETE", **found: str) -> dict[str, Any]:
    return {"StackStatus": status, "Outputs": [{"OutputKey": k, "OutputValue": v} for k, v in found.items()]}


ACCOUNT = {
    "us-east-1": {"TrnPclusterStack": stack(**GOOD), "b": stack("UPDATE_COMPLETE", **GOOD), "c": stack("DELETE_FAILED"),
                  "d": stack("UPDATE_ROLLBACK_COMPLETE", **GOOD), "TrnEksStack-x": stack("CREATE_IN_PROGRESS"), "none": {"StackStatus": "CREATE_COMPLETE"},
                  "TrnPclusterStack-ClusterProvider-1A2B": stack() | {"ParentId": "arn:of:TrnPclusterStack"}},
    "us-east-2": {"mine": stack(**GOOD | {"TrnEngine": "eks"})},
    "us-west-2": {"other": stack(VpcId="vpc-1"), "TrnPclusterStack-x": stack(**GOOD)},
}  # fmt: skip


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def client(service: str, region_name: str | None, config: Config) -> CloudFormation:
        assert service == "cloudformation"
        asked.append(region_name or "us-east-1")
        return CloudFormation(ACCOUNT, asked[-1], config if asked[-1] != asked[0] else None)

    monkeypatch.setattr(boto3, "client", client)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("name", "region"), [("TrnPclusterStack", None), ("b", None), ("d", None), ("TrnPclusterStack-x", "us-west-2")]
)
def test_a_stack_is_read(name: str, region: str | None) -> None:
    assert outputs.read(name, region) == outputs.parse(name, region or "us-east-1", GOOD)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    "status",
    [
        "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_ROLLBACK_COMPLETE_CLEANUP_IN_PROGRESS",
        "IMPORT_COMPLETE",
        "IMPORT_ROLLBACK_COMPLETE",
    ],
)
def test_a_stack_is_read_whose_last_change_has_ended(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACCOUNT["us-east-1"], "e", stack(status, **GOOD))
    assert outputs.read("e") == outputs.parse("e", "us-east-1", GOOD)


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize(
    ("arguments", "message"),
    table(__file__, "a stack that cannot be read"),
)
def test_a_stack_that_cannot_be_read(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(outputs.OutputsError) as caught:
        outputs.read(*arguments)
    assert str(caught.value) == message


@pytest.mark.usefixtures("account")
@pytest.mark.parametrize("status", ["UPDATE_FAILED", "UPDATE_ROLLBACK_FAILED"])
def test_a_stack_whose_update_failed_cannot_be_deployed_again(status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ACCOUNT["us-east-1"], "e", stack(status, **GOOD))
    with pytest.raises(outputs.OutputsError) as caught:
        outputs.read("e")
    assert str(caught.value) == (
        f"stack e is {status}, not deployed. Its last deployment failed: `trn why e` has the cause, and `trn diff` prints the command that "
        "ends its rollback"
    )


@pytest.mark.usefixtures("account")
def test_stacks_of_a_region() -> None:
    assert stacks("us-east-1") == ["TrnPclusterStack", "b", "d"]
    every = {one.name: one for one in deployed("us-east-1")}
    assert list(every) == ["TrnEksStack-x", "TrnPclusterStack", "b", "d"]
    assert every["b"].cluster() == outputs.parse("b", "us-east-1", GOOD)
    with pytest.raises(outputs.OutputsError, match="stack TrnEksStack-x is CREATE_IN_PROGRESS, not deployed"):
        every["TrnEksStack-x"].cluster()
    assert elsewhere("TrnPclusterStack-x", "us-west-2") == []
    assert elsewhere("TrnPclusterStack-x", "us-east-1") == ["us-west-2"]
    assert (stacks("us-east-2", "slurm"), stacks("us-east-2", "eks"), stacks("eu-west-1")) == ([], ["mine"], [])


def test_the_deployment_of_another_app() -> None:
    assert deployment("TrnEksStackOfMine") == "with the CDK app that it is part of"


def test_teams() -> None:
    """Each with its namespace and its nodes, without the role of those who may use the jobs' namespace."""
    env = settings.parse(
        "eks: {node_groups: [{name: trn}], queues: [{namespace: vision}, {namespace: speech, max_nodes: {trn: 0}}]}"
    )
    cluster = outputs.parse("Stack", env.region, exported(env)).model_copy(update={"access_role": "arn:of:a:role"})
    changes = {"namespace": "vision", "access_role": "", "teams": (), "team": "vision", "claims": ("efs-team-claim",)}
    assert cluster.of_team("vision") == cluster.model_copy(update=changes)
    with pytest.raises(outputs.OutputsError, match=r"^Stack has no team 'audio'; it has vision, speech$"):
        cluster.of_team("audio")
    without = cluster.model_copy(update={"teams": ()})
    with pytest.raises(outputs.OutputsError, match=r"^Stack has no team 'audio'; it has none \(eks.queues\)$"):
        without.of_team("audio")
    speech = cluster.of_team("speech")  # its jobs of before can be listed and cancelled
    assert (speech.namespace, speech.fleets) == ("speech", ())
    for more in ({}, {"queue": "trn"}, {"instance_type": "trn1.32xlarge"}):
        with pytest.raises(
            JobError, match=r"^team speech of Stack has no nodes\. Raise its max_nodes \(.* deploy again$"
        ):
            plan(Script(filename="a.sh", content=b"true", **more), speech)


def test_one_of_several_users() -> None:
    """What a user has of its own, and who cannot be one. A cluster with one user has no output about users, and no option."""
    env = settings.load(FOLDER / "login-and-accounting.yaml")
    cluster = outputs.parse("Stack", env.region, exported(env))
    ada = cluster.of_user("ada")
    assert isinstance(ada, outputs.SlurmCluster)
    assert (ada.job_user, ada.folder, ada.venv) == ("ada", "trn-users/ada", "~ubuntu/aws_neuron_venv_pytorch")
    assert outputs.from_json(ada.model_dump_json()) == ada
    assert cluster.of_user(outputs.slurm.JOBS_USER) == cluster
    one, eks = (settings.load(FOLDER / f"{name}.yaml") for name in ("tutorial", "eks/public"))
    assert "Users" not in exports(one)
    for of, name, message in (
        (env, "root", "'root' cannot be the name of a user"), (env, "-l", "'-l' cannot be"), (env, "ubuntu", "'ubuntu' cannot be"), (env, "a b", "Correct --user"),
        (one, "ada", "all jobs of Stack belong to trn-jobs. Remove --user ada, or deploy an environment with `users`"), (eks, "ada", "Remove --user ada"),
        (one, "a" * 81, f"Remove --user {'a' * 80}, or"),
    ):  # fmt: skip
        with pytest.raises(outputs.OutputsError, match=re.escape(message)):
            outputs.parse("Stack", of.region, exported(of)).of_user(name)


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda f: f"{f.parent.stem}-{f.stem}")
def test_each_output_says_what_it_is(file: Path) -> None:
    """In a sentence or so; what only `trn` reads says so."""
    for key, (value, description) in exports(settings.load(file)).items():
        assert len(description.split()) >= 3, key
        assert description.startswith("For the command trn: ") == value.startswith("{"), key


@pytest.mark.parametrize(
    ("engine", "on_destroy", "left"),
    [
        ("pcs", "delete", "nothing"),
        ("pcs", "keep", "data, logs and keys, as on_destroy is keep"),
        ("eks", "delete", "load balancers and volumes that your objects in Kubernetes have created"),
        ("slurm", "keep", "share; data, logs and keys, as on_destroy is keep"),
    ],
)
def test_the_last_output_names_what_the_cdk_leaves_and_the_command(engine: str, on_destroy: str, left: str) -> None:
    key, (text, _) = list(outputs.next_step("TrnEksStack-mine", "us-east-2", engine, on_destroy).items())[-1]
    command, _, leaves = text.partition(". Plain cdk destroy leaves ")
    assert key > max(["Venv", "Users", *EKS, *PCS, *GOOD])
    assert command == "trn destroy TrnEksStack-mine --region us-east-2"
    assert leaves == left or (engine == "slurm" and leaves.endswith(left))
    assert len(text) < 1024


def test_the_next_step_is_a_command_that_nothing_reads() -> None:
    from typer.testing import CliRunner

    from trainium_cdk.client.cli.app import app

    (key, (command, description)), *_ = outputs.next_step("TrnEksStack-mine", "us-east-2").items()
    env = settings.load(FOLDER / "trn1-2xlarge.yaml")
    assert outputs.parse("S", env.region, {**exported(env), key: command}) == outputs.parse(
        "S", env.region, exported(env)
    )
    assert (key, description.split(":")[0]) == ("NextStep", "Type this next")
    program, *words = command.split()
    assert program == "trn"
    assert words[-4:] == ["--stack", "TrnEksStack-mine", "--region", "us-east-2"]
    assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0

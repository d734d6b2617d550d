"""`trn --team`: jobs in a team's namespace, with the rights of a member of it alone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.kubernetes import build
from tests.jobs.kubernetes.conftest import EFS, FOLDERS, NAME, Running, access_point, apply, make_cluster, script
from tests.jobs.kubernetes.test_inside import SERVER
from tests.support import completed, until
from trainium_cdk import outputs, settings
from trainium_cdk.cdk.eks import kueue, manifests
from trainium_cdk.cdk.eks.access import groups_of
from trainium_cdk.cdk.eks.boundaries import boundaries, network_policies
from trainium_cdk.cdk.eks.installation import Installation
from trainium_cdk.client.jobs.kubernetes import KubernetesBackend, kubernetes_api, render, status
from trainium_cdk.client.jobs.kubernetes.objects import objects
from trainium_cdk.errors import JobError, OutputsError

QUEUES = [{"namespace": "speech", "nodes": {"trn": 1}, "max_nodes": {"trn": 1}}, {"namespace": "vision"}]
ENV = settings.validate({"eks": {"node_groups": [{"name": "trn", "max_nodes": 4}], "queues": QUEUES}})


def test_the_outputs_of_a_stack_name_its_teams() -> None:
    exported = outputs.eks_outputs(ENV, bucket="trn-bucket")
    found = outputs.parse("TrnEksStack", "us-east-1", {key: value for key, (value, _) in exported.items()})
    speech, vision = found.of_team("speech"), found.of_team("vision")
    assert isinstance(speech, outputs.EksCluster)
    assert (speech.namespace, speech.access_role, [f.nodes for f in speech.fleets]) == ("speech", "", [1])
    assert [f.nodes for f in vision.fleets] == [4]
    assert found.claims == speech.claims == ("efs-team-claim",), "each namespace has a folder of its own"
    both = {"claims": ("efs-team-claim", "fsx-claim"), "mount_dirs": ("/efs", "/fsx")}
    alone = {"claims": ("fsx-claim",), "mount_dirs": ("/fsx",), "shared_dir": "/fsx"}
    made = [c.model_copy(update=on) for on in ({}, both, alone) for c in (found, speech)]
    first = [
        status.train_spec(objects(render(script(image="x", nodes=1), c, "t"), c).jobs[0])["initContainers"][0]
        for c in made
    ]
    assert [one["securityContext"].get("runAsUser") for one in first] == [None, None, None, None, 0, 0], (
        "root makes the jobs' folder on FSx for Lustre alone"
    )
    assert [c.needs_root("/fsx/data") for c in made[2:]] == [True, False, True, True], (
        "of a team with EFS no pod is root, and another namespace makes the first folder"
    )
    caches = [
        next(
            one["value"]
            for one in status.train_spec(
                objects(render(script(image="x", nodes=1, **more), cluster, "t"), cluster).jobs[-1]
            )["containers"][0]["env"]
            if one["name"] == "TRN_HOST"
        )
        for cluster in (found, speech, vision)
        for more in ({}, {"array": "0-1"})
    ]
    member = "member-1-"
    assert caches == [f"{team}{of}" for team in ("", "team-speech-", "team-vision-") for of in ("", member)], (
        "their jobs run at once, and each namespace has locks of its own"
    )
    with pytest.raises(JobError, match="nodes is 2, but queue trn has at most 1"):
        render(script(image="x"), speech, "t")
    for cluster, message in [(found, "no team 'sound'; it has speech, vision"), (make_cluster(), "it has none")]:
        with pytest.raises(OutputsError, match=message):
            cluster.of_team("sound")


@pytest.fixture
def member(running: Running, local_aws: LocalAws) -> Iterator[dict[str, str]]:
    """The environment of a member of the team `speech`, whose namespace is made here."""
    wanted, eks, iam = Installation.of(ENV), local_aws.client("eks"), local_aws.client("iam")
    own = [
        *manifests.namespaces(wanted, ["speech", "vision"]), manifests.service_account(wanted, "speech"), *manifests.access(wanted),
        *network_policies(wanted), *boundaries(wanted), *manifests.volumes(wanted, [EFS], FOLDERS), *kueue.queues(wanted),
    ]  # fmt: skip
    apply(
        running.kubernetes,
        [
            o
            for o in own
            if {"speech", "read"}.intersection(
                (o["metadata"].get("namespace"), *o["metadata"]["name"].split("."), *o["metadata"]["name"].split("-"))
            )
        ],
    )
    access_point(running.kubernetes, "speech-efs-team-fs-0123456789abcdef0")
    arn = iam.create_user(UserName="speech")["User"]["Arn"]
    key = iam.create_access_key(UserName="speech")["AccessKey"]
    may = '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "eks:DescribeCluster", "Resource": "*"}]}'
    iam.put_user_policy(UserName="speech", PolicyName="describe", PolicyDocument=may)
    eks.create_access_entry(clusterName=NAME, principalArn=arn, kubernetesGroups=groups_of("edit", "speech"))
    eks.associate_access_policy(
        clusterName=NAME, principalArn=arn, policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy",
        accessScope={"type": "namespace", "namespaces": ["speech"]},
    )  # fmt: skip
    keys = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    yield {**running.variables, **keys, "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    eks.delete_access_entry(clusterName=NAME, principalArn=arn)
    iam.delete_access_key(UserName="speech", AccessKeyId=key["AccessKeyId"])
    iam.delete_user_policy(UserName="speech", PolicyName="describe")
    iam.delete_user(UserName="speech")


def test_a_member_submits_follows_and_cancels(
    running: Running, member: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teams = tuple(outputs.eks.Team(namespace=each["namespace"]) for each in QUEUES)
    file, program = tmp_path / "cluster.json", tmp_path / "run.sh"
    file.write_text(running.cluster.model_copy(update={"teams": teams}).model_dump_json())
    step = "LOG Wed Dec 21 00:12:27 2022 - (0, 7) step_loss : 2.5 learning_rate : 1e-3 throughput : 100.0"
    program.write_text(f"echo '{step}'\necho from $(hostname)\n")

    def trn(*words: str, team: str = "speech") -> subprocess.CompletedProcess[str]:
        environment = {**member, "TRN_CLUSTER": str(file), "TRN_TEAM": team}
        return completed(["trn", *words], env=environment)

    sent = trn("submit", str(program), "--image", "registry.example/train:1", "--token", "team")
    assert sent.returncode == 0, sent.stderr
    [id] = sent.stdout.split()
    assert f"trn logs -f {id} --team speech" in sent.stderr
    done = trn("status", "--wait", id)
    assert done.returncode == 0, done.stderr
    assert f"from {id}-train-0-0" in trn("logs", id).stdout
    assert [json.loads(line)["step"] for line in trn("logs", id, "--metrics", "--tail", "1").stdout.splitlines()] == [7]
    assert id in trn("list").stdout
    assert "may run one of another team: trn list --team NAME" in trn("nodes").stderr
    config = tmp_path / "config"
    written = trn("show", "kubeconfig", "-o", str(config))
    assert written.returncode == 0, written.stderr
    listed = completed(
        [build.program("kubectl"), "get", "jobsets", "-o", "name"],
        env={**member, "KUBECONFIG": str(config), "HOME": str(tmp_path)},
    )
    assert listed.stdout.split() == [f"jobset.jobset.x-k8s.io/{id}"], listed.stderr
    program.write_text("sleep 3600\n")
    [second] = trn("submit", str(program), "--image", "registry.example/train:1", "--token", "two").stdout.split()
    assert until(lambda: "RUNNING" in trn("status", second).stdout)
    inside = trn("shell", second, "--", "bash", "-c", "echo node $JOB_COMPLETION_INDEX; exit 3")
    assert (inside.returncode, inside.stdout) == (3, "node 0\n"), inside.stderr
    tool = running.tools / "tensorboard"
    tool.write_text(SERVER.replace('"$PYTHON"', sys.executable))
    tool.chmod(0o755)
    with subprocess.Popen(
        ["trn", "forward", id, "--tensorboard", "--team", "speech"],
        env={**member, "TRN_CLUSTER": str(file)},
        stdout=subprocess.PIPE,
        text=True,
    ) as board:
        try:
            assert board.stdout
            url = board.stdout.readline().strip()
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=300) as answer:
                assert answer.status == 200
        finally:
            board.send_signal(signal.SIGINT)
        assert board.wait(120) == 0
    tool.unlink()
    assert "CANCELLED" in trn("cancel", second).stdout + trn("status", second).stdout
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", running.variables["AWS_ACCESS_KEY_ID"])
    others = KubernetesBackend(running.cluster, lambda: kubernetes_api(running.cluster))
    assert id not in others.ids(1000), "it is in the team's namespace"
    others.api.close()
    for team, message in {"sound": "no team 'sound'; it has speech, vision", "vision": "not allowed"}.items():
        refused = trn("list", team=team)
        assert refused.returncode == 1
        assert message in refused.stderr

"""`TrnPcsStack`: its template, and its whole life in the local AWS: deployed, trained on, changed, refused, removed."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template
from ruamel.yaml import YAML

from sandbox import LocalAws, processes, slurm
from sandbox.datasets import seed_datasets
from tests.cdk import findings, needs, only, properties, resources
from tests.stacks import keys
from tests.stacks.conftest import Cdk
from tests.stacks.synthesis import PCS, ROOT
from tests.support import completed, need_slurm
from tests.told import told
from trainium_cdk import outputs, settings
from trainium_cdk.client.cli import app as cli
from trainium_cdk.client.jobs.slurm.ssm import login_node
from trainium_cdk.description.outputs.slurm import GROUP_TAG
from trainium_cdk.errors import TransportError, TrnError
from trainium_cdk.jobs import LocalTransport, SlurmBackend

STACK, ENGINE = "TrnPcsStack", "pcs"


def groups(found: Template) -> dict[str, dict[str, Any]]:
    return {g["Name"]: g for g in properties(found, "PCS::ComputeNodeGroup")}


@pytest.mark.parametrize("name", PCS.names)
def test_cloudformation_accepts_it(name: str) -> None:
    assert findings(PCS.template(name)) == []


def test_every_setting_reaches_the_service() -> None:
    found, of = PCS.template("pcs/all-settings"), groups(PCS.template("pcs/all-settings"))
    cluster = only(found, "PCS::Cluster")
    assert (cluster["Name"], cluster["Size"], cluster["Scheduler"]["Version"]) == ("speech-training", "MEDIUM", "25.11")
    assert cluster["SlurmConfiguration"] == {
        "Accounting": {"Mode": "STANDARD"},
        "ScaleDownIdleTimeInSeconds": 1200,
        "SlurmCustomSettings": [{"ParameterName": "MinJobAge", "ParameterValue": "86400"}],
    }
    assert {n: (g["ScalingConfiguration"]["MinInstanceCount"], g["ScalingConfiguration"]["MaxInstanceCount"]) for n, g in of.items()} == {
        "login": (1, 1), "bert-kept": (0, 4), "bert-more": (0, 16), "cheap-small": (0, 40), "data": (1, 3),
    }  # fmt: skip
    assert [of[n]["AmiId"][-1] for n in ("login", "bert-kept", "cheap-small")] == ["0", "0", "1"]
    assert [of[n]["PurchaseOption"] for n in ("bert-kept", "cheap-small")] == ["ONDEMAND", "SPOT"]
    of_slurm = {
        n: {s["ParameterName"]: s["ParameterValue"] for s in g["SlurmConfiguration"]["SlurmCustomSettings"]}
        for n, g in of.items()
        if n != "login"
    }
    assert of_slurm["bert-kept"] == {"Features": "kept,trn1.32xlarge,efa", "Weight": "1"}
    assert of_slurm["data"] == {"Features": "data,m5.4xlarge"}
    assert of_slurm["bert-more"] == {"Features": "more,trn1.32xlarge,efa", "Weight": "1000"}
    queues = {q["Name"]: q for q in properties(found, "PCS::Queue")}
    assert [len(queues[n]["ComputeNodeGroupConfigurations"]) for n in ("bert", "cheap", "data")] == [2, 1, 1]
    defaults = {
        n: {s["ParameterName"] for s in q["SlurmConfiguration"]["SlurmCustomSettings"]} for n, q in queues.items()
    }
    assert defaults == {"bert": {"OverSubscribe", "Default"}, "cheap": {"OverSubscribe"}, "data": {"OverSubscribe"}}
    assert [
        q["Name"]
        for q in properties(found, "PCS::Queue")
        if {"ParameterName": "OverSubscribe", "ParameterValue": "EXCLUSIVE"}
        not in q["SlurmConfiguration"]["SlurmCustomSettings"]
    ] == []


def test_nodes_mount_and_configure_themselves() -> None:
    [script] = groups(PCS.template("pcs/all-settings"))["bert-more"]["NodeLifecycleActions"]["Stages"][
        "NodeBootstrapped"
    ]
    assert (script["OnError"], len(script["ScriptSource"]["Checksum"])) == ("TERMINATE", 64)
    text = json.dumps(script["Arguments"])
    for part in (
        "TRN_NODE_ROLE=compute",
        "TRN_NEURON_DEVICES_EXPECTED=16",
        "TRN_EFA_EXPECTED=8",
        "TRN_MOUNT_SOURCES=efs:",
        " fsx:",
        "TRN_VENV=/efs/",
    ):
        assert part in text


def test_nodes_of_the_cpu_queue_install_no_neuron_software() -> None:
    group = groups(PCS.template("pcs/all-settings"))["data"]
    [script] = group["NodeLifecycleActions"]["Stages"]["NodeBootstrapped"]
    text = json.dumps(script["Arguments"])
    assert ("TRN_NODE_ROLE=cpu" in text, "TRN_NEURON_DEVICES" in text) == (True, False)
    assert group["InstanceConfigs"] == [{"InstanceType": "m5.4xlarge"}]


def test_launch_templates_and_roles() -> None:
    found = PCS.template("pcs/all-settings")
    by_name = {
        next(t["Value"] for t in data["TagSpecifications"][0]["Tags"] if t["Key"] == "Name"): data
        for data in (p["LaunchTemplateData"] for p in properties(found, "EC2::LaunchTemplate"))
    }
    kept, more, login = (by_name[f"speech-training-{n}"] for n in ("bert-kept", "bert-more", "login"))
    assert [i["InterfaceType"] for i in more["NetworkInterfaces"]] == ["efa", *["efa-only"] * 7]
    assert ("Placement" in more, "Placement" in kept) == (True, False)
    assert (
        kept["CapacityReservationSpecification"]["CapacityReservationTarget"]["CapacityReservationId"]
        == "cr-0123456789abcdef0"
    )
    assert all(d["MetadataOptions"]["HttpTokens"] == "required" for d in by_name.values())
    assert all(d["BlockDeviceMappings"][0]["Ebs"]["KmsKeyId"] for d in by_name.values())
    assert "NetworkInterfaces" not in login
    for kind in ("IAM::InstanceProfile",):
        assert {p["Path"] for p in properties(found, kind)} == {"/aws-pcs/"}
    block = groups(PCS.template("pcs/trn2-capacity-block"))["compute1-trn"]
    assert block["PurchaseOption"] == "CAPACITY_BLOCK"


def test_a_node_starts_when_everything_that_it_needs_is_there() -> None:
    found = PCS.template("default")
    ids = {r["Properties"]["Name"]: i for i, r in resources(found, "PCS::ComputeNodeGroup").items()}
    kinds = {found.to_json()["Resources"][r]["Type"] for r in needs(found, ids["login"])}
    assert {"AWS::EFS::MountTarget", "AWS::EC2::Route", "Custom::TrnNodeScripts", "AWS::IAM::ManagedPolicy"} <= kinds


@pytest.fixture
def datasets(local_aws: LocalAws) -> None:
    seed_datasets(local_aws.client("s3"))


def small(nodes: int = 2, **more: Any) -> dict[str, Any]:
    return {"pcs": {"queues": [{"name": "bert", "compute_resources": [{"max_nodes": nodes}]}], **more}}


@pytest.mark.usefixtures("datasets")
@pytest.mark.sweep
def test_life_of_a_cluster(
    cdk: Cdk, local_aws: LocalAws, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_slurm()
    stack, file = f"TrnPcsStack-{name}", tmp_path / "environment.yaml"

    def trn(*words: str, ok: bool = True) -> str:
        done = completed(
            [sys.executable, "-m", "trainium_cdk.client.cli", *words],
            cwd=ROOT,
            env={**local_aws.env, "TRN_ENV": str(file)},
        )
        assert (done.returncode == 0) is ok, (done.stdout + done.stderr)[-3000:]
        return done.stdout + done.stderr

    first = {**small(), "encryption": "customer-key"}
    YAML().dump({"name": name, **small()}, file)
    shown = trn("check", "TrnPcsStack")
    assert "PCS-ready image" in shown
    assert "no price of Slurm controller: small" in " ".join(shown.split())
    code, output = cdk("deploy", first)
    assert code == 0, output
    assert keys.without(local_aws, stack) == {}
    found = local_aws.client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
    cluster = outputs.parse(stack, "us-east-1", {o["OutputKey"]: o["OutputValue"] for o in found})
    assert isinstance(cluster, outputs.PcsCluster)
    config = YAML(typ="safe", pure=True).load(local_aws.directory / f"clusters/{name}-pcs/config.yaml")

    def training() -> int:
        """Running EC2 instances of the type that trains."""
        kind = [
            {"Name": "instance-type", "Values": ["trn1.32xlarge"]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
        found = local_aws.client("ec2").describe_instances(Filters=kind)["Reservations"]
        return sum(len(reservation["Instances"]) for reservation in found)

    def resumed() -> list[str]:
        """The nodes that Slurm has started, in that order."""
        lines = re.findall(r"^resume (.*)$", (tmp_path / "slurm/log/power.log").read_text(), re.MULTILINE)
        return [node for nodes in lines for node in nodes.split()]

    with slurm.LocalSlurm.start(tmp_path / "slurm", config, environment=local_aws.variables, idle_seconds=3) as local:
        local.attach(local_aws.directory / f"clusters/{name}-pcs")
        of = ("--stack", stack)
        off = {"bert-trn-1": "idle~", "bert-trn-2": "idle~"}
        assert (training(), {n: s for n, s in local.node_states().items() if n in off}) == (0, off)
        trn("submit", "bert-large", "--nodes", "2", "--steps", "4", "--token", "life", *of)
        assert "step 4: loss" in trn("logs", "bert-large-life", "--follow", "--node", "0", *of)
        assert "bert-[1-2]" not in trn("status", "bert-large-life", *of)
        assert "bert-trn-[1-2]" in trn("status", "bert-large-life", *of)
        # while it was prepared, no Trainium node ran; nor does one for an evaluation
        started = resumed()
        assert (started[0], set(started)) == ("cpu-1", {"cpu-1", "bert-trn-1", "bert-trn-2"})
        assert processes.wait_until(lambda: training() == 0, 120, 0.2)
        (tmp_path / "evaluate.sh").write_text("echo evaluated on $SLURMD_NODENAME\n")
        trn("submit", str(tmp_path / "evaluate.sh"), "--queue", "cpu", "--token", "cpu", *of)
        assert "evaluated on cpu-" in trn("logs", "evaluate-cpu", "--follow", *of)
        assert (training(), {node for node in resumed()[len(started) :] if not node.startswith("cpu-")}) == (0, set())
        # PCS replaces a login node that failed; the next command finds the new one
        ec2 = local_aws.client("ec2")
        tagged = [{"Name": f"tag:{GROUP_TAG}", "Values": [cluster.login_group_id]}]
        [old] = [
            i["InstanceId"] for r in ec2.describe_instances(Filters=tagged)["Reservations"] for i in r["Instances"]
        ]
        ec2.terminate_instances(InstanceIds=[old])
        for key, value in local_aws.env.items():
            monkeypatch.setenv(key, value)
        with pytest.raises(TransportError, match=f"no login node of {name}-pcs is running"):
            login_node(cluster)
        changed = small(3, login={"root_volume_gib": 120}) | {"encryption": "customer-key"}
        code, output = cdk("deploy", changed)
        assert code == 0, output
        local.update(YAML(typ="safe", pure=True).load(local_aws.directory / f"clusters/{name}-pcs/config.yaml"))
        assert "bert-trn-3" in local.node_names
        local_aws.set_answers("capacity", {"trn1.32xlarge": 2})
        (tmp_path / "short.sh").write_text("true\n")
        trn("submit", str(tmp_path / "short.sh"), "--nodes", "3", "--token", "short", *of)
        refused = "Failed to launch backing instance (Error Code: InsufficientInstanceCapacity)"
        assert processes.wait_until(lambda: refused in local.run(["scontrol", "show", "node"]).stdout, 60, 0.2)
        waits = "waits for nodes; EC2 reported InsufficientInstanceCapacity for bert-trn-"
        short, seen = SlurmBackend(cluster, LocalTransport(env=local.node_env(), interval=0.2)), [""]

        def told_why() -> bool:
            seen.append(short.status("short-short").current.reason)
            return waits in seen[-1]

        assert processes.wait_until(told_why, 60, 0.2)
        reason = re.sub(r"bert-trn-\S+", "bert-trn-1", seen[-1])
        assert processes.wait_until(lambda: waits in " ".join(trn("status", "short-short", *of).split()), 60, 0.2)
        told("no capacity", "PCS", "trn status", reason)
        assert training() <= 2
        trn("cancel", "short-short", *of)
        local_aws.set_answers("capacity", None)
        assert processes.wait_until(lambda: training() == 0, 120, 0.2)
        assert "bert-large-life: COMPLETED" in trn("status", "bert-large-life", *of)
    here = str((tmp_path / "slurm").resolve())
    assert processes.with_environment(lambda env: env.get("TRN_SANDBOX") == here) == []
    assert cluster.cluster_id == local_aws.client("pcs").list_clusters()["clusters"][0]["id"]
    assert "no change" in trn("diff", "TrnPcsStack")
    # what PCS does not change is refused before CloudFormation finds that the name is taken
    larger = {**small(3, size="medium"), "encryption": "customer-key"}
    YAML().dump({"name": name, **larger}, file)
    assert "PCS does not change it" in trn("diff", "TrnPcsStack", ok=False)
    code, output = cdk("deploy", larger)
    assert code == 1
    assert f"A cluster named {name}-pcs already exists" in output


def test_job_scripts_name_the_cluster_and_the_shared_environment(tmp_path: Path) -> None:
    exported = outputs.pcs_outputs(
        settings.load(), cluster_id="pcs_abc1234567", login_group_id="pcs_def", bucket="trn-bucket"
    )
    cluster = outputs.parse("TrnPcsStack", "us-east-1", {k: v for k, (v, _) in exported.items()})
    assert isinstance(cluster, outputs.PcsCluster)
    assert (cluster.identity, cluster.venv, cluster.engine) == ("pcs_abc1234567", "/efs/aws_neuron_venv_pytorch", "pcs")
    assert cluster.fleets == outputs.fleets(settings.load(), "pcs")
    assert outputs.from_json(cluster.model_dump_json()) == cluster
    assert cluster.login_group_id == "pcs_def"
    (tmp_path / "cluster.json").write_text(cluster.model_dump_json())
    with pytest.raises(TrnError, match=r"TrnPcsStack has no ParallelCluster.*Nodes without a job stop automatically"):
        cli.app(["nodes", "stop", "--cluster", str(tmp_path / "cluster.json")], standalone_mode=False)

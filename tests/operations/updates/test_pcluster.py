"""Our table of ParallelCluster's update policies, against ParallelCluster itself."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from sandbox import LocalAws
from sandbox.pcluster_validator import PCLUSTER_PYTHON, PclusterValidator, ValidatorError, installed_version
from tests.pcluster.examples import ids_for
from tests.pcluster.test_validators import stringified
from tests.support import completed, need
from tests.trust.figures import record
from trainium_cdk import settings
from trainium_cdk.cluster_configuration.config import Config, render
from trainium_cdk.operations.updates.pcluster import changes, policy

Edit = Callable[[Config], object]
BASE = {
    "tags": {"team": "speech", "cost": "7"},
    "storage": {"efs": {}, "fsx": {}},
    "pcluster": {
        "head": {"subnet": "public", "ssh": {"from_cidrs": ["203.0.113.0/24"]}},
        "login_nodes": {"count": 2},
        "accounting": {
            "uri": "db.example.com:3306",
            "user": "slurm",
            "password_secret": "arn:aws:secretsmanager:us-east-1:111122223333:secret:slurm-AbCdEf",
        },
        "slurm_settings": [{"MaxJobCount": 20000}],
        "queues": [
            {"name": "compute1", "compute_resources": [{"name": "trn", "min_nodes": 1, "max_nodes": 16}]},
            {
                "name": "small",
                "placement_group": "off",
                "compute_resources": [
                    {"name": "one", "instance_type": "trn1.2xlarge", "max_nodes": 4},
                    {"name": "two", "instance_type": "trn1.32xlarge", "max_nodes": 4, "efa": "off"},
                ],
            },
        ],
    },
}


def queue(c: Config, number: int = 0) -> Config:
    found: Config = c["Scheduling"]["SlurmQueues"][number]
    return found


def resource(c: Config, number: int = 0, which: int = 0) -> Config:
    found: Config = queue(c, number)["ComputeResources"][which]
    return found


def slurm(c: Config) -> Config:
    found: Config = c["Scheduling"]["SlurmSettings"]
    return found


def more(c: Config) -> None:
    added = copy.deepcopy(queue(c))
    c["Scheduling"]["SlurmQueues"].append({**added, "Name": "more"})


def grown(c: Config) -> None:
    resource(c).update(MinCount=5, MaxCount=20)


EDITS: dict[str, Edit] = {
    "more nodes": lambda c: resource(c).update(MaxCount=32),
    "fewer nodes": lambda c: resource(c).update(MaxCount=8),
    "more static nodes": lambda c: resource(c).update(MinCount=2),
    "more static nodes, and room for them": grown,
    "fewer static nodes": lambda c: resource(c).update(MinCount=0),
    "one queue more": more,
    "one queue less": lambda c: c["Scheduling"]["SlurmQueues"].pop(),
    "one compute resource more": lambda c: queue(c)["ComputeResources"].append({**resource(c), "Name": "other"}),
    "one compute resource less": lambda c: queue(c, 1)["ComputeResources"].pop(),
    "a queue with another name": lambda c: queue(c).update(Name="renamed"),
    "another instance type": lambda c: resource(c).update(InstanceType="trn1n.32xlarge"),
    "spot": lambda c: queue(c).update(CapacityType="SPOT"),
    "a reservation": lambda c: resource(c).update(CapacityReservationTarget={"CapacityReservationId": "cr-1"}),
    "hyperthreads": lambda c: resource(c).update(DisableSimultaneousMultithreading=False),
    "EFA off": lambda c: resource(c).update(Efa={"Enabled": False}),
    "no placement group": lambda c: queue(c)["Networking"].update(PlacementGroup={"Enabled": False}),
    "a placement group for one": lambda c: resource(c, 1).update(Networking={"PlacementGroup": {"Enabled": True}}),
    "a placement group with a name": lambda c: queue(c, 1)["Networking"].update(PlacementGroup={"Name": "mine"}),
    "another subnet": lambda c: queue(c)["Networking"].update(SubnetIds=["subnet-2"]),
    "one subnet more": lambda c: queue(c)["Networking"]["SubnetIds"].append("subnet-2"),
    "other groups": lambda c: queue(c)["Networking"].update(AdditionalSecurityGroups=["sg-2"]),
    "a larger root volume": lambda c: queue(c)["ComputeSettings"]["LocalStorage"]["RootVolume"].update(Size=900),
    "new scripts on the nodes": lambda c: queue(c)["CustomActions"]["OnNodeConfigured"].update(Args=["s3://b/new.zip"]),
    "an image": lambda c: queue(c).update(Image={"CustomAmi": "ami-1"}),
    "shared nodes": lambda c: queue(c).update(JobExclusiveAllocation=False),
    "a policy more": lambda c: queue(c)["Iam"]["AdditionalIamPolicies"].append({"Policy": "arn:aws:iam::aws:policy/X"}),
    "a bucket for a queue": lambda c: queue(c)["Iam"].update(S3Access=[{"BucketName": "b"}]),
    "another idle time": lambda c: slurm(c).update(ScaledownIdletime=30),
    "a Slurm setting": lambda c: slurm(c).update(CustomSlurmSettings=[{"MaxJobCount": 1}]),
    "no Slurm setting": lambda c: slurm(c).pop("CustomSlurmSettings"),
    "no accounting": lambda c: slurm(c).pop("Database"),
    "another accounting user": lambda c: slurm(c)["Database"].update(UserName="other"),
    "names by EC2": lambda c: slurm(c).update(Dns={"UseEc2Hostnames": True}),
    "jobs are killed": lambda c: slurm(c).update(QueueUpdateStrategy="TERMINATE"),
    "no strategy": lambda c: slurm(c).pop("QueueUpdateStrategy"),
    "another head node": lambda c: c["HeadNode"].update(InstanceType="c5.9xlarge"),
    "another head node's subnet": lambda c: c["HeadNode"]["Networking"].update(SubnetId="subnet-2"),
    "other groups of the head node": lambda c: c["HeadNode"]["Networking"].update(AdditionalSecurityGroups=["sg-2"]),
    "no address": lambda c: c["HeadNode"]["Networking"].pop("ElasticIp"),
    "a larger head node's disk": lambda c: c["HeadNode"]["LocalStorage"]["RootVolume"].update(Size=900),
    "another key": lambda c: c["HeadNode"]["Ssh"].update(KeyName="other"),
    "SSH from elsewhere": lambda c: c["HeadNode"]["Ssh"].update(AllowedIps="198.51.100.0/24"),
    "another script of the head node": lambda c: c["HeadNode"]["CustomActions"]["OnNodeConfigured"].update(Args=["x"]),
    "another update script": lambda c: c["HeadNode"]["CustomActions"]["OnNodeUpdated"].update(Args=["x"]),
    "a start script": lambda c: c["HeadNode"]["CustomActions"].update(OnNodeStart={"Script": "s3://b/x.sh"}),
    "another image of the head node": lambda c: c["HeadNode"].update(Image={"CustomAmi": "ami-1"}),
    "IMDS for everyone": lambda c: c["HeadNode"]["Imds"].update(Secured=False),
    "another system": lambda c: c["Image"].update(Os="ubuntu2204"),
    "another region": lambda c: c.update(Region="us-west-2"),
    "more login nodes": lambda c: c["LoginNodes"]["Pools"][0].update(Count=3),
    "a larger login node": lambda c: c["LoginNodes"]["Pools"][0].update(InstanceType="c5.9xlarge"),
    "no login nodes": lambda c: c.pop("LoginNodes"),
    "FSx unmounted": lambda c: c["SharedStorage"].pop(),
    "another FSx": lambda c: c["SharedStorage"][1]["FsxLustreSettings"].update(FileSystemId="fs-2"),
    "one file system more": lambda c: c["SharedStorage"].append(
        {"Name": "b", "MountDir": "/b", "StorageType": "Efs", "EfsSettings": {"FileSystemId": "fs-3"}}
    ),
    "a volume of the cluster": lambda c: c["SharedStorage"].append(
        {"Name": "v", "MountDir": "/v", "StorageType": "Ebs", "EbsSettings": {"Size": 100}}
    ),
    "EFS without TLS": lambda c: c["SharedStorage"][0]["EfsSettings"].update(EncryptionInTransit=False),
    "longer logs": lambda c: c["Monitoring"]["Logs"]["CloudWatch"].update(RetentionInDays=90),
    "no logs": lambda c: c["Monitoring"]["Logs"]["CloudWatch"].update(Enabled=False),
    "detailed monitoring": lambda c: c["Monitoring"].update(DetailedMonitoring=True),
    "no dashboard": lambda c: c["Monitoring"]["Dashboards"]["CloudWatch"].update(Enabled=False),
    "a tag": lambda c: c["Tags"].append({"Key": "new", "Value": "1"}),
    "a tag's value": lambda c: c["Tags"][0].update(Value="8"),
    "no tags": lambda c: c.pop("Tags"),
    "another mount point": lambda c: c["SharedStorage"][0].update(MountDir="/elsewhere"),
    "another name of a file system": lambda c: c["SharedStorage"][0].update(Name="renamed"),
    "a managed FSx": lambda c: c["SharedStorage"].append(
        {"Name": "m", "MountDir": "/m", "StorageType": "FsxLustre", "FsxLustreSettings": {"StorageCapacity": 1200}}
    ),
    "another home": lambda c: c["SharedStorage"].append(
        {"Name": "h", "MountDir": "/home", "StorageType": "Efs", "EfsSettings": {"FileSystemId": "fs-4"}}
    ),
    "EFS without IAM": lambda c: c["SharedStorage"][0]["EfsSettings"].update(IamAuthorization=False),
    "no shared storage": lambda c: c.pop("SharedStorage"),
    "login nodes stopped": lambda c: c["LoginNodes"]["Pools"][0].update(Count=0),
    "one pool of login nodes more": lambda c: c["LoginNodes"]["Pools"].append(
        {**c["LoginNodes"]["Pools"][0], "Name": "second"}
    ),
    "login nodes with another name": lambda c: c["LoginNodes"]["Pools"][0].update(Name="renamed"),
    "login nodes in another subnet": lambda c: c["LoginNodes"]["Pools"][0]["Networking"].update(SubnetIds=["subnet-2"]),
    "other groups of the login nodes": lambda c: c["LoginNodes"]["Pools"][0]["Networking"].update(
        AdditionalSecurityGroups=["sg-2"]
    ),
    "SSH to login nodes from elsewhere": lambda c: c["LoginNodes"]["Pools"][0]["Ssh"].update(AllowedIps="192.0.2.0/24"),
    "a script of the login nodes": lambda c: c["LoginNodes"]["Pools"][0]["CustomActions"]["OnNodeConfigured"].update(
        Args=["x"]
    ),
    "an update script of the login nodes": lambda c: c["LoginNodes"]["Pools"][0]["CustomActions"]["OnNodeUpdated"].update(
        Args=["x"]
    ),
    "a policy of the login nodes": lambda c: c["LoginNodes"]["Pools"][0]["Iam"]["AdditionalIamPolicies"].append(
        {"Policy": "arn:aws:iam::aws:policy/X"}
    ),
    "a grace period of the login nodes": lambda c: c["LoginNodes"]["Pools"][0].update(GracetimePeriod=30),
    "an image of the login nodes": lambda c: c["LoginNodes"]["Pools"][0].update(Image={"CustomAmi": "ami-1"}),
    "time to bootstrap": lambda c: c.update(
        DevSettings={"Timeouts": {"HeadNodeBootstrapTimeout": 3000, "ComputeNodeBootstrapTimeout": 2400}}
    ),
    "an image of all nodes": lambda c: c["Image"].update(CustomAmi="ami-1"),
    "IMDS version 1": lambda c: c["Imds"].update(ImdsSupport="v1.0"),
    "capacity blocks": lambda c: queue(c).update(CapacityType="CAPACITY_BLOCK"),
    "a scratch disk": lambda c: queue(c)["ComputeSettings"]["LocalStorage"].update(EphemeralVolume={"MountDir": "/s"}),
    "another queue's scripts": lambda c: queue(c)["CustomActions"]["OnNodeConfigured"].update(Script="s3://b/other.sh"),
    "no scripts of a queue": lambda c: queue(c).pop("CustomActions"),
    "a tag of a queue": lambda c: queue(c).update(Tags=[{"Key": "k", "Value": "v"}]),
    "a Slurm setting of a queue": lambda c: queue(c).update(CustomSlurmSettings={"Priority": 5}),
    "a Slurm setting of a compute resource": lambda c: resource(c).update(CustomSlurmSettings={"Weight": 5}),
    "schedulable memory": lambda c: resource(c).update(SchedulableMemory=1000),
    "a tag of a compute resource": lambda c: resource(c).update(Tags=[{"Key": "k", "Value": "v"}]),
    "a health check": lambda c: resource(c).update(HealthChecks={"Gpu": {"Enabled": True}}),
    "memory as a resource": lambda c: slurm(c).update(EnableMemoryBasedScheduling=True),
    "another accounting database": lambda c: slurm(c)["Database"].update(Uri="other.example.com:3306"),
    "a policy of the head node": lambda c: c["HeadNode"]["Iam"]["AdditionalIamPolicies"].append(
        {"Policy": "arn:aws:iam::aws:policy/X"}
    ),
    "a bucket for the head node": lambda c: c["HeadNode"]["Iam"].update(S3Access=[{"BucketName": "b"}]),
    "hyperthreads of the head node": lambda c: c["HeadNode"].update(DisableSimultaneousMultithreading=True),
    "logs deleted with the cluster": lambda c: c["Monitoring"]["Logs"]["CloudWatch"].update(DeletionPolicy="Delete"),
    "alarms off": lambda c: c["Monitoring"].update(Alarms={"Enabled": False}),
    "another scaling strategy": lambda c: c["Scheduling"].update(ScalingStrategy="greedy-all-or-nothing"),
}  # fmt: skip


@pytest.fixture(scope="module")
def validator(local_aws: LocalAws) -> PclusterValidator:
    need(installed_version(), f"aws-parallelcluster is not installed ({PCLUSTER_PYTHON}): make setup")
    return local_aws.pcluster_validator


def base() -> Config:
    env = settings.validate(BASE)
    return render(env, ids_for(env))


def agree(validator: PclusterValidator, old: Config, new: Config) -> None:
    """In each state of the cluster, every change that ParallelCluster finds has its verdict, and no other is found."""
    for fleet, logins in itertools.product((True, False), repeat=2):
        ours: dict[str, set[str]] = {}
        for c in changes(old, new, login_running=logins):
            ours.setdefault(c.path, set()).add(c.verdict)
        refused = {"new"} | ({"stop"} if fleet else set()) | ({"stop-login"} if logins else set())
        refused |= {"stop-both"} if fleet or logins else set()
        allowed = {path: not verdicts & refused for path, verdicts in ours.items()}
        theirs: dict[str, bool] = {}
        try:
            for c in validator.check_update(old, new, fleet_running=fleet, login_running=logins):
                theirs[c.path] = theirs.get(c.path, True) and c.allowed
        except ValidatorError as e:  # an exception of its own is a refusal of the whole update
            if "object has no attribute 'get'" not in str(e) or all(allowed.values()):
                raise
            continue
        hidden = {c.path for c in changes(old, new) if c.policy == "IGNORED"}
        assert theirs.keys() == ours.keys() - hidden
        assert theirs == {path: allowed[path] for path in theirs}, (fleet, logins)


def test_there_are_enough_changes() -> None:
    assert len(EDITS) >= 90


@pytest.mark.parametrize("what", EDITS)
def test_one_change(what: str, validator: PclusterValidator) -> None:
    old, new = base(), base()
    EDITS[what](new)
    assert old != new
    agree(validator, old, new)
    agree(validator, new, old)


@pytest.mark.parametrize("what", ["no placement group", "a placement group for one", "fewer nodes", "spot"])
def test_values_as_cloudformation_sends_them(what: str, validator: PclusterValidator) -> None:
    """Text: ParallelCluster takes "false" as true where it looks for a placement group that it created."""
    old, new = base(), base()
    EDITS[what](new)
    agree(validator, stringified(old), stringified(new))
    agree(validator, stringified(new), stringified(old))


@examples(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(picked=st.lists(st.sampled_from(sorted(EDITS)), min_size=2, max_size=6, unique=True))
def test_several_changes_at_once(picked: list[str], validator: PclusterValidator) -> None:
    old, new = base(), base()
    for what in picked:
        try:
            EDITS[what](new)
        except (IndexError, KeyError):  # what it would change, another one took away
            continue
    agree(validator, old, new)


def test_no_change_is_no_change() -> None:
    assert changes(base(), base()) == []
    as_cloudformation_says_it = json.loads(json.dumps(base()), parse_int=str)
    assert changes(base(), as_cloudformation_says_it) == []


def test_every_path_has_parallelclusters_policy() -> None:
    need(installed_version(), f"aws-parallelcluster is not installed ({PCLUSTER_PYTHON}): make setup")
    done = completed(
        [PCLUSTER_PYTHON, "-W", "ignore", "-c", _ALL_PATHS],
        check=True,
        env={"AWS_DEFAULT_REGION": "us-east-1", "HOME": "/nonexistent"},
    )
    theirs: dict[str, Any] = json.loads(done.stdout)
    assert len(theirs) > 300
    record("pcluster-policies", paths=len(theirs))
    assert {path: policy(path) for path in theirs} == {path: rule for path, (rule, _) in theirs.items()}
    from trainium_cdk.catalog.updates import updates

    keys = {path: key for path, (_, key) in theirs.items() if key}
    assert updates().parallelcluster.keys == keys


_ALL_PATHS = """
import json
from marshmallow import fields
from pcluster.schemas.cluster_schema import ClusterSchema
found = {}
def walk(schema, at):
    for name, field in schema.fields.items():
        path = f"{at}.{field.data_key or name}" if at else field.data_key or name
        rule = field.metadata.get("update_policy")
        found[path] = [rule.name, field.metadata.get("update_key")]
        if isinstance(field, fields.Nested):
            walk(field.schema, path + ("[]" if field.many else ""))
walk(ClusterSchema(cluster_name="x"), "")
print(json.dumps(found))
"""

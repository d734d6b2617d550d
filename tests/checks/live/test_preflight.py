"""`trn check` against the local AWS: every check over HTTP, each failing condition separately, and the requests that it may send."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest

from sandbox import LocalAws
from sandbox.pcluster_validator.seed import Seeded, placement_group, reservation, reservation_group
from tests.checks.live.conftest import Trn, report, session, wrong
from tests.credentials import User
from trainium_cdk import settings
from trainium_cdk.client.cli.diff import servers
from trainium_cdk.description.checks.live import Aws, CheckReport, CheckTarget, checks_of, examine, policy, regions
from trainium_cdk.description.checks.live.account import IDENTITY, bootstrap_command
from trainium_cdk.description.checks.live.aws import OPERATIONS

pytestmark = pytest.mark.usefixtures("aws")
EVERY_CHECK = {c for engine in ("slurm", "eks", "pcs") for c in (IDENTITY, *checks_of(engine))}
ZONE = "use1-az6"
TRN_QUOTA, SPOT_QUOTA, STANDARD, ADDRESSES, VPCS = "L-2C3B7624", "L-6B0D517C", "L-1216C47A", "L-0263D0A3", "L-F678F1CE"
NAMES = {"slurm": "TrnPclusterStack", "eks": "TrnEksStack", "pcs": "TrnPcsStack"}


@pytest.mark.parametrize("engine", ["slurm", "eks", "pcs"])
def test_every_check_passes_by_default(trn: Trn, engine: str) -> None:
    done = trn("", NAMES[engine], "--json", "--strict")
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert (found["stack"], found["account"], found["counts"]["error"]) == (NAMES[engine], "000000000000", 0)
    wanted = {c.name for c in checks_of(engine) if c.wanted(CheckTarget(settings.parse(""), engine))}
    silent = {"instance-types"}  # speaks only where EC2 and the catalogue differ
    assert wanted - silent <= {f["check"] for f in found["findings"]}
    assert found["cost"]["known_full_hour"] > found["cost"]["known_idle_hour"] > 0
    assert {"level", "value", "reason", "fix"} <= found["findings"][0].keys()


@pytest.mark.sweep
def test_the_printed_report(trn: Trn, aws: LocalAws) -> None:
    aws.set_answers("quotas", {TRN_QUOTA: 256})
    done = trn("name: mine\npcluster:\n  queues:\n    - compute_resources: [{max_nodes: 4}]\n")
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[0].startswith("TrnPclusterStack-mine in 000000000000, us-east-1, from ")
    assert lines[-2].startswith(
        "error    quota Running On-Demand Trn instances (L-2C3B7624) = 256: 4 x trn1.32xlarge: 512 vCPUs ["
    )
    assert lines[-2].endswith("environment.yaml:4]")
    assert lines[-1].startswith("         Fix: aws service-quotas request-service-quota-increase --service-code ec2")
    assert done.stderr.splitlines()[-1].startswith("1 error, 0 warnings, ")


@pytest.mark.sweep
def test_warnings_fail_only_with_strict(trn: Trn, aws: LocalAws) -> None:
    text = "region: us-east-1\npcluster: {queues: [{compute_resources: [{min_nodes: 1}]}]}"
    assert [trn(text).returncode, trn(text, "--strict").returncode] == [0, 2]
    aws.set_answers("quotas", {TRN_QUOTA: 0})
    assert trn(text, "--strict").returncode == 1


@pytest.mark.parametrize(
    ("code", "engine", "text", "check"),
    [
        (TRN_QUOTA, "slurm", "", "trn-quota-on-demand"),
        (TRN_QUOTA, "eks", "", "trn-quota-on-demand"),
        (SPOT_QUOTA, "slurm", "pcluster: {queues: [{capacity_type: spot}]}", "trn-quota-spot"),
        (STANDARD, "slurm", "", "standard-quota"),
        (ADDRESSES, "eks", "", "address-quota"),
        (VPCS, "slurm", "", "vpc-quota"),
    ],
)
def test_quotas(aws: LocalAws, code: str, engine: str, text: str, check: str) -> None:
    aws.set_answers("quotas", {code: 0})
    found = wrong(report(text, engine))
    assert code in found.pop(check)
    assert found.keys() <= {"service-roles"}  # spot's
    aws.set_answers("quotas", {code: None})  # never requested: the default of a new account applies
    # in an account without VPCs and addresses that other tests left
    alone = {"aws_access_key_id": "222222222222", "aws_secret_access_key": "x"}
    assert (check in wrong(report(text, engine, **alone))) is code.startswith(("L-2C", "L-6B", "L-12"))


@pytest.mark.parametrize(
    ("limit", "text", "engine", "tags", "expected"),
    [
        (31, "", "slurm", {"parallelcluster:cluster-name": "trn-slurm"},
         ("= 31: 1 x c5.4xlarge and 2 x c5.2xlarge: 32 vCPUs, 16 of them running now. Fix", "--desired-value 32 ", "or write pcluster.cpu_queue: null")),
        (32, "", "slurm", {"parallelcluster:cluster-name": "trn-slurm"}, ()),
        (32, "", "slurm", {"aws:cloudformation:stack-name": "TrnPclusterStack"}, ()),
        (32, "", "slurm", {"parallelcluster:cluster-name": "other"}, ("32 vCPUs, and 16 are in use. Fix", "--desired-value 48 ")),
        (32, "pcluster: {cpu_queue: {max_nodes: 4}}", "slurm", {"parallelcluster:cluster-name": "trn-slurm"},
         ("4 x c5.2xlarge: 48 vCPUs, 16 of them running now", "--quota-code L-1216C47A --desired-value 48 ")),
        (15, "pcluster: {cpu_queue: null}", "slurm", {"parallelcluster:cluster-name": "trn-slurm"},
         ("= 15: 1 x c5.4xlarge: 16 vCPUs, 16 of them running now", "--region us-east-1")),
        (16, "pcluster: {cpu_queue: null}", "slurm", {"parallelcluster:cluster-name": "trn-slurm"}, ()),
        (9, "", "pcs", {"trainium-cdk:cluster": "trn-pcs"}, ("16 of them running now", "or write pcs.cpu_queue: null")),
    ],
)  # fmt: skip
def test_an_update_may_add_servers(
    aws: LocalAws, limit: int, text: str, engine: str, tags: dict[str, str], expected: tuple[str, ...]
) -> None:
    """What `trn check` and `trn diff` report of a deployed stack whose head node (16 vCPUs) runs, in an account of its own."""
    aws.set_answers("quotas", {STANDARD: limit})
    keys = {"aws_access_key_id": "555555555555", "aws_secret_access_key": "x"}
    ec2 = session(**keys).client("ec2", region_name="us-east-1")
    spec = [{"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]
    (head,) = ec2.run_instances(InstanceType="c5.4xlarge", MinCount=1, MaxCount=1, TagSpecifications=spec)["Instances"]
    try:
        connection = Aws("us-east-1", session(**keys))
        lines = servers(NAMES[engine], settings.parse(text, "environment.yaml"), connection)
    finally:
        ec2.terminate_instances(InstanceIds=[head["InstanceId"]])
    assert len(lines) == bool(expected)
    for part in expected:
        assert part in lines[0]


def test_nodes_of_other_stacks_count(aws: LocalAws) -> None:
    ec2 = aws.client("ec2")
    aws.set_answers("quotas", {TRN_QUOTA: 2048 + 16})
    launch = partial(ec2.run_instances, InstanceType="trn1.2xlarge", MinCount=3, MaxCount=3)
    ours = {"Key": "parallelcluster:cluster-name", "Value": "trn-slurm"}
    started = [
        i["InstanceId"]
        for tags in ([], [{"ResourceType": "instance", "Tags": [ours]}])
        for i in launch(**({"TagSpecifications": tags} if tags else {}))["Instances"]
    ]
    try:
        assert "and 24 are in use" in wrong(report(""))["trn-quota-on-demand"]
        ec2.terminate_instances(InstanceIds=started[:1])
        assert wrong(report("")) == {}
    finally:
        ec2.terminate_instances(InstanceIds=started)


def test_the_account(trn: Trn, aws: LocalAws) -> None:
    assert (
        "are not for the environment's account 444455556666" in wrong(report("account: '444455556666'"))["credentials"]
    )
    printed = trn("", "--qualifier", "other").stdout
    assert 'cdk bootstrap aws://000000000000/us-east-1 --app "" --qualifier other' in printed
    assert "cdk bootstrap aws://000000000000/us-west-2" in wrong(report("region: us-west-2"))["bootstrap"]
    anonymous = trn(
        "", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_CONFIG_FILE="/dev/null", HOME="/nonexistent"
    )
    assert (anonymous.returncode, anonymous.stderr.count("Traceback")) == (1, 0)
    assert "error    credentials = none: Unable to locate credentials" in anonymous.stdout
    closed = trn("", AWS_ENDPOINT_URL="http://127.0.0.1:1")
    assert closed.stdout.count("Could not connect") == 3  # once for each stack


def test_a_bootstrap_does_not_start_the_app(aws: LocalAws, tmp_path: Path) -> None:
    """The printed command beside shorter ones, which do: also with an address, the CDK's command line synthesises the app of the folder."""
    (tmp_path / "cdk.json").write_text('{"app": "touch started && false"}')
    printed = shlex.split(bootstrap_command(aws.region, "000000000000"))[1:]
    ended = []
    for words in (printed, printed[:2], printed[:1]):
        code = aws.cdk(*words, cwd=tmp_path, check=False).returncode
        ended.append((code, (tmp_path / "started").exists()))
        (tmp_path / "started").unlink(missing_ok=True)
    assert ended == [(0, False), (1, True), (1, True)]


def test_an_existing_stack_needs_no_second_vpc(aws: LocalAws) -> None:
    aws.set_answers("quotas", {VPCS: 0, ADDRESSES: 0, STANDARD: 0})
    name = "TrnPclusterStack-there"
    template = json.dumps({"Resources": {"T": {"Type": "AWS::SNS::Topic"}}})
    assert wrong(report("name: there")).keys() == {"vpc-quota", "address-quota", "standard-quota"}
    cfn = aws.client("cloudformation")
    cfn.create_stack(StackName=name, TemplateBody=template)
    cfn.get_waiter("stack_create_complete").wait(StackName=name)
    try:
        left = wrong(report("name: there"))
        assert "1 x c5.4xlarge and 2 x c5.2xlarge: 32 vCPUs" in left.pop(
            "standard-quota"
        )  # an update may add the CPU queue
        assert left.keys() <= {"vpc-quota", "address-quota"}
        assert all("the stack already has its own" in text for text in left.values())  # others use more than the quota
    finally:
        cfn.delete_stack(StackName=name)
    cfn.create_stack(StackName="there-slurm", TemplateBody=template)
    try:
        assert "ParallelCluster creates a stack with the cluster's name" in wrong(report("name: there"))["stack"]
    finally:
        cfn.delete_stack(StackName="there-slurm")


def test_versions(aws: LocalAws) -> None:
    assert "write pcluster.version: 3.16.1" in wrong(report("pcluster: {version: 3.99.0}"))["parallelcluster"]
    assert "extended support" in wrong(report("eks: {version: '1.33'}", "eks"))["kubernetes"]
    facts = json.loads((aws.directory / "eks-versions.json").read_text())
    del facts["versions"]["1.36"]
    facts["addons"]["vpc-cni"] = ["v1.99.0-eksbuild.1"]
    facts["images"] = []
    aws.set_answers("eks-versions", facts)
    found = wrong(report("", "eks"))
    assert found.keys() == {"kubernetes", "addons", "node-image"}
    assert "eks.addon_versions: {vpc-cni: v1.99.0-eksbuild.1}" in found["addons"]
    aws.set_answers("eks-versions", None)
    ended = [f for f in report("bootstrap: {neuron_release: 2.30.0}").of("warning") if f.rule.startswith("rule ")]
    assert '"PyTorch/XLA is no longer supported for training workloads on Trainium" (AWS, ' in ended[0].reason
    assert "2026-05-20" in ended[0].reason


def test_places(aws: LocalAws) -> None:
    found = wrong(report("network: {zone_ids: [use1-az3]}"))
    assert "this zone does not offer it to this account" in found["offering"]
    found = wrong(report("pcluster: {head: {instance_type: c5.gigantic}}"))
    assert "c5.gigantic for the head node" in found["offering"]
    text = "catalog: {instances: {trn1.32xlarge: {efa_interfaces: 4}}}"
    assert "EC2 reports 8" in wrong(report(text))["instance-types"]


def test_keys_images_roles_and_buckets(aws: LocalAws, made: Seeded) -> None:
    ssh = "pcluster: {head: {subnet: public, ssh: {from_cidrs: [203.0.113.0/24], key_name: KEY}}}"
    assert "does not support rsa keys" in wrong(report(ssh.replace("KEY", made.rsa_key_name)))["key-pair"]
    assert "this key pair does not exist in us-east-1" in wrong(report(ssh.replace("KEY", "missing")))["key-pair"]
    assert wrong(report(ssh.replace("KEY", made.key_name))) == {}
    own = aws.client("ec2", "us-east-1").allocate_address(Domain="vpc")["PublicIp"]
    address = "pcluster: {{head: {{subnet: public, elastic_ip: {}}}}}"
    assert "head-address" not in wrong(report(address.format(own)))
    assert "is not an Elastic IP address of this account" in wrong(report(address.format("192.0.2.1")))["head-address"]
    assert (
        "it does not exist in us-east-1, or this account may not use it"
        in wrong(report("pcluster: {custom_ami: ami-00000000000000bad}"))["images"]
    )
    spot = "pcluster: {queues: [{capacity_type: spot}]}"
    assert "spot.amazonaws.com" in wrong(report(spot))["service-roles"]
    aws.client("iam").create_role(RoleName="AWSServiceRoleForEC2Spot", AssumeRolePolicyDocument="{}")
    try:
        assert wrong(report(spot)) == {}
    finally:
        aws.client("iam").delete_role(RoleName="AWSServiceRoleForEC2Spot")
    linked = "storage: {fsx: {s3_links: [{uri: 's3://BUCKET/train'}]}}"
    assert wrong(report(linked.replace("BUCKET", made.bucket))) == {}
    assert "this bucket does not exist" in wrong(report(linked.replace("BUCKET", "missing-bucket")))["buckets"]


def test_reservations(aws: LocalAws) -> None:
    """Other states of one: test_capacity.py."""
    name = reservation(aws.client, "trn1.32xlarge", 2, "us-east-1f", block=False)
    queue = f"network: {{zone_ids: [{ZONE}]}}\npcluster: {{queues: [{{compute_resources: [{{max_nodes: 2, reservation: ID}}]}}]}}"
    text = queue.replace("ID", name)
    assert wrong(report(text)) == {}
    for fields, words in (
        ({"State": "expired"}, "no instance can start in it"),
        ({"State": "scheduled", "StartDate": "2030-01-01T00:00:00.000Z"}, "it starts 2030-01-01 00:00 UTC"),
    ):
        aws.set_answers("reservations", {name: fields})
        found = wrong(report(text))
        assert (found.keys(), words in found["reservations"]) == ({"reservations"}, True), found
    assert (
        "it does not exist in us-east-1, in this account or shared with it"
        in wrong(report(queue.replace("ID", "cr-00000000000000bad")))["reservations"]
    )


@pytest.mark.sweep
def test_blocks_are_offered_where_none_is_named(trn: Trn, aws: LocalAws) -> None:
    block = {"InstanceType": "trn1.32xlarge", "InstanceCount": 4, "Hours": 24, "AvailabilityZoneId": ZONE}
    aws.set_answers(
        "block-offerings",
        [{**block, "StartInHours": 24, "UpfrontFee": "1200.5"}, {**block, "StartInHours": 48, "UpfrontFee": "960"}],
    )
    text = "pcluster: {queues: [{capacity_type: capacity-block, compute_resources: [{min_nodes: 3, max_nodes: 3}]}]}"
    found = report(text)
    offers = [f for f in found.findings if f.rule == "block-offerings"]
    assert [(f.level, f.value) for f in offers] == [("info", "960 USD"), ("info", "1200.5 USD")]
    assert "4 x trn1.32xlarge in use1-az6 from " in offers[0].reason
    assert found.exit_code() == 1, "the offline rule asks for the id of a block"
    assert "no stack 'Missing'" in trn("", "Missing").stderr


def existing(made: Seeded, ec2: Any) -> str:
    """An environment in the seeded network, with all that can be named there, peered with a second one."""
    other = ec2.create_vpc(CidrBlock="172.31.0.0/16")["Vpc"]["VpcId"]
    table = ec2.create_route_table(VpcId=other)["RouteTable"]["RouteTableId"]
    return f"""\
network:
  existing:
    vpc_id: {made.vpc}
    cidr: 10.0.0.0/16
    private_subnets: [{{id: {made.private_subnet}, zone_id: {ZONE}, cidr: 10.0.16.0/20}}]
    public_subnets: [{{id: {made.public_subnet}, zone_id: {ZONE}}}]
  peerings: [{{vpc_id: {other}, cidr: 172.31.0.0/16, route_tables: [{table}]}}]
storage:
  efs: {{existing: {{id: {made.efs}, security_group: {made.security_group}}}}}
  fsx: {{existing: {{id: {made.fsx}, mount_name: 'MOUNT', security_group: {made.security_group}}}}}
pcluster:
  head: {{subnet: public, ssh: {{from_cidrs: [203.0.113.0/24], key_name: {made.key_name}}}}}
  queues:
    - name: a
      custom_ami: ami-0c2023a1b2c3d4e5f
      compute_resources: [{{max_nodes: 1, reservation: RESERVATION}}]
    - {{name: b, capacity_type: spot}}
    - {{name: c, capacity_type: capacity-block, compute_resources: [{{min_nodes: 1, max_nodes: 1}}]}}
"""


@pytest.fixture(scope="module")
def everything(local_aws: LocalAws, made: Seeded) -> dict[str, str]:
    """Environments that between them want every check."""
    mount = local_aws.client("fsx").describe_file_systems(FileSystemIds=[made.fsx])["FileSystems"][0]
    reserved = reservation(local_aws.client, "trn1.32xlarge", 1, "us-east-1f", block=False)
    text = existing(made, local_aws.client("ec2"))
    text = text.replace("MOUNT", mount["LustreConfiguration"]["MountName"]).replace("RESERVATION", reserved)
    key = local_aws.client("kms").create_key()["KeyMetadata"]["KeyId"]
    secret = local_aws.client("secretsmanager").create_secret(Name="database", SecretString="x", KmsKeyId=key)["ARN"]
    accounting = f"{{uri: 'db:3306', user: slurm, password_secret: '{secret}'}}"
    ec2 = local_aws.client("ec2")
    volume = ec2.create_volume(AvailabilityZone="us-east-1f", Size=10, Encrypted=True)["VolumeId"]
    snapshot = ec2.create_snapshot(VolumeId=volume)["SnapshotId"]
    disk = {"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": snapshot, "VolumeSize": 10}}
    image = ec2.register_image(
        Name="own", Architecture="x86_64", RootDeviceName="/dev/sda1", BlockDeviceMappings=[disk]
    )["ImageId"]
    text = text.replace("ami-0c2023a1b2c3d4e5f", image)
    openzfs, fsx = {"DeploymentType": "SINGLE_AZ_1", "ThroughputCapacity": 64}, local_aws.client("fsx")
    system = fsx.create_file_system(
        FileSystemType="OPENZFS", StorageCapacity=64, SubnetIds=[made.private_subnet], SecurityGroupIds=[made.security_group],
        OpenZFSConfiguration=openzfs,
    )["FileSystem"]["FileSystemId"]  # fmt: skip
    below = {"ParentVolumeId": system.replace("fs-", "fsvol-")}
    files = fsx.create_volume(VolumeType="OPENZFS", Name="x", OpenZFSConfiguration=below)["Volume"]["VolumeId"]
    shared = (
        f"[{{name: more, type: ebs, id: {volume}, mount_dir: /more}}, {{name: files, type: fsx-openzfs, id: {files}, "
        f"mount_dir: /files, security_group: {made.security_group}}}]"
    )
    text = text.replace("pcluster:\n", f"pcluster:\n  accounting: {accounting}\n  shared_storage: {shared}\n")
    address = ec2.allocate_address(Domain="vpc")["PublicIp"]
    text = text.replace("subnet: public,", f"subnet: public, elastic_ip: {address},", 1)
    iam, account = local_aws.client("iam"), "arn:aws:iam::000000000000"
    iam.create_role(RoleName="Lab", Path="/team/", AssumeRolePolicyDocument="{}")
    iam.create_user(UserName="ada")
    sns = local_aws.client("sns")
    topic = sns.create_topic(Name="ops", Attributes={"KmsMasterKeyId": key})["TopicArn"]
    who = f"access: [{{principal: '{account}:role/team/Lab'}}], users: ['{account}:user/ada']"
    linked = f"storage: {{fsx: {{s3_links: [{{uri: 's3://{made.bucket}/x'}}]}}}}\nobservability: {{alarm_topic: '{topic}'}}\neks: {{data_buckets: [{made.bucket}], {who}}}"
    near, pool = placement_group(local_aws.client), reservation_group(local_aws.client, reserved)
    kept = f"{{name: kept, max_nodes: 1, reservation: {reserved}}}"
    pcs = f"""
storage: {{fsx: {{s3_links: [{{uri: 's3://{made.bucket}/x'}}]}}}}
pcs:
  queues:
    - {{name: a, custom_ami: {image}, compute_resources: [{kept}]}}
    - {{name: b, capacity_type: spot}}
    - {{name: c, placement_group: {near}, compute_resources: [{{max_nodes: 1, reservation: '{pool}'}}]}}"""
    return {"slurm": text, "eks": linked, "pcs": pcs}


@pytest.fixture
def customer_key(aws: LocalAws) -> Iterator[str]:
    """As the account's default key of EBS."""
    arn = aws.client("kms").create_key()["KeyMetadata"]["Arn"]
    aws.client("ec2").modify_ebs_default_kms_key_id(KmsKeyId=arn)
    yield arn
    aws.client("ec2").reset_ebs_default_kms_key_id()


def test_existing_resources(everything: dict[str, str], made: Seeded) -> None:
    text = everything["slurm"]
    expected, mount = {"service-roles", "images"}, text.split("mount_name: '")[1].split("'")[0]
    assert wrong(report(text)).keys() == expected, wrong(report(text))
    assert "no tag parallelcluster:version" in wrong(report(text))["images"]
    for old, new, check, words in (
        (made.vpc, "vpc-00000000000000bad", "existing-vpc", "this VPC does not exist"),
        ("10.0.16.0/20", "10.0.32.0/20", "existing-vpc", "write cidr: 10.0.16.0/20"),
        (made.private_subnet, "subnet-00000000000000bad", "existing-vpc", "this subnet does not exist"),
        ("cidr: 172.31.0.0/16", "cidr: 172.16.0.0/16", "peerings", "would not lead to this VPC"),
        (made.efs, "fs-00000000000000bad", "efs", "it does not exist in us-east-1"),
        (made.fsx, "fs-00000000000000bad", "fsx", "it does not exist in us-east-1"),
        (mount, "other", "fsx", f"write mount_name: {mount}"),
    ):
        found = wrong(report(text.replace(old, new)))
        assert words in found.get(check, ""), (check, found)


def test_endpoints_of_a_network_without_internet(made: Seeded, aws: LocalAws) -> None:
    """What is named is created, until nothing is named."""
    ec2 = aws.client("ec2")
    subnet = ec2.create_subnet(VpcId=made.vpc, CidrBlock="10.0.64.0/20", AvailabilityZoneId=ZONE)["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=made.vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    text = existing(made, ec2).partition("    public_subnets")[0].replace(made.private_subnet, subnet)
    text = text.replace("10.0.16.0/20", "10.0.64.0/20") + "    internet: false\n"
    found = wrong(report(text))["existing-vpc"]
    assert "error: VPC endpoints = none: without a NAT gateway nodes cannot reach " in found
    names = found.partition("cannot reach ")[2].partition(".")[0].replace(" and ", ", ").split(", ")
    for name in names:
        interface = {"VpcEndpointType": "Interface", "SubnetIds": [subnet], "PrivateDnsEnabled": True}
        gateway = {"VpcEndpointType": "Gateway", "RouteTableIds": [table]}
        service = f"com.amazonaws.us-east-1.{name}"
        ec2.create_vpc_endpoint(VpcId=made.vpc, ServiceName=service, **(gateway if name == "dynamodb" else interface))
    assert wrong(report(text))["existing-vpc"].count("error") == 1
    assert "nodes need the S3 endpoint" in wrong(report(text))["existing-vpc"]
    s3 = "com.amazonaws.us-east-1.s3"
    ec2.create_vpc_endpoint(VpcId=made.vpc, ServiceName=s3, VpcEndpointType="Gateway", RouteTableIds=[table])
    assert "existing-vpc" not in wrong(report(text))


def test_every_check_queries_the_local_aws(everything: dict[str, str], aws: LocalAws, customer_key: str) -> None:
    """And has an answer from it. One speaks only where EC2 and the catalogue differ: `test_places`."""
    answered: set[str] = set()
    for engine, text in everything.items():
        found = report(text, engine)
        assert not [f for f in found.findings if "could not be checked" in f.reason]
        answered |= {f.rule for f in found.findings}
    answered |= {f.rule for f in report(f"encryption: {customer_key}\neks: {{}}", "eks").findings}
    answered |= wrong(report("catalog: {instances: {trn1.32xlarge: {efa_interfaces: 4}}}")).keys()
    known = {c.name for c in EVERY_CHECK}
    assert known <= answered


class Recorder:
    """A session that notes every API call it makes, by IAM action."""

    def __init__(self, **keys: str) -> None:
        self.actions: set[str] = set()
        self.operations: set[str] = set()
        self.session = boto3.Session(**keys)
        self.session.events.register("before-call", self._note)

    def _note(self, model: Any, **_: Any) -> None:
        self.operations.add(model.name)
        service = model.service_model.service_name
        known = {(s, m.replace("_", "")): action for action, (s, m) in OPERATIONS.items()}
        self.actions.add(known[service, model.name.lower()])


@pytest.mark.usefixtures("customer_key")
@pytest.mark.parametrize("engine", ["slurm", "eks", "pcs"])
def test_it_only_reads_and_the_policy_lists_all_requests(
    everything: dict[str, str], aws: LocalAws, engine: str
) -> None:
    aws.set_answers("quotas", dict.fromkeys((TRN_QUOTA, SPOT_QUOTA, STANDARD, ADDRESSES, VPCS)))
    recorder, target = Recorder(), CheckTarget(settings.parse(everything[engine]), engine)
    examine(target, Aws("us-east-1", recorder.session))
    assert {
        o for o in recorder.operations if not o.startswith(("Describe", "Get", "Head", "List", "Simulate"))
    } == set()  # IAM: access level Read
    allowed = {a for s in policy(target, checks_of(engine))["Statement"] for a in s["Action"]}
    assert allowed == recorder.actions - {"sts:GetCallerIdentity"}


def test_every_action_is_some_checks() -> None:
    """Or one of `trn capacity`."""
    checked = {a for c in EVERY_CHECK for a in c.actions}
    assert checked | {*regions.ACTIONS} == OPERATIONS.keys()


@pytest.fixture
def user(aws: LocalAws) -> Iterator[User]:
    made = User(aws)
    yield made
    made.close()


def without(document: dict[str, Any], action: str) -> dict[str, Any]:
    left = [{**s, "Action": [a for a in s["Action"] if a != action]} for s in document["Statement"]]
    return {**document, "Statement": [s for s in left if s["Action"]]}


@pytest.mark.usefixtures("customer_key")
@pytest.mark.parametrize("engine", ["slurm", "eks", "pcs"])
@pytest.mark.sweep
def test_the_printed_policy_is_enough_and_each_part_is_needed(
    everything: dict[str, str], aws: LocalAws, trn: Trn, user: User, engine: str
) -> None:
    """The user may do what `--print-policy` prints: the report is root's. Without one action, the check that needs it reports that."""
    aws.set_answers("quotas", {VPCS: None, **dict.fromkeys((TRN_QUOTA, SPOT_QUOTA, STANDARD, ADDRESSES))})
    text = everything[engine]
    document = json.loads(trn(text, NAMES[engine], "--print-policy").stdout)
    user.may(document)

    def summary(found: CheckReport) -> list[tuple[str, str, str]]:
        return [(f.rule, f.level, f.what) for f in found.findings]

    whole = report(text, engine, **user.keys)
    assert summary(whole) == summary(report(text, engine))
    assert not [f for f in whole.findings if "could not be checked" in f.reason]
    actions = sorted({a for s in document["Statement"] for a in s["Action"]})
    for action in actions:
        user.may(without(document, action))
        found = report(text, engine, **user.keys)
        hidden = {f.rule for f in found.findings if f.reason.startswith("could not be checked: needs " + action)}
        needing = {
            c.name
            for c in checks_of(engine)
            if action in c.actions and c.wanted(CheckTarget(settings.parse(text), engine))
        }
        assert hidden, action
        assert hidden <= needing
        assert [t for t in summary(found) if t[0] not in needing] == [t for t in summary(whole) if t[0] not in needing]

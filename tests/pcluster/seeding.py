"""Makes in the local AWS what a cluster configuration refers to, as the stack would make it."""

from __future__ import annotations

import json
import uuid
from typing import Any

from sandbox import LocalAws
from sandbox.pcluster_validator.seed import Seeded, reservation, reservation_group, seed
from trainium_cdk.description.cluster_configuration import NO_ADDRESS, ClusterIds, Config, render
from trainium_cdk.description.settings import Environment
from trainium_cdk.description.settings.inventory import inventory
from trainium_cdk.description.settings.reserved import is_group


def configuration(aws: LocalAws, env: Environment) -> Config:
    """The environment's cluster configuration, with ids of things that exist in the local AWS."""
    things = _Things(aws, env)
    text = json.dumps(render(env, things.ids()))
    for elsewhere, here in things.stand_ins().items():
        text = text.replace(elsewhere, here)
    found: Config = json.loads(text)
    return found


class _Things:
    def __init__(self, aws: LocalAws, env: Environment):
        self.aws, self.env = aws, env
        self.zones = tuple(
            dict.fromkeys([*inventory(env, "slurm").zone_ids, *(q.zone_id for q in env.pcluster.queues if q.zone_id)])
        )
        self.base: Seeded = seed(self.client, self.zones[0])
        self.private = {self.zones[0]: self.base.private_subnet}
        for number, zone in enumerate(self.zones[1:], start=2):
            subnet = self.client("ec2").create_subnet(
                VpcId=self.base.vpc, CidrBlock=f"10.0.{16 * number}.0/20", AvailabilityZoneId=zone
            )
            self.private[zone] = subnet["Subnet"]["SubnetId"]
            self.client("efs").create_mount_target(
                FileSystemId=self.base.efs, SubnetId=self.private[zone], SecurityGroups=[self.base.security_group]
            )

    def client(self, service: str) -> Any:
        return self.aws.client(service, self.env.region)

    def ids(self) -> ClusterIds:
        p, base = self.env.pcluster, self.base
        subnets = {"private": base.private_subnet, "public": base.public_subnet}
        ssh = p.head.ssh
        return ClusterIds(
            head_subnet=subnets[p.head.subnet],
            login_subnet=subnets[p.login_nodes.subnet] if p.login_nodes else None,
            queue_subnets={q.name: self.private[q.zone_id or self.zones[0]] for q in p.queues}
            | dict.fromkeys((q.name for q in p.cpu_queues), self.private[self.zones[0]]),
            entry_url=base.script,
            scripts_url=base.script.replace("entry.sh", "0123abcd.zip"),
            pointer="/trainium/cluster/node-scripts",
            policies=(self._policy(),),
            head_policies=(self._policy(),),
            login_policies=(self._policy(),) if p.login_nodes else (),
            security_groups=(base.security_group,),
            head_security_groups=(base.security_group,) if p.accounting else (),
            efs_id=base.efs if self.env.storage.efs else None,
            fsx_id=base.fsx if self.env.storage.fsx else None,
            key_name=base.key_name if ssh else None,
            ssh_source=ssh.from_cidrs[0] if ssh and ssh.from_cidrs else NO_ADDRESS,
        )

    def stand_ins(self) -> dict[str, str]:
        """Reservations, images, secrets and policies exist only in a user's account: they are created here."""
        found: dict[str, str] = {}
        for queue in self.env.pcluster.queues:
            self._placement(queue.existing_group)
            for r in queue.compute_resources:
                if r.reservation:
                    block = queue.capacity_type == "capacity-block"
                    found[r.reservation] = reservation(
                        self.client, r.instance_type, r.max_nodes, self._zone_name(queue.zone_id),
                        block=block, placement=self._placement(queue.existing_group),
                    )  # fmt: skip
                    if is_group(r.reservation):
                        found[r.reservation] = reservation_group(self.client, found[r.reservation])
        if image := self.env.pcluster.custom_ami:
            name = f"aws-parallelcluster-{self.env.catalog.parallelcluster.default}-ubuntu-2404-lts-hvm-x86_64*"
            images = self.client("ec2").describe_images(Owners=["amazon"], Filters=[{"Name": "name", "Values": [name]}])
            found[image] = images["Images"][0]["ImageId"]
        p = self.env.pcluster
        for arn in filter(None, (p.accounting and p.accounting.password_secret, p.directory.get("PasswordSecretArn"))):
            secret = self.client("secretsmanager").create_secret(Name=uuid.uuid4().hex, SecretString="x" * 16)
            found[arn] = secret["ARN"]
        for arn in self.env.pcluster.node_policies:
            found[arn] = self._policy()
        for volume in self.env.pcluster.shared_storage:
            found[volume.id] = self._volume(volume.type)
        return found

    def _placement(self, name: str | None) -> str | None:
        """ARN of the placement group of this name, which is there then; None for no name."""
        if name is None:
            return None
        ec2 = self.client("ec2")
        known = ec2.describe_placement_groups(Filters=[{"Name": "group-name", "Values": [name]}])["PlacementGroups"]
        group = known[0] if known else ec2.create_placement_group(GroupName=name, Strategy="cluster")["PlacementGroup"]
        return str(group["GroupArn"])

    def _zone_name(self, zone_id: str | None) -> str:
        zones = self.client("ec2").describe_availability_zones(ZoneIds=[zone_id or self.zones[0]])
        return str(zones["AvailabilityZones"][0]["ZoneName"])

    def _volume(self, type: str) -> str:
        """A second file system: the nodes' group may reach it."""
        subnet, group = self.base.private_subnet, self.base.security_group
        if type == "efs":
            made: str = self.client("efs").create_file_system(CreationToken=uuid.uuid4().hex)["FileSystemId"]
            self.client("efs").create_mount_target(FileSystemId=made, SubnetId=subnet, SecurityGroups=[group])
            return made
        if type == "fsx-lustre":
            lustre = {"DeploymentType": "SCRATCH_2"}
            system = self.client("fsx").create_file_system(
                FileSystemType="LUSTRE", StorageCapacity=1200, SubnetIds=[subnet], SecurityGroupIds=[group], LustreConfiguration=lustre
            )  # fmt: skip
            return str(system["FileSystem"]["FileSystemId"])
        if type in ("fsx-openzfs", "fsx-ontap"):
            return self._fsx_volume(type.removeprefix("fsx-").upper())
        zone = self._zone_name(None)
        return str(self.client("ec2").create_volume(AvailabilityZone=zone, Size=10, Encrypted=True)["VolumeId"])

    def _fsx_volume(self, kind: str) -> str:
        fsx, subnet, group = self.client("fsx"), self.base.private_subnet, self.base.security_group
        given: dict[str, Any] = {"OntapConfiguration": {"DeploymentType": "SINGLE_AZ_1", "ThroughputCapacity": 128}}
        if kind == "OPENZFS":
            given = {"OpenZFSConfiguration": {"DeploymentType": "SINGLE_AZ_1", "ThroughputCapacity": 64}}
        system = fsx.create_file_system(
            FileSystemType=kind, StorageCapacity=1024, SubnetIds=[subnet], SecurityGroupIds=[group], **given
        )["FileSystem"]["FileSystemId"]
        if kind == "OPENZFS":
            given = {"OpenZFSConfiguration": {"ParentVolumeId": system.replace("fs-", "fsvol-")}}
        else:
            machine = fsx.create_storage_virtual_machine(FileSystemId=system, Name="nodes")["StorageVirtualMachine"]
            of = {"StorageVirtualMachineId": machine["StorageVirtualMachineId"], "JunctionPath": "/data"}
            given = {"OntapConfiguration": of}
        return str(fsx.create_volume(VolumeType=kind, Name="data", **given)["Volume"]["VolumeId"])

    def _policy(self) -> str:
        statement = {"Effect": "Allow", "Action": "ssm:GetParameter", "Resource": "*"}
        made = self.client("iam").create_policy(
            PolicyName=f"nodes-{uuid.uuid4().hex}",
            Path="/parallelcluster/",
            PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [statement]}),
        )
        return str(made["Policy"]["Arn"])

"""Cluster configurations and buckets that give away too much: (YAML, key, part of the message), as in `bad_environments`."""

from __future__ import annotations


def _queue(line: str) -> str:
    """An override of a key of the default queue."""
    return f"""
pcluster:
  overrides:
    Scheduling:
      SlurmQueues:
        - Name: compute1
          {line}  # <-
"""


_AT = "pcluster.overrides.Scheduling.SlurmQueues[0]"
_POLICY = "Policy: arn:aws:iam::111122223333:policy"

CONTROLLED = [
    (
        "pcluster: {overrides: {Region: us-east-1}}  # <-",
        "pcluster.overrides.Region",
        "the stack sets Region itself and relies on it. Fix: use region.",
    ),
    (
        "pcluster: {overrides: {HeadNode: {InstanceType: c5.large}}}  # <-",
        "pcluster.overrides.HeadNode.InstanceType",
        "Fix: use pcluster.head.instance_type.",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Ssh: {AllowedIps: 203.0.113.0/24}}}}  # <-",
        "pcluster.overrides.HeadNode.Ssh.AllowedIps",
        "Fix: use pcluster.head.ssh.from_cidrs.",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Iam: {InstanceRole: arn:aws:iam::111122223333:role/x}}}}  # <-",
        "pcluster.overrides.HeadNode.Iam.InstanceRole",
        "Fix: add policies with Iam.AdditionalIamPolicies: another role has none of the stack's permissions.",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Iam: null}}}  # <-",
        "pcluster.overrides.HeadNode.Iam",
        "Fix: add policies with Iam.AdditionalIamPolicies",
    ),
    (
        _queue("Networking: {AdditionalSecurityGroups: null}"),
        f"{_AT}.Networking.AdditionalSecurityGroups",
        "null would remove the stack's own AdditionalSecurityGroups",
    ),
    (
        _queue("CustomActions: {OnNodeConfigured: {Script: s3://mine/x.sh}}"),
        f"{_AT}.CustomActions.OnNodeConfigured",
        "the stack sets Scheduling.SlurmQueues.CustomActions.OnNodeConfigured itself and relies on it. Fix: use bootstrap.",
    ),
    (
        _queue("CustomActions: {OnNodeConfigured: {Sequence: [{Script: s3://mine/x.sh}]}}"),
        f"{_AT}.CustomActions.OnNodeConfigured",
        "Fix: use bootstrap.",
    ),
    (_queue("CustomActions: null"), f"{_AT}.CustomActions", "Fix: use bootstrap."),
    (
        _queue("ComputeResources: [{Name: trn, Efa: {Enabled: false}}]"),
        f"{_AT}.ComputeResources[0].Efa",
        "Fix: use pcluster.queues[].compute_resources[].efa.",
    ),
    (
        _queue("ComputeResources: [{Name: trn, InstanceType: trn1.2xlarge}]"),
        f"{_AT}.ComputeResources[0].InstanceType",
        "Fix: use pcluster.queues[].compute_resources[].instance_type.",
    ),
    (
        _queue("ComputeResources: [{Name: trn, MaxCount: 64}]"),
        f"{_AT}.ComputeResources[0].MaxCount",
        "Fix: use pcluster.queues[].compute_resources[].max_nodes.",
    ),
    (
        _queue("ComputeResources: [{Name: trm, SchedulableMemory: 1000}]"),
        f"{_AT}.ComputeResources[0].Name",
        "there is no compute resource of this name, and a new one needs InstanceType or Instances. Fix: name trn, or add",
    ),
    (
        "pcluster: {overrides: {Scheduling: {SlurmQueues: [{Name: compute, CapacityType: SPOT}]}}}  # <-",
        f"{_AT}.Name",
        "there is no queue of this name, and a new one needs Networking and ComputeResources. Fix: name compute1, or add",
    ),
    (
        "pcluster: {overrides: {Scheduling: {SlurmQueues: [{HealthChecks: {Gpu: {Enabled: false}}}]}}}  # <-",
        _AT,
        "it has no Name, so that the list would replace the stack's own queues. Fix: add Name: compute1.",
    ),
    (
        _queue(f"Iam: {{AdditionalIamPolicies: [{{{_POLICY}/parallelcluster/ok}}, {{{_POLICY}/data}}]}}"),
        f"{_AT}.Iam.AdditionalIamPolicies[1].Policy",
        "ParallelCluster may only attach policies of the account whose name begins with parallelcluster, and some of AWS's",
    ),
    (
        "pcluster: {node_policies: [arn:aws:iam::111122223333:policy/parallelcluster/ok, arn:aws:iam::111122223333:policy/data]}  # <-",
        "pcluster.node_policies[1]",
        "or allow iam:AttachRolePolicy for it in a policy in pcluster.provider.policies",
    ),
]

VOLUMES = [
    (
        """
pcluster:
  shared_storage:
    - {name: a, type: fsx-ontap, id: fsvol-0123456789abcdef0, mount_dir: /data}
    - {name: b, type: ebs, id: vol-0123456789abcdef0, mount_dir: /data/b}  # <-
""",
        "pcluster.shared_storage[1].mount_dir",
        "it overlaps with /data (a). Fix: choose another directory, for example /b",
    ),
    (
        "pcluster: {shared_storage: [{name: a, type: fsx-openzfs, id: fs-0123456789abcdef0, mount_dir: /efs/a}]}  # <-",
        "pcluster.shared_storage[0]",
        "id is fs-0123456789abcdef0, but a volume of type fsx-openzfs has an id fsvol-...",
    ),
]

TABLE = [
    *CONTROLLED,
    (
        "pcluster: {overrides: {HeadNode: {Ssh: {AllowedIps: 0.0.0.0/0}}}}  # <-",
        "pcluster.overrides.HeadNode.Ssh.AllowedIps",
        "this opens SSH to a large part of the internet. Fix: give your own network, for example "
        "203.0.113.0/24, or use SSM",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Ssh: null}}}  # <-",
        "pcluster.overrides.HeadNode.Ssh",
        "0.0.0.0/0: this opens SSH to a large part of the internet",
    ),
    (
        """
pcluster:
  login_nodes: {}
  overrides:
    LoginNodes:
      Pools:
        - Name: login
          Ssh: {AllowedIps: "::/0"}  # <-
""",
        "pcluster.overrides.LoginNodes.Pools[0].Ssh.AllowedIps",
        "::/0: this opens SSH to a large part of the internet",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Dcv: {Enabled: true}}}}  # <-",
        "pcluster.overrides.HeadNode.Dcv",
        "this opens remote desktops (DCV) to a large part of the internet",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Imds: {Secured: false}}}}  # <-",
        "pcluster.overrides.HeadNode.Imds.Secured",
        "every user of the head node can get its credentials, which allow creating and changing nodes. Fix: remove it",
    ),
    (
        "pcluster: {overrides: {Imds: {ImdsSupport: v1.0}}}  # <-",
        "pcluster.overrides.Imds.ImdsSupport",
        "with version 1, anyone who can make a node send a request can get its credentials",
    ),
    (
        """
pcluster:
  queues: [{name: a, compute_resources: [{name: trn}]}, {name: b, compute_resources: [{name: trn}]}]
  overrides:
    Scheduling:
      SlurmQueues:
        - Name: b
          Iam:
            AdditionalIamPolicies:
              - Policy: arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess
              - Policy: arn:aws:iam::aws:policy/AdministratorAccess  # <-
""",
        "pcluster.overrides.Scheduling.SlurmQueues[0].Iam.AdditionalIamPolicies[1].Policy",
        "every job on these nodes would have full access to the account",
    ),
    (
        """
pcluster:
  overrides:
    HeadNode:
      Iam:
        S3Access:
          - {BucketName: my-data}
          - {BucketName: cdk-hnb659fds-assets-111122223333-us-east-1, EnableWriteAccess: true}  # <-
""",
        "pcluster.overrides.HeadNode.Iam.S3Access[1].BucketName",
        "it contains the CDK's deployment files, and every job could read it. Fix: name a bucket for data",
    ),
    (
        "pcluster: {overrides: {HeadNode: {Iam: {S3Access: [{BucketName: '*'}]}}}}  # <-",
        "pcluster.overrides.HeadNode.Iam.S3Access[0].BucketName",
        "the pattern matches several buckets, and every job could read it",
    ),
    (
        """
pcluster:
  overrides:
    Scheduling:
      SlurmQueues:
        - Name: compute1
          CustomActions: {OnNodeStart: {Sequence: [{Script: s3://b/x}, {Script: http://example.com/x}]}}  # <-
""",
        "pcluster.overrides.Scheduling.SlurmQueues[0].CustomActions.OnNodeStart.Sequence[1].Script",
        "the script runs as root, and without encryption anyone on the network path can change it. Fix: give an s3:// or https:// address",
    ),
    (
        "storage: {fsx: {s3: {uri: s3://cdk-hnb659fds-assets-111122223333-us-east-1/data}}}  # <-",
        "storage.fsx.s3.uri",
        "this bucket contains the CDK's deployment files: a job that can write to it controls what is deployed into the account",
    ),
    (
        "eks: {data_buckets: [mine, cdk-mine-assets-111122223333-eu-north-1]}  # <-",
        "eks.data_buckets[1]",
        "this bucket contains the CDK's deployment files: a job that can write to it controls what is "
        "deployed into the account",
    ),
]

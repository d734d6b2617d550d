"""Cluster configurations and buckets that give away too much: (YAML, key, part of the message), as in `bad_environments`."""

from __future__ import annotations

TABLE = [
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
        - Name: own
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

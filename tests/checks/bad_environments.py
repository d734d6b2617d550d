"""Environments that must be refused, one mistake each: (YAML, key, part of the message).

The line with the mistake, or the nearest one above it that is there, ends in `# <-`: the message must name it.
"""

from __future__ import annotations

from tests.checks import bad_eks, bad_networks, bad_overrides

CAPACITY = [
    (
        """
pcluster:
  queues:
    - compute_resources:
        - instance_type: trn1.32xlrge  # <-
""",
        "pcluster.queues[0].compute_resources[0].instance_type",
        "the catalogue holds no instance type trn1.32xlrge. Fix: write trn1.32xlarge",
    ),
    (
        "pcluster: {queues: [{compute_resources: [{instance_type: p5.48xlarge}]}]}  # <-",
        "pcluster.queues[0].compute_resources[0].instance_type",
        "or describe p5.48xlarge under `catalog.instances`",
    ),
    (
        """
pcluster:
  queues:
    - compute_resources:
        - instance_type: trn1.2xlarge
          max_nodes: 1
          efa: on  # <-
""",
        "pcluster.queues[0].compute_resources[0].efa",
        "trn1.2xlarge has no EFA. Fix: write efa: auto, or choose trn1.32xlarge",
    ),
    (
        """
region: ap-south-2
pcluster:
  queues:
    - purchase: spot  # <-
      compute_resources: [{instance_type: trn2u.48xlarge}]
""",
        "pcluster.queues[0].purchase",
        "trn2u.48xlarge is not sold that way. Fix: write purchase: on-demand or capacity-block, or choose trn1.2xlarge",
    ),
    (
        """
pcluster:
  queues:
    - purchase: capacity-block  # <-
      compute_resources: [{instance_type: trn1n.32xlarge, min_nodes: 2, max_nodes: 2, reservation: cr-0123456789abcdef0}]
""",
        "pcluster.queues[0].purchase",
        "trn1n.32xlarge is not sold that way",
    ),
    (
        """
pcluster:
  queues:
    - purchase: capacity-block  # <-
      compute_resources: [{instance_type: trn1.2xlarge, min_nodes: 1, max_nodes: 1, reservation: cr-0123456789abcdef0}]
""",
        "pcluster.queues[0].purchase",
        "trn1.2xlarge is not sold that way",
    ),
    (
        """
pcluster:
  queues:
    - purchase: capacity-block
      compute_resources:
        - {min_nodes: 4, max_nodes: 4}  # <-
""",
        "pcluster.queues[0].compute_resources[0].reservation",
        "a capacity block is used through its reservation id",
    ),
    (
        """
pcluster:
  queues:
    - purchase: capacity-block
      compute_resources:
        - max_nodes: 4
          min_nodes: 2  # <-
          reservation: cr-0123456789abcdef0
""",
        "pcluster.queues[0].compute_resources[0].min_nodes",
        "all static, but min_nodes is 2 and max_nodes 4. Fix: write min_nodes: 4",
    ),
    (
        """
pcluster:
  queues:
    - purchase: capacity-block
      compute_resources:
        - min_nodes: 65
          max_nodes: 65  # <-
          reservation: cr-0123456789abcdef0
""",
        "pcluster.queues[0].compute_resources[0].max_nodes",
        "one capacity block has 64 instances at most",
    ),
    (
        """
pcluster:
  queues:
    - purchase: spot
      compute_resources:
        - reservation: cr-0123456789abcdef0  # <-
""",
        "pcluster.queues[0].compute_resources[0].reservation",
        "spot instances cannot use a reservation",
    ),
    (
        """
pcluster:
  queues:
    - placement_group: on  # <-
      compute_resources: [{reservation: cr-0123456789abcdef0}]
""",
        "pcluster.queues[0].placement_group",
        "a placement group fails with InsufficientInstanceCapacity",
    ),
]

NEURON = [
    (
        """
bootstrap:
  neuron_release: 2.30.1  # <-
""",
        "bootstrap.neuron_release",
        "the catalogue holds no Neuron SDK release 2.30.1. Fix: write 2.31.1",
    ),
    (
        "bootstrap: {framework: torch-native}  # <-",
        "bootstrap.framework",
        # no release of it trains on trn1, so another framework is the way out
        "torch-native of Neuron 2.33.0 does not train on trn1, only on trn2, trn2u and trn3. "
        "Fix: write bootstrap.framework: torch-xla",
    ),
    (
        "bootstrap: {neuron_release: 2.32.0}  # <-",
        "bootstrap.neuron_release",
        "Neuron 2.32.0 ships no torch-xla for training. Fix: write bootstrap.neuron_release: 2.28.1",
    ),
    (
        "bootstrap: {neuron_release: 2.33.0, framework: torch-xla}  # <-",
        "bootstrap.framework",
        "Neuron 2.33.0 ships no torch-xla for training. Fix: write bootstrap.neuron_release: 2.28.1",
    ),
    (
        """
bootstrap:
  neuron_release: 2.30.0
pcluster:
  os: ubuntu2204  # <-
""",
        "pcluster.os",
        "torch-neuronx 2.9.0.2.14.27725 of Neuron 2.30.0 has wheels for Python 3.11, 3.12 and 3.13; ubuntu2204 has 3.10. "
        "Fix: write bootstrap.neuron_release: 2.28.1",
    ),
    (
        """
region: us-east-2
pcluster:
  os: ubuntu2204  # <-
  queues: [{compute_resources: [{instance_type: trn2.48xlarge}]}]
bootstrap: {framework: torch-native}
""",
        "pcluster.os",
        "torch-neuronx 2.14.3.0 of Neuron 2.33.0 is for ubuntu2404, not for ubuntu2204. Fix: write pcluster.os: ubuntu2404",
    ),
    (
        """
bootstrap:
  neuron_release: 2.33.0
  framework: torch-native  # <-
""",
        "bootstrap.framework",
        "torch-native of Neuron 2.33.0 does not train on trn1, only on trn2, trn2u and trn3",
    ),
    (
        """
bootstrap:
  neuron_release: 2.33.0
  framework: torch-native
  pip_packages: [numpy==1.26.4, "NumPy>=2"]  # <-
region: us-east-2
pcluster: {queues: [{compute_resources: [{instance_type: trn2.48xlarge}]}]}
""",
        "bootstrap.pip_packages[1]",
        "numpy is there already: pip refuses it",
    ),
    (
        "pcluster: {os: alinux2023}  # <-",
        "pcluster.os",
        "needs glibc 2.35 or newer; alinux2023 has 2.34. Fix: write pcluster.os: ubuntu2404",
    ),
    (
        "bootstrap: {framework: none, pip_packages: [numpy]}  # <-",
        "bootstrap.pip_packages",
        "there is no virtual environment to install them into",
    ),
    ("bootstrap: {venv: /efs/../root/venv}  # <-", "bootstrap.venv", "the path leads upwards"),
]

PCLUSTER = [
    (
        "pcluster: {version: 3.9.1}  # <-",
        "pcluster.version",
        "ParallelCluster 3.15.0 is the oldest that takes this configuration. Fix: write 3.16.1",
    ),
    ("pcluster: {os: ubuntu2004}  # <-", "pcluster.os", "Fix: write ubuntu2404"),
    ("pcluster: {os: alinux2}  # <-", "pcluster.os", "Fix: write ubuntu2204 or ubuntu2404"),
    ("pcluster: {os: alinux2}  # <-\nbootstrap: {framework: none}", "pcluster.os", "Fix: write alinux2023"),
    (
        "pcluster: {cluster_name: TrnPclusterStack}  # <-",
        "pcluster.cluster_name",
        "this is the name of ours. Fix: write another, as trn-slurm",
    ),
    (
        """
name: bert
pcluster:
  cluster_name: TrnPclusterStack-bert  # <-
""",
        "pcluster.cluster_name",
        "this is the name of ours. Fix: write another, as bert-slurm",
    ),
    (
        """
pcluster:
  cluster_name: the-cluster-of-the-speech-recognition-group  # <-
  queues: [{name: a}]
  accounting: {uri: "db:3306", user: slurm, password_secret: "arn:aws:secretsmanager:us-east-1:111122223333:secret:s"}
""",
        "pcluster.cluster_name",
        "43 characters; a cluster's name with accounting has 40 at most",
    ),
    (
        "pcluster: {queues: [{compute_resources: [{name: default}]}]}  # <-",
        "pcluster.queues[0].compute_resources[0].name",
        "ParallelCluster reserves this name",
    ),
    (
        "pcluster:\n  queues:  # <-\n" + "".join(f"    - {{name: q{i}}}\n" for i in range(51)),
        "pcluster.queues",
        "a cluster has 50 at most",
    ),
    (
        "pcluster:\n  queues:  # <-\n"
        + "".join(f"    - {{name: q{i}, compute_resources: [{{name: a}}, {{name: b}}]}}\n" for i in range(26)),
        "pcluster.queues",
        "52 compute resources: a cluster has 50 at most, all queues together",
    ),
    (
        "tags:  # <-\n" + "".join(f"  t{i}: x\n" for i in range(41)),
        "tags",
        "41 tags: a cluster has 40 at most",
    ),
    (
        "tags: {aws:owner: me}  # <-",
        "tags.aws:owner",
        "tags that begin with aws: are reserved. Fix: rename it, as my-owner",
    ),
    ("tags: {owner: me & you}  # <-", "tags.owner", "a tag holds letters, digits, spaces and"),
    (
        """
pcluster:
  slurm_settings:
    - {MaxJobCount: 20000}
    - {SuspendTime: 60}  # <-
""",
        "pcluster.slurm_settings[1].SuspendTime",
        "ParallelCluster sets SuspendTime itself, and refuses another value",
    ),
    (
        'pcluster: {slurm_settings: [{Epilogue: "/x\\nProlog=/y"}]}  # <-',
        "pcluster.slurm_settings[0].Epilogue",
        "it does not fit into one line of slurm.conf",
    ),
    (
        "pcluster: {slurm_settings: [{MaxJobCount: 1, SuspendTime: 60}]}  # <-",
        "pcluster.slurm_settings[0]",
        "2 parameters in one line of slurm.conf",
    ),
    (
        "pcluster: {slurm_settings: [{'Max Jobs': 1}]}  # <-",
        "pcluster.slurm_settings[0].Max Jobs",
        "not the name of a Slurm parameter",
    ),
    (
        "pcluster: {slurm_settings: [{NodeName: own-st-node-1, CPUs: 4}]}  # <-",
        "pcluster.slurm_settings[0].NodeName",
        "-st- and -dy- mark nodes that ParallelCluster manages",
    ),
    (
        "pcluster: {overrides: {HeadNodes: {}}}  # <-",
        "pcluster.overrides.HeadNodes",
        "a cluster configuration has no such section. Fix: write HeadNode",
    ),
    (
        """
pcluster:
  accounting:
    uri: db.example.com:99999  # <-
    user: slurm
    password_secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:s
""",
        "pcluster.accounting.uri",
        "there is no port 99999. Fix: write 3306",
    ),
    (
        """
pcluster:
  accounting:
    uri: db:3306
    user: slurm
    password_secret: arn:aws:secretsmanager:eu-west-1:111122223333:secret:s  # <-
""",
        "pcluster.accounting.password_secret",
        "the secret is in eu-west-1, the cluster in us-east-1",
    ),
    (
        """
account: "444455556666"
pcluster:
  accounting:
    uri: db:3306
    user: slurm
    password_secret: arn:aws:secretsmanager:us-east-1:111122223333:secret:s  # <-
""",
        "pcluster.accounting.password_secret",
        "the secret is of account 111122223333, the cluster of 444455556666",
    ),
    (
        """
pcluster:
  accounting:
    uri: db:3306
    user: slurm
    password_secret: arn:aws-cn:secretsmanager:us-east-1:111122223333:secret:s  # <-
""",
        "pcluster.accounting.password_secret",
        "it is of partition aws-cn, but us-east-1 is of aws",
    ),
    (
        """
pcluster:
  accounting:
    uri: db:3306
    user: slurm
    password_secret: arn:aws:ssm:us-east-1:111122223333:parameter/slurm  # <-
""",
        "pcluster.accounting.password_secret",
        "this is an ARN of ssm",
    ),
]

NODES = [
    (
        "pcluster: {head: {instance_type: t3.small}}  # <-",
        "pcluster.head.instance_type",
        "too small for Slurm's controller",
    ),
    (
        "pcluster: {head: {instance_type: c7g.4xlarge}}  # <-",
        "pcluster.head.instance_type",
        "this is an Arm type, but Trainium nodes are x86_64",
    ),
    (
        "pcluster: {login_nodes: {subnet: public}}  # <-",
        "pcluster.login_nodes.subnet",
        "ParallelCluster gives login nodes no public address, and neither do this network's public subnets",
    ),
    (
        "pcluster: {login_nodes: {instance_type: im4gn.large}}  # <-",
        "pcluster.login_nodes.instance_type",
        "this is an Arm type",
    ),
    (
        "pcluster: {head: {instance_type: trn1.32xlarge}}  # <-",
        "pcluster.head.instance_type",
        "its accelerators would be paid for nothing (21.50 USD an hour)",
    ),
    (
        "pcluster: {head: {instance_type: c5.large}, queues: [{compute_resources: [{max_nodes: 100}]}]}  # <-",
        "pcluster.head.instance_type",
        "it has 4 GiB of memory, and ParallelCluster asks for 4.6 GiB to manage 100 nodes",
    ),
    (
        "pcluster: {head: {root_volume_gib: 40}}  # <-",
        "pcluster.head.root_volume_gib",
        "ParallelCluster's image has 45 GiB, and a volume cannot be smaller",
    ),
    (
        """
pcluster:
  version: 3.16.3
  queues: [{root_volume_gib: 45}]  # <-
""",
        "pcluster.queues[0].root_volume_gib",
        "ParallelCluster's image has 50 GiB, and a volume cannot be smaller. Fix: write 50",
    ),
]

STORAGE = [
    (
        """
storage: {efs: {mount_dir: /shared}}
pcluster:
  queues:
    - scratch_dir: /shared/local  # <-
""",
        "pcluster.queues[0].scratch_dir",
        "it and the shared file system at /shared mount over each other",
    ),
    (
        """
storage:
  efs:
    backups: true  # <-
    existing: {id: fs-0123456789abcdef0}
""",
        "storage.efs.backups",
        "it does not apply to fs-0123456789abcdef0, which exists already",
    ),
    (
        """
storage:
  fsx:
    existing: {id: fs-0123456789abcdef0, mount_name: abcdefgh}
    s3: {uri: "s3://bucket"}  # <-
""",
        "storage.fsx.s3",
        "it does not apply to fs-0123456789abcdef0",
    ),
]

_KEY = "key/12345678-1234-1234-1234-123456789012"
ENCRYPTION = [
    (
        f"encryption: arn:aws:kms:eu-west-1:111122223333:{_KEY}  # <-",
        "encryption",
        "the key is in eu-west-1, the environment in us-east-1",
    ),
    (
        f"""
account: "999999999999"
encryption: arn:aws:kms:us-east-1:111122223333:{_KEY}  # <-
""",
        "encryption",
        "the key is account 111122223333's, the environment is deployed into 999999999999",
    ),
]

TABLE = [
    *CAPACITY,
    *NEURON,
    *bad_networks.TABLE,
    *PCLUSTER,
    *bad_overrides.TABLE,
    *NODES,
    *STORAGE,
    *ENCRYPTION,
    *bad_eks.TABLE,
]
SHAPE = [
    ("encryption: yes-please  # <-", "encryption", "neither a way of encryption nor the ARN of a KMS key"),
    ("encryption: arn:aws:kms:us-east-1:111122223333:alias/mine  # <-", "encryption", "aliases are not taken"),
    *bad_eks.SHAPE,
]
"""Those that are no environment at all."""

"""Environments that must be refused, one mistake each: (YAML, key, part of the message).

The line with the mistake, or the nearest one above it that is there, ends in `# <-`: the message must name it.
"""

from __future__ import annotations

from tests.checks import bad_eks, bad_networks, bad_overrides, bad_pcs

CAPACITY = [
    (
        """
pcluster:
  queues:
    - compute_resources:
        - instance_type: trn1.32xlrge  # <-
""",
        "pcluster.queues[0].compute_resources[0].instance_type",
        "the catalogue has no instance type trn1.32xlrge. Fix: write trn1.32xlarge",
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
    - capacity_type: spot  # <-
      compute_resources: [{instance_type: trn2u.48xlarge}]
""",
        "pcluster.queues[0].capacity_type",
        "trn2u.48xlarge is not available with this capacity type. Fix: write capacity_type: on-demand or capacity-block, or choose trn1.2xlarge",
    ),
    (
        """
pcluster:
  queues:
    - capacity_type: capacity-block  # <-
      compute_resources: [{instance_type: trn1n.32xlarge, min_nodes: 2, max_nodes: 2, reservation: cr-0123456789abcdef0}]
""",
        "pcluster.queues[0].capacity_type",
        "trn1n.32xlarge is not available with this capacity type",
    ),
    (
        """
pcluster:
  queues:
    - capacity_type: capacity-block  # <-
      compute_resources: [{instance_type: trn1.2xlarge, min_nodes: 1, max_nodes: 1, reservation: cr-0123456789abcdef0}]
""",
        "pcluster.queues[0].capacity_type",
        "trn1.2xlarge is not available with this capacity type",
    ),
    (
        """
pcluster:
  queues:
    - capacity_type: capacity-block
      compute_resources:
        - {min_nodes: 4, max_nodes: 4}  # <-
""",
        "pcluster.queues[0].compute_resources[0].reservation",
        "a capacity block needs its reservation id",
    ),
    (
        """
pcluster:
  queues:
    - capacity_type: capacity-block
      compute_resources:
        - max_nodes: 4
          min_nodes: 2  # <-
          reservation: cr-0123456789abcdef0
""",
        "pcluster.queues[0].compute_resources[0].min_nodes",
        "all nodes of a capacity block are static, but min_nodes is 2 and max_nodes 4. Fix: write min_nodes: 4",
    ),
    (
        """
pcluster:
  queues:
    - capacity_type: capacity-block
      compute_resources:
        - min_nodes: 65
          max_nodes: 65  # <-
          reservation: cr-0123456789abcdef0
""",
        "pcluster.queues[0].compute_resources[0].max_nodes",
        "one capacity block has at most 64 instances",
    ),
    (
        """
pcluster:
  queues:
    - capacity_type: spot
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
        "the catalogue has no Neuron SDK release 2.30.1. Fix: write 2.31.1",
    ),
    (
        "bootstrap: {framework: torch-native}  # <-",
        "bootstrap.framework",
        # no release of it trains on trn1, so another framework is the way out
        "torch-native of Neuron 2.33.0 does not support training on trn1, only on trn2, trn2u and trn3. "
        "Fix: write bootstrap.framework: torch-xla",
    ),
    (
        "bootstrap: {neuron_release: 2.32.0}  # <-",
        "bootstrap.neuron_release",
        "Neuron 2.32.0 has no torch-xla for training. Fix: write bootstrap.neuron_release: 2.28.1",
    ),
    (
        "bootstrap: {neuron_release: 2.33.0, framework: torch-xla}  # <-",
        "bootstrap.framework",
        "Neuron 2.33.0 has no torch-xla for training. Fix: write bootstrap.neuron_release: 2.28.1",
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
        "torch-native of Neuron 2.33.0 does not support training on trn1, only on trn2, trn2u and trn3",
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
        "numpy is listed twice, which pip rejects",
    ),
    (
        "pcluster: {os: alinux2023}  # <-",
        "pcluster.os",
        "needs glibc 2.35 or newer; alinux2023 has 2.34. Fix: write pcluster.os: ubuntu2404",
    ),
    (
        "bootstrap: {framework: none, pip_packages: [numpy]}  # <-",
        "bootstrap.pip_packages",
        "with framework: none there is no virtual environment in which to install them",
    ),
    ("bootstrap: {venv: /efs/../root/venv}  # <-", "bootstrap.venv", "the path contains"),
]

PCLUSTER = [
    (
        "pcluster: {version: 3.9.1}  # <-",
        "pcluster.version",
        "ParallelCluster 3.15.0 or newer. Fix: write 3.16.1",
    ),
    ("pcluster: {os: ubuntu2004}  # <-", "pcluster.os", "Fix: write ubuntu2404"),
    ("pcluster: {os: alinux2}  # <-", "pcluster.os", "Fix: write ubuntu2204 or ubuntu2404"),
    ("pcluster: {os: alinux2}  # <-\nbootstrap: {framework: none}", "pcluster.os", "Fix: write alinux2023"),
    (
        "pcluster: {cluster_name: TrnPclusterStack}  # <-",
        "pcluster.cluster_name",
        "ParallelCluster creates a stack with the cluster's name, and our stack already has this name. Fix: "
        "write another name, for example",
    ),
    (
        """
name: bert
pcluster:
  cluster_name: TrnPclusterStack-bert  # <-
""",
        "pcluster.cluster_name",
        "ParallelCluster creates a stack with the cluster's name, and our stack already has this name. Fix: "
        "write another name, for example",
    ),
    (
        """
pcluster:
  cluster_name: the-cluster-of-the-speech-recognition-group  # <-
  queues: [{name: a}]
  accounting: {uri: "db:3306", user: slurm, password_secret: "arn:aws:secretsmanager:us-east-1:111122223333:secret:s"}
""",
        "pcluster.cluster_name",
        "it has 43 characters; a cluster's name with accounting may have at most 40",
    ),
    (
        "pcluster: {queues: [{compute_resources: [{name: default}]}]}  # <-",
        "pcluster.queues[0].compute_resources[0].name",
        "ParallelCluster reserves this name",
    ),
    (
        "pcluster:\n  queues:  # <-\n" + "".join(f"    - {{name: q{i}}}\n" for i in range(51)),
        "pcluster.queues",
        "a cluster can have at most 50 queues",
    ),
    (
        "pcluster:\n  queues:  # <-\n"
        + "".join(f"    - {{name: q{i}, compute_resources: [{{name: a}}, {{name: b}}]}}\n" for i in range(26)),
        "pcluster.queues",
        "a cluster can have at most 50 compute resources in all queues together",
    ),
    (
        "tags:  # <-\n" + "".join(f"  t{i}: x\n" for i in range(40)),
        "tags",
        "a cluster can have at most 39 tags",
    ),
    (
        "tags: {aws:owner: me}  # <-",
        "tags.aws:owner",
        "tags that begin with aws: are reserved. Fix: rename it, for example to my-owner",
    ),
    (
        "tags: {owner: me & you}  # <-",
        "tags.owner",
        "a tag may only contain letters, digits, spaces and _ . : / = + - @",
    ),
    (
        """
pcluster:
  slurm_settings:
    - {MaxJobCount: 20000}
    - {SuspendTime: 60}  # <-
""",
        "pcluster.slurm_settings[1].SuspendTime",
        "ParallelCluster sets SuspendTime itself and rejects another value",
    ),
    (
        'pcluster: {slurm_settings: [{Epilogue: "/x\\nProlog=/y"}]}  # <-',
        "pcluster.slurm_settings[0].Epilogue",
        "it contains a character that is not allowed in slurm.conf",
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
        "-st- and -dy- are reserved for nodes that ParallelCluster manages",
    ),
    (
        "pcluster: {overrides: {HeadNodes: {}}}  # <-",
        "pcluster.overrides.HeadNodes",
        "a cluster configuration does not have this section. Fix: write HeadNode",
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
        "99999 is not a valid port. Fix: write 3306, MySQL's default",
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
        "the secret is in eu-west-1, but the cluster is in us-east-1",
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
        "the secret is in account 111122223333, but the cluster is in 444455556666",
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
        "it is in partition aws-cn, but us-east-1 is in aws",
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
        "ParallelCluster does not give login nodes public addresses, and neither do this network's public subnets",
    ),
    (
        "pcluster: {login_nodes: {instance_type: im4gn.large}}  # <-",
        "pcluster.login_nodes.instance_type",
        "this is an Arm type",
    ),
    (
        "pcluster: {head: {instance_type: trn1.32xlarge}}  # <-",
        "pcluster.head.instance_type",
        "this node does not train: its accelerators would cost money without use (21.50 USD an hour)",
    ),
    (
        "pcluster: {head: {instance_type: c5.large}, queues: [{compute_resources: [{max_nodes: 100}]}]}  # <-",
        "pcluster.head.instance_type",
        "it has 4 GiB of memory, but ParallelCluster needs 4.6 GiB to manage 100 nodes",
    ),
    (
        "pcluster: {head: {root_volume_gib: 40}}  # <-",
        "pcluster.head.root_volume_gib",
        "ParallelCluster's image needs a root volume of at least 45 GiB",
    ),
    (
        """
pcluster:
  version: 3.16.3
  queues: [{root_volume_gib: 45}]  # <-
""",
        "pcluster.queues[0].root_volume_gib",
        "ParallelCluster's image needs a root volume of at least 50 GiB. Fix: write 50",
    ),
]

STORAGE = [
    (
        """
storage: {efs: {mount_dir: /shared}}
pcluster:
  queues:
    - local_storage_dir: /shared/local  # <-
""",
        "pcluster.queues[0].local_storage_dir",
        "it overlaps with the mount directory of the shared file system, /shared",
    ),
    (
        """
storage:
  efs:
    backups: true  # <-
    existing: {id: fs-0123456789abcdef0}
""",
        "storage.efs.backups",
        "it has no effect on fs-0123456789abcdef0, which already exists",
    ),
    (
        """
storage:
  fsx:
    existing: {id: fs-0123456789abcdef0, mount_name: abcdefgh}
    s3: {uri: "s3://bucket"}  # <-
""",
        "storage.fsx.s3",
        "it has no effect on fs-0123456789abcdef0",
    ),
]

_KEY = "key/12345678-1234-1234-1234-123456789012"
ENCRYPTION = [
    (
        f"encryption: arn:aws:kms:eu-west-1:111122223333:{_KEY}  # <-",
        "encryption",
        "the key is in eu-west-1, but the environment is in us-east-1",
    ),
    (
        f"""
account: "999999999999"
encryption: arn:aws:kms:us-east-1:111122223333:{_KEY}  # <-
""",
        "encryption",
        "the key is in account 111122223333, but the environment is deployed into 999999999999",
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
    *bad_pcs.TABLE,
    bad_overrides.VOLUMES[0],
]
SHAPE = [
    bad_overrides.VOLUMES[1],
    (
        "encryption: yes-please  # <-",
        "encryption",
        "neither an encryption mode nor the ARN of a KMS key (key aliases are not accepted)",
    ),
    (
        "encryption: arn:aws:kms:us-east-1:111122223333:alias/mine  # <-",
        "encryption",
        "neither an encryption mode nor the ARN of a KMS key (key aliases are not accepted)",
    ),
    *bad_eks.SHAPE,
    *bad_pcs.SHAPE,
]
"""Those that are no environment at all."""
